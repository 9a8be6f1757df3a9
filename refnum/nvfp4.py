"""NVFP4: E2M1 in blocks of 16, an E4M3 scale a block and a float32 maximum a tensor (clause N21)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import require_choice
from .arrays import (
    OUTPUTS,
    Array,
    contiguous,
    empty,
    group_max,
    grouped,
    output_dtype,
    own_bits,
    pack_nibbles,
    require_array,
    require_codes,
    require_float,
    require_random,
    row_chunks,
    spread,
    unpack_nibbles,
    widen,
)  # fmt: skip
from .codec import decode_table
from .division import divide
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .formats import E2M1, E4M3
from .layouts import scales_from_layout, scales_to_layout
from .nvfp4_codes import block_codes, block_codes_at_random, picked
from .nvfp4_errors import fold_rows, less, row_errors
from .nvfp4_scales import TOP, TOP_OVER_SIX, Scaled, Variant, get_variant
from .philox import as_key, random_bits
from .softfloat import INF, NAN, multiply, to_bfloat16
from .tiles import _fold_rows

NVFP4_BLOCK = 16
"""Elements of an NVFP4 block along K."""
TILES = ((1, 16), (16, 16))
LAYOUTS = ("bytes", "swizzled")
"""Layouts of the E4M3 scales (N21.6); the others of N6.2 are for powers of two."""
ORDERS = ("te", "product", "four_over_six")
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_PARTS = {"te": divide(np.array(0x3F800000, np.uint32), np.array(TOP)),
          "four_over_six": divide(np.array(0x3F800000, np.uint32), np.array(TOP_OVER_SIX))}  # fmt: skip
"""fl(1 / 2688) and fl(1 / 1536), in float32 bits."""


def quantize_nvfp4(
    x: Array,
    variant: str = "TE",
    tensor_amax: Array | None = None,
    tile: tuple[int, int] = (1, 16),
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
) -> tuple[Array, Array, Array]:
    """Quantise to NVFP4 (clause N21).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K % 16 == 0. variant: a name in `VARIANTS`, an
    order of float32 operations. tensor_amax: the tensor's largest magnitude, float32 [1]; that of x if left out, where
    NaN does not count. tile: (1, 16), or (16, 16) for weights, whose last block may be short in rows. rbits, [M, K]
    unsigned integers below 256, or philox (N13.5) round the elements stochastically. layout_out: `bytes` | `swizzled`.
    Returns (packed u8 [M, K/2], even element in the low nibble; E4M3 scale codes u8 [M, K/16] or [ceil(M/16), K/16] in
    that layout; tensor_amax float32 [1]). Raises DtypeError, ShapeError, ArgumentError.
    """
    require_float("x", x, NVFP4_BLOCK)
    chosen, tall = get_variant(variant), _tall(tile)
    require_choice("layout_out", layout_out, LAYOUTS)
    random = _randomness(x, rbits, philox)
    tensor = _tensor_amax(x, tensor_amax)
    m, k = x.shape
    packed = empty((m, k // 2), np.uint8, x)
    scales = empty((-(-m // tall), k // NVFP4_BLOCK), np.uint8, x)
    for rows in row_chunks(x, k, multiple=tall):
        bits = own_bits(contiguous(x[rows]))
        codes, scales[_block_rows(rows, tall)] = _quantize_rows(bits, chosen, tensor, tall, random(rows))
        packed[rows] = pack_nibbles(codes)
    return packed, scales_to_layout(scales, layout_out), tensor.view(np.float32)


def _tall(tile: Any) -> int:
    """Return the rows of one of TILES; ArgumentError for anything else, `True` and `1.0` in place of 1 too."""
    whole = isinstance(tile, (tuple, list)) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in tile
    )
    if not whole or tuple(tile) not in TILES:
        raise ArgumentError(f"tile={shown(tile)} is not one of {', '.join(map(repr, TILES))}")
    return int(tile[0])


def _block_rows(rows: slice, tall: int) -> slice:
    return slice(rows.start // tall, -(-rows.stop // tall))


def _randomness(x: Array, rbits: Array | None, philox: tuple[int, ...] | None) -> Any:
    """Return rows -> their random bits, or None for rounding to nearest."""
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    if rbits is not None:
        require_random("rbits", rbits, x, 8)
        return lambda rows: rbits[rows]
    if philox is None:
        return lambda rows: None
    key, k = as_key(philox), x.shape[1]

    def drawn(rows: slice) -> Array:
        at = key._replace(offset=key.offset + rows.start * k)._asdict()
        return random_bits((rows.stop - rows.start, k), 8, **at, like=x)

    return drawn


def _tensor_amax(x: Array, given: Array | None) -> Array:
    """Bits u32 [1] of the tensor's maximum: of a magnitude, NaN as 0 (N21.2)."""
    if given is None:
        if not x.size:
            return np.zeros(1, dtype=np.uint32, like=x)
        parts = [_magnitudes(own_bits(contiguous(x[rows]))).max() for rows in row_chunks(x, x.shape[1])]
        return np.stack(parts).max().reshape(1)
    require_array("tensor_amax", given)
    if given.dtype != np.float32:
        raise DtypeError(f"tensor_amax has dtype {given.dtype}; allowed is float32")
    if tuple(given.shape) != (1,):
        raise ShapeError(f"tensor_amax has shape {tuple(given.shape)}; allowed is (1,)")
    return _numbers(contiguous(given).view(np.uint32) & _MAGNITUDE)


