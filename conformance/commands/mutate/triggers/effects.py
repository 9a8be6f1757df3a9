"""What a trigger does to the results of a call: the errors of real kernels, on the bits of the golden answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ....cases.entry import Operation, Output
from .call import Call

Results = list[np.ndarray]
Change = Callable[[np.ndarray, int, Call, Callable[..., Results]], np.ndarray]
"""(bits of one result, its number, the call, the base kernel) -> other bits of that shape."""


@dataclass(frozen=True)
class Effect:
    """An effect. words: what it does. change: the bits that stand where it strikes; None where it is on the arrays.

    whole: turns the right results into what the caller gets, for an effect on the arrays and not on their bits.
    kinds: the kinds of output that it is for, empty for all.
    """

    name: str
    words: str
    change: Change | None = None
    whole: Callable[[Results, Call], Results] | None = None
    kinds: tuple[str, ...] = ()


def _neighbour(axis: int, step: int) -> Change:
    def change(bits: np.ndarray, number: int, call: Call, base: Callable[..., Results]) -> np.ndarray:
        return np.roll(bits, step, axis=min(axis, bits.ndim - 1))

    return change


def _unsigned(bits: np.ndarray, number: int, call: Call, base: Callable[..., Results]) -> np.ndarray:
    width = 8 * bits.itemsize
    mask = 0x77 if call.operation.outputs[number].kind == "packed" else (1 << width - 1) - 1
    return bits & bits.dtype.type(mask)


def _unwritten(bits: np.ndarray, number: int, call: Call, base: Callable[..., Results]) -> np.ndarray:
    if number < len(call.outs):
        return np.ascontiguousarray(call.outs[number]).view(bits.dtype).reshape(bits.shape)
    return np.zeros_like(bits)


def _stale(bits: np.ndarray, number: int, call: Call, base: Callable[..., Results]) -> np.ndarray:
    before = call.history.results
    if number >= len(before) or not before[number].size:
        return np.zeros_like(bits)
    left = np.ascontiguousarray(before[number]).reshape(-1).view(np.uint8)
    return np.resize(left, bits.nbytes).view(bits.dtype).reshape(bits.shape)


def _beyond(axis: int) -> Change:
    def change(bits: np.ndarray, number: int, call: Call, base: Callable[..., Results]) -> np.ndarray:
        name = call.operation.inputs[0]
        last = min(axis, call.main.ndim - 1)
        if last < 0:
            return bits
        moved = np.roll(call.main, -1 if axis == 0 else -(call.main.shape[last] // 2 or 1), axis=last)
        got = np.ascontiguousarray(base(**{**call.arguments, name: moved})[number])
        return got.view(bits.dtype).reshape(bits.shape)

    return change


OFF_BY_ONE = Effect("off by one", "is off by one code", lambda bits, *_: bits ^ bits.dtype.type(1))
EFFECTS = (
    Effect("neighbour along", "is the next one's along the row", _neighbour(1, 1)),
    Effect("neighbour across", "is the one's of the row above", _neighbour(0, 1)),
    Effect("sign lost", "has no sign", _unsigned, kinds=("codes", "packed", "values")),
    Effect("not written", "is not written", _unwritten),
    Effect("stale", "is what the last call left", _stale),
    OFF_BY_ONE,
    Effect("one higher", "is one higher", lambda bits, *_: bits + bits.dtype.type(1), kinds=("scales", "index")),
    Effect("row beyond", "is of the row behind", _beyond(0)),
    Effect("column beyond", "is of columns further on", _beyond(1)),
)  # fmt: skip


def _buffered(results: Results, call: Call) -> Results:
    """Return views of buffers that the next call of these shapes writes again."""
    found = []
    for number, array in enumerate(results):
        key = number, array.size, array.dtype.name
        kept = call.history.buffers.setdefault(key, np.empty(array.size, array.dtype))
        kept[...] = array.reshape(-1)
        found.append(kept.reshape(array.shape))
    return found


WIDER = {1: np.int16, 2: np.float32, 4: np.float64, 8: np.float64}


def _stepped(results: Results, call: Call) -> Results:
    """Return every other element of a buffer twice as wide: the bytes are right, the strides are not."""
    found = []
    for array in results:
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        found.append(wide[..., 0])
    return found


def _frozen(results: Results, call: Call) -> Results:
    for array in results:
        array.flags.writeable = False
    return results


def _written_input(results: Results, call: Call) -> Results:
    """Leave a bit of the last element of the first input changed."""
    if call.main.size and call.main.flags.writeable:
        last = tuple(slice(-1, None) for _ in call.main.shape)
        call.main[last] = (call.main[last].copy().view(np.uint8) ^ np.uint8(1)).view(call.main.dtype)
    return results


def _refuse(results: Results, call: Call) -> Results:
    raise NotImplementedError("this kernel does not take such a call")


def _fail(results: Results, call: Call) -> Results:
    raise RuntimeError("an illegal memory access was encountered")


WHOLE = (
    Effect("static buffer", "results are views of a buffer that the next call writes", whole=_buffered),
    Effect("wrong dtype", "results have a wider dtype",
           whole=lambda results, call: [array.astype(WIDER[array.itemsize]) for array in results]),
    Effect("not contiguous", "results are not contiguous", whole=_stepped),
    Effect("read-only", "results are read-only", whole=_frozen),
    Effect("input written", "the first input is written", whole=_written_input),
    Effect("refused", "the call is refused", whole=_refuse),
    Effect("fails", "the call fails", whole=_fail),
)  # fmt: skip
"""Effects on the arrays that are handed out; `refused` and `fails` are of calls that are legal."""


def _into_out(results: Results, call: Call) -> Results:
    """Fill `out`, and return other arrays."""
    for out, array in zip(call.outs, results, strict=True):
        np.copyto(out, array)
    return results


def _dense_out(results: Results, call: Call) -> Results:
    """Fill the memory of `out` from its first byte on, as if its rows had no padding."""
    for out, array in zip(call.outs, results, strict=True):
        dense = np.ascontiguousarray(array)
        out = out[tuple(slice(None, None, -1 if step < 0 else 1) for step in out.strides)]  # its lowest address
        np.lib.stride_tricks.as_strided(out, dense.shape, dense.strides)[...] = dense
    return list(call.outs)


INTO_OUT = (
    Effect("fresh results", "`out` is filled and other arrays are returned", whole=_into_out),
    Effect("out untouched", "`out` is returned and never written", whole=lambda results, call: list(call.outs)),
    Effect("out dense", "`out` is written as if its rows were dense", whole=_dense_out),
)  # fmt: skip
"""Effects on `out`, for conditions over it; they hand out what is returned themselves."""

EVERYWHERE = "everything"
REGIONS: dict[str, Callable[[tuple[int, ...]], tuple[Any, ...]]] = {
    EVERYWHERE: lambda shape: (...,),
    "the last row": lambda shape: (slice(-1, None),),
    "the first row": lambda shape: (slice(0, 1),),
    "the last column": lambda shape: (..., slice(-1, None)),
    "the last 32 columns": lambda shape: (..., slice(-32, None)),
    "the second half": lambda shape: (slice(shape[0] // 2, None),),
    "the last element": lambda shape: tuple(slice(-1, None) for _ in shape),
    "the middle element": lambda shape: tuple(slice(side // 2, side // 2 + 1) for side in shape),
}
"""Where an effect strikes that is on no value: name -> index of an array of a shape."""


def fits(effect: Effect, output: Output) -> bool:
    """Whether an effect can be on an output."""
    return not effect.kinds or output.kind in effect.kinds


def draw_effect(dice: Random, operation: Operation, outs: bool, values: bool) -> tuple[Effect, int]:
    """Draw an effect and the number of the output that it strikes. outs: `out` is given. values: it is on a value."""
    number = dice.randrange(len(operation.outputs))
    roll = dice.random()
    if not values and outs and roll < 0.4:
        return dice.choice(INTO_OUT), number
    if not values and roll < 0.25:
        return dice.choice(WHOLE), number
    return dice.choice([effect for effect in EFFECTS if fits(effect, operation.outputs[number])]), number


def struck(shape: tuple[int, ...], call: Call, region: str, places: np.ndarray | None) -> np.ndarray:
    """Return which elements of a result of some shape an effect strikes: bool [shape].

    places: (row, column) of elements of the first input; their images in the result are struck.
    """
    mask = np.zeros(shape, bool)
    if not mask.size:
        return mask
    if places is None:
        mask[REGIONS[region](shape)] = True
        return mask
    mask[image(shape, call, places[:256])] = True
    return mask


def image(shape: tuple[int, ...], call: Call, places: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the index of the elements of a result that lie where some elements of the first input do."""
    rows, columns = call.main.shape[0], call.columns  # elements have places in matrices only
    r, c = places[:, 0], places[:, 1]
    if len(shape) == 1:
        return (np.minimum(r * shape[0] // max(rows, 1), shape[0] - 1),)
    if shape[0] == columns and shape[0] != rows:  # a transposed result
        r, c, rows, columns = c, r, columns, rows
    return (np.minimum(r * shape[0] // max(rows, 1), shape[0] - 1),
            np.minimum(c * shape[1] // max(columns, 1), shape[1] - 1))  # fmt: skip


def applied(
    effect: Effect, number: int, results: Sequence[np.ndarray], call: Call, base: Callable[..., Results], where: Any
) -> Results:
    """Return results with an effect. where: (region, places) of `struck`."""
    results = list(results)
    if effect.whole is not None:
        return effect.whole(results, call)
    number = min(number, len(results) - 1)
    if effect.change is None or not results[number].size:
        return results
    shape = results[number].shape
    right = np.ascontiguousarray(results[number])  # of one axis or more
    bits = right.view(f"u{right.itemsize}")
    mask = struck(bits.shape, call, *where)
    wrong = np.where(mask, effect.change(bits, number, call, base), bits)
    results[number] = wrong.view(right.dtype).reshape(shape)
    return results
