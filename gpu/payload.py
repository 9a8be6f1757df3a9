"""Launches of payloads, of their permutation by expert, and of the weighted way back (clause N12)."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError

from . import checks, interop, launch, plans
from .checks import BLOCK
from .driver import driver
from .interop import View
from .launch import U8, Arguments, Outputs
from .plans import planned

UNIT = BLOCK // 2 + 1
"""Payload bytes of one MX block: 16 of codes and one of scale."""
EXPERTS = 1024
"""Experts whose places fit a launch's parameters."""
HELD = 32 * 8 + 4
"""Bytes that `unpermute` holds of a token: a list of 32 rows and weights, and their count."""
SHORT = launch.Grid(128, 4, 16, stream=1)
"""The grid of rows so short that four loads a thread take one."""
ONCE = 96 << 20
"""Bytes of a gather's result from which on each row that is taken several times is read once: see docs/results."""
PLACES = 32 * 4 + 4
"""Bytes that such a gather holds of a token: a list of 32 places and their count."""
COLUMNS = 1024
"""Columns of `unpermute` that a warp takes at most: measured, see docs/results."""
I64 = np.dtype(np.int64)
MOST = (1 << 31) - 1


class Experts(ctypes.Structure):
    """Mirror of `refnum::Experts` in kernels/payload_memory.cuh."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("first", ctypes.c_uint32 * EXPERTS),
        ("taken", ctypes.c_uint32 * (EXPERTS + 1)),
    ]


class RowArguments(ctypes.Structure):
    """Mirror of `refnum::RowArguments` in kernels/payload_memory.cuh. `slots`: see `plans.Launch`."""

    slots: tuple[str, ...] = ()
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in
          ("x", "scales", "map", "splits", "out", "out_scales", "offsets", "scratch")],
        *[(name, ctypes.c_int64) for name in ("x_stride", "scale_stride", "map_stride", "split_stride")],
        *[(name, ctypes.c_uint64) for name in ("rows", "tokens", "mapped", "align")],
        *[(name, ctypes.c_uint32) for name in ("width", "codes", "span")],
        ("map_bytes", ctypes.c_int32), ("split_bytes", ctypes.c_int32), ("all_experts", ctypes.c_uint32),
        ("experts", Experts),
    ]  # fmt: skip


class PackArguments(RowArguments):
    """Of `pack_payload`."""

    slots = ("x", "scales", "out")


class UnpackArguments(RowArguments):
    """Of `unpack_payload`."""

    slots = ("x", "out", "out_scales")


class PermuteArguments(RowArguments):
    """Of a gather into one array."""

    slots = ("x", "map", "out", "offsets")


class PartArguments(RowArguments):
    """Of a gather into codes and scales."""

    slots = ("x", "map", "out", "out_scales", "offsets")


class PermuteDeviceArguments(RowArguments):
    """Of a gather into one array by splits on the device."""

    slots = ("x", "map", "splits", "out", "offsets", "scratch")


class PartDeviceArguments(RowArguments):
    """Of a gather into codes and scales by splits on the device."""

    slots = ("x", "map", "splits", "out", "out_scales", "offsets", "scratch")


class ScatterArguments(RowArguments):
    """Of a gather into one array that reads every row once."""

    slots = ("x", "map", "out", "offsets", "scratch")


class PartScatterArguments(RowArguments):
    """Of a gather into codes and scales that reads every row once."""

    slots = ("x", "map", "out", "out_scales", "offsets", "scratch")


SCATTERS = {"permute_pad": ScatterArguments, "permute_unpack": PartScatterArguments}
GATHERS = {
    ("permute_pad", False): PermuteArguments, ("permute_pad", True): PermuteDeviceArguments,
    ("permute_unpack", False): PartArguments, ("permute_unpack", True): PartDeviceArguments,
}  # fmt: skip
"""(Operation, whether splits lie on the device) -> its arguments."""


class SumArguments(ctypes.Structure):
    """Mirror of `refnum::SumArguments` in kernels/permute_sum.cu."""

    slots: tuple[str, ...] = ("x", "map", "out", "scratch")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("x", "map", "weights", "out", "scratch")],
        *[(name, ctypes.c_int64) for name in ("x_stride", "map_stride", "weight_stride")],
        ("tokens", ctypes.c_uint64), ("mapped", ctypes.c_uint64),
        *[(name, ctypes.c_uint32) for name in ("width", "span", "warps")],
        ("map_bytes", ctypes.c_int32), ("experts", Experts),
    ]  # fmt: skip


class WeightedArguments(SumArguments):
    """Of a sum with weights."""

    slots = ("x", "map", "weights", "out", "scratch")


def _count(name: str, value: Any, least: int) -> int:
    try:
        count = least - 1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        count = least - 1
    if count < least:
        raise ArgumentError(f"{name} is {value!r}; allowed are integers of at least {least}")
    return count


def _splits(splits: Any) -> list[int]:
    try:
        given = list(splits)
    except TypeError as error:
        raise ArgumentError(f"splits={splits!r}; allowed is a sequence of integers, the rows of each expert") from error
    return [_count("a split", m, 0) for m in given]


def _experts(rows: Sequence[int], align: int) -> tuple[Experts, int, int]:
    """Return (places of the experts, padded rows, rows)."""
    if len(rows) > EXPERTS:
        raise UnsupportedError(f"splits holds {len(rows)} experts; the kernels have room for {EXPERTS}")
    padded = [0, *itertools.accumulate(-(-m // align) * align for m in rows)]
    taken = [0, *itertools.accumulate(rows)]
    if padded[-1] > MOST:
        raise UnsupportedError(f"splits at align={align} need {padded[-1]} rows; the kernels count to {MOST}")
    return Experts(len(rows), tuple(padded[:-1]), tuple(taken)), padded[-1], taken[-1]


def _vector(name: str, x: Any, beside: View, count: int | None, what: str) -> View:
    """Return the view of a 1-D device array beside another; any stride whole items long."""
    view = interop.look(name, x)
    if len(view.shape) != 1 or (count is not None and view.shape != (count,)):
        wanted = "[n]" if count is None else f"({count},)"
        raise ShapeError(f"{name} has shape {view.shape}; {what}, so it must be {wanted}")
    _together(view, beside)
    return view


def _together(view: View, beside: View) -> None:
    if view.device != beside.device or view.library.name != beside.library.name:
        raise ArgumentError(
            f"{view.name} is an array of {view.library.name} on device {view.device} and {beside.name} one of "
            f"{beside.library.name} on device {beside.device}; give both of one library, on one device"
        )


def _indices(name: str, x: Any, beside: View, count: int | None, what: str) -> tuple[View, int]:
    """Return the view of a 1-D array of integers, and its items' width in bytes, negative when they are signed."""
    view = _vector(name, x, beside, count, what)
    if view.dtype.kind not in "iu":
        raise DtypeError(f"{name} has dtype {view.dtype}; allowed are integers")
    size = view.dtype.itemsize
    if view.address % size or (view.shape[0] > 1 and view.strides[0] % size):
        raise ArgumentError(f"{name} lies at {view.address:#x}; allowed are multiples of its items' {size} bytes")
    return view, size if view.dtype.kind == "u" else -size


