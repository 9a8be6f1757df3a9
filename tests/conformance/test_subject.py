"""Subjects: the doors they come in by, what they may leave out, and what is said when they cannot be judged."""

import sys
import types

import numpy as np
import pytest

import refnum
from conformance.calling.call import NO_ROOM, call, other_data, replay_in_place
from conformance.calling.libraries import share_memory, to_library, to_numpy, with_gaps
from conformance.case import Case
from conformance.choose import choose
from conformance.doors import entrances
from conformance.doors.entrances import from_file
from conformance.operation import call_golden
from conformance.subject import Broken, Subject, arguments_for, from_dict
from conformance.verdict import Outcome
from refnum.errors import ArgumentError, FileError, ProfileError, UnsupportedError


def case(profile="HOPPER", **params):
    x = np.zeros((2, 32), np.float32)
    x[:, 0] = 6.0
    return Case("quantize_mxfp4", profile, {"input": "float32", **params}, {"x": x})


def plain_kernel(x):
    return refnum.quantize_mxfp4(x)


@pytest.mark.parametrize(
    ("entry", "error", "words"),
    [
        ({"operations": {}}, ArgumentError, "needs a `name`"),
        ({"name": "k"}, ArgumentError, "needs a `name`"),
        ({"name": "k", "operations": {"quantise": plain_kernel}}, ArgumentError, "unknown operations"),
        ({"name": "k", "operations": {}}, ArgumentError, "nothing to judge"),
        ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, "kind": "toy"}, ArgumentError, "kind 'toy'"),
        ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, "colour": 1}, ArgumentError, "unknown keys"),
        (3, ArgumentError, "from somewhere is int; give a dict"),
        ({"name": "k", "operations": {"quantize_mxfp4": 3}}, ArgumentError, "has int as quantize_mxfp4; give a"),
        *(
            ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, **said}, ArgumentError, words)
            for said, words in (
                ({"levels": [1]}, r"has levels=\[1\]; give a dict, operation -> level"),
                ({"profiles": 3}, "has profiles=3; give their names"),
                ({"arrays": "tensorflow"}, "has arrays='tensorflow'; choose from numpy, cupy"),
                ({"supports": "no"}, "has supports='no'; give a function"),
            )
        ),
        ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, "profiles": ["NOPE"]}, ProfileError, "NOPE"),
        *(
            ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, **claim}, ArgumentError, "is 0 to 4")
            for claim in ({"level": 5}, {"level": -1}, {"level": True}, {"level": "2"}, {"levels": {"encode_e2m1": 9}})
        ),
    ],
)
def test_a_malformed_subject_is_refused_in_words(entry, error, words):
    with pytest.raises(error, match=words):
        from_dict(entry, "somewhere")


def test_a_callable_without_profile_is_judged_by_one_profile():
    unclaimed = Subject("k", {"quantize_mxfp4": plain_kernel})
    assert unclaimed.profiles_for("quantize_mxfp4") == ("HOPPER",)
    assert unclaimed.refuses("quantize_mxfp4", "OCP", {}) == ""  # the user says which one it implements
    claimed = Subject("k", {"quantize_mxfp4": plain_kernel}, profiles=("OCP", "HOPPER"))
    assert claimed.profiles_for("quantize_mxfp4") == ("OCP", "HOPPER")  # a claim that cannot be judged is not dropped
    assert "takes no `profile`" in claimed.refuses("quantize_mxfp4", "HOPPER", {})
    assert "claims OCP" in Subject("k", {"quantize_mxfp4": plain_kernel}, profiles=("OCP",)).refuses(
        "quantize_mxfp4", "HOPPER", {}
    )
    both = Subject("k", {"quantize_mxfp4": refnum.quantize_mxfp4})
    assert both.profiles_for("quantize_mxfp4") == ("HOPPER", "OCP")


def test_a_parameter_that_is_not_taken_is_judged_at_its_default_only():
    subject = Subject("k", {"mxfp4_to_fp8": lambda packed, scales: None})
    assert subject.refuses("mxfp4_to_fp8", "HOPPER", {"scale": "max"}) == ""
    assert "only scale=max" in subject.refuses("mxfp4_to_fp8", "HOPPER", {"scale": "amax"})


