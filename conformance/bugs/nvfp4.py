"""Wrong rules of NVFP4 (N21): scales from other maxima, other roundings of a scale, orders of other libraries."""

from __future__ import annotations

import functools

import numpy as np

from refnum import softfloat
from refnum.arrays import float32_bits, pack_nibbles, unpack_nibbles
from refnum.codec import decode_table, encode_bits
from refnum.division import divide
from refnum.formats import E2M1, E4M3
from refnum.nvfp4_codes import block_codes
from refnum.nvfp4_scales import ONE, TOP, VARIANTS, tensor_factor
from refnum.profiles import HOPPER

from ..cases.case import Case
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

UNIT = np.array([2688], np.float32)
"""The tensor maximum under which a block's number is its scale alone."""


def without_tensor_scale(case: Case, golden: Outputs) -> Outputs | None:
    """The tensor's scale is left out: what a tensor maximum of 2688 gives."""
    if "x" not in case.inputs:
        return changed(case, tensor_amax=UNIT)
    given = Case(case.operation, case.profile, case.params, {**case.inputs, "tensor_amax": UNIT})
    return {**changed(given), "tensor_amax": golden["tensor_amax"]}


def other_order(name: str, other: str) -> Rule:
    """Return the rule of a kernel that has another variant's, or order's, steps."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        return changed(case, **{name: other}) if name in case.params else None

    return rule


OTHERS = (
    *(other_order("variant", name) for name in VARIANTS),
    *(other_order("order", name) for name in ("te", "product", "four_over_six")),
)


def _plain(case: Case) -> bool:
    """Whether a case is one that the rules below redo: TE, blocks of one row, to nearest."""
    plain = case.params.get("variant") == "TE" and tuple(case.params.get("tile", ())) == (1, 16)
    return plain and "rbits" not in case.inputs


def _maxima(bits: np.ndarray) -> np.ndarray:
    magnitude = bits & MAGNITUDE
    return np.where(magnitude > INF, np.uint32(0), magnitude).reshape(len(bits), bits.shape[1] // 16, 16).max(axis=2)


def _again(case: Case, golden: Outputs, codes: np.ndarray, exact: np.ndarray | None = None) -> Outputs:
    """The elements under other E4M3 codes of the scales, or under the numbers `exact`, float32 bits, beside them."""
    whole = tensor_factor(golden["tensor_amax"].view(np.uint32), TOP)
    value = np.asarray(decode_table(E4M3))[codes] if exact is None else exact
    least = softfloat.multiply(value, divide(np.full_like(whole, ONE), whole))
    factor = np.minimum(divide(np.full_like(least, ONE), least), np.uint32(0x7F7FFFFF))
    bits = float32_bits(case.inputs["x"])
    found = block_codes(bits.reshape(*codes.shape, 16), factor, False).reshape(bits.shape)
    return {**golden, "packed": pack_nibbles(found), "scales": codes}


def _scaled(case: Case, golden: Outputs) -> np.ndarray:
    """The float32 bits of the elements times the factors of their blocks, as TE has them."""
    whole = tensor_factor(golden["tensor_amax"].view(np.uint32), TOP)
    scales = np.asarray(decode_table(E4M3))[golden["scales"]]
    least = softfloat.multiply(scales, divide(np.full_like(whole, ONE), whole))
    factor = np.minimum(divide(np.full_like(least, ONE), least), np.uint32(0x7F7FFFFF))
    return softfloat.multiply(float32_bits(case.inputs["x"]), np.repeat(factor, 16, axis=1))


def _scale(case: Case, golden: Outputs, maxima: np.ndarray) -> np.ndarray:
    """The float32 bits that TE rounds to E4M3."""
    whole = tensor_factor(golden["tensor_amax"].view(np.uint32), TOP)
    return softfloat.multiply(maxima, softfloat.multiply(whole, np.full_like(whole, np.uint32(0x3E2AAAAB))))


def scale_rounded_up(case: Case, golden: Outputs) -> Outputs | None:
    """The scale is the least E4M3 number that is not below, as for a power of two."""
    if not _plain(case):
        return None
    scale = np.minimum(_scale(case, golden, _maxima(float32_bits(case.inputs["x"]))), np.uint32(0x43E00000))
    down = encode_bits(E4M3, scale, 0, HOPPER.replace(name="down", rounding="toward_zero"))
    return _again(case, golden, (down + (np.asarray(decode_table(E4M3))[down] < scale)).astype(np.uint8))


def scale_not_rounded(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are scaled by the number before it is rounded to E4M3."""
    if not _plain(case):
        return None
    scale = np.minimum(_scale(case, golden, _maxima(float32_bits(case.inputs["x"]))), np.uint32(0x43E00000))
    return _again(case, golden, golden["scales"], scale)


def nan_in_maximum(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN counts in the maximum of its block: the scale is NaN, and so are all elements."""
    if "x" not in case.inputs or tuple(case.params.get("tile", ())) != (1, 16):
        return None
    bits = float32_bits(case.inputs["x"])
    hit = ((bits & MAGNITUDE) > INF).reshape(len(bits), bits.shape[1] // 16, 16).any(axis=2)
    codes = np.where(np.repeat(hit, 16, axis=1), np.uint8(7), unpack_nibbles(golden["packed"]))
    scales = np.where(hit, np.uint8(0x7F), golden["scales"])
    return {**golden, "packed": pack_nibbles(codes), "scales": scales}


def above_six_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """Nothing is clamped to 6: where a scale was rounded down, 7 and more of it has the code of 8, which is -0."""
    if not _plain(case):
        return None
    codes = unpack_nibbles(golden["packed"])
    wrapped = (_scaled(case, golden) & MAGNITUDE) >= np.uint32(0x40E00000)
    return {**golden, "packed": pack_nibbles(np.where(wrapped, np.uint8(8), codes))}


def maximum_of_two_blocks(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum is that of 32 elements, as MX has it."""
    if not _plain(case) or golden["scales"].shape[1] % 2:
        return None
    maxima = _maxima(float32_bits(case.inputs["x"]))
    both = np.repeat(maxima.reshape(len(maxima), maxima.shape[1] // 2, 2).max(axis=2), 2, axis=1)
    return _again(case, golden, encode_bits(E4M3, _scale(case, golden, both), 0, HOPPER))


def false_carry(case: Case, golden: Outputs) -> Outputs | None:
    """Random bits are added as u / 256 of a step in float32 arithmetic, whose rounding carries where the sum does not.

    This is the software fallback of TransformerEngine: fma(u / 256, step, |x|), cut to the grid.
    """
    if "rbits" not in case.inputs or case.params.get("variant") != "TE" or tuple(case.params["tile"]) != (1, 16):
        return None
    scaled = _scaled(case, golden)
    magnitude = scaled & MAGNITUDE
    step = np.where(magnitude < 0x40000000, 0x3F000000, np.where(magnitude < 0x40800000, 0x3F800000, 0x40000000))
    part = _parts()[case.inputs["rbits"]]
    total = softfloat.multiply_add(part, step.astype(np.uint32), magnitude)
    codes = encode_bits(E2M1, total, 0, HOPPER.replace(name="cut", rounding="toward_zero"))
    codes = np.where(magnitude > INF, np.uint8(7), codes | (scaled >> np.uint32(31) << np.uint32(3)).astype(np.uint8))
    return {**golden, "packed": pack_nibbles(codes.astype(np.uint8))}


@functools.cache
def _parts() -> np.ndarray:
    """float32 bits of u / 256 for each random byte u, exact."""
    return (np.arange(256, dtype=np.float64) / 256).astype(np.float32).view(np.uint32)
