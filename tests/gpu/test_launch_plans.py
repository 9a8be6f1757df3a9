"""What makes a call one of a known kind: only plain values, told apart by type; and scratch that a graph may keep."""

import types

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, ProfileError
from refnum.gpu import emulate, ops
from refnum.gpu.device import arrays as interop
from refnum.gpu.device import call as device_call
from refnum.gpu.device import plans
from refnum.gpu.ops.payload_rows import on_device as lie_on_device

pytestmark = pytest.mark.usefixtures("emulator")
X = np.linspace(-8, 8, 64, dtype=np.float32).reshape(1, 64)
FP4 = refnum.quantize_mxfp4(X)
PAYLOAD = np.arange(4 * 34, dtype=np.uint8).reshape(4, 34)
ROW_MAP = np.array([2, 0, 3])


def device(*arrays):
    return [emulate.array(x) for x in arrays]


class Counts:
    """Splits with identity's hash and equality, as a torch tensor's, that can be filled anew."""

    def __init__(self, *counts):
        self.counts = counts

    def __getitem__(self, number):
        return self.counts[number]


def test_splits_that_are_filled_anew_are_read_anew():
    splits = Counts(1, 2)
    for counts in ((1, 2), (2, 1), (3, 0), (0, 3)):
        splits.counts = counts
        got = ops.permute_pad(*device(PAYLOAD, ROW_MAP), splits, 2)
        want = refnum.permute_pad(PAYLOAD, ROW_MAP, counts, 2)
        assert all(map(np.array_equal, got, want))
    assert not plans._plans


def test_a_host_tensor_of_torch_holds_splits_and_is_read_at_every_call():
    torch = pytest.importorskip("torch")
    splits = torch.tensor([1, 2])
    for counts in ([1, 2], [3, 0]):
        splits.copy_(torch.tensor(counts))
        for name in ("permute_pad", "permute_unpack"):
            got = getattr(ops, name)(*device(PAYLOAD, ROW_MAP), splits, 2)
            assert all(map(np.array_equal, got, getattr(refnum, name)(PAYLOAD, ROW_MAP, counts, 2)))


@pytest.mark.parametrize(("kind", "on_device"), [(1, False), (2, True), (3, False), (13, True)])
def test_where_splits_lie_is_asked_of_them(kind, on_device):
    splits = types.SimpleNamespace(__dlpack_device__=lambda: (kind, 0))
    if on_device:
        with pytest.raises(ArgumentError, match="splits lie on the device"):
            lie_on_device(splits, None, 2)
    assert lie_on_device(splits, (None, None), 2) is on_device


WRONG = {
    "align": lambda: ops.permute_pad(*device(PAYLOAD, ROW_MAP), [1, 2], True),
    "align by keyword": lambda: ops.permute_pad(*device(PAYLOAD, ROW_MAP), [1, 2], align=True),
    "fractional split": lambda: ops.permute_pad(*device(PAYLOAD, ROW_MAP), [1.0, 2.0], 1),
    "split of truth": lambda: ops.permute_pad(*device(PAYLOAD, ROW_MAP), [True, 2], 1),
    "fractional rows": lambda: ops.mxfp4_to_fp8_columns(*device(*FP4), [1.0]),
    "rows of truth": lambda: ops.mxfp4_to_fp8_columns(*device(*FP4), [True]),
    "tile of truth": lambda: ops.quantize_fp8_tiles(*device(X), (True, 128)),
    "option in the place of splits": lambda: ops.mxfp4_to_fp8_columns(*device(*FP4), "scale", "max"),
    "scale byte": lambda: ops.encode_e2m1(*device(X), scale_byte=127.0),
    "scale byte of truth": lambda: ops.encode_e2m1(*device(X), scale_byte=True),
    "saturate": lambda: ops.encode_e8m0(*device(X), saturate=1),
    "number of a profile": lambda: ops.quantize_mxfp4(*device(X), id(refnum.HOPPER)),
    "no arrays": lambda: ops.quantize_mxfp4(*device(X), out=()),
    "no arrays in a list": lambda: ops.quantize_mxfp4(*device(X), out=[]),
    "weights twice": lambda: ops.unpermute(*device(X, np.zeros(1, int)), [1], None, 1, 1, weights=None),
}
ERRORS = {"number of a profile": ProfileError, "weights twice": TypeError}


