"""The scale of an NVFP4 block and the factor of its elements, variant by variant (clause N21.3).

Every step is one float32 operation, rounded to nearest even; arrays hold float32 bits (u32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .arguments import require_choice
from .arrays import Array
from .codec import decode_table, encode_bits
from .division import divide
from .formats import E4M3
from .profiles import HOPPER
from .softfloat import INF, NAN, multiply

ONE, THREE_HALVES, SIX = np.uint32(0x3F800000), np.uint32(0x3FC00000), np.uint32(0x40C00000)
SIXTH = np.uint32(0x3E2AAAAB)
LARGEST = np.uint32(0x7F7FFFFF)
TOP, TOP_OVER_SIX = np.uint32(0x45280000), np.uint32(0x44C00000)
"""2688 = 6 * 448, and 1536 = 6 * 256 of FOUR_OVER_SIX, which leaves room for a scale half as large again."""
SMALLEST_NORMAL, SMALLEST, MOST = np.uint32(0x3C800000), np.uint32(0x3B000000), np.uint32(0x43E00000)
"""2**-6, 2**-9 and 448 of E4M3."""


@dataclass(frozen=True)
class Scaled:
    """What the scale steps give for each block: the E4M3 code u8, and the float32 factor (u32) of its elements.

    divides: whether an element is divided by the factor; it is multiplied by it otherwise.
    """

    codes: Array
    factor: Array
    divides: bool = False


@dataclass(frozen=True)
class Variant:
    """One order of operations with a name: the scale steps, and what chooses between two scales of a block.

    steps: (block maxima, tensor maximum) -> the candidates, one, or two of which the second must have less error.
    error: `mae` or `mse` where there are two candidates.
    """

    name: str
    steps: Callable[[Array, Array], tuple[Scaled, ...]]
    source: str
    error: str = ""


def _e4m3(bits: Array) -> Array:
    """Round to E4M3, nearest, ties to even, saturating; NaN gives 0x7F."""
    return encode_bits(E4M3, bits, 0, HOPPER)


def _value(codes: Array) -> Array:
    return np.take(np.asarray(decode_table(E4M3), like=codes), codes)


def _clamp(bits: Array, least: np.uint32) -> Array:
    """Clamp a number that is not negative to `least`..448; NaN stays."""
    return np.where(bits > INF, NAN, np.minimum(np.maximum(bits, least), MOST))


def tensor_factor(amax: Array, top: np.uint32) -> Array:
    """Return S = min(fl(top / amax), the largest float32); 1 where amax or S is zero."""
    factor = np.minimum(divide(np.full_like(amax, top), amax), LARGEST)
    return np.where((amax == np.uint32(0)) | (factor == np.uint32(0)), ONE, factor)


def _encoding(codes: Array, whole: Array) -> Scaled:
    """E4M3 codes and the factor min(fl(1 / fl(s * fl(1 / S))), the largest float32)."""
    one = np.full_like(whole, ONE)
    least = multiply(_value(codes), divide(one, whole))
    return Scaled(codes, np.minimum(divide(np.full_like(least, ONE), least), LARGEST))


def _te(block: Array, tensor: Array) -> tuple[Scaled, ...]:
    whole = tensor_factor(tensor, TOP)
    scale = np.minimum(multiply(block, multiply(whole, np.full_like(whole, SIXTH))), LARGEST)
    return (_encoding(_e4m3(scale), whole),)


def _te_2_8(block: Array, tensor: Array) -> tuple[Scaled, ...]:
    whole = tensor_factor(tensor, TOP)
    scale = np.minimum(multiply(divide(block, np.full_like(block, SIX)), whole), LARGEST)
    return (_encoding(_e4m3(scale), whole),)


def _torchao(block: Array, tensor: Array) -> tuple[Scaled, ...]:
    whole = divide(tensor, np.full_like(tensor, TOP))
    codes = _e4m3(_clamp(divide(divide(block, np.full_like(block, SIX)), whole), SMALLEST_NORMAL))
    return (Scaled(codes, divide(divide(np.full_like(whole, ONE), whole), _value(codes))),)


def _modelopt(block: Array, tensor: Array) -> tuple[Scaled, ...]:
    whole = divide(tensor, np.full_like(tensor, TOP))
    scale = divide(block, multiply(whole, np.full_like(whole, SIX)))
    codes = _e4m3(_clamp(np.where(scale == np.uint32(0), ONE, scale), SMALLEST))
    return (Scaled(codes, multiply(_value(codes), whole), divides=True),)


def _four_over_six(block: Array, tensor: Array) -> tuple[Scaled, ...]:
    whole = tensor_factor(tensor, TOP_OVER_SIX)
    six = multiply(divide(block, np.full_like(block, SIX)), whole)
    four = multiply(six, np.full_like(six, THREE_HALVES))
    return tuple(_encoding(_e4m3(np.minimum(scale, MOST)), whole) for scale in (six, four))


_TE_SOURCE = "TransformerEngine common/cast/nvfp4"
_TABLE = (
    Variant("TE", _te, f"{_TE_SOURCE}/core_nvfp4.cuh, from v2.14"),
    Variant("TE_2_8", _te_2_8, f"{_TE_SOURCE}, v2.8 to v2.13"),
    Variant("TORCHAO", _torchao, "torchao mx_formats/nvfp4_tensor.py, nvfp4_quantize with a tensor scale"),
    Variant("MODELOPT", _modelopt, "ModelOpt NVFP4QTensor.quantize"),
    Variant("FOUR_OVER_SIX", _four_over_six, f"{_TE_SOURCE}/quantize_4over6_nvfp4.cuh, mean absolute error", "mae"),
    Variant("FOUR_OVER_SIX_MSE", _four_over_six, f"{_TE_SOURCE}/quantize_4over6_nvfp4.cuh, mean squared error", "mse"),
)
VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _TABLE}


def get_variant(variant: object) -> Variant:
    """Return the variant of a name; ArgumentError naming those that there are."""
    require_choice("variant", variant, tuple(VARIANTS))
    return VARIANTS[str(variant)]
