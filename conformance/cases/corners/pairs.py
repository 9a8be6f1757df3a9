"""Corners of pairs: every class of element beside every other, at every relation of places; of scale bytes as well.

Two elements stand in the two halves of an aligned group along a row (a packed pair, words of 4 to 16, a block, blocks
and tiles beside each other) or down the rows. Each pair of classes meets at each relation once, both ways round, among
ordinary values. The arrays depend on no seed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import BF16, FP32, Format

from ..draw import CODED, VALUES, Draw
from ..draw.bits import as_float
from ..draw.coded import Layout
from ..draw.values import Target
from ..operation import OPERATIONS
from ..recipes.distributions import layout_of, target_of

Corner = tuple[str, dict[str, np.ndarray], dict[str, Any]]
Place = tuple[int, int, int]
"""Elements of a group, and two places in it."""

SPANS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Elements of an aligned group in whose two halves the two of a pair stand."""
WIDE, TALL = 1024, 256
BYTES = (0, 1, 8, 120, 127, 246, 254, 255)
"""Scale bytes at which something clamps, flushes or is no number, and ordinary ones."""


@functools.cache
def alphabet(fmt: Format, kept: int) -> tuple[int, ...]:
    """Return a pattern of every class, both signs, those that rule a block last: ties of `kept` mantissa bits."""
    top = fmt.sign_mask or 1 << fmt.bits
    if fmt.kind == "integer":
        return 0, 1, top * 2 - 1, top // 2, fmt.max_code, top * 2 - fmt.max_code, top
    if not fmt.sign_mask:
        return 0, 1, fmt.bias, fmt.bias + 1, fmt.max_code, top - 1
    one, low = fmt.bias << fmt.mantissa_bits, fmt.mantissa_bits - kept - 1
    subnormal = max(1, (1 << fmt.mantissa_bits) * 5 // 8)
    found = [0, subnormal, one + (1 << max(low, 0)), one + 1, fmt.max_code]
    found += [fmt.inf_code] if fmt.inf_code is not None else []
    found += [fmt.nan_code] if fmt.nan_code is not None else []
    return tuple(code | sign for code in dict.fromkeys(found) for sign in (0, fmt.sign_mask))


@functools.cache
def places(width: int, block: int) -> tuple[Place, ...]:
    """Return (size, lower, upper) of each relation: two places of a group of `block` or more places.

    In groups of more than 32 they stand next to each other, where blocks and tiles meet.
    """
    found = []
    for number, span in enumerate(span for span in SPANS if span <= width):
        half, size = span // 2, max(block, span)
        first = number * 40 % size // span * span
        lower, upper = (half - 1 - number, number) if span > 32 else (number % half, 3 * number % half)
        found.append((size, first + lower, first + half + upper))
    return tuple(found)


def _planted(ground: np.ndarray, places: Sequence[Place], pairs: Sequence[tuple[int, int]], row: int) -> np.ndarray:
    """Return rows of ordinary patterns with every pair at every place, in groups one after another."""
    size, lower, upper = (np.repeat(part, len(pairs)) for part in zip(*places, strict=True))
    starts = np.cumsum(size) - size
    flat: np.ndarray = np.resize(ground, -(-int(size.sum()) // row) * row).copy()
    for at, patterns in zip((lower, upper), zip(*pairs, strict=True), strict=True):
        flat[starts + at] = np.tile(np.array(patterns, flat.dtype), len(places))
    return flat.reshape(-1, row)


def along(ground: np.ndarray, classes: tuple[int, ...], block: int) -> np.ndarray:
    """Return ordinary patterns with every pair of classes at every relation along a row: [M, 1024].

    block: elements that a pair has for itself, at least.
    """
    pairs = list(itertools.product(classes, classes))
    return _planted(ground, sorted(places(WIDE, block)), pairs, WIDE)


def down(ground: np.ndarray, classes: tuple[int, ...], block: int) -> np.ndarray:
    """Return ordinary patterns with every pair of classes at every relation down the rows: [256, K].

    Pairs are sorted by what rules a block most, so that those with Inf or NaN do not rule the blocks of the others.
    """
    numbers = sorted(itertools.product(range(len(classes)), repeat=2), key=lambda pair: max(pair) // 2)
    parts = []
    for _, ranked in itertools.groupby(numbers, key=lambda pair: max(pair) // 2):
        pairs = [(classes[i], classes[j]) for i, j in ranked]
        columns = _planted(ground, sorted(places(TALL, block)), pairs, TALL).T
        parts += [columns, np.resize(ground, (TALL, -columns.shape[1] % 32)).astype(ground.dtype)]
    return np.concatenate(parts, axis=1)


def pair_corners(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Yield the pairs of an operation's inputs: values, codes, scale bytes, weights over rows; none of opaque bytes."""
    names, scales = OPERATIONS[operation].inputs, OPERATIONS[operation].kind("scales")
    makers = {"x": _quantised, "rows": _summed, "gate": _gated, "grad": _gated, "codes": _coded, "packed": _coded}
    if names[0] in makers and not {"tensor_amax", "alpha", "r_under", "maxval"} & set(names) and scales == "scales":
        yield from makers[names[0]](operation, params)


@functools.lru_cache(maxsize=16)
def _arrays(fmt: Format, kept: int, block: int) -> tuple[tuple[str, np.ndarray], ...]:
    """Return (label, float array) of pairs along rows and down them, read-only."""
    ground = VALUES["normal"].make(Draw(41), Target(fmt, BF16, block), (61, 64), exponent=0).reshape(-1)
    classes = alphabet(fmt, kept)
    rows, columns = along(ground, classes, block), down(ground, classes, 32)
    found = (
        ("pairs of classes along rows", as_float(rows, fmt)),
        ("pairs of classes down rows", as_float(columns, fmt)),
    )
    for _, array in found:
        array.flags.writeable = False
    return found


def _quantised(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    target = target_of(operation, params)
    square = tuple(params.get("tile", ())) == (128, 128)
    kept = target.element.mantissa_bits if target.element.kind == "float" else target.element.fraction_bits
    unit = OPERATIONS[operation].unit or 1
    for label, x in _arrays(target.input, kept, target.block):
        x = np.concatenate([x, x[:, : -x.shape[1] % unit]], axis=1)
        yield label, {"x": x.reshape(1, -1) if square and "along" in label else x}, {}


def _summed(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """`unpermute`: pairs in rows that are taken as they are, sums of two classes, weights of each class over rows."""
    align = int(params.get("align", 32))
    for fmt in (BF16, FP32):
        for label, rows in _arrays(fmt, 3, 32):
            yield _taken(f"{label}, {fmt.name}", rows, align, np.arange(len(rows)))
        classes = np.array(alphabet(fmt, 3), np.uint32)
        both = np.stack(np.meshgrid(classes, classes, indexing="ij")).reshape(2, -1)
        yield _taken(f"sums of two classes, {fmt.name}", as_float(both, fmt), align, np.zeros(2))
        rows = np.stack([np.roll(np.resize(classes, 96), 5 * number) for number in range(WEIGHTS.size)])
        label = f"weights and rows of every class, {fmt.name}"
        label, inputs, extra = _taken(label, as_float(rows, fmt), align, np.arange(len(rows)))
        yield label, {**inputs, "weights": as_float(WEIGHTS, FP32)}, extra


def _taken(label: str, rows: np.ndarray, align: int, row_map: np.ndarray) -> Corner:
    """Return the corner of rows of one expert, padded with ones, that go to the tokens of a map."""
    padded = np.ones((-(-len(rows) // align) * align, rows.shape[1]), rows.dtype)
    padded[: len(rows)] = rows
    inputs = {"rows": padded, "row_map": row_map.astype(np.int32)}
    return label, inputs, {"splits": [len(rows)], "tokens": int(row_map.max()) + 1}


def _gated(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """SwiGLU: pairs in one input beside ordinary ones, classes at the same place, probabilities over rows of each."""
    names = OPERATIONS[operation].inputs
    for label, rows in _arrays(BF16, 3, 128):
        other = np.resize(_arrays(BF16, 3, 32)[0][1][:1, 1:], rows.shape)
        for name in names:
            yield f"{label}, {name}", {**dict.fromkeys(names, other), name: rows}, {}
    classes = np.array(alphabet(BF16, 3), np.uint16)
    triples = np.stack(np.meshgrid(*[classes] * 3, indexing="ij")).reshape(3, -1)
    padded = np.resize(triples, (3, -(-triples.shape[1] // 128) * 128))
    same = {name: as_float(padded[number].reshape(-1, 128), BF16) for number, name in enumerate(names)}
    yield "classes at the same place", same, {}
    yield "probabilities over rows of every class", _weighed(names, classes), {}


WEIGHTS = np.array(sorted({*alphabet(FP32, 0), *alphabet(FP32, 3)}), np.uint32)
"""Weights and probabilities of every class."""


def _weighed(names: tuple[str, ...], classes: np.ndarray) -> dict[str, np.ndarray]:
    """Return a row of 32 for every probability, input and class: the class stands in that input, once."""
    prob, which, kind = (part.reshape(-1) for part in np.meshgrid(WEIGHTS, range(len(names)), classes, indexing="ij"))
    rows = np.arange(prob.size)
    inputs = {}
    for number, name in enumerate(names):
        bits = np.resize(_arrays(BF16, 3, 32)[0][1][:1, 1:].view(np.uint16), (prob.size, 32))
        bits[rows[which == number], rows[which == number] % 32] = kind[which == number]
        inputs[name] = as_float(bits, BF16)
    return {**inputs, "prob": as_float(prob, FP32)}


def _coded(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Codes: pairs of codes under scales that differ from block to block, and pairs of scale bytes."""
    layout = layout_of(operation, params)
    scaled = "scales" in OPERATIONS[operation].inputs
    for label, codes, scales in _codes(layout):
        yield label, _inputs(operation, codes, scales), {}
    if scaled:
        yield "pairs of scale bytes", _inputs(operation, *_bytes(layout)), {}


@functools.lru_cache(maxsize=16)
def _codes(layout: Layout) -> tuple[tuple[str, np.ndarray, np.ndarray], ...]:
    """Return (label, codes, scales) of pairs of codes along rows and down them."""
    ground = CODED["apart"].make(Draw(43), Layout(layout.element, 1, 32), (61, 64))[0].reshape(-1)
    classes = alphabet(layout.element, layout.element.mantissa_bits - 1)
    tall = 128 if layout.columns == 128 else 32
    found = []
    for label, codes in (("along", along(ground, classes, 32)), ("down", down(ground, classes, tall))):
        cells = layout.grid((codes.shape[0], codes.shape[1]))
        scales = CODED["apart"].make(Draw(44), Layout(layout.element, 1, 1), cells, base=127, spread=6)[1]
        found.append((f"pairs of classes {label} rows", codes, scales))
    return tuple(found)


def _bytes(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return codes under scale bytes of which every one stands beside, above and below every other, three times.

    Once all codes are ordinary; then the tiles of one row are empty in turns, even ones and odd ones, so that the byte
    of the other row decides. Two ordinary rows follow, many of whose tiles are empty.
    """
    cycle = _every_pair(len(BYTES))
    order = np.array([*cycle, *cycle, 0, *cycle, 0])
    cells = np.array(BYTES, np.uint8)[np.stack([order, np.roll(order, -1)])]
    shape = 1 + layout.rows, order.size * layout.columns  # the second row of tall tiles is cut off
    codes = CODED["apart"].make(Draw(45), Layout(layout.element, 1, 32), (2, shape[1]))[0]
    tiles = codes.reshape(2, order.size, layout.columns)
    for row in (0, 1):
        tiles[row, len(cycle) + row :: 2] = 0
    if layout.rows > 1:
        return np.resize(codes, shape).astype(np.uint8), cells
    more = CODED["apart"].make(Draw(46), Layout(layout.element, 1, layout.columns), codes.shape, empty=150)
    return np.concatenate([codes, more[0]]), np.concatenate([cells, more[1]])


def _every_pair(count: int) -> list[int]:
    """Return a cycle of the numbers below `count` in which each stands before each, itself too, once (de Bruijn)."""
    order, left = [0], set(itertools.product(range(count), repeat=2))
    while left:
        step = next((b for b in reversed(range(count)) if (order[-1], b) in left), None)
        if step is None:
            break
        left.discard((order[-1], step))
        order.append(step)
    return order[:-1]


def _inputs(operation: str, codes: np.ndarray, scales: np.ndarray) -> dict[str, np.ndarray]:
    """Return an operation's inputs from codes and scales."""
    first, *rest = OPERATIONS[operation].inputs
    return {first: pack_nibbles(codes) if first == "packed" else codes, **dict.fromkeys(rest, scales)}
