"""The wrong rules that a mismatch is compared with: every note's own, and finer ones that say more in a line.

A suspect has the id of a note, one line, and a function (case, golden outputs) -> the outputs that the wrong rule
gives, or None where it does not apply. `FINER` and `COARSE` are literal entries here; the rest of `SUSPECTS` are
the rules that the flags of the test vectors are earned by (`refnum.conformance.bugs`), one for each note. Of
several that give the same bits, a reader believes the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..cases.case import Case
from . import WRONG, converting, decoding, exact, exact_scales, finer, products, rounding, scales
from .special_blocks import POLICIES
from .tools import (
    Outputs,
    Rule,
    on_codes,
    on_elements,
    on_floats,
    on_scale_bytes,
    to_bfloat16,
    under_profile,
    with_param,
)

QUANTISERS = ("quantize_*", "fp8_to_mxfp4", "swiglu_quantize")
FROM_FLOATS = ("quantize_*",)
ENCODERS = ("encode_e2m1", "encode_e4m3")


@dataclass(frozen=True)
class Suspect:
    """One wrong rule. words: empty where the note of that id says it. operations: patterns of names."""

    id: str
    words: str
    operations: tuple[str, ...]
    rule: Rule

    def wrong(self, case: Case, golden: Mapping[str, np.ndarray]) -> Outputs | None:
        """Return what the rule gives for a case; golden: the right outputs as unsigned integers."""
        return on_floats(self.rule)(case, dict(golden))


_TIES = (
    ("E2M1_TIES_UP", "ties are rounded away from zero, not to even", "away"),
    ("E2M1_TIES_UP", "ties are rounded up, not to even", "up"),
    ("E2M1_TIES_TO_ZERO", "ties are rounded toward zero, not to even", "zero"),
    ("TIE_RULE", "ties are rounded down, not to even", "down"),
)

_EXACT: tuple[tuple[str, str, tuple[str, ...], Rule], ...] = (
    ("SCALE_FLOOR_OF_QUOTIENT", "floor(log2(amax / 6)), and codes above the largest wrap", FROM_FLOATS,
     exact.wrapping(scales.floor_of_quotient)),
    ("SCALE_MANTISSA_MASK", "the mantissa is tested under 0x4FFFFF, and codes above the largest wrap", FROM_FLOATS,
     exact.wrapping(exact.mantissa_mask)),
    ("SCALE_BYTE_ABOVE_254", "the byte of a finite block is 255 where it is clamped", ("fp8_to_mxfp4",),
     exact.byte_above),
    ("SCALE_EXP_ADD_WRAP", "an exponent field of 256 runs into the sign", ("dequantize_mxfp4",),
     exact.exponent_wraps_at_the_top),
    ("E4M3_TOP_IS_NAN", "NaN is decoded as 480 of its sign", ("decode_e4m3", "dequantize_fp8_tiles"),
     exact.top_is_number),
    ("E2M1_STICKY_LOST", "the lowest 15 bits are lost before rounding", FROM_FLOATS, exact.half_of_the_sticky_bits),
    ("DOUBLE_ROUNDING_BF16", "inputs are rounded to bfloat16 first, but not up to Inf", FROM_FLOATS,
     exact.through_finite_bfloat16),
    ("DOUBLE_ROUNDING_FP16", "inputs are rounded to eleven bits first", (*FROM_FLOATS, "encode_*"),
     exact.through_eleven_bits),
    ("OVERFLOW_WRAPS", "what rounds beyond the largest value, and NaN, becomes zero", ("encode_*",),
     exact.overflow_and_nan_wrap),
    ("STOCHASTIC_BITS_IGNORED", "random bits are taken as zeros", (*FROM_FLOATS, "encode_element"), exact.no_draws),
    ("RECIPE_SCALE_BYTE_WRAPS", "the largest byte minus 6 wraps, an empty tile's to 250", ("mxfp4_to_fp8",),
     exact.byte_wraps),
    ("NAN_BLOCK_JOINS_MAX", "the byte of a NaN block takes part in the maximum", ("mxfp4_to_fp8",),
     exact.nan_blocks_join),
    ("PAD_SCALE_READ", "the byte of a short last tile is read behind its row", ("mxfp4_to_fp8",),
     exact.short_tile_reads_behind),
    ("TAIL_OR_LATER_BATCH", "of more than two rows only the first half is written", ("*",),
     exact.first_half_of_many_rows),
    ("TAIL_OR_LATER_BATCH", "only the first block is written", FROM_FLOATS, exact.first_block_alone),
    ("LOGICAL_VS_PACKED_SHAPE", "only the first half of all blocks is written", ("dequantize_mxfp4",),
     exact.first_half_of_the_blocks),
    ("DIV_BY_RECIPROCAL", "the reciprocal is one float32 step low", FROM_FLOATS, exact_scales.reciprocal_low),
    ("DIV_BY_RECIPROCAL", "the reciprocal is one float32 step high", FROM_FLOATS, exact_scales.reciprocal_high),
    ("SCALE_EMAX_NOT_SUBTRACTED", "the exponent of the element format is added to the right byte", FROM_FLOATS,
     exact_scales.emax_added),
    ("E8M0_SUBNORMAL_IN", "a quotient below 2^-126 gets byte 0", FROM_FLOATS,
     exact_scales.subnormal_quotient_is_zero(inclusive=False)),
    ("E8M0_SUBNORMAL_IN", "a quotient of at most 2^-126 gets byte 0", FROM_FLOATS,
     exact_scales.subnormal_quotient_is_zero(inclusive=True)),
    ("AMAX_NARROWED", "the maximum is rounded to bfloat16, but not to Inf", FROM_FLOATS,
     exact_scales.narrowed_to_bfloat16),
    ("AMAX_NARROWED", "the maximum is rounded to float16, but not to Inf", FROM_FLOATS,
     exact_scales.narrowed_to_float16),
    ("AMAX_DROPS_NAN", "NaN is lost in the maximum, and encoded as the largest code", FROM_FLOATS,
     exact_scales.without_nan),
    ("AMAX_WITHOUT_ABS", "the maximum is taken over positive elements alone", FROM_FLOATS, exact_scales.without_abs),
    ("DOUBLE_ROUNDING_BF16", "elements, not the maximum, are rounded to eight bits first", FROM_FLOATS,
     exact_scales.rounded_elements(16)),
    ("DOUBLE_ROUNDING_FP16", "elements, not the maximum, are rounded to eleven bits first", FROM_FLOATS,
     exact_scales.rounded_elements(13)),
    ("SIGN_OF_ZERO_LOST", "what underflows loses its sign", (*FROM_FLOATS, *ENCODERS),
     on_codes(exact_scales.underflow_is_positive)),
    ("SIGN_OF_ZERO_LOST", "zeros come out negative", FROM_FLOATS, on_codes(exact_scales.zeros_are_negative)),
    ("E8M0_ZERO_IS_TINY", "elements under byte 0 are divided by 1", FROM_FLOATS, exact_scales.byte_zero_is_one),
    ("BLOCK_BOUNDARY_SHIFTED", "the array is read one element late", FROM_FLOATS, exact_scales.one_element_late),
    ("ROW_MAP_INVERTED", "the row map is applied as a scatter", ("permute_*",), exact.scattered),
)  # fmt: skip

FINER: tuple[Suspect, ...] = (
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is decoded as 0.0", ("decode_e8m0",), decoding.byte_zero_is_zero),
    *(Suspect(id, words, QUANTISERS, under_profile(ties=ties)) for id, words, ties in _TIES),
    *(Suspect(id, words, ENCODERS, under_profile(ties=ties)) for id, words, ties in _TIES),
    Suspect(
        "E8M0_SUBNORMAL_IN",
        "the float32 quotient amax/6 is rounded wrongly where it is subnormal",
        FROM_FLOATS,
        finer.subnormal_quotient,
    ),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the floor of a float32 log2", FROM_FLOATS, finer.floor_of_log2),
    *(
        Suspect("E8M0_MODE", f"the scale follows the rule `{rule}`", QUANTISERS, under_profile(scale_rule=rule))
        for rule in ("floor", "ceil", "even", "rceil")
    ),
    *(
        Suspect("E8M0_MODE", f"the byte is rounded `{rounding}`", ("encode_e8m0",), with_param("rounding", rounding))
        for rounding in ("up", "down", "nearest")
    ),
    *(
        Suspect("ZERO_BLOCK_BYTE", f"a zero block gets byte {byte}", QUANTISERS, under_profile(zero_scale=byte))
        for byte in (127, 0, 94)
    ),
    Suspect("INF_BLOCK_POLICY", "Inf in a block saturates", QUANTISERS, under_profile(nonfinite="satfinite")),
    Suspect("INF_BLOCK_POLICY", "Inf in a block makes it a NaN block", QUANTISERS, under_profile(nonfinite="nosat")),
    Suspect("FTZ_SILENT", "subnormal results are flushed to zero", ("dequantize_*", "decode_*"), rounding.flush_inputs),
    Suspect(
        "E8M0_FF_NOT_NAN",
        "byte 255 is taken as 254",
        ("dequantize_*", "mxfp4_*", "fp8_*"),
        on_scale_bytes(finer.at_most_254),
    ),
    *(
        Suspect("SHARED_SCALE_MODE", f"the shared scale follows mode `{mode}`", ("mxfp4_*",), with_param("scale", mode))
        for mode in ("max", "amax")
    ),
    *(
        Suspect("E4M3_OVERFLOW_POLICY", words, ("encode_e4m3",), with_param("overflow", policy))
        for policy, words in (("saturate", "overflow saturates"), ("nan", "overflow gives NaN"))
    ),
    Suspect("E4M3_NAN_SIGN", "NaN comes out as 0xFF", ("encode_e4m3",), finer.nan_as(0xFF)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -0", ("encode_e2m1",), finer.nan_as(8)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -6", ("encode_e2m1",), finer.nan_as(15)),
    Suspect("SIGN_OF_ZERO_LOST", "zeros come out negative", ENCODERS, on_codes(finer.negative_zero)),
    Suspect("SCALE_MANTISSA_MASK", "the mantissa is tested under 0x4FFFFF", ("encode_e8m0",), finer.byte_under_mask),
    Suspect(
        "SPECIAL_INPUT_UNDEFINED", "zero, which E8M0 lacks, becomes NaN", ("encode_e8m0",), on_codes(finer.zero_is_nan)
    ),
    Suspect(
        "OVERFLOW_WRAPS",
        "what rounds beyond the largest value becomes zero",
        (*FROM_FLOATS, *ENCODERS),
        on_codes(finer.overflow_wraps),
    ),
    Suspect("AMAX_DROPS_NAN", "a NaN block gets byte 0, a number", QUANTISERS, finer.nan_block_gets_zero),
    Suspect("RAGGED_BLOCK_RESTART", "column blocks run on over experts", ("*_columns",), finer.blocks_run_on),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is decoded as 0.0, not 2^-127", ("dequantize_*",), finer.byte_zero_is_zero),
    Suspect(
        "E8M0_FF_NOT_NAN",
        "byte 255 decodes to infinity, not NaN",
        ("dequantize_*", "decode_e8m0"),
        finer.ff_is_infinity,
    ),
    Suspect(
        "EMPTY_BLOCK_JOINS_MAX",
        "the byte of a block of zeros takes part in the maximum",
        ("mxfp4_to_fp8", "mxfp4_to_fp8_columns"),
        finer.empty_counts,
    ),
    *(Suspect(policy.note, policy.words, FROM_FLOATS, policy) for policy in POLICIES),
    *(
        Suspect(
            "PRODUCT_TERM_BITS",
            f"a step keeps {bits} bits below the largest exponent, not 13",
            ("matmul_fp8",),
            products.stepped(products.Step(bits)),
        )
        for bits in (12, 14)
    ),
    Suspect(
        "PRODUCT_ROUNDS_TERMS",
        "a step's terms are rounded to nearest, its sum is cut",
        ("matmul_fp8",),
        products.stepped(products.Step(nearest=True)),
    ),
    *(Suspect(*row) for row in _EXACT),
)

STEPS: tuple[Suspect, ...] = tuple(
    Suspect(
        "AMAX_LANE_LEFT_OUT",
        f"elements {step} apart have maxima of their own: the reduction lacks a step",
        FROM_FLOATS,
        finer.step_lost(step),
    )
    for step in (1, 2, 4, 8, 16, 32, 64)
)
"""Believed after the notes' own rules: they take long, and few cases show them."""

