"""The forms of operands of the golden layer: each matrix quantised and dequantised by the model's operations (N28.4).

Bits are bfloat16's, uint16 [M, K]; nothing here is shared with what torch computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refnum import softfloat
from refnum.arrays import BFLOAT16, Array, contiguous, float32_bits
from refnum.blocks import dequantize_mxfp4, quantize_mxfp4
from refnum.codec import decode
from refnum.division import divide
from refnum.estimators import dge, occ, vector_scales
from refnum.formats import E2M1
from refnum.hadamard import hadamard16
from refnum.integer import dequantize_int4
from refnum.integer import sawb as quantize_sawb
from refnum.logarithmic import dequantize_luq, dequantize_radix4
from refnum.logarithmic import luq as quantize_luq
from refnum.logarithmic import radix4 as quantize_radix4
from refnum.narrow import encode
from refnum.nvfp4 import dequantize_nvfp4, quantize_nvfp4
from refnum.oscillation import ema_update
from refnum.philox import Key, random_bits
from refnum.tetrajet import dequantize_tetrajet, q_ema, quantize_tetrajet

from .recipes import BETA, KEPT, RADIX4_N0, Operand


def coded(x: Array, operand: Operand, key: Key | None = None, average: Array | None = None) -> Array:
    """Return the bfloat16 bits of a matrix that was quantised and dequantised.

    Args:
        x: bfloat16 bits u16 [M, K].
        operand: how.
        key: of its random words.
        average: the running average of the weights, float32, in the orientation of the forward product; None where
            none chooses codes yet.
    """
    x = contiguous(x)
    if operand.before is not None:
        x = contiguous(coded(contiguous(x.T), operand.before, None, average).T)
        average = None
    if operand.rotated:
        x = hadamard16(x)
    return FORMS[operand.form](x, operand, key, average).view(np.uint16)


def operand_values(
    x: Array, operand: Mapping[str, Any], philox: Sequence[int] | None = None, average: Array | None = None
) -> Array:
    """Return what `coded` gives for literal arguments: an operand's fields, and its key as integers.

    x and the result are bfloat16 of `ml_dtypes`.
    """
    rule = Operand(**{**operand, "tile": tuple(operand["tile"])})
    key = None if philox is None else Key(*philox)
    return coded(x.view(np.uint16), rule, key, average).view(BFLOAT16)


def _bfloat16(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    return x


def _mxfp4(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    return dequantize_mxfp4(*quantize_mxfp4(x, operand.profile, philox=key), dtype="bfloat16")


def _nvfp4(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    packed, scales, amax = quantize_nvfp4(x, tile=operand.tile, philox=key)
    return dequantize_nvfp4(packed, scales, amax, tile=operand.tile, dtype="bfloat16")


def _tetrajet(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    averaged = operand.averaged and average is not None
    made = q_ema(x, average) if averaged else quantize_tetrajet(x, philox=key)
    return dequantize_tetrajet(*made, dtype="bfloat16")


def _sawb(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    return softfloat.to_bfloat16(float32_bits(dequantize_int4(*quantize_sawb(x))))


def _luq(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    """Both choices of an element take the upper bits of its one word; without words each takes the middle."""
    if key is None:
        words = np.full(x.shape, 1 << 31, np.uint32, like=x)
    else:
        words = random_bits(x.shape, 32, **key._asdict(), like=x)
    return dequantize_luq(*quantize_luq(x, words >> np.uint32(8), words >> np.uint32(9)), dtype="bfloat16")


def _radix4(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    amax = int(float32_bits(x & np.uint16(0x7FFF)).max()) if x.size else 0
    exponent = 0
    if amax:  # the largest power of two with amax * 2**-exponent <= 1
        exponent = max(-126, min(126, (amax >> 23) - 127 + bool(amax & 0x7FFFFF)))
    scale, back = (np.full((1, 1), (127 + one) << 23, np.uint32, like=x) for one in (-exponent, exponent))
    placed = softfloat.multiply(float32_bits(x), scale).view(np.float32)
    values = dequantize_radix4(quantize_radix4(placed, RADIX4_N0, operand.phase), RADIX4_N0, operand.phase)
    return softfloat.to_bfloat16(softfloat.multiply(float32_bits(values), back))


def _vectors(x: Array, operand: Operand, key: Key | None, average: Array | None) -> Array:
    kept, rest = (one.view(np.uint16) for one in occ(x, KEPT)[:2]) if operand.clamped else (x, None)
    scale = float32_bits(vector_scales(kept))[:, None]
    codes = encode(E2M1, softfloat.multiply(float32_bits(kept), scale).view(np.float32))
    found = softfloat.to_bfloat16(divide(float32_bits(decode(E2M1, codes)), scale))
    if rest is None:
        return found
    return softfloat.to_bfloat16(softfloat.add(float32_bits(found), float32_bits(rest)))


def estimated(dw: Array, weight: Array) -> Array:
    """Return gradients of weights times the slope of DGE at the scaled weights; bfloat16 bits u16 [N, K] both."""
    placed = softfloat.multiply(float32_bits(weight), float32_bits(vector_scales(weight))[:, None])
    slope = dge(softfloat.to_bfloat16(placed)).view(np.uint16)
    return softfloat.to_bfloat16(softfloat.multiply(float32_bits(dw), float32_bits(slope)))


def averaged(weights: list[Array]) -> Array:
    """Return the running average, float32, after weights, bfloat16 bits u16 [N, K], of so many steps (N24.8)."""
    found = float32_bits(weights[0]).view(np.float32)
    for weight in weights[1:]:
        found = ema_update(found, weight, BETA)
    return found


FORMS: dict[str, Callable[[Array, Operand, Key | None, Array | None], Array]] = {
    "bfloat16": _bfloat16, "mxfp4": _mxfp4, "nvfp4": _nvfp4, "tetrajet": _tetrajet, "sawb": _sawb, "luq": _luq,
    "radix4": _radix4, "vectors": _vectors,
}  # fmt: skip
"""Form of an operand -> its function."""
