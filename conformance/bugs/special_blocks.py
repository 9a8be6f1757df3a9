"""What libraries do with blocks that hold Inf or NaN: their scale byte, and the element codes beneath it.

Most public quantisers take no notice of such blocks, so that this is the commonest difference of all. A policy is an
entry of `POLICIES`; what was read off releases is said there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import refnum
from refnum.codec import encode_bits
from refnum.formats import Format

from ..cases.case import Case
from .scales import right
from .tools import INF, MAGNITUDE, Outputs, amax_of, blocks_of, codes_of, element_format, quantiser_block, with_codes

NanCode = Callable[[Format, np.ndarray], np.ndarray]
"""(element format, float32 bits of a NaN) -> the code that it becomes, its sign included."""


def _sign(fmt: Format, bits: np.ndarray) -> np.ndarray:
    return np.where(bits >> 31, fmt.sign_mask, 0)


def zero(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """Every comparison with NaN is false: a zero of its sign; a format with NaN has that."""
    return _sign(fmt, bits) | (0 if fmt.nan_code is None else _nan(fmt))


def cut(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """NaN is rounded by its bits, as a number would be, and cut to eight bits; a format with NaN has that."""
    if fmt.nan_code is not None:
        return _sign(fmt, bits) | _nan(fmt)
    shift = 23 - fmt.mantissa_bits
    magnitude = (bits & MAGNITUDE | np.uint32(0x400000)).astype(np.int64)
    rounded = (magnitude + (1 << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift
    return _sign(fmt, bits) | ((rounded - ((127 - fmt.bias) << fmt.mantissa_bits)) & 0xFF)


def largest(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """NaN, without its sign; the largest number where the format has none."""
    return np.full(bits.shape, fmt.max_code if fmt.nan_code is None else _nan(fmt))


def _nan(fmt: Format) -> int:
    return fmt.sign_mask - 1


def every_bit(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """All bits set."""
    return np.full(bits.shape, (1 << fmt.bits) - 1)


@dataclass(frozen=True)
class Policy:
    """How a library treats a block with Inf (and no NaN) and one with NaN.

    note: id of the note. words: what a page says. inf, nan: the scale byte; RULE is what the scale rule makes of the
    exponent field 255, FIELD the same without rounding up, None what the profile says. applied: how byte 255 is applied
    to the elements, `inf` (numbers become zeros) or `nan` (all become NaN). code: what NaN elements become.
    """

    note: str
    words: str
    inf: int | None
    nan: int | None
    applied: str
    code: NanCode

    def __call__(self, case: Case, golden: Outputs) -> Outputs | None:
        """Return what a library with this policy gives; None for what is no quantiser of floats by rows."""
        if quantiser_block(case) is None or element_format(case).kind != "float":
            return None
        fmt, amax, blocks = element_format(case), amax_of(case), blocks_of(case)
        special = amax >= INF
        if not special.any() or refnum.get_profile(case.profile).rounding == "stochastic":
            return None
        byte = golden["scales"].copy()
        for chosen, at in ((self.inf, amax == INF), (self.nan, amax > INF)):
            if chosen is not None:
                byte = np.where(at, self._byte(chosen, case, amax), byte)
        codes = self._codes(fmt, case, blocks, byte.astype(np.int32)[..., None])
        kept = (self.inf is None) & (amax == INF) | (self.nan is None) & (amax > INF)
        width = case.inputs["x"].shape[1]
        there = np.repeat(special & ~kept, blocks.shape[-1], axis=1)[:, :width]
        codes = codes.reshape(blocks.shape[0], -1)[:, :width]
        return with_codes(golden, np.where(there, codes, codes_of(golden)), byte)

    @staticmethod
    def _byte(chosen: int, case: Case, amax: np.ndarray) -> np.ndarray:
        fmt = element_format(case)
        if chosen >= 0:
            return np.full(amax.shape, chosen)
        if chosen == FIELD:
            return np.full(amax.shape, 255 - fmt.emax)
        fraction = np.where(amax > INF, np.uint32(0x400000), np.uint32(0))  # a maximum of NaN is the quiet one
        return np.clip(right(case, np.full(amax.shape, 128, np.int32), fraction, fmt) + 127, 0, 254)

    def _codes(self, fmt: Format, case: Case, blocks: np.ndarray, byte: np.ndarray) -> np.ndarray:
        profile = refnum.get_profile(case.profile)
        codes = encode_bits(fmt, blocks, byte - 127, profile.replace(name="wrong", overflow="saturate"))
        magnitude = blocks & MAGNITUDE
        codes = np.where(magnitude > INF, self.code(fmt, blocks), codes)
        quiet = np.full(blocks.shape, 0x7FC00000, np.uint32)
        if self.applied == "nan":
            return np.where(byte == 255, self.code(fmt, quiet), codes)
        signs = _sign(fmt, blocks)
        by_inf = np.where(
            magnitude < INF, signs, np.where(magnitude == INF, self.code(fmt, quiet | np.uint32(1 << 31)), codes)
        )
        return np.where(byte == 255, by_inf, codes)


RULE, FIELD = -1, -2

_RULES = (
    ("INF_BLOCK_POLICY", "Inf and NaN get a scale as numbers do, by the exponent field 255", RULE, RULE, "inf", zero),
    (
        "INF_BLOCK_POLICY",
        "Inf gets the scale of exponent field 255, NaN byte 255, applied as Inf",
        FIELD,
        255,
        "inf",
        cut,
    ),
    ("INF_BLOCK_POLICY", "Inf saturates under byte 254; beside NaN are its codes", 254, 255, "nan", cut),
    ("INF_BLOCK_POLICY", "Inf saturates under byte 254; beside NaN every bit is set", 254, 255, "nan", every_bit),
    ("SPECIAL_INPUT_UNDEFINED", "elements of a NaN block are codes of NaN, not zeros", 255, 255, "nan", cut),
    ("SPECIAL_INPUT_UNDEFINED", "elements of a NaN block are NaN or the largest code", 255, 255, "nan", largest),
    ("SPECIAL_INPUT_UNDEFINED", "elements beside NaN are zeros of their signs", None, 255, "inf", cut),
)
POLICIES: tuple[Policy, ...] = tuple(Policy(*rule) for rule in _RULES)
"""In order: the plain formula in torch; torchao 0.18 by `floor`, `ceil` and `even`; the same by `rceil`; gfloat;
torchao after 0.18, by the differences that are known of it; the CUDA headers; a kernel whose scale alone knows NaN."""
