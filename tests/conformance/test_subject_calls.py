"""A subject's calls: fresh copies in, what comes back or is raised told in words, storage of every library."""

import gc
import weakref

import numpy as np
import pytest
from call_tools import case
from ml_dtypes import bfloat16

import refnum
from refnum.conformance.cases.case import FORM, Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import call_golden, golden_like, plain_like, run_golden
from refnum.conformance.cases.structure.cutting import THE_SAME
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.subjects.arrays import share_memory, to_library, to_numpy, with_gaps
from refnum.conformance.subjects.calls.call import NO_ROOM, call, other_data
from refnum.conformance.subjects.calls.in_turn import replay_in_place
from refnum.conformance.subjects.calls.parts import call_parts
from refnum.conformance.subjects.calls.process_state import changed, process_state
from refnum.conformance.subjects.subject import Subject
from refnum.errors import UnsupportedError


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
    assert called.outcome is Outcome.UNSUPPORTED and called.words.startswith(NO_ROOM) and called.no_room
    monkeypatch.setattr("refnum.conformance.subjects.calls.call.to_library", exhausted)
    assert judged(kernel).outcome is Outcome.UNSUPPORTED


def test_words_about_memory_are_words():
    def kernel(x):
        raise NotImplementedError(f"{NO_ROOM}: no")

    assert judged(kernel).outcome is Outcome.UNSUPPORTED and not judged(kernel).no_room


def exhausted(*_, **__):
    raise MemoryError


@pytest.mark.parametrize("room", ["lay_out", "_kept_contract", "to_numpy"])
def test_want_of_memory_outside_of_the_subject_is_no_verdict(monkeypatch, room):
    monkeypatch.setattr(f"refnum.conformance.subjects.calls.call.{room}", exhausted)
    called = judged(refnum.quantize_mxfp4)
    assert called.outcome is Outcome.UNSUPPORTED and called.words.startswith(NO_ROOM) and called.no_room


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


