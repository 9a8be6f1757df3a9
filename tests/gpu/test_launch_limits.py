"""What a launcher refuses before it launches: places that no load may have, counts that no grid and no field holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, RefnumError, ShapeError, UnsupportedError
from refnum.gpu import emulate, ops
from refnum.gpu.device import plans
from refnum.gpu.device.arrays import View
from refnum.gpu.device.call import DeviceCall
from refnum.gpu.emulate.arrays import LIBRARY
from refnum.gpu.interface.call import Rows
from refnum.gpu.ops import columns, payload, payload_sum, rowwise, tiles

ACROSS, DOWN, THREADS = (1 << 31) - 1, (1 << 16) - 1, 1 << 10
"""What CUDA allows of a launch."""


class Device(emulate.Emulator):
    """A device that runs nothing, and notes the launches that CUDA would take."""

    def __init__(self) -> None:
        super().__init__()
        self.grids: list[tuple[int, int]] = []

    def function(self, kernel: str, name: str, device: int, defines: tuple[str, ...] = ()) -> int:
        return 0

    def fire(self, frame: Any, device: int) -> None:
        config = frame.config
        assert 0 < config.across <= ACROSS and 0 < config.down <= DOWN and 0 < config.threads <= THREADS
        self.grids.append((config.across, config.down))


@pytest.fixture
def device() -> Iterator[Device]:
    with Device().running() as device:
        yield device


def at(offset: int, stride: int, count: int = 4) -> Any:
    """A vector of float32, so many bytes behind an aligned address, its items so many bytes apart."""
    store = emulate.array(np.zeros(64, np.float32)).view(np.uint8)
    return emulate.array(np.ndarray((count,), np.float32, store, offset, (stride,)))


@pytest.mark.parametrize(("offset", "stride"), [(1, 4), (2, 4), (0, 6), (3, 5), (0, -6)])
def test_weights_at_no_multiple_of_their_size_are_refused(offset: int, stride: int, device: Device) -> None:
    rows, row_map = emulate.array(np.zeros((4, 32), np.float32)), emulate.array(np.arange(4))
    weights = at(offset + (100 if stride < 0 else 0), stride)
    with pytest.raises(ArgumentError, match=r"weights lies at .* allowed are multiples of its items' 4 bytes"):
        ops.unpermute(rows, row_map, [4], weights, 4, 1)
    assert not device.grids


@pytest.mark.parametrize(("offset", "stride", "count"), [(4, 4, 4), (8, 12, 4), (60, -8, 4), (4, 6, 1)])
def test_weights_at_any_multiple_of_their_size_are_taken(
    offset: int, stride: int, count: int, device: Device
) -> None:  # fmt: skip
    rows, row_map = emulate.array(np.zeros((count, 32), np.float32)), emulate.array(np.arange(count))
    ops.unpermute(rows, row_map, [count], at(offset, stride, count), count, 1)
    assert device.grids


def test_columns_refuse_a_later_launch_before_the_first(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, windows = columns._parts, columns.WINDOWS + 1
    splits = [130, 128 * windows - 130]
    given = np.zeros((128 * windows, 16), np.uint8), np.zeros((128 * windows, 1), np.uint8)
    packed, scales = map(emulate.array, given)
    ops.mxfp4_to_fp8_columns(packed, scales, splits, "max")
    assert [across for across, _ in device.grids] == [2 * columns.WINDOWS, 2]
    device.grids.clear()
    plans.forget()
    monkeypatch.setattr(columns, "_parts", lambda *given: parts(*given)[::-1])
    monkeypatch.setattr(columns, "MOST", 2)
    with pytest.raises(ShapeError, match="launches at most 2 blocks of tiles across"):
        ops.mxfp4_to_fp8_columns(packed, scales, splits, "max")
    assert not device.grids


@pytest.mark.parametrize("name", [name for name, order in columns.TUNING.items() if order.across])
def test_columns_take_as_many_as_a_grid_has_and_name_the_bound(name: str, device: Device) -> None:
    operation, _, mode = name.rpartition("_")
    order, option = columns.TUNING[name], "underflow" if operation == "fp8_columns" else "scale"
    most = columns.DOWN * order.across * order.wide

    def call(k: int) -> Any:
        per, block = (1, 128) if operation == "fp8_columns" else (2, 32)
        given = np.zeros((2, k // per), np.uint8), np.zeros((2, -(-k // block)), np.uint8)
        return getattr(ops, operation)(*map(emulate.array, given), **{option: mode})

    call(most)
    assert device.grids == [(order.across, DOWN)]
    with pytest.raises(ShapeError, match=f"rows of {most + 32} elements; {name} takes at most {most}"):
        call(most + 32)
    assert len(device.grids) == 1


def test_the_bounds_of_columns_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "gpu.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([\d,]+) \|$", page, re.M)
    orders = {name: order for name, order in columns.TUNING.items() if order.across}
    wanted = {tuple(name.rsplit("_", 1)): f"{columns.DOWN * o.across * o.wide:,}" for name, o in orders.items()}
    assert {(operation, by): most for operation, by, most in told} == wanted


def test_columns_of_all_tiles_across_have_no_such_bound(device: Device) -> None:
    k = 1 << 25
    codes, scales = np.zeros((2, k // 2), np.uint8), np.zeros((2, k // 32), np.uint8)
    ops.mxfp4_to_fp8_rows_columns(*map(emulate.array, (codes, scales)))
    (across, down) = device.grids[0]
    assert across >= k // 256 and down == 1


def flat(m: int, k: int, dtype: Any, per: int = 1) -> View:
    """A matrix of k elements a row that nobody has the memory for."""
    kind = np.dtype(dtype)
    width = k // per
    return View("x", 256, (m, width), (width * kind.itemsize, kind.itemsize), kind, 0, LIBRARY, None)


@pytest.mark.parametrize(("dtype", "m", "k"), [
    (np.float32, 1, 1 << 32), (ml_dtypes.bfloat16, 3, 32 * -(-(1 << 31) // 17)),
    (np.float32, 300, (1 << 31) // 17 * 32),
])  # fmt: skip
def test_rows_of_a_payload_that_no_field_holds_are_refused(dtype: Any, m: int, k: int, device: Device) -> None:
    with pytest.raises(UnsupportedError, match=f"{m} rows of {k // 32 * 17} bytes; the kernels count"):
        payload._quantize(DeviceCall("quantize_payload"), "quantize_payload_float32", Rows(flat(m, k, dtype), k))
    assert not device.grids


@pytest.mark.parametrize("kernel", ["dequantize_mxfp4", "dequantize_fp8_tiles", "quantize_mxfp4", "fp8_to_mxfp4"])
def test_rows_of_more_chunks_than_a_field_holds_are_refused(kernel: str) -> None:
    k = rowwise.TUNING[kernel].part << 32
    for given, made in ((k - 128, True), (k, False)):
        x = flat(1, given, np.uint8, 2 if kernel == "dequantize_mxfp4" else 1)
        outputs = [flat(1, given, np.uint8)] * 2
        if made:
            cut = rowwise.cut(kernel, Rows(x, given), outputs, 128)
            assert cut.arguments.per_row * rowwise.TUNING[kernel].part == given
            continue
        with pytest.raises(ShapeError, match=f"rows of {k} elements; allowed are fewer than"):
            rowwise.cut(kernel, Rows(x, given), outputs, 128)


def test_squares_of_more_chunks_than_a_field_holds_are_refused(device: Device) -> None:
    def launch(k: int) -> None:
        call, x = DeviceCall("quantize_fp8_tiles"), flat(1, k, np.uint8)
        call.inputs, call._results = [x], [flat(1, 128, np.uint8)] * 2
        tiles._squares(call, "quantize_fp8_squares_float32", Rows(x, k, tall=128))

    launch((1 << 35) - 128)
    assert device.grids == [((1 << 28) - 1, 1)]
    with pytest.raises(ShapeError, match="rows of 34359738368 elements"):
        launch(1 << 35)


def test_columns_of_a_sum_are_counted_too() -> None:
    assert payload_sum._columns(flat(1, (1 << 31) - 32, np.float32))[2] == 1 << 21
    with pytest.raises(UnsupportedError, match="rows of 2147483648 columns"):
        payload_sum._columns(flat(1, 1 << 31, np.float32))


def test_splits_on_the_device_write_no_offsets_of_rows_that_are_refused(device: Device) -> None:
    width = DOWN * 32 * 8 + 1  # no vectors
    payload_ = emulate.array(np.zeros((1, width), np.uint8))
    out = tuple(LIBRARY.empty(shape, np.dtype(kind), 0) for shape, kind in (((1, width), np.uint8), ((1,), np.int64)))
    given = payload_, emulate.array(np.zeros(1, np.int64)), emulate.array(np.ones(1, np.int64)), 1
    with pytest.raises(UnsupportedError, match=f"a row of {width} bytes; the kernels move at most {width - 1}"):
        ops.permute_pad(*given, out=out)
    assert not device.grids


@pytest.mark.parametrize("shape", [(), (8,), (8, 17, 1)])
def test_splits_on_the_device_refuse_an_out_that_is_no_matrix(shape: tuple[int, ...], device: Device) -> None:
    given = np.zeros((4, 17), np.uint8), np.arange(4), np.array([2, 2])
    out = tuple(LIBRARY.empty(*each, 0) for each in ((shape, np.dtype(np.uint8)), ((2,), np.dtype(np.int64))))
    with pytest.raises(ShapeError, match=re.escape(f"out[0] has shape {shape}; allowed is (")):
        ops.permute_pad(*map(emulate.array, given), 4, out=out)
    assert not device.grids


OVER = np.zeros((4, 16), np.int64)
SUM = {"rows": np.zeros((8, 32), np.float32), "row_map": np.arange(4), "splits": np.array([2, 2]), "weights": None,
       "tokens": 4, "align": 4}  # fmt: skip
NO_SUMS: dict[str, tuple[type[RefnumError], str, dict[str, Any]]] = {
    "fractional counts": (DtypeError, "splits has dtype float64; allowed are int", {"splits": np.array([2.0, 2.0])}),
    "counts in a matrix": (ShapeError, r"splits has shape \(1, 2\); it is a list of counts", {"splits": [[2, 2]]}),
    "counts in another byte order": (DtypeError, "splits has dtype >i4; allowed", {"splits": np.array([2, 2], ">i4")}),
    "rows in halves": (DtypeError, "rows has dtype float16; allowed", {"rows": np.zeros((8, 32), np.float16)}),
    "map in a matrix": (ShapeError, r"row_map has shape \(1, 4\); it is a list of rows", {"row_map": [[0, 1, 2, 3]]}),
    "weights of other rows": (
        ShapeError, r"weights has shape \(5,\); row_map has 4 rows, so it must be \(4,\)",
        {"weights": np.ones(5, np.float32)}),
    "wide weights": (DtypeError, "weights has dtype float64; allowed is float32", {"weights": np.ones(4)}),
    "tokens": (ArgumentError, "tokens is -1", {"tokens": -1}),
    "align": (ArgumentError, "align is 0", {"align": 0}),
    "out of other tokens": (
        ShapeError, r"out\[0\] has shape \(5, 32\); allowed is \(4, 32\)", {"out": np.zeros((5, 32), np.float32)}),
    "out over the splits": (ArgumentError, "shares memory", {"splits": OVER[0, :2], "out": OVER.view(np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize("what", list(NO_SUMS))
def test_what_a_sum_by_splits_on_the_device_refuses(what: str, device: Device) -> None:
    error, words, wrong = NO_SUMS[what]
    given = {key: np.array(x) if isinstance(x, list) else x for key, x in {**SUM, **wrong}.items()}
    given = {
        key: emulate.array(x, written=key == "out") if isinstance(x, np.ndarray) else x for key, x in given.items()
    }
    with pytest.raises(error, match=words):
        ops.unpermute(**given)
    assert not device.grids


def test_more_rows_than_a_sum_by_splits_on_the_device_counts(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {key: emulate.array(x) if isinstance(x, np.ndarray) else x for key, x in SUM.items()}
    monkeypatch.setattr(payload_sum, "MOST", 40)
    given["rows"] = emulate.array(np.zeros((40, 32), np.float32))
    ops.unpermute(**given)
    assert device.grids == [(1, 1)] * 2
    device.grids.clear()
    given["rows"] = emulate.array(np.zeros((41, 32), np.float32))
    with pytest.raises(UnsupportedError, match="rows has 41 rows; the kernels count to 40"):
        ops.unpermute(**given)
    assert not device.grids


@pytest.mark.parametrize("dtype", [">i8", ">i4", ">u2"])
@pytest.mark.parametrize("name", ["row_map", "splits"])
def test_integers_of_the_other_byte_order_are_refused(name: str, dtype: str, device: Device) -> None:
    given = {"payload": np.zeros((4, 17), np.uint8), "row_map": np.arange(4), "splits": np.array([2, 2])}
    given[name] = given[name].astype(dtype)
    out = tuple(LIBRARY.empty(shape, np.dtype(kind), 0) for shape, kind in (((4, 17), np.uint8), ((2,), np.int64)))
    with pytest.raises(DtypeError, match=f"{name} has dtype {dtype}; allowed are integers in the machine's byte order"):
        ops.permute_pad(*map(emulate.array, given.values()), 1, out=out)
    assert not device.grids


class Sharded:
    """An array of JAX over several devices, as far as it answers."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("__dlpack__ only supported for unsharded arrays.")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("__dlpack__ only supported for unsharded arrays.")


