"""Launchers of the permutation of payloads by expert, padded (clause N12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

from ..checks import UNIT, count
from ..device import arrays
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import payload as payloads
from ..interface.call import public
from ..interface.payload import Gather, gathered
from .payload_rows import RowArguments, item_bytes, move_rows, on_device, places, step
from .rowwise import TUNING

__all__ = ["permute_pad", "permute_unpack"]

P = ParamSpec("P")
ONCE = 96 << 20
"""Bytes of a result; a gather of as many or more reads each payload row once: see docs/results."""
PLACES = 32 * 4 + 4
"""Bytes of scratch that such a gather needs for a token: a list of 32 places and their count."""


class PermuteArguments(RowArguments):
    """The arguments of a gather into one array."""

    slots = ("x", "map", "out", "offsets")


class PartArguments(RowArguments):
    """The arguments of a gather into codes and scales."""

    slots = ("x", "map", "out", "out_scales", "offsets")


class PermuteDeviceArguments(RowArguments):
    """The arguments of a gather into one array by splits on the device."""

    slots = ("x", "map", "splits", "out", "offsets", "scratch")


class PartDeviceArguments(RowArguments):
    """The arguments of a gather into codes and scales by splits on the device."""

    slots = ("x", "map", "splits", "out", "out_scales", "offsets", "scratch")


class ScatterArguments(RowArguments):
    """The arguments of a gather into one array that reads every row once."""

    slots = ("x", "map", "out", "offsets", "scratch")


class PartScatterArguments(RowArguments):
    """The arguments of a gather into codes and scales that reads every row once."""

    slots = ("x", "map", "out", "out_scales", "offsets", "scratch")


SCATTERS = {"permute_pad": ScatterArguments, "permute_unpack": PartScatterArguments}
GATHERS = {
    ("permute_pad", False): PermuteArguments, ("permute_pad", True): PermuteDeviceArguments,
    ("permute_unpack", False): PartArguments, ("permute_unpack", True): PartDeviceArguments,
}  # fmt: skip
"""(Operation, whether splits lie on the device) -> its arguments."""


def _gather(call: DeviceCall, given: Gather[View]) -> None:
    """Launch a gather by splits on the host."""
    view, index, name = given.payload, given.row_map, call.operation
    once = _reads_once(view, index.shape[0])
    kind = SCATTERS[name] if once else GATHERS[name, False]
    scratch = call.scratch(once * view.shape[0] * PLACES)
    arguments = _arguments(call, kind, view, index, given.total, scratch=scratch)
    arguments.experts = places(given.splits, given.align)
    if once:
        _scatter(call, view, arguments)
    elif given.total and view.shape[1]:
        move_rows(call, name, view, None, arguments)
    elif given.splits:  # no byte to move, but offsets to write
        arguments.rows = 0
        step(call, arguments, f"{name}_1", 1, TUNING["payload_rows"].threads)


def _reads_once(view: View, taken: int) -> bool:
    """Return whether a gather is large and takes each row so often that lists of its places save time."""
    tokens, width = view.shape
    return 0 < 2 * tokens <= taken and taken * width >= ONCE and width > 0


def _scatter(call: DeviceCall, view: View, arguments: RowArguments) -> None:
    """Launch a gather that enters every place in the list of its token, then reads every payload row once."""
    threads, tokens, taken = TUNING["payload_rows"].threads, view.shape[0], arguments.mapped
    items = (("permute_clear", tokens), ("permute_list", taken))
    before = [(name, -(-count_ // threads), threads) for name, count_ in items]
    move_rows(call, call.operation + "_scatter", view, None, arguments, tokens + arguments.rows - taken, before)


def _described_on_device(
    call: DeviceCall, payload: Any, row_map: Any, splits: Any, align: Any, *, out: Any = None
) -> tuple[View, View, View, int]:
    """Check the arguments of a gather by splits that lie on the device; the rows of `out` say how many there are."""
    parted = call.operation == "permute_unpack"
    view, align = call.codes("payload", payload, UNIT if parted else 1), count("align", align, 1)
    index = call.indices("row_map", row_map, view, None, "it is a list of rows", None, "")
    counts = call.indices("splits", splits, view, None, "it is a list of counts", None, "")
    total = next(iter(arrays.look("out[0]", out[0]).shape), 0)
    call.outputs(out, gathered(view, parted, total, counts.shape[0]), [view, index, counts])
    return view, index, counts, align


def _gather_on_device(call: DeviceCall, given: tuple[View, View, View, int]) -> None:
    """Launch a gather by splits on the device."""
    view, index, counts, align = given
    experts, total = counts.shape[0], call.results[0].shape[0]
    arguments = _arguments(
        call, GATHERS[call.operation, True], view, index, total, splits=counts.address, align=align,
        split_stride=counts.strides[0], split_bytes=item_bytes(counts), all_experts=experts,
        scratch=call.scratch(8 * (experts + 1)),
    )  # fmt: skip
    offsets = ("permute_offsets", 1, 1024)
    if total and view.shape[1]:
        move_rows(call, call.operation + "_device", view, None, arguments, before=[offsets])
    else:
        step(call, arguments, *offsets)


def _arguments(
    call: DeviceCall, kind: type[RowArguments], view: View, index: View, total: int, **more: Any
) -> RowArguments:
    results = [slot for slot in kind.slots if slot in ("out", "out_scales", "offsets")]
    addresses = dict(zip(results, (x.address for x in call.results), strict=True))
    return kind(
        x=view.address, map=index.address, x_stride=view.strides[0], map_stride=index.strides[0],
        map_bytes=item_bytes(index), rows=total, tokens=view.shape[0], mapped=index.shape[0], width=view.shape[1],
        codes=call.results[0].shape[1], **addresses, **more,
    )  # fmt: skip


def _by_splits(described: Callable[Concatenate[DeviceCall, P], Gather[View]], results: int) -> Callable[P, Any]:
    """Return the launcher of a gather, which takes splits of the host or on the device."""
    by_host = cast(Any, planned(described, 2)(_gather))
    by_device = planned(_described_on_device, 3, operation=described.__name__)(_gather_on_device)

    @public(described, _gather)
    def launcher(payload: Any, row_map: Any, splits: Any, align: Any = 32, *, out: Any = None) -> Any:
        if on_device(splits, out, results):
            return by_device(payload, row_map, splits, align, out=out)
        return by_host(payload, row_map, splits, align, out=out)

    return cast(Callable[P, Any], launcher)


permute_pad = _by_splits(payloads.permute_pad, 2)
permute_unpack = _by_splits(payloads.permute_unpack, 3)
