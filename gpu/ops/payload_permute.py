"""Launchers of the permutation of payloads by expert, padded (clause N12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.errors import ArgumentError

from ..checks import count, row_counts
from ..device import arrays
from ..device.arrays import View
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise
from .payload_rows import UNIT, RowArguments, indices, move_rows, places, step

__all__ = ["permute_pad", "permute_unpack"]

ONCE = 96 << 20
"""Bytes of a gather's result from which on each row that is taken several times is read once: see docs/results."""
PLACES = 32 * 4 + 4
"""Bytes that such a gather holds of a token: a list of 32 places and their count."""
I64 = np.dtype(np.int64)


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


@planned(2)
def _gather_host(payload: Any, row_map: Any, splits: Any, align: Any, name: str, *, out: Any = None) -> Any:
    """Gather by splits that the host knows."""
    view, align = _payload(payload, name), count("align", align, 1)
    experts, total, taken = places(row_counts(splits), align)
    index, map_bytes = indices("row_map", row_map, view, taken, f"splits sum to {taken}")
    once = _reads_once(view, taken)
    outputs = Outputs(out, _wanted(view, name, total, experts.count), [view, index], once * view.shape[0] * PLACES)
    kind = SCATTERS[name] if once else GATHERS[name, False]
    arguments = _gather_arguments(kind, view, index, outputs, total, map_bytes=map_bytes)
    arguments.experts = experts
    if once:
        _scatter(name, view, arguments)
    elif total and view.shape[1]:
        move_rows(name, view, None, arguments)
    elif experts.count:  # no byte to move, but offsets to write
        arguments.rows = 0
        step(view, arguments, f"{name}_1", 1, rowwise.TUNING["payload_rows"].threads)
    return outputs.finish()


def _reads_once(view: View, taken: int) -> bool:
    """Whether a gather is large and takes rows so often that lists of their places pay."""
    tokens, width = view.shape
    return 0 < 2 * tokens <= taken and taken * width >= ONCE and width > 0


def _scatter(name: str, view: View, arguments: RowArguments) -> None:
    """Launch a gather from the payload's side: every place entered in its token's list, every row read once."""
    threads, tokens, taken = rowwise.TUNING["payload_rows"].threads, view.shape[0], arguments.mapped
    items = (("permute_clear", tokens), ("permute_list", taken))
    before = [(name_, -(-count_ // threads), threads) for name_, count_ in items]
    move_rows(name + "_scatter", view, None, arguments, tokens + arguments.rows - taken, before)


@planned(3)
def _gather_device(payload: Any, row_map: Any, splits: Any, align: Any, name: str, *, out: Any = None) -> Any:
    """Gather by splits that lie on the device; the rows of `out` say how many there are."""
    view, align = _payload(payload, name), count("align", align, 1)
    index, map_bytes = indices("row_map", row_map, view, None, "it is a list of rows")
    counts, split_bytes = indices("splits", splits, view, None, "it is a list of counts")
    experts, total = counts.shape[0], next(iter(arrays.look("out[0]", out[0]).shape), 0)
    outputs = Outputs(out, _wanted(view, name, total, experts), [view, index, counts], 8 * (experts + 1))
    arguments = _gather_arguments(
        GATHERS[name, True], view, index, outputs, total, map_bytes=map_bytes, splits=counts.address,
        split_stride=counts.strides[0], split_bytes=split_bytes, align=align, all_experts=experts,
    )  # fmt: skip
    offsets = ("permute_offsets", 1, 1024)
    if total and view.shape[1]:
        move_rows(name + "_device", view, None, arguments, before=[offsets])
    else:
        step(view, arguments, *offsets)
    return outputs.finish()


def _payload(payload: Any, name: str) -> View:
    return rowwise.codes("payload", payload, UNIT if name == "permute_unpack" else 1)


def _wanted(view: View, name: str, total: int, experts: int) -> list[Any]:
    """Shapes and dtypes of a gather's results."""
    width = view.shape[1]
    codes = width // UNIT * (UNIT - 1)
    parted = [((total, codes), U8), ((total, width - codes), U8)]
    return [*(parted if name == "permute_unpack" else [((total, width), U8)]), ((experts,), I64)]


def _gather_arguments(
    kind: type[RowArguments], view: View, index: View, outputs: Outputs, total: int, **more: Any
) -> RowArguments:
    results = [slot for slot in kind.slots if slot in ("out", "out_scales", "offsets")]
    addresses = dict(zip(results, (x.address for x in outputs.views), strict=True))
    return kind(
        x=view.address, map=index.address, scratch=outputs.scratch, x_stride=view.strides[0],
        map_stride=index.strides[0], rows=total, tokens=view.shape[0], mapped=index.shape[0], width=view.shape[1],
        codes=outputs.views[0].shape[1], **addresses, **more,
    )  # fmt: skip


def permute_pad(payload: Any, row_map: Any, splits: Any, align: int = 32, *, out: Any = None) -> Any:
    """Gather payload rows u8 [T, W] by expert, padded to `align` (N12) -> (u8 [sum roundup(m_i, align), W], offsets).

    offsets: int64 [experts], computed on the device. splits: the host's, for they decide the result's shape; or an
    array of integers on the device, then `out` must be given, experts beyond its rows are cut off, and rows behind
    the last expert, or beyond the row_map, are zero; a count that is negative or above the row_map's is 0.
    Nothing on the device is looked at before the launch: a row_map item that is no row of the payload gives a zero row.
    """
    if _on_device(splits, out, 2):
        return _gather_device(payload, row_map, splits, align, "permute_pad", out=out)
    return _gather_host(payload, row_map, splits, align, "permute_pad", out=out)


def permute_unpack(payload: Any, row_map: Any, splits: Any, align: int = 32, *, out: Any = None) -> Any:
    """Gather payload rows as `permute_pad` does and split them as `unpack_payload` does, in one pass (N12).

    Returns (packed u8 [R, K/2], scales u8 [R, K/32], offsets int64 [experts]), R = sum roundup(m_i, align).
    """
    if _on_device(splits, out, 3):
        return _gather_device(payload, row_map, splits, align, "permute_unpack", out=out)
    return _gather_host(payload, row_map, splits, align, "permute_unpack", out=out)


def _on_device(splits: Any, out: Any, results: int) -> bool:
    """Whether splits lie on the device; ArgumentError when they do and `out` does not say how many rows there are."""
    if type(splits) is list or not hasattr(splits, "__dlpack_device__"):
        return False
    if not arrays.on_gpu("splits", splits):
        return False
    if not isinstance(out, tuple | list) or len(out) != results:
        raise ArgumentError(
            f"splits lie on the device but out is not a tuple of {results} arrays; its rows say how many rows there "
            f"are, which only the device knows: give it, or give splits of the host"
        )
    return True
