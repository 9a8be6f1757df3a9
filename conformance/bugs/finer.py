"""Wrong rules that say more in a line than those of the notes: for the diagnosis of a mismatch alone."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import BLOCK, float32_bits, pack_nibbles, unpack_nibbles
from refnum.codec import encode_bits
from refnum.formats import magnitude_value

from ..cases.case import Case
from ..cases.geometry import block_shape, spread
from ..cases.operation import OPERATIONS
from .decoding import spread_scales
from .scales import by_log2
from .tools import (
    Outputs,
    Rule,
    changed,
    coded,
    codes_of,
    element_format,
    on_codes,
    quantiser_block,
    scaled_by,
    under,
    with_codes,
)

STEPS_LARGEST = 1 << 15
"""Elements of the largest case on which every step of a reduction is left out in turn."""


def at_most_254(scales: np.ndarray) -> np.ndarray:
    """Return scale bytes with 255 as 254."""
    return np.minimum(scales, np.uint8(254))


def _subnormal_quotient(amax: np.ndarray) -> np.ndarray:
    """Exponent of amax/6 rounded up in the normal range only; a subnormal quotient stays at byte 0 or 1."""
    bits = (amax / np.float32(6)).view(np.uint32)
    field, fraction = bits >> 23, bits & 0x7FFFFF
    return field.astype(np.int64) - 127 + ((fraction != 0) & ((field != 0) | (fraction > 0x400000)))


subnormal_quotient = scaled_by("rceil", _subnormal_quotient)
"""The scale from the bits of the float32 quotient amax/6, with the subnormal quotients rounded wrongly."""


def floor_of_log2(case: Case, golden: Outputs) -> Outputs | None:
    """Under the rule `floor`, the exponent is that of a float32 log2: one too many just below a power of two."""
    return by_log2(case, golden) if refnum.get_profile(case.profile).scale_rule == "floor" else None


def byte_zero_is_zero(case: Case, golden: Outputs) -> Outputs:
    """Elements under scale byte 0 decode to zeros of their sign."""
    values = golden["values"]
    return {"values": np.where(spread_scales(case) == 0, np.copysign(values.dtype.type(0), values), values)}


def ff_is_infinity(case: Case, golden: Outputs) -> Outputs:
    """What is NaN comes out as infinity."""
    values = golden["values"]
    return {"values": np.where(np.isnan(values), values.dtype.type(np.inf), values)}


def empty_counts(case: Case, golden: Outputs) -> Outputs | None:
    """A block of zeros takes part in the maximum of the scale bytes, or of the magnitudes, as if it held a 1."""
    nibbles, scales = unpack_nibbles(case.inputs["packed"]), case.inputs["scales"]
    empty = ~(nibbles.reshape(*scales.shape, 32) & 7).any(axis=2) & (scales != 255)
    if not empty.any():
        return None
    lead = np.zeros(nibbles.shape, bool)
    lead[:, ::32] = empty
    wrong = dict(changed(case, packed=pack_nibbles(np.where(lead, nibbles | 2, nibbles))))
    if OPERATIONS[case.operation].ragged:
        lead, nibbles = lead.T, nibbles.T
    wrong["codes"] = np.where(lead, (nibbles & 8) << 4, wrong["codes"]).astype(np.uint8)
    return wrong


def zero_is_nan(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray:
    """Zero, which E8M0 lacks, becomes NaN."""
    zero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) == 0
    return np.where(zero, np.uint8(255), codes)


def negative_zero(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """Zeros come out negative."""
    fmt = element_format(case)
    return np.where(codes == 0, np.uint8(fmt.sign_mask), codes) if fmt.kind == "float" else None


def byte_under_mask(case: Case, golden: Outputs) -> Outputs | None:
    """A normal number's byte is rounded by those bits of its mantissa that 0x4FFFFF leaves."""
    if case.params["rounding"] != "up":
        return None
    x = np.ascontiguousarray(case.inputs["x"])
    bits = float32_bits(x)
    normal = (bits & 0x7FFFFFFF) >= 0x800000
    cut = np.where(normal & ((bits & 0x7FFFFFFF) < 0x7F800000), bits & ~np.uint32(0x300000), bits)
    return changed(case, x=cut.view(np.float32), input="float32")


