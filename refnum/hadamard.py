"""The rotation of groups of 16 by a Hadamard matrix with signs, and NVFP4 of what it gives (clause N22)."""

from __future__ import annotations

import numpy as np

from .arguments import require_choice, require_integer
from .arrays import (
    BFLOAT16,
    OUTPUTS,
    Array,
    contiguous,
    empty,
    float32_bits,
    output_dtype,
    require_array,
    require_matrix,
    row_chunks,
)  # fmt: skip
from .errors import DtypeError
from .exact_sums import rounded, signed_sums, transformed
from .nvfp4 import quantize_nvfp4
from .softfloat import INF, NAN, SIGN, add, multiply, to_bfloat16

GROUP = 16
"""Elements that a rotation mixes."""
SIGNS = 0xD7E8
"""The published signs: bit i set means that element i of a group is negated first."""
ORDERS = ("exact", "sequential")
AXES = (-1, 0)
_QUARTER = np.uint32(0x3E800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def hadamard16(x: Array, signs: int = SIGNS, axis: int = -1, order: str = "exact", dtype: str = "bfloat16") -> Array:
    """Rotate each group of 16 elements by the Hadamard matrix with signs (clause N22).

    Element j of a group becomes 1/4 of the sum of x_i * d_i * (-1)**popcount(i & j).

    x: [M, K] float32, bfloat16 or uint16 (bfloat16 bits). signs: an integer below 2**16; bit i set means d_i = -1.
    axis: -1, groups along K, K % 16 == 0; or 0, groups along M, whose last one is completed with rows of +0. order:
    `exact`, the sum is exact and rounded once to dtype; or `sequential`, float32 additions in ascending order.
    dtype: bfloat16 | float32.
    Returns [M, K] of that dtype; for axis 0 [16 * ceil(M/16), K]. Raises DtypeError, ShapeError, ArgumentError.
    """
    axis, name = require_integer("axis", axis, *AXES), output_dtype(dtype)
    _require_input(x, axis)
    require_choice("order", order, ORDERS)
    flips = _flips(require_integer("signs", signs, 0, (1 << GROUP) - 1), x)
    m, k = x.shape
    out = empty((m if axis else -(-m // GROUP) * GROUP, k), OUTPUTS[name], x)
    words = out.view(np.uint32 if name == "float32" else np.uint16)
    for rows in row_chunks(x, k, multiple=GROUP):
        lanes = _lanes(float32_bits(contiguous(x[rows])), axis) ^ flips
        found = _exact(lanes, name) if order == "exact" else _sequential(lanes, name)
        place = words[rows.start : rows.stop + (0 if axis else -rows.stop % GROUP)]
        place[...] = _matrix(found, axis, *place.shape)
    return out


def hadamard_quantize_nvfp4(
    x: Array,
    signs: int = SIGNS,
    axis: int = -1,
    order: str = "exact",
    variant: str = "TE",
    tensor_amax: Array | None = None,
    *,
    rbits: Array | None = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
) -> tuple[Array, Array, Array]:
    """Rotate to bfloat16, then quantise to NVFP4 with blocks of 16 (clause N22.6).

    x, signs, axis, order: as `hadamard16` takes them. variant, tensor_amax, layout_out: as `quantize_nvfp4` takes them;
    the maximum, where it is left out, is that of the rotated tensor. rbits, unsigned integers below 256 in the shape of
    the codes, or philox (N13.5) round stochastically.
    Returns (packed u8, E4M3 scale codes u8, tensor_amax float32 [1]) of `quantize_nvfp4`: of [M, K] for axis -1; for
    axis 0 of the transpose, [K, 16 * ceil(M/16)], as an operand whose sum runs over M. Raises DtypeError, ShapeError,
    ArgumentError.
    """
    rotated = hadamard16(x, signs, axis, order)
    rows = rotated if int(axis) else contiguous(rotated.T)
    return quantize_nvfp4(rows, variant, tensor_amax, rbits=rbits, philox=philox, layout_out=layout_out)


def _require_input(x: Array, axis: int) -> None:
    require_array("x", x)
    if x.dtype not in (np.float32, np.uint16, BFLOAT16):
        raise DtypeError(f"x has dtype {x.dtype}; allowed are float32, bfloat16 (ml_dtypes or its uint16 bits)")
    require_matrix("x", x, GROUP if axis else 1)


def _flips(signs: int, like: Array) -> Array:
    """Bits u32 [16, 1] that turn the sign of the elements that the mask names."""
    lanes = np.arange(GROUP, dtype=np.uint32, like=like)
    return ((np.uint32(signs) >> lanes & np.uint32(1)) << np.uint32(31)).reshape(GROUP, 1)


def _lanes(bits: Array, axis: int) -> Array:
    """Elements of groups, [16, groups]; a last group along M is completed with +0."""
    m, k = bits.shape
    if axis:
        return contiguous(bits.reshape(m * (k // GROUP), GROUP).T)
    tall = -(-m // GROUP)
    if m % GROUP:
        bits = np.concatenate([bits, np.zeros((tall * GROUP - m, k), dtype=np.uint32, like=bits)])
    return contiguous(bits.reshape(tall, GROUP, k).transpose(1, 0, 2)).reshape(GROUP, tall * k)


def _matrix(lanes: Array, axis: int, m: int, k: int) -> Array:
    """Undo `_lanes`: [16, groups] -> [m, k]."""
    if axis:
        return contiguous(lanes.T).reshape(m, k)
    return contiguous(lanes.reshape(GROUP, m // GROUP, k).transpose(1, 0, 2)).reshape(m, k)


def _exact(lanes: Array, name: str) -> Array:
    """1/4 of the 16 sums of each group, exact, each rounded once: bits of that dtype [16, groups]."""
    wide = name == "float32"
    special = (lanes & _MAGNITUDE) >= INF
    if not bool(special.any()):
        return rounded(signed_sums(lanes), -2, 24 if wide else 8)
    found = rounded(signed_sums(np.where(special, np.uint32(0), lanes)), -2, 24 if wide else 8)
    return np.where(special.any(axis=0), _specials(lanes) >> np.uint32(0 if wide else 16), found)


def _specials(lanes: Array) -> Array:
    """float32 bits of sums of groups with Inf or NaN: NaN where one is NaN or two infinities differ in sign."""
    magnitude = lanes & _MAGNITUDE
    each = np.where(magnitude == INF, np.int32(1) - np.int32(2) * (lanes >= SIGN), np.int32(0))
    total = transformed(each)
    invalid = (magnitude > INF).any(axis=0) | (abs(total) < abs(each).sum(axis=0))
    return np.where(invalid, NAN, np.where(total < np.int32(0), INF | SIGN, INF))


def _sequential(lanes: Array, name: str) -> Array:
    """float32 sums in ascending order from +0 of fl(x / 4) with its sign: bits of that dtype [16, groups]."""
    rounding = np.flatnonzero(~_adds_exactly(lanes))
    if 2 * rounding.size > lanes.shape[1]:
        return _added(lanes, name)
    found = _exact(lanes, name)
    if rounding.size:
        found[:, rounding] = _added(lanes[:, rounding], name)
    return found


def _adds_exactly(lanes: Array) -> Array:
    """Whether no addition of a group can round, in any order: bfloat16 numbers of 13 binades, their sums of 24 bits."""
    magnitude = lanes & _MAGNITUDE
    field = magnitude >> np.uint32(23)
    top = field.max(axis=0)
    low = np.maximum(np.where(magnitude == np.uint32(0), np.uint32(255), field).min(axis=0), np.uint32(1))
    wide = ((lanes & np.uint32(0xFFFF)) != np.uint32(0)).any(axis=0)
    return ~wide & (top < np.uint32(250)) & (top <= low + np.uint32(12))


def _added(lanes: Array, name: str) -> Array:
    """`_sequential` by the additions themselves.

    After i terms only as many sums differ as i has powers of two below it: row p of the totals is that of all rows of
    the matrix whose number ends in p.
    """
    quarters = multiply(lanes, np.full_like(lanes, _QUARTER))
    total = add(quarters[:1], np.zeros_like(quarters[:1]))
    for i in range(1, GROUP):
        if i & (i - 1) == 0:
            total = np.concatenate([total, total])
        odd = np.array([(i & p).bit_count() & 1 for p in range(len(total))], dtype=np.uint32)
        total = add(total, quarters[i] ^ (np.asarray(odd, like=lanes) << np.uint32(31)).reshape(-1, 1))
    return total if name == "float32" else to_bfloat16(total)