@pytest.mark.parametrize("name", ["payload", "row_map", "splits", "out"])
def test_what_lies_on_no_one_device_is_named(name: str, device: Device) -> None:
    given: dict[str, Any] = {"payload": np.zeros((4, 17), np.uint8), "row_map": np.arange(4), "splits": [2, 2]}
    given = {key: emulate.array(x) if isinstance(x, np.ndarray) else x for key, x in given.items()}
    given[name] = (Sharded(), Sharded()) if name == "out" else Sharded()
    with pytest.raises(DtypeError, match=f"{name}.* is a Sharded that lies on no one device .*unsharded"):
        ops.permute_pad(*[given[key] for key in ("payload", "row_map", "splits")], 1, out=given.get("out"))
    assert not device.grids


@pytest.mark.parametrize("align", [1 << 31, 1 << 63, 1 << 64, (1 << 64) + 32])
@pytest.mark.parametrize("where", ["host", "device"])
def test_an_alignment_has_the_models_bound(where: str, align: int, device: Device) -> None:
    rows, row_map = np.zeros((4, 17), np.uint8), np.arange(4)
    splits = [2, 2] if where == "host" else emulate.array(np.array([2, 2]))
    out = tuple(LIBRARY.empty(shape, np.dtype(kind), 0) for shape, kind in (((8, 17), np.uint8), ((2,), np.int64)))
    for call in (
        lambda: refnum.permute_pad(rows, row_map, [2, 2], align),
        lambda: ops.permute_pad(emulate.array(rows), emulate.array(row_map), splits, align, out=out),
    ):
        with pytest.raises(ArgumentError, match=f"align is {align}; allowed are integers from 1 to"):
            call()
    assert not device.grids