LANES: tuple[Suspect, ...] = (
    *(
        Suspect(
            "AMAX_LANE_LEFT_OUT", f"lane {lane} of each block takes no part", FROM_FLOATS, finer.lane_left_out(lane)
        )
        for lane in range(32)
    ),
    *(
        Suspect(
            "TIE_RULE", f"the tie above code {low} goes to the odd code", (*QUANTISERS, *ENCODERS), finer.one_tie(low)
        )
        for low in range(7)
    ),
)

COARSE: tuple[Suspect, ...] = (
    Suspect(
        "DOUBLE_ROUNDING_BF16",
        "elements, not the maximum, are rounded to bfloat16 first",
        FROM_FLOATS,
        on_elements(to_bfloat16),
    ),
    Suspect("E4M3_NEG_ZERO", "the sign of zero is lost", ("*",), on_codes(rounding.positive_zero_codes)),
    Suspect("SIGN_LOST", "the sign bit is masked off", ("*",), on_codes(converting.signless)),
    Suspect("OUTPUT_NOT_WRITTEN", "the output is all zeros", ("*",), converting.not_written),
)
"""Rules that explain much at once: believed only when nothing finer does."""


def _of_note(note: str) -> list[Suspect]:
    return [Suspect(note, "", patterns, rule) for patterns, rule in WRONG[note]]


_LIKELIER = ("E2M1_STICKY_LOST", "FTZ_SILENT")
"""Notes whose bits a rarer bug gives as well, say double rounding of the same element."""

_NOTES = (*_LIKELIER, *(note for note in WRONG if note not in _LIKELIER))

SUSPECTS: tuple[Suspect, ...] = (
    *FINER,
    *(suspect for note in _NOTES for suspect in _of_note(note)),
    *STEPS,
    *LANES,
    *COARSE,
)