def overflow_wraps(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """What rounds beyond the largest value, a tie that goes up and Inf included, is a zero of its sign."""
    output, fmt = coded(case), element_format(case)
    if fmt.kind != "float":
        return None
    bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
    with np.errstate(invalid="ignore"):
        quotient = np.abs(bits.view(np.float32).astype(np.float64))
    if output and "scales" in golden:
        wide = spread(output.block, case, golden["scales"], bits.shape).astype(np.int64)
        quotient = np.where(wide == 255, 0.0, np.ldexp(quotient, 127 - wide))
    top, below = (float(magnitude_value(fmt, fmt.max_code - less)) for less in (0, 1))
    tie = top + (top - below) / 2
    beyond = quotient >= tie if fmt.max_code & 1 else quotient > tie  # the code above an odd one is even
    return np.where(beyond, codes & np.uint8(fmt.sign_mask), codes)


def nan_block_gets_zero(case: Case, golden: Outputs) -> Outputs:
    """The byte of a NaN block is 0."""
    return {**golden, "scales": np.where(golden["scales"] == 255, np.uint8(0), golden["scales"])}


def blocks_run_on(case: Case, golden: Outputs) -> Outputs | None:
    """Column blocks run on from one expert into the next: there are fewer, and no scale is written behind theirs."""
    if not case.params.get("splits"):
        return None
    wrong = changed(case, splits=None)
    return {name: _before_nothing(wrong[name], golden[name]) for name in golden}


def _before_nothing(array: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return an array in the shape of a longer one; what lies behind it is masked."""
    if array.shape == wanted.shape:
        return array
    whole = np.ma.MaskedArray(np.zeros_like(wanted), mask=True)
    whole[: len(array)] = array
    return whole


def step_lost(step: int) -> Rule:
    """Make a wrong rule: elements whose indices differ in the bit `step` have maxima of their own, as where a reduction
    lacks one of its exchanges; the scales are those of the elements without it."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        output = coded(case)
        if not output or case.elements > STEPS_LARGEST or block_shape(output.block, case)[1] < 2 * step:
            return None
        x = case.inputs["x"]
        if not np.isfinite(x).all():  # one NaN or Inf in a half of a block looks like much else
            return None
        upper = (np.arange(x.shape[1]) & step).astype(bool)
        parts = []
        for absent in (upper, ~upper):
            kept = x.copy()
            kept[:, absent] = 0
            parts.append(changed(case, x=kept))
        low, high = (codes_of(part) for part in parts)
        return with_codes(parts[0], np.where(upper, high, low))

    return wrong


def nan_as(code: int) -> Rule:
    """Make a wrong rule for scalar encoders: every NaN input gives this code."""

    def change(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray:
        nan = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) > 0x7F800000
        return np.where(nan, np.uint8(code), codes)

    return on_codes(change)


def lane_left_out(lane: int) -> Rule:
    """Make a wrong rule: one lane of every block takes no part in the maximum, and is rounded like the others."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if quantiser_block(case) != BLOCK or not is_nearest(case):
            return None
        kept = case.inputs["x"].copy()
        kept[:, lane::BLOCK] = 0
        byte = changed(case, x=kept)["scales"]
        exponent = np.repeat(byte, BLOCK, axis=1).astype(np.int32) - 127
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        fmt = element_format(case)
        codes = encode_bits(fmt, bits, exponent, refnum.get_profile(case.profile))
        signed = np.where(bits >> 31, fmt.sign_mask, 0) | (fmt.max_code if fmt.nan_code is None else fmt.nan_code)
        codes = np.where((bits & 0x7FFFFFFF) > 0x7F800000, signed, codes)
        return with_codes(golden, np.where(exponent == 128, 0, codes), byte)

    return wrong


def one_tie(low: int) -> Rule:
    """Make a wrong rule: the tie above one code goes to the odd neighbour, all others to the even one."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if not is_nearest(case) or element_format(case).kind != "float":
            return None
        down, up = (codes_of(under(case, ties=ties) or golden) for ties in ("zero", "away"))
        at = (down != up) & ((down & (element_format(case).sign_mask - 1)) == low)
        return with_codes(golden, np.where(at, up if low & 1 == 0 else down, codes_of(golden)))

    return wrong


def is_nearest(case: Case) -> bool:
    """Whether a case's profile rounds to nearest; what has no profile does."""
    return not OPERATIONS[case.operation].profiled or refnum.get_profile(case.profile).rounding == "nearest"