def _numbers(magnitude: Array) -> Array:
    """Magnitudes with NaN replaced by 0: a maximum passes over it."""
    return np.where(magnitude > INF, np.uint32(0), magnitude)


def _magnitudes(bits: Array) -> Array:
    return _numbers(widen(bits) & _MAGNITUDE)


def _quantize_rows(bits: Array, variant: Variant, tensor: Array, tall: int, rbits: Array | None) -> tuple[Array, Array]:
    """Quantise bits [M, K] (`own_bits`) -> (codes u8 [M, K], E4M3 codes of their blocks u8)."""
    found = variant.steps(_fold_rows(group_max(_magnitudes(bits), NVFP4_BLOCK), tall), tensor)
    each, chosen = grouped(bits, NVFP4_BLOCK), found[0]
    if len(found) > 1:
        codes, chosen = _chosen(each, found, variant, tensor, tall)
    if rbits is not None:
        factor = _to_rows(chosen.factor, bits, tall)
        codes = block_codes_at_random(each, factor, chosen.divides, grouped(rbits, NVFP4_BLOCK))
    elif len(found) == 1:
        codes = block_codes(each, _to_rows(chosen.factor, bits, tall), chosen.divides)
    return codes.reshape(bits.shape), chosen.codes


def _to_rows(blocks: Array, bits: Array, tall: int) -> Array:
    """Repeat what each block has for each of its rows."""
    whole = np.broadcast_to(blocks, (-(-bits.shape[0] // tall), bits.shape[1] // NVFP4_BLOCK))
    return spread(whole, tall, axis=0)[: bits.shape[0]]


def _chosen(each: Array, found: tuple[Scaled, ...], variant: Variant, tensor: Array, tall: int) -> tuple[Array, Scaled]:
    """Return the codes to nearest and the scales of the first candidate, or of the second where its error is less."""
    rows = each.reshape(each.shape[0], -1)
    factors, scales = (
        np.stack([_to_rows(part, rows, tall) for part in parts])
        for parts in (tuple(one.factor for one in found), tuple(one.codes for one in found))
    )
    both = np.stack([each, each])
    codes = block_codes(both, factors, found[0].divides)
    errors = fold_rows(
        np.concatenate(list(row_errors(widen(both), codes, scales, tensor, variant.error)), axis=1), tall
    )
    columns = each.shape[1]
    better = less(errors[:, columns:], errors[:, :columns])
    first, second = found
    kept = np.where(_to_rows(better, rows, tall)[..., None], codes[1], codes[0])
    return kept, Scaled(np.where(better, second.codes, first.codes), np.where(better, second.factor, first.factor))


def dequantize_nvfp4(
    packed: Array,
    scales: Array,
    tensor_amax: Array,
    order: str = "te",
    tile: tuple[int, int] = (1, 16),
    dtype: str = "float32",
    *,
    layout_in: str = "bytes",
) -> Array:
    """Dequantise NVFP4 (clause N21.7): each product is rounded to float32, then to dtype.

    packed: u8 [M, K/2]; scales: E4M3 codes u8 [M, K/16] or [ceil(M/16), K/16] in the layout `layout_in`; tensor_amax:
    float32 [1]; order: `te`, `product` or `four_over_six`; tile: (1, 16) | (16, 16); dtype: float32 | bfloat16.
    Returns [M, K]. Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_codes("packed", packed, NVFP4_BLOCK // 2)
    require_choice("order", order, ORDERS)
    require_choice("layout_in", layout_in, LAYOUTS)
    tall, name = _tall(tile), output_dtype(dtype)
    m, k = packed.shape[0], packed.shape[1] * 2
    scales = scales_from_layout(scales, layout_in, -(-m // tall), k // NVFP4_BLOCK)
    tensor = _tensor_amax(packed, tensor_amax)
    out = empty((m, k), np.uint32 if name == "float32" else np.uint16, packed)
    each = multiply(_factors(tensor, order)[:, None], np.asarray(decode_table(E2M1)[:8], like=packed))
    for rows in row_chunks(packed, k, multiple=tall):
        codes = unpack_nibbles(packed[rows])
        wide = _values(codes, _to_rows(scales[_block_rows(rows, tall)], codes, tall), each)
        out[rows] = wide if name == "float32" else to_bfloat16(wide)
    return out.view(OUTPUTS[name])


def _factors(tensor: Array, order: str) -> Array:
    """Bits u32 [256] of the number that the codes of a block with each scale are multiplied by."""
    decoded = np.asarray(decode_table(E4M3), like=tensor)
    if order == "product":
        return multiply(decoded, divide(tensor, np.full_like(tensor, TOP)))
    return multiply(multiply(decoded, tensor), np.asarray(_PARTS[order], like=tensor))


def _values(codes: Array, scales: Array, each: Array) -> Array:
    """Bits u32 of the number of each code under the scale of its block; NaN is 0x7FC00000.

    each: bits u32 [256, 8], of each scale and magnitude.
    """
    nibbles = grouped(codes, NVFP4_BLOCK)
    found = picked(each, scales, nibbles)
    signed = found ^ ((nibbles & np.uint8(8)).astype(np.uint32) << np.uint32(28))
    return np.where((found & _MAGNITUDE) > INF, NAN, signed).reshape(codes.shape)