X = np.linspace(-8, 8, 256, dtype=np.float32).reshape(4, 64)
FP4 = refnum.quantize_mxfp4(X)
HISTORIES: dict[str, tuple[type[Exception], Callable[..., Any], Callable[..., Any]]] = {
    "one place too many": (
        TypeError,
        lambda x, packed, scales, bits: ops.mxfp4_to_fp8(packed, scales, "max"),
        lambda x, packed, scales, bits: ops.mxfp4_to_fp8(packed, scales, "max", None),
    ),
    "random bits in a place": (
        TypeError,
        lambda x, packed, scales, bits: ops.quantize_mxfp4(x, "STOCHASTIC", rbits=bits),
        lambda x, packed, scales, bits: ops.quantize_mxfp4(x, "STOCHASTIC", bits),
    ),
    "no random bits in a place": (
        TypeError,
        lambda x, packed, scales, bits: ops.quantize_mxfp4(x, "HOPPER"),
        lambda x, packed, scales, bits: ops.quantize_mxfp4(x, "HOPPER", None),
    ),
    "a keyword without a name": (
        TypeError,
        lambda x, packed, scales, bits: ops.dequantize_mxfp4(packed, scales),
        lambda x, packed, scales, bits: ops.dequantize_mxfp4(packed, scales, **{"": None}),
    ),
    "a dtype that is none": (
        ArgumentError,
        lambda x, packed, scales, bits: ops.dequantize_mxfp4(packed, scales, "bfloat16"),
        lambda x, packed, scales, bits: ops.dequantize_mxfp4(packed, scales, 5),
    ),
}


@pytest.mark.parametrize("what", list(HISTORIES))
def test_an_error_does_not_depend_on_the_calls_before(what: str, device: Device) -> None:
    error, right, wrong = HISTORIES[what]
    arrays = [emulate.array(x) for x in (X, *FP4, np.zeros(X.shape, np.uint8))]

    def words() -> str:
        with pytest.raises(error) as caught:
            wrong(*arrays)
        return str(caught.value)

    first = words()
    for _ in range(2):
        right(*arrays)
        assert words() == first


@pytest.mark.parametrize("dtype", [np.float64, "float16", "torch.bfloat16", object, 5, None, [("a", "f4")]], ids=str)
def test_a_dtype_that_no_dequantiser_writes_is_named(dtype: Any, device: Device) -> None:
    with pytest.raises(RefnumError, match=r"dtype=.*allowed are 'float32', 'bfloat16'"):
        ops.dequantize_mxfp4(*map(emulate.array, FP4), dtype)