def test_arguments_leave_out_what_is_not_taken_and_refuse_what_matters():
    subject = Subject("k", {"quantize_mxfp4": plain_kernel})
    given = case()
    assert set(arguments_for(subject, given, given.inputs)) == {"x"}
    with_bits = given.with_inputs({"rbits": np.zeros((2, 32), np.uint8)})
    with pytest.raises(UnsupportedError, match="takes no 'rbits'"):
        arguments_for(subject, with_bits, with_bits.inputs)
    columns = Subject("k", {"fp8_columns": lambda codes, scales: None})
    codes = {"codes": np.zeros((2, 32), np.uint8), "scales": np.zeros((2, 1), np.uint8)}
    split = Case("fp8_columns", "HOPPER", {"underflow": "rne", "splits": [1, 1]}, codes)
    with pytest.raises(UnsupportedError, match="takes no 'splits'"):
        arguments_for(columns, split, codes)
    whole = Case("fp8_columns", "HOPPER", {"underflow": "rne", "splits": None}, codes)
    assert set(arguments_for(columns, whole, codes)) == {"codes", "scales"}


def test_a_profiled_callable_is_given_the_profile():
    subject = Subject("k", {"quantize_mxfp4": lambda x, profile: profile})
    assert arguments_for(subject, case("OCP"), {})["profile"] is refnum.OCP


FILE = """
import refnum

def quantize_mxfp4(x, profile):
    return refnum.quantize_mxfp4(x, profile)

def mine(x, profile):
    return refnum.quantize_mxfp4(x, profile)
mine.operation = "quantize_mxfp4"

stranger = print
table = {"quantize_mxfp4": mine}
whole = {"name": "w", "operations": {"quantize_mxfp4": mine}, "level": 1}
"""


@pytest.mark.parametrize(
    ("name", "subject_name", "level"),
    [
        ("", "kernels", 0),
        (":quantize_mxfp4", "quantize_mxfp4", 0),
        (":mine", "mine", 0),
        (":table", "table", 0),
        (":whole", "w", 1),
    ],
)
def test_a_file_gives_functions_tables_and_subjects(tmp_path, name, subject_name, level):
    path = tmp_path / "kernels.py"
    path.write_text(FILE)
    (subject,) = from_file(f"{path}{name}")
    assert (subject.name, subject.level, list(subject.operations)) == (subject_name, level, ["quantize_mxfp4"])
    assert subject.origin == f"{path}{name}" and call(subject, case()).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("text", "suffix", "error", "words"),
    [
        (FILE, ":absent", ArgumentError, "has no 'absent'"),
        (FILE, ":stranger", ArgumentError, "not named like an operation"),
        ("x = 1", "", ArgumentError, "no function named like an operation"),
        ("raise ImportError('no cuda')", "", FileError, "failed to import: ImportError: no cuda"),
        ("def (", "", FileError, "failed to import: SyntaxError"),
    ],
)
def test_a_bad_file_is_refused_in_words(tmp_path, text, suffix, error, words):
    path = tmp_path / "kernels.py"
    path.write_text(text)
    with pytest.raises(error, match=words):
        from_file(f"{path}{suffix}")


def test_a_missing_file_is_a_file_error(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        from_file(str(tmp_path / "absent.py"))


def entry_point(load, name="point"):
    return types.SimpleNamespace(name=name, value=f"{name}:subjects", load=load)


def fail():
    raise ImportError("libcuda.so.1: cannot open shared object file")


def test_a_broken_entry_point_does_not_stop_the_others(monkeypatch):
    good = entry_point(lambda: lambda: [{"name": "good", "operations": {"quantize_mxfp4": plain_kernel}}], "b")
    listed = lambda: ["not a subject"]  # noqa: E731
    monkeypatch.setattr(
        entrances.importlib.metadata,
        "entry_points",
        lambda group: [entry_point(fail, "a"), good, entry_point(lambda: listed, "c")],
    )
    found, broken = entrances.installed()
    assert [subject.name for subject in found] == ["good"]
    assert [name for name, _ in broken] == ["a", "c"] and "libcuda" in broken[0][1]


def three(monkeypatch):
    def entry(name, kind, usable=True):
        return {
            "name": name,
            "kind": kind,
            "operations": {"quantize_mxfp4": plain_kernel},
            "available": lambda: (usable, "" if usable else "no GPU"),
        }

    entries = [entry("ours", "host"), entry("fast", "gpu", False), entry("theirs", "peer")]
    monkeypatch.setattr(
        entrances.importlib.metadata, "entry_points", lambda group: [entry_point(lambda: lambda: entries)]
    )
    monkeypatch.setattr(entrances, "peers", lambda: ([], []))


def test_the_default_choice_is_every_usable_kernel_and_no_peer(monkeypatch):
    three(monkeypatch)
    chosen = choose(None)
    assert [item.name for item in chosen.usable] == ["ours"]
    assert [(item.name, reason) for item, reason in chosen.unusable] == [("fast", "no GPU")]
    assert [record["available"] for record in chosen.records()] == [True, False]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["peers"], ["theirs"]),
        (["all"], ["model", "ours", "theirs"]),
        (["host"], ["ours"]),
        (["th*"], ["theirs"]),
        (["model"], ["model"]),
        (["ours", "ours", "host"], ["ours"]),
    ],
)
def test_choices_by_name_kind_and_pattern(monkeypatch, names, expected):
    three(monkeypatch)
    assert sorted(item.name for item in choose(names).usable) == expected