@pytest.mark.parametrize("what", list(WRONG))
def test_what_is_refused_is_refused_behind_the_plan_of_an_equal_call(what):
    def plan():
        ops.permute_pad(*device(PAYLOAD, ROW_MAP), [1, 2], 1)
        ops.permute_pad(*device(PAYLOAD, ROW_MAP), [1, 2], align=1)
        ops.mxfp4_to_fp8_columns(*device(*FP4), [1])
        ops.mxfp4_to_fp8_columns(*device(*FP4), scale="max")
        ops.encode_e2m1(*device(X), scale_byte=127)
        ops.encode_e2m1(*device(X), scale_byte=1)
        ops.encode_e8m0(*device(X), saturate=True)
        ops.quantize_fp8_tiles(*device(X), (1, 128))
        ops.quantize_mxfp4(*device(X), refnum.HOPPER)
        ops.quantize_mxfp4(*device(X))
        ops.unpermute(*device(X, np.zeros(1, int)), [1], None, 1, 1)

    plan()
    kinds = len(plans._plans)
    assert kinds == 10  # the two gathers are one
    with pytest.raises(ERRORS.get(what, ArgumentError)):
        WRONG[what]()
    plan()
    assert len(plans._plans) == kinds


def test_plain_values_make_a_plan():
    for dtype in ("float32", np.float32, np.dtype(np.float32)):
        for _ in range(2):
            ops.dequantize_mxfp4(*device(*FP4), dtype)
    assert len(plans._plans) == 3
    for splits in ([1], (1,), None):
        for _ in range(2):
            ops.mxfp4_to_fp8_columns(*device(*FP4), splits)
    assert len(plans._plans) == 5  # a list and a tuple of the same counts are one kind


def summed(monkeypatch, machine):
    """Sum a matrix by lists in scratch memory; return the scratch addresses of its launches."""
    found = []
    fire = machine.fire

    def noted(frame, number):
        found.append(frame.arguments.scratch)
        fire(frame, number)

    with monkeypatch.context() as patched:
        patched.setattr("refnum.gpu.ops.payload_sum.TOGETHER", 0)
        patched.setattr(machine, "fire", noted)
        plans.forget()  # its plans hold the driver's own `fire`
        rows = np.random.default_rng(5).standard_normal((4, 40), np.float32)
        for _ in range(3):
            got = ops.unpermute(*device(rows, ROW_MAP), [1, 2], None, 4, 2)
            assert np.array_equal(got, refnum.unpermute(rows, ROW_MAP, [1, 2], None, 4, 2))
    return [found[at : at + 3] for at in range(0, len(found), 3)]


def test_a_graph_keeps_scratch_of_its_own_for_every_call(monkeypatch, emulator):
    for module in (plans, device_call):
        monkeypatch.setattr(module, "capturing", lambda library, stream: True)
    calls = summed(monkeypatch, emulator)
    assert len(calls) == 3 and all(len(set(places)) == 1 for places in calls)
    plans.forget()  # a graph outlives plans
    assert [int(x.ctypes.data) for x in plans.captured] == [places[0] for places in calls]
    assert len({places[0] for places in calls}) == 3


def test_without_a_graph_scratch_goes_back(monkeypatch, emulator):
    summed(monkeypatch, emulator)
    assert not plans.captured


def test_only_a_capturing_stream_on_cupys_memory_keeps_scratch(monkeypatch):
    runtime = types.SimpleNamespace(streamIsCapturing=lambda stream: {7: True, 8: False}[stream])
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(interop, "cupy_module", lambda: cupy)
    foreign = interop._foreign(np.zeros(1))  # whose memory is CuPy's
    for library in (interop.CUPY, foreign):
        assert [plans.capturing(library, stream) for stream in (0, 7, 8)] == [False, True, False]
    assert not plans.capturing(interop.TORCH, 7)  # a graph of torch has a pool of its own
