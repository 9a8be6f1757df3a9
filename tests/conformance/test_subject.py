"""Subjects: the doors they come in by, what they may leave out, and what is said when they cannot be judged."""

import sys
import types
from enum import IntEnum

import numpy as np
import pytest
from call_tools import case

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.loading import discover
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.subject import Broken, Subject, arguments_for, from_dict
from refnum.errors import ArgumentError, FileError, ProfileError, UnsupportedError


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
            ({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, **claim}, ArgumentError, "L4, P1, or 0 to 5")
            for claim in (
                {"level": 6},
                {"level": np.int64(6)},
                {"level": 1.0},
                {"level": -1},
                {"level": True},
                {"level": "2"},
                {"levels": {"encode_e2m1": 9}},
            )
        ),
    ],
)
def test_a_malformed_subject_is_refused_in_words(entry, error, words):
    with pytest.raises(error, match=words):
        from_dict(entry, "somewhere")


def test_a_claimed_level_is_any_whole_number():
    for level in (np.int64(2), np.uint8(2), IntEnum("Level", {"L2": 2}).L2):
        claims = Subject("k", {"quantize_mxfp4": plain_kernel}, level=level, levels={"encode_e2m1": level})
        assert type(claims.level) is type(claims.claimed_level("encode_e2m1")) is int and claims.level == 2


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
        discover.importlib.metadata,
        "entry_points",
        lambda group: [entry_point(fail, "a"), good, entry_point(lambda: listed, "c")],
    )
    found, broken = discover.installed()
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
        discover.importlib.metadata, "entry_points", lambda group: [entry_point(lambda: lambda: entries)]
    )
    monkeypatch.setattr(discover, "peers", lambda: ([], []))


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


def test_the_harness_imports_no_kernel_package():
    import subprocess

    code = (
        "import sys, refnum.conformance.cli;"
        "import refnum.conformance.commands.check.controls;"
        "sys.exit(any(name.startswith('refnum.gpu') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_is_one_profile():
    assert from_dict({"name": "k", "operations": {"quantize_mxfp4": plain_kernel}, "profiles": "OCP"}, "test").profiles


def test_supports_that_fails_is_a_reason_and_a_fault_of_its_own():
    subject = Subject("k", {"quantize_mxfp4": plain_kernel}, supports=lambda o, p, given: given["absent"])
    refusal = subject.refuses("quantize_mxfp4", "OCP", {})
    assert isinstance(refusal, Broken) and refusal == "its `supports` failed: KeyError: 'absent'"