def test_a_name_that_selects_nothing_is_an_error_that_lists_the_known(monkeypatch):
    three(monkeypatch)
    with pytest.raises(ArgumentError, match="named 'nobody'; known are fast, model, model-cupy, ours, theirs"):
        choose(["nobody"])


def test_an_availability_probe_that_raises_makes_a_subject_unusable():
    chosen = choose.__globals__["Choice"]()
    chosen.add([Subject("k", {"quantize_mxfp4": plain_kernel}, available=fail)])
    assert "libcuda" in chosen.unusable[0][1]


# --- calls ----------------------------------------------------------------------------------------------------


def judged(function, given=None):
    return call(Subject("k", {"quantize_mxfp4": function}), given or case(), seconds=0.3)


def test_inputs_are_fresh_copies_each_time():
    seen = []

    def keep(x):
        seen.append(x)
        return refnum.quantize_mxfp4(x)

    given = case()
    assert judged(keep, given).outcome is judged(keep, given).outcome is Outcome.PASS
    assert seen[0] is not seen[1] and not np.shares_memory(seen[0], given.inputs["x"]) and seen[0].flags.writeable


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("boom"), Outcome.FAULT),
        (NotImplementedError("later"), Outcome.UNSUPPORTED),
        (UnsupportedError("no GPU"), Outcome.UNSUPPORTED),
        (MemoryError(), Outcome.FAULT),
        (type("CompileException", (Exception,), {})("ptxas"), Outcome.COMPILE_ERROR),
    ],
)
def test_what_a_subject_raises_becomes_an_outcome(error, outcome):
    def kernel(x):
        raise error

    called = judged(kernel)
    assert called.outcome is outcome and str(error) in called.words


@pytest.mark.parametrize("error", [MemoryError("4 GiB"), type("OutOfMemoryError", (RuntimeError,), {})("CUDA")])
def test_want_of_memory_is_the_subject_s_fault_only_on_a_small_case_where_there_is_memory(monkeypatch, error):
    def kernel(x):
        raise error

    large = Case("quantize_mxfp4", "HOPPER", {}, {"x": np.zeros((4097, 128), np.float32)})
    assert judged(kernel).outcome is Outcome.FAULT
    called = judged(kernel, large)
    assert called.outcome is Outcome.UNSUPPORTED and called.words.startswith(NO_ROOM)
    monkeypatch.setattr("conformance.calling.call.to_library", exhausted)
    assert judged(kernel).outcome is Outcome.UNSUPPORTED


def exhausted(*_, **__):
    raise MemoryError


@pytest.mark.parametrize("room", ["lay_out", "_kept_contract", "to_numpy"])
def test_want_of_memory_outside_of_the_subject_is_no_verdict(monkeypatch, room):
    monkeypatch.setattr(f"conformance.calling.call.{room}", exhausted)
    called = judged(refnum.quantize_mxfp4)
    assert called.outcome is Outcome.UNSUPPORTED and called.words.startswith(NO_ROOM)