def _piece(*places: int) -> int:
    """Return the bytes that every load and store of rows at these places may have: 16, 8, 4 or 1."""
    return next(n for n in (16, 8, 4, 1) if all(place % n == 0 for place in places))


def _move(name: str, x: View, beside: View | None, arguments: RowArguments, warps: int | None = None) -> None:
    """Launch a kernel that moves rows, a warp a row of the result unless `warps` says how many.

    `beside` is a second matrix whose rows are moved along.
    """
    rows, width = arguments.rows if warps is None else warps, arguments.width
    if rows == 0:
        return
    if rows > MOST or width > MOST:
        raise UnsupportedError(f"{rows} rows of {width} bytes; the kernels count each to {MOST}")
    places = [x.address, x.strides[0] if x.shape[0] > 1 else 0, width, arguments.codes]
    if beside is not None:
        places += [beside.address, beside.strides[0] if beside.shape[0] > 1 else 0]
    piece = _piece(*places)
    step = 32 * piece
    grid = SHORT if width <= SHORT.unroll * step else launch.TUNING["payload_rows"]
    slabs = -(-width // (step * grid.unroll))
    arguments.span = -(-width // (slabs * step)) * step
    if slabs > 65535:
        raise UnsupportedError(f"a row of {width} bytes; the kernels move at most {65535 * step * grid.unroll} of them")
    function = driver().function("payload_rows", f"{name}_{piece}", x.device, grid.defines)
    blocks = (-(-rows // (grid.threads // 32)), slabs)
    plans.launch(function, x.device, blocks, grid.threads, x.library.stream(x.device), arguments)


def pack_payload(packed: Any, scales: Any, out: Any) -> Any:
    """Join codes and scales row by row."""
    view = launch.codes("packed", packed, BLOCK // 2)
    rows, half = view.shape
    beside, blocks = launch.codes("scales", scales, 1), 2 * half // BLOCK
    _together(beside, view)
    if beside.shape != (rows, blocks):
        raise ShapeError(f"scales has shape {beside.shape}; packed of {view.shape} needs {(rows, blocks)}")
    width = half + blocks
    outputs = Outputs(out, [((rows, width), U8)], [view, beside])
    arguments = PackArguments(
        x=view.address, scales=beside.address, out=outputs.views[0].address, x_stride=view.strides[0],
        scale_stride=beside.strides[0], rows=rows, tokens=rows, width=width, codes=half,
    )  # fmt: skip
    if width:
        _move("pack_payload", view, beside, arguments)
    return outputs.finish()


def unpack_payload(payload: Any, out: Any) -> Any:
    """Split payload rows into codes and scales."""
    view = launch.codes("payload", payload, UNIT)
    rows, width = view.shape
    codes = width // UNIT * (UNIT - 1)
    outputs = Outputs(out, [((rows, codes), U8), ((rows, width - codes), U8)], [view])
    first, second = outputs.views
    arguments = UnpackArguments(
        x=view.address, out=first.address, out_scales=second.address, x_stride=view.strides[0], rows=rows, tokens=rows,
        width=width, codes=codes,
    )  # fmt: skip
    if width:
        _move("unpack_payload", view, None, arguments)
    return outputs.finish()


@planned(2)
def _gather_host(payload: Any, row_map: Any, splits: Any, align: Any, name: str, *, out: Any = None) -> Any:
    """Gather by splits that the host knows."""
    view, align = _payload(payload, name), _count("align", align, 1)
    experts, total, taken = _experts(_splits(splits), align)
    index, map_bytes = _indices("row_map", row_map, view, taken, f"splits sum to {taken}")
    outputs = Outputs(out, _wanted(view, name, total, experts.count), [view, index])
    arguments = _gather_arguments(GATHERS[name, False], view, index, outputs, total, map_bytes=map_bytes)
    arguments.experts = experts
    if total and view.shape[1]:
        _move(name, view, None, arguments)
    elif experts.count:  # no byte to move, but offsets to write
        grid = launch.TUNING["payload_rows"]
        function, arguments.rows = driver().function("payload_rows", f"{name}_1", view.device, grid.defines), 0
        plans.launch(function, view.device, (1, 1), grid.threads, view.library.stream(view.device), arguments)
    return outputs.finish()


@planned(3)
def _gather_device(payload: Any, row_map: Any, splits: Any, align: Any, name: str, *, out: Any = None) -> Any:
    """Gather by splits that lie on the device; the rows of `out` say how many there are, its last array is scratch."""
    view, align = _payload(payload, name), _count("align", align, 1)
    index, map_bytes = _indices("row_map", row_map, view, None, "it is a list of rows")
    counts, split_bytes = _indices("splits", splits, view, None, "it is a list of counts")
    experts, total = counts.shape[0], int(interop.look("out[0]", out[0]).shape[0])
    held = ((8 * (experts + 1),), U8)
    outputs = Outputs(out, [*_wanted(view, name, total, experts), held], [view, index, counts])
    arguments = _gather_arguments(
        GATHERS[name, True], view, index, outputs, total, map_bytes=map_bytes, splits=counts.address,
        split_stride=counts.strides[0], split_bytes=split_bytes, align=align, all_experts=experts,
    )  # fmt: skip
    grid = launch.TUNING["payload_rows"]
    function = driver().function("payload_rows", "permute_offsets", view.device, grid.defines)
    plans.launch(function, view.device, (1, 1), 1024, view.library.stream(view.device), arguments)
    if total and view.shape[1]:
        _move(name + "_device", view, None, arguments)
    return outputs.finish()


@planned(2)
def _gather_once(payload: Any, row_map: Any, splits: Any, align: Any, name: str, *, out: Any = None) -> Any:
    """Gather by splits that the host knows, from the payload's side; the last result is scratch."""
    view, align = _payload(payload, name), _count("align", align, 1)
    experts, total, taken = _experts(_splits(splits), align)
    index, map_bytes = _indices("row_map", row_map, view, taken, f"splits sum to {taken}")
    tokens = view.shape[0]
    held = ((tokens * PLACES,), U8)
    outputs = Outputs(out, [*_wanted(view, name, total, experts.count), held], [view, index])
    arguments = _gather_arguments(SCATTERS[name], view, index, outputs, total, map_bytes=map_bytes)
    arguments.experts = experts
    grid, stream = launch.TUNING["payload_rows"], view.library.stream(view.device)
    for step, items in (("permute_clear", tokens), ("permute_list", taken)):
        function = driver().function("payload_rows", step, view.device, grid.defines)
        plans.launch(function, view.device, (-(-items // grid.threads), 1), grid.threads, stream, arguments)
    _move(name + "_scatter", view, None, arguments, tokens + total - taken)
    return outputs.finish()


def _payload(payload: Any, name: str) -> View:
    return launch.codes("payload", payload, UNIT if name == "permute_unpack" else 1)


def _wanted(view: View, name: str, total: int, experts: int) -> list[Any]:
    """Shapes and dtypes of a gather's results."""
    width = view.shape[1]
    codes = width // UNIT * (UNIT - 1)
    parted = [((total, codes), U8), ((total, width - codes), U8)]
    return [*(parted if name == "permute_unpack" else [((total, width), U8)]), ((experts,), I64)]


def _gather_arguments(
    kind: type[RowArguments], view: View, index: View, outputs: Outputs, total: int, **more: Any
) -> RowArguments:
    results = [slot for slot in kind.slots if slot in ("out", "out_scales", "offsets", "scratch")]
    addresses = dict(zip(results, (x.address for x in outputs.views), strict=True))
    return kind(
        x=view.address, map=index.address, x_stride=view.strides[0], map_stride=index.strides[0], rows=total,
        tokens=view.shape[0], mapped=index.shape[0], width=view.shape[1], codes=outputs.views[0].shape[1],
        **addresses, **more,
    )  # fmt: skip


def _reads_once(payload: Any, row_map: Any) -> bool:
    """Whether a gather is large and takes rows so often that lists of their places pay."""
    rows: tuple[int, ...] = getattr(payload, "shape", ())
    taken: tuple[int, ...] = getattr(row_map, "shape", ())
    if len(rows) != 2 or len(taken) != 1:
        return False  # the checks say what is wrong
    return bool(0 < 2 * rows[0] <= taken[0] and taken[0] * rows[1] >= ONCE and rows[1] > 0)


def gather(name: str, payload: Any, row_map: Any, splits: Any, align: int, out: Any) -> Any:
    """`permute_pad` or `permute_unpack`: gather payload rows by expert, padded with zero rows."""
    results = 2 + (name == "permute_unpack")
    if not hasattr(splits, "__dlpack_device__") or isinstance(splits, np.ndarray):
        if not _reads_once(payload, row_map):
            return _gather_host(payload, row_map, splits, align, name, out=out)
        if isinstance(out, tuple | list) and len(out) == results:
            view = interop.look("payload", payload)
            out = (*out, view.library.empty((view.shape[0] * PLACES,), U8, view.device))
        elif out is not None:
            raise ArgumentError(f"out is not a tuple of {results} arrays, the results of {name}")
        return _gather_once(payload, row_map, splits, align, name, out=out)[:results]
    if not isinstance(out, tuple | list) or len(out) != results:
        raise ArgumentError(
            f"splits lie on the device but out is not a tuple of {results} arrays; its rows say how many rows there "
            f"are, which only the device knows: give it, or give splits of the host"
        )
    counts = interop.look("splits", splits)
    held = counts.library.empty((8 * (counts.shape[0] + 1),) if counts.shape else (8,), U8, counts.device)
    return _gather_device(payload, row_map, splits, align, name, out=(*out, held))[:results]


def unpermute(rows: Any, row_map: Any, splits: Any, weights: Any, tokens: int, align: int, out: Any) -> Any:
    """Sum each token's expert rows; the last result of the planned call is scratch."""
    if out is not None:
        view, out = interop.look("rows", rows), out[0] if isinstance(out, tuple | list) and len(out) == 1 else out
        out = (out, view.library.empty((_count("tokens", tokens, 0) * HELD,), U8, view.device))
    if weights is None:
        return _sum_plain(rows, row_map, splits, tokens, align, out=out)[0]
    return _sum_weighted(rows, row_map, weights, splits, tokens, align, out=out)[0]


@planned(2)
def _sum_plain(rows: Any, row_map: Any, splits: Any, tokens: int, align: int, *, out: Any = None) -> Any:
    return _sum(rows, row_map, None, splits, tokens, align, out)


@planned(3)
def _sum_weighted(
    rows: Any, row_map: Any, weights: Any, splits: Any, tokens: int, align: int, *, out: Any = None
) -> Any:
    return _sum(rows, row_map, weights, splits, tokens, align, out)


def _sum(rows: Any, row_map: Any, weights: Any, splits: Any, tokens: Any, align: Any, out: Any) -> Any:
    view = launch.matrix("rows", rows, 1)
    if view.dtype not in checks.KINDS or view.dtype == np.float16:
        raise DtypeError(f"rows has dtype {view.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    tokens, align = _count("tokens", tokens, 0), _count("align", align, 1)
    experts, total, taken = _experts(_splits(splits), align)
    if view.shape[0] != total:
        raise ShapeError(f"rows has shape {view.shape}; splits at align={align} need {total} rows")
    index, index_width = _indices("row_map", row_map, view, taken, f"splits sum to {taken}")
    inputs, factors = [view, index], None
    if weights is not None:
        factors = _vector("weights", weights, view, taken, f"splits sum to {taken}")
        if factors.dtype != np.float32:
            raise DtypeError(f"weights has dtype {factors.dtype}; allowed is float32")
        inputs.append(factors)
    width = view.shape[1]
    outputs = Outputs(out, [((tokens, width), np.dtype(np.float32)), ((tokens * HELD,), U8)], inputs)
    if tokens == 0 or width == 0:
        return outputs.finish()
    arguments = (WeightedArguments if factors else SumArguments)(
        x=view.address, map=index.address, weights=factors.address if factors else None,
        out=outputs.views[0].address, scratch=outputs.views[1].address, x_stride=view.strides[0],
        map_stride=index.strides[0],
        weight_stride=factors.strides[0] if factors else 0, tokens=tokens, mapped=taken, width=width,
        map_bytes=index_width, experts=experts,
    )  # fmt: skip
    _launch_sums(view, arguments)
    return outputs.finish()


def _launch_sums(view: View, arguments: SumArguments) -> None:
    """Launch the three kernels: counts of zero, lists of rows, sums."""
    tokens, width, taken = arguments.tokens, arguments.width, arguments.mapped
    size = view.dtype.itemsize
    vector = 4 if width % 4 == 0 and _piece(view.address, view.strides[0]) >= 4 * size else 1
    step = 32 * vector
    arguments.warps = -(-width // COLUMNS)
    arguments.span = -(-width // (arguments.warps * step)) * step
    arguments.warps = -(-width // arguments.span)
    grid, stream = launch.TUNING["permute_sum"], view.library.stream(view.device)
    if tokens * arguments.warps > MOST * (grid.threads // 32):
        raise UnsupportedError(f"{tokens} tokens of {width} columns; give fewer at a time")
    kind = "float32" if view.dtype == np.float32 else "bfloat16"
    for name, items in (
        ("unpermute_clear", tokens), ("unpermute_list", taken),
        (f"unpermute_{kind}" + ("_vector" if vector > 1 else ""), 32 * tokens * arguments.warps),
    ):  # fmt: skip
        if items:
            function = driver().function("permute_sum", name, view.device, grid.defines)
            plans.launch(function, view.device, (-(-items // grid.threads), 1), grid.threads, stream, arguments)


def fused(name: str, inputs: Sequence[View], out: Any, k: int, rules: tuple[int, int, int]) -> Any:
    """Launch a kernel that quantises rows of k elements straight into payload rows."""
    x = inputs[0]
    m = x.shape[0]
    outputs = Outputs(out, [((m, k // BLOCK * UNIT), U8)], inputs)
    if m == 0 or k == 0:
        return outputs.finish()
    grid = launch.TUNING["payload_quantize"]
    part = grid.part // 2 if x.dtype == np.float32 else grid.part
    aligned = _piece(x.address, x.strides[0] if m > 1 else 0, k // BLOCK * UNIT) == 16
    arguments = Arguments(
        x=x.address, scales=inputs[1].address if len(inputs) > 1 else None, out=outputs.views[0].address,
        chunks=m * (k // part), x_stride=x.strides[0], scale_stride=inputs[1].strides[0] if len(inputs) > 1 else 0,
        per_row=k // part, valid=k // part, tall=1, aligned=aligned,
        per_row_inverse=((1 << 64) // (k // part) + 1) & ((1 << 64) - 1),
        rule=rules[0], satfinite=rules[1], zero_byte=rules[2],
    )  # fmt: skip
    suffix = ("_aligned_rceil" if rules[0] == 0 else "_aligned") if aligned else ""
    function = driver().function("payload_quantize", name + suffix, x.device, grid.defines)
    blocks = -(-m * (k // part) // (grid.threads * grid.unroll))
    plans.launch(function, x.device, (blocks, 1), grid.threads, x.library.stream(x.device), arguments)
    return outputs.finish()
