"""Single instructions of the host build and small functions of the kernels, each tested by itself.

An operation can hide an error of an instruction, e.g. in a lane that is masked later. Here every function gets words of
its whole domain, and NumPy computes the result that the instruction, or the function's comment, promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..host import build

U32 = np.ndarray[Any, np.dtype[Any]]
COUNT = 40_000
FLOAT_MAGNITUDE, FLOAT_INF, FLOAT_NAN = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(0x7FC00000)
GATE_TOP = 0x42DB
DEEPEST, DEPTHS = 27, 32


def _lanes(x: U32) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x).view(np.uint16).reshape(-1, 2)


def _bytes(x: U32) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x).view(np.uint8).reshape(-1, 4)


def _word(lanes: np.ndarray[Any, Any], dtype: Any = np.uint16) -> U32:
    return np.ascontiguousarray(lanes.astype(dtype)).view(np.uint32).reshape(-1)


def _permuted(a: U32, b: U32, c: U32) -> U32:
    both = np.concatenate([_bytes(a), _bytes(b)], axis=1)
    picks = np.stack([c >> np.uint32(4 * i) & np.uint32(7) for i in range(4)], axis=1)
    return _word(np.take_along_axis(both, picks.astype(np.int64), axis=1), np.uint8)


def _pair_upper(i: int) -> Callable[..., U32]:
    return lambda a, b, c: _word(np.stack([_bytes(a)[:, i], _bytes(b)[:, i]], axis=1).astype(np.uint32) << 8)


def _clamped(a: U32, b: U32, c: U32) -> U32:
    total = _lanes(a).view(np.int16).astype(np.int32) + _lanes(b).view(np.int16)
    return _word(np.maximum(np.minimum(total, _lanes(c)), 0))


def _halves(a: U32, b: U32) -> U32:
    with np.errstate(all="ignore"):
        product = _lanes(a).view(np.float16).astype(np.float64) * _lanes(b).view(np.float16).astype(np.float64)
        return _word(product.astype(np.float16).view(np.uint16))


def _below(a: U32, b: U32, c: U32) -> U32:
    with np.errstate(all="ignore"):
        power = c.view(np.float32).astype(np.float64)
        halves = []
        for x in (a, b):
            exact = np.abs(x.view(np.float32).astype(np.float64)) * power
            near = exact.astype(np.float16)
            near[exact > 65504] = np.where(np.isinf(exact[exact > 65504]), np.inf, 65504)
            bits = near.view(np.uint16).copy()
            bits[(near.astype(np.float64) > exact) & np.isfinite(near)] -= 1
            bits[np.isnan(exact)] = 0x7FFF
            halves.append(bits)
    return _word(np.stack(halves, axis=1))


def _floats(function: Callable[..., Any]) -> Callable[..., U32]:
    def call(a: U32, b: U32, c: U32) -> U32:
        with np.errstate(all="ignore"):
            result: np.ndarray[Any, Any] = function(a.view(np.float32), b.view(np.float32))
        bits = result.view(np.uint32).copy()
        bits[np.isnan(result)] = 0x7FC00000
        return bits

    return call


def _fused(a: U32, b: U32, c: U32) -> U32:
    """A product of float32 is exact in float64; its sum is rounded to odd there, then once to float32."""

    def odd(x: Any, y: Any, z: Any) -> Any:
        product, addend = np.multiply(x, y, dtype=np.float64), z.astype(np.float64)
        total = product + addend
        back = total - product
        lost = (product - (total - back)) + (addend - back)
        even = total.view(np.uint64) % np.uint64(2) == 0
        toward = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
        return np.where(np.isfinite(total) & (lost != 0) & even, toward, total).astype(np.float32)

    return _floats(lambda x, y: odd(x, y, c.view(np.float32)))(a, b, c)


def _larger_magnitude(a: U32, b: U32, c: U32) -> U32:
    return np.asarray(np.maximum(a, b & np.uint32(0x7FFFFFFF)))


def _outside(bits: int) -> Callable[..., U32]:
    def call(a: U32, b: U32, c: U32) -> U32:
        magnitudes = _lanes(a) & 0x7FFF
        inside = (magnitudes <= GATE_TOP) & (magnitudes > GATE_TOP - (1 << bits))
        return np.asarray(~inside.all(axis=1), np.uint32)

    return call


def _large(function: Callable[..., Any]) -> Callable[..., U32]:
    def call(a: U32, b: U32, c: U32) -> U32:
        g = a.view(np.float32)
        result = np.asarray(function(g), np.float32)
        return np.where(np.isnan(g), FLOAT_NAN, result.view(np.uint32))

    return call


def _product(a: U32, b: U32, c: U32) -> U32:
    """Bits 71 to 102 of the product of two words of 64 bits."""
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    return np.array([((x << 32 | y) * (z << 32 | x) >> 71) & 0xFFFFFFFF for x, y, z in rows], np.uint32)


def _bfloat16(a: U32, b: U32, c: U32) -> U32:
    wide = a.astype(np.uint64)
    rounded = (wide + 0x7FFF + (wide >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(a == FLOAT_NAN, 0x7FC0, rounded).astype(np.uint32)


def _plain(a: U32, b: U32, c: U32) -> U32:
    """The smallest code, 2**-9, is a normal bfloat16 under the byte, and the largest, 448, finite."""
    k = a.astype(np.int64) - 127
    return ((k - 9 >= -126) & (k + 8 <= 127)).astype(np.uint32)


def _binade(a: U32, b: U32, c: U32) -> U32:
    nibbles = np.stack([word >> np.uint32(4 * i) & np.uint32(7) for word in (a, b) for i in range(8)])
    return np.array([0, 1, 2, 2, 3, 3, 4, 4], np.uint32)[nibbles].max(axis=0)


def _decoded(a: U32, b: U32, c: U32) -> U32:
    """An E2M1 value times 2**(byte - 127) as float32 bits; byte 255 is NaN."""
    value = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[a & 7] * 2.0 ** ((b & 255).astype(np.int64) - 127)
    with np.errstate(over="ignore"):
        bits = value.astype(np.float32).view(np.uint32) | (a & np.uint32(8)) << np.uint32(28)
    return np.where((b & 255) == 255, FLOAT_NAN, bits)


def _found(a: U32, b: U32, c: U32) -> U32:
    """A column is found unless its byte lies more than DEEPEST below the largest, and above 0."""
    binade = np.array([9, -1, 0, 0, 1, 1, 2, 2])[a & 7] - np.minimum(b, 1 << 20).astype(np.int64)
    below = np.maximum(2 - binade, 0)
    return ((a == 0) | (below <= DEEPEST) | (c <= np.minimum(below, DEEPEST))).astype(np.uint32)


INSTRUCTIONS: dict[str, tuple[Callable[..., U32], str]] = {
    "permute": (_permuted, "any any selector"),
    "sign_bytes": (lambda a, b, c: _word((_bytes(a) >> 7) * 255, np.uint8), "any any any"),
    "lane_signs": (lambda a, b, c: _word((_lanes(a) >> 15).astype(np.uint32) * 0xFFFF), "any any any"),
    "pair_upper_0": (_pair_upper(0), "low any any"),
    "pair_upper_1": (_pair_upper(1), "low any any"),
    "pair_upper_2": (_pair_upper(2), "low any any"),
    "pair_upper_3": (_pair_upper(3), "low any any"),
    "choose": (lambda a, b, c: a & c | b & ~c, "any any any"),
    "max_lanes": (lambda a, b, c: _word(np.maximum(_lanes(a), _lanes(b))), "any any any"),
    "min_lanes": (lambda a, b, c: _word(np.minimum(_lanes(a), _lanes(b))), "any any any"),
    "max3_lanes": (lambda a, b, c: _word(np.maximum(np.maximum(_lanes(a), _lanes(b)), _lanes(c))), "any any any"),
    "larger_lane": (lambda a, b, c: _lanes(a).max(axis=1).astype(np.uint32), "any any any"),
    "subtract_to_zero": (
        lambda a, b, c: _word(np.maximum(_lanes(a).astype(np.int32) - _lanes(b), 0)),
        "magnitudes magnitudes any",
    ),
    "add_and_clamp": (_clamped, "small small magnitudes"),
    "scale_halves": (lambda a, b, c: _halves(a, b), "halves powers any"),
    "scale_each": (lambda a, b, c: _halves(a, b), "halves normal_powers any"),
    "halves_below": (_below, "floats floats float_powers"),
    "add_and_max_lanes": (lambda a, b, c: _word(np.maximum(_lanes(a) + _lanes(b), _lanes(c))), "any any any"),
    "add_and_min": (lambda a, b, c: np.minimum(a + b, c), "any any any"),
    "high_product": (_product, "any any any"),
    "shift_in": (lambda a, b, c: a << np.uint32(4) | b >> np.uint32(28), "any any any"),
    "larger_magnitude": (_larger_magnitude, "float_magnitudes any any"),
    "multiply": (_floats(np.multiply), "floats floats any"),
    "add": (_floats(np.add), "floats floats any"),
    "outside_12": (_outside(12), "gates any any"),
    "outside_11": (_outside(11), "gates any any"),
    "silu_of_large": (_large(lambda g: np.where(g < 0, np.float32(-0.0), g)), "large any any"),
    "sigmoid_of_large": (lambda a, b, c: np.where(a >> 31, 0, 0x3F800000).astype(np.uint32), "large any any"),
    "scale_float": (_floats(np.multiply), "floats float_powers any"),
    "tree_sum": (
        lambda a, b, c: np.where(b > 0, np.bitwise_count(a), 0).astype(np.float32).view(np.uint32),
        "counts nodes any",
    ),
    "has_nan_code": (lambda a, b, c: ((_bytes(a) & 0x7F) == 0x7F).any(axis=1).astype(np.uint32), "any any any"),
    "round_to_bfloat16": (_bfloat16, "floats any any"),
    "is_plain_tile": (_plain, "tile_bytes any any"),
    "largest_binade": (_binade, "sparse sparse any"),
    "e2m1_decode": (_decoded, "any any any"),
    "byte_place": (lambda a, b, c: a * b + c, "any any any"),
    "planes_found": (_found, "codes depths tops"),
    "divide": (_floats(np.divide), "floats floats any"),
    "multiply_add": (_fused, "floats floats floats"),
    "max_bytes": (lambda a, b, c: _word(np.maximum(_bytes(a), _bytes(b)), np.uint8), "any any any"),
    "permute_low": (_permuted, "any any low_selector"),
}
"""Instruction -> (its promised result, the kinds of its three words)."""


def _edges(rng: np.random.Generator) -> U32:
    lanes = np.array([0, 1, 2, 0x3FF, 0x400, 0x401, 0x7BFF, 0x7FFF, 0x8000, 0x8001, 0xFF00, 0xFFFE, 0xFFFF], np.uint16)
    drawn = rng.integers(0, 1 << 16, (COUNT, 2), np.uint16)
    near = rng.random((COUNT, 2)) < 0.3
    return _word(np.where(near, rng.choice(lanes, (COUNT, 2)), drawn))


def _float_words(rng: np.random.Generator) -> U32:
    special = np.array([0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3FFFFFFF, 0x7F000000, 0x7F7FFFFF,
                        0x7F800000, 0x7F800001, 0x7FC00000], np.uint32)  # fmt: skip
    drawn = rng.integers(0, 1 << 32, COUNT, np.uint32)
    near = rng.integers(0x3E000000, 0x41000000, COUNT, np.uint32)  # exponents that meet, so that sums cancel
    few = (drawn >> np.uint32(9) << np.uint32(9)) | np.uint32(1) * (rng.integers(0, 2, COUNT, np.uint32))
    made = np.choose(rng.integers(0, 4, COUNT), [drawn, near, few, rng.choice(special, COUNT)])
    return np.asarray(made | rng.integers(0, 2, COUNT, np.uint32) << np.uint32(31), np.uint32)


def _draw(kind: str, rng: np.random.Generator) -> U32:
    """Return words of a kind: the whole domain if it is small, else a sample."""
    words = _edges(rng)
    if kind == "selector":
        return words & np.uint32(0x7777)
    if kind == "low_selector":
        return words & np.uint32(0xFFFF7777)
    if kind == "low":
        return words & np.uint32(0xFFFFFF7F)
    if kind in ("magnitudes", "float_magnitudes"):
        return words & np.uint32(0x7FFF7FFF)
    if kind == "small":  # no sum leaves 16 bits
        return _word(_lanes(words).view(np.int16) // 2, np.int16)
    if kind == "halves":
        return _word(np.minimum(_lanes(words) & 0x7FFF, 0x7BFF))
    if kind in ("powers", "normal_powers"):
        powers = [2.0**k for k in range(-14 if kind == "normal_powers" else -24, 16)]
        return _word(rng.choice(np.array([0, *powers], np.float16).view(np.uint16), (COUNT, 2)))
    if kind == "float_powers":
        return rng.choice(np.array([2.0**k for k in range(-149, 127)], np.float32), COUNT).view(np.uint32)
    if kind == "floats":
        return _float_words(rng)
    if kind == "gates":
        gates = np.arange(1 << 16, dtype=np.uint32)
        ordinary = rng.integers(0x4000, 0x42DB, 1 << 16, np.uint32)
        return np.concatenate([gates | ordinary << np.uint32(16), gates << np.uint32(16) | ordinary])
    if kind == "sparse":  # one nibble, or none
        return (rng.integers(1, 16, COUNT, np.uint32) << np.uint32(4) * rng.integers(0, 8, COUNT, np.uint32)) * (
            rng.random(COUNT) < 0.6
        ).astype(np.uint32)
    if kind == "tile_bytes":
        return np.arange(255, dtype=np.uint32)
    if kind == "large":
        large = np.arange(GATE_TOP + 1, 0x8000, dtype=np.uint32) << np.uint32(16)
        return np.concatenate([large, large | np.uint32(0x80000000)])
    if kind == "counts":
        return np.concatenate([np.arange(1, 1 << 12), 2 ** np.arange(12, 32), rng.integers(1, 1 << 32, COUNT)]).astype(
            np.uint32
        )
    if kind == "nodes":
        return np.uint32(0x3F800000) * rng.integers(0, 2, COUNT, np.uint32)
    grid = np.meshgrid(np.arange(8), np.arange(40), np.r_[np.arange(40), 100, 254], indexing="ij")
    if kind in ("codes", "depths", "tops"):
        return grid[("codes", "depths", "tops").index(kind)].reshape(-1).astype(np.uint32)
    return words


def questions() -> Iterator[tuple[str, dict[str, U32], U32]]:
    """Yield (instruction, its words a, b and c, its promised results), the same at every call."""
    for number, (name, (promised, kinds)) in enumerate(INSTRUCTIONS.items()):
        rng = np.random.default_rng(number)
        words = [_draw(kind, rng) for kind in kinds.split()]
        small = not kinds.startswith(("gates", "large"))
        count = min(word.size for word in words) if small else words[0].size
        a, b, c = (np.resize(word, count) for word in words)
        if name in ("scale_halves", "scale_each", "halves_below"):
            a, b, c = _kept(name, a, b, c)
        if name == "multiply_add":  # half of the sums cancel but for what the product loses, and a place or two
            with np.errstate(all="ignore"):
                product = (a.view(np.float32) * b.view(np.float32)).view(np.uint32)
            c[::2] = ((product ^ np.uint32(1 << 31)) + rng.integers(0, 3, count, np.uint32))[::2]
        if name == "round_to_bfloat16":  # of NaNs only the quiet one
            a = np.where((a & FLOAT_MAGNITUDE) > FLOAT_INF, FLOAT_NAN, a)
        yield name, {"a": a, "b": b, "c": c}, promised(a, b, c)


def _kept(name: str, a: U32, b: U32, c: U32) -> tuple[U32, U32, U32]:
    """Drop words that an instruction must not get: products that overflow, or that are neither exact nor small."""
    with np.errstate(all="ignore"):
        if name != "halves_below":
            product = _lanes(a).view(np.float16).astype(np.float64) * _lanes(b).view(np.float16)
            keep = (product < 65520).all(axis=1)
        else:
            power = c.view(np.float32)
            keep = np.ones(a.size, bool)
            for x in (a, b):
                exact = np.abs(x.view(np.float32).astype(np.float64)) * power
                narrow = np.abs(x.view(np.float32)) * power
                keep &= (narrow.astype(np.float64) == exact) | (exact < 2.0**-25) | ~np.isfinite(exact)
    return a[keep], b[keep], c[keep]


CANONICAL = ("multiply", "add", "divide", "multiply_add")


def ask(name: str, a: U32, b: U32, c: U32) -> U32:
    """Return the host build's results for words of equal number; a float NaN becomes the canonical one."""
    out = np.empty_like(a)
    function = getattr(build.library(), f"refnum_instruction_{name}")
    function(*(x.ctypes.data for x in (a, b, c, out)), out.size)
    return np.where(out & FLOAT_MAGNITUDE > FLOAT_INF, FLOAT_NAN, out) if name in CANONICAL else out