def test_ctrl_c_is_not_a_fault():
    def kernel(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(kernel)


def test_a_result_that_is_no_array_is_a_fault():
    assert "not an array" in judged(lambda x: ("codes", "scales")).words


def test_a_call_that_hangs_times_out_and_the_alarm_is_taken_back():
    import signal
    import time

    before = signal.getsignal(signal.SIGALRM)
    assert judged(lambda x: time.sleep(30)).outcome is Outcome.TIMEOUT
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_other_data_keeps_shapes_and_changes_every_kind_of_input():
    given = Case(
        "permute_pad",
        "HOPPER",
        {"splits": [1, 1], "align": 32},
        {"payload": np.zeros((2, 17), np.uint8), "row_map": np.array([1, 0], np.int32)},
    )
    changed = other_data(given)
    assert (changed.inputs["payload"] == 1).all() and changed.inputs["row_map"].tolist() == [1, 0]
    floats = other_data(case())
    assert floats.inputs["x"].dtype == np.float32 and not np.array_equal(floats.inputs["x"], case().inputs["x"])


def test_the_second_call_gets_the_same_storage_with_other_data():
    addresses = []

    def kernel(x):
        addresses.append((x.__array_interface__["data"][0], x.copy()))
        return refnum.quantize_mxfp4(x)

    second, first_called, second_called = replay_in_place(Subject("k", {"quantize_mxfp4": kernel}), case())
    assert addresses[0][0] == addresses[1][0] and np.array_equal(addresses[1][1], second.inputs["x"])
    assert np.array_equal(first_called.results[0], call_golden(case())[0])
    assert np.array_equal(second_called.results[0], call_golden(second)[0])


def test_torch_arrays_go_in_and_come_back_with_their_bits():
    torch = pytest.importorskip("torch")
    import ml_dtypes

    values = np.array([[0x3F80, 0xFFC1, 0x8000]], np.uint16).view(ml_dtypes.bfloat16)
    there = to_library(values, "torch")
    assert there.dtype == torch.bfloat16 and to_numpy(there).dtype == values.dtype
    assert to_numpy(there).view(np.uint16).tolist() == values.view(np.uint16).tolist()
    codes = torch.tensor([[0x7F, 0x80]], dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert to_numpy(codes).tolist() == [[0x7F, 0x80]] and to_numpy(codes).dtype == np.uint8
    assert to_numpy(torch.tensor([1, 2], dtype=torch.int32)).dtype == np.int32


def test_a_gapped_view_holds_the_data_and_poison_between():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = with_gaps(x, "numpy", 0xCD)
    assert np.array_equal(view, x) and view.strides == (24, 8) and not view.flags.c_contiguous
    between = np.lib.stride_tricks.as_strided(view, (2, 6), (24, 4))[:, 1::2]
    assert (between.copy().view(np.uint32) == 0xCDCDCDCD).all() and with_gaps(x, "torch", 0) is None


def test_shared_memory_is_seen_in_every_library():
    x = np.arange(8, dtype=np.float32)
    assert share_memory(x, x[3:]) and not share_memory(x, x.copy()) and not share_memory(x, x[:0])
    torch = pytest.importorskip("torch")
    t = torch.zeros(4)
    assert share_memory(t, t[2:]) and not share_memory(t, t.clone()) and not share_memory(t, x)


def test_torch_subjects_are_watched_like_numpy_ones():
    torch = pytest.importorskip("torch")
    kept = {}

    def buffer(x):
        packed, scales = refnum.quantize_mxfp4(x.numpy())
        mine = kept.setdefault(
            "b", (torch.zeros(packed.shape, dtype=torch.uint8), torch.zeros(scales.shape, dtype=torch.uint8))
        )
        mine[0].copy_(torch.from_numpy(packed))
        mine[1].copy_(torch.from_numpy(scales))
        return mine

    def mutate(x):
        result = refnum.quantize_mxfp4(x.numpy())
        x[0, 0] = 7.0
        return tuple(map(torch.from_numpy, result))

    reuse = Subject("k", {"quantize_mxfp4": buffer}, arrays="torch")
    assert replay_in_place(reuse, case())[2].finding == "earlier-result-changed"
    assert call(Subject("k", {"quantize_mxfp4": mutate}, arrays="torch"), case()).finding == "input-mutated"
    assert (
        call(Subject("k", {"quantize_mxfp4": lambda x: (x, x)}, arrays="torch"), case()).finding
        == "output-aliases-input"
    )


def test_the_harness_imports_no_kernel_package():
    import subprocess

    code = (
        "import sys, conformance.cli, conformance.run, conformance.controls;"
        "sys.exit(any(name.split('.')[0] == 'gpu' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_is_one_profile():
    assert from_dict({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, "profiles": "OCP"}, "test").profiles


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"packed": 1}, "a result is dict, not an array"),
        (np.array(["a"]), "a result is an array of <U1, not of numbers"),
        (np.array([None]), "a result is an array of object, not of numbers"),
        (np.zeros(1, "M8[s]"), "not of numbers"),
        (np.zeros(1, [("a", "u1")]), "not of numbers"),
        (np.zeros((2, 32), ">f4"), "an array of >f4, whose bytes are in another order than this machine's"),
    ],
)
def test_what_is_no_array_of_numbers_is_a_fault_in_one_sentence(result, words):
    called = call(Subject("k", {"quantize_mxfp4": lambda x: (result, x)}), case())
    assert called.outcome is Outcome.FAULT and words in called.words


def test_supports_that_fails_is_a_reason_and_a_fault_of_its_own():
    subject = Subject("k", {"quantize_mxfp4": plain_kernel}, supports=lambda o, p, given: given["absent"])
    refusal = subject.refuses("quantize_mxfp4", "OCP", {})
    assert isinstance(refusal, Broken) and refusal == "its `supports` failed: KeyError: 'absent'"