@pytest.mark.parametrize("axis", [0, 1])
def test_other_data_of_a_part_has_the_numbers_of_the_part(axis):
    codes = np.arange(35, dtype=np.uint8).reshape(5, 7)
    found = other_data(Case("decode_e8m0", "HOPPER", {}, {"codes": codes}), {"codes": axis}).inputs["codes"]
    assert np.array_equal(np.sort(found, 1 - axis), codes) and (found != codes).sum() > 27


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16])
def test_other_data_has_another_maximum_and_the_same_classes_of_numbers(dtype):
    """What a kernel finds in a whole tensor, in any order, is another number then."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(np.float16).smallest_subnormal]
    x = np.array([*special, *np.linspace(-7, 7, 58)], np.float32).reshape(2, 32).astype(dtype)
    given = Case("quantize_mxfp4", "HOPPER", {}, {"x": x})
    before, after = (one.inputs["x"].astype(np.float64).reshape(-1) for one in (given, other_data(given)))
    assert other_data(other_data(given)).inputs["x"].tobytes() == x.tobytes()
    for kind in (np.isnan, np.isinf, np.isfinite, np.signbit):
        assert kind(before[::-1]).tolist() == kind(after).tolist()
    assert ((before[::-1] == 0) == (after == 0)).all()
    finite = np.isfinite(before), np.isfinite(after)
    assert np.abs(before[finite[0]]).max() != np.abs(after[finite[1]]).max()
    assert np.abs(before[finite[0]]).sum() != np.abs(after[finite[1]]).sum()


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
    assert share_memory(t[1:3], t[2:]) and not share_memory(t[:2], t[2:]) and not share_memory(t, t[:0])


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


@pytest.mark.parametrize(
    ("storage", "made", "finding"),
    [
        ("transposed", lambda x: np.asfortranarray(x), ""),
        ("broadcast rows", lambda x: np.asfortranarray(x), ""),
        ("contiguous", lambda x: np.asfortranarray(x), Finding.NOT_CONTIGUOUS),
        ("transposed", lambda x: np.repeat(x, 2, axis=1)[:, ::2], Finding.NOT_CONTIGUOUS),
        ("row gap", lambda x: np.repeat(x, 2, axis=0)[::2], Finding.NOT_CONTIGUOUS),
    ],
)
def test_a_result_may_lie_as_a_turned_input_of_its_shape_does(storage, made, finding):
    def decode(codes, dtype):
        return made(refnum.decode_e4m3(np.ascontiguousarray(codes), dtype))

    codes = np.arange(35, dtype=np.uint8).reshape(7, 5)
    if storage == "broadcast rows":
        codes = np.broadcast_to(codes[:1], codes.shape)
    form = {FORM: {"codes.storage": storage}}
    given = Case("decode_e4m3", "HOPPER", {"dtype": "float32", **form}, {"codes": codes})
    assert call(Subject("k", {"decode_e4m3": decode}), given).finding == finding


@pytest.mark.parametrize(
    ("made", "finding"),
    [
        (lambda torch, x: x, ""),
        (lambda torch, x: torch.cat([x, x])[: len(x)], ""),
        (lambda torch, x: x.t().contiguous().t(), Finding.NOT_CONTIGUOUS),
        (lambda torch, x: x.repeat_interleave(2, 1)[:, ::2], Finding.NOT_CONTIGUOUS),
        (lambda torch, x: torch.nn.Parameter(x), Finding.SUBCLASS),
        (lambda torch, x: x.clone().requires_grad_(), Finding.SUBCLASS),
    ],
    ids=["plain", "some rows of a larger one", "turned", "gaps", "a parameter", "of a graph"],
)
def test_a_result_of_torch_is_a_plain_contiguous_tensor(made, finding):
    torch = pytest.importorskip("torch")

    def decode(codes, dtype):
        return made(torch, torch.from_numpy(refnum.decode_e4m3(codes.numpy(), dtype)))

    codes = np.arange(35, dtype=np.uint8).reshape(7, 5)
    given = Case("decode_e4m3", "HOPPER", {"dtype": "float32"}, {"codes": codes})
    assert call(Subject("k", {"decode_e4m3": decode}, arrays="torch"), given).finding == finding


def test_buffers_of_torch_that_are_handed_out_in_turn_are_seen():
    torch = pytest.importorskip("torch")
    pool = [torch.empty(7, 5) for _ in range(3)]

    def decode(codes, dtype):
        pool.append(pool.pop(0))
        return pool[-1].copy_(torch.from_numpy(refnum.decode_e4m3(codes.numpy(), dtype)))

    subject = Subject("k", {"decode_e4m3": decode}, arrays="torch")
    given = Case("decode_e4m3", "HOPPER", {"dtype": "float32"}, {"codes": np.arange(35, dtype=np.uint8).reshape(7, 5)})
    assert [call(subject, given).finding for _ in range(4)] == ["", "", "", Finding.HELD]


@pytest.mark.parametrize("before", ["a part of many", "by itself"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("np.random.seed(0)", "NumPy's global random numbers"),
        ("np.random.rand()", "NumPy's global random numbers"),
        ("torch.manual_seed(0)", "torch's global random numbers"),
        ("torch.set_default_dtype(torch.float64)", "torch's default dtype"),
        ("torch.set_grad_enabled(False)", "whether torch records gradients"),
        ("torch.set_float32_matmul_precision('medium')", "torch's precision of float32 products"),
        ("torch.use_deterministic_algorithms(True)", "torch's choice of deterministic algorithms"),
    ],
)
def test_a_call_that_changes_what_other_code_depends_on_is_told_and_undone(change, words, before):
    torch = pytest.importorskip("torch")

    def decode(codes, dtype="float32"):
        exec(change, {"np": np, "torch": torch})
        return refnum.decode_e4m3(codes, dtype)

    subject, state = Subject("k", {"decode_e4m3": decode}), process_state()
    if before == "by itself":
        given = Case("decode_e4m3", "HOPPER", {"dtype": "float32"}, {"codes": np.arange(35, dtype=np.uint8)})
        called = call(subject, given)
    else:
        field = next(fields("decode_e4m3", "HOPPER", {"dtype": "float32"}, "full"))
        parts = [part for part in field.parts if "out" not in part.form and part.calls == THE_SAME][:2]
        called = call_parts(subject, field.case, field.cutting, parts, plain_like(field.case))[1]
    assert called.finding == Finding.PROCESS_STATE and words in called.words
    assert not changed(state)


def test_arrays_like_the_outputs_are_those_of_the_case_and_keep_no_case_alive():
    first, second = case(), case()
    run_golden(first)
    for given in (first, second):
        want = call_golden(given)
        assert [(a.shape, a.dtype) for a in golden_like(given)] == [(a.shape, a.dtype) for a in want]
    held = weakref.ref(first)
    del first, given
    gc.collect()
    assert held() is None
