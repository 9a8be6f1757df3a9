"""The table of wrong rules that real kernels have followed: what each would give for a case.

Each suspect is one literal entry: the id of its note, one line, the operations it may strike, and a function
(case, golden outputs) -> the outputs that the wrong rule gives, or None where it does not apply. The most
specific come first: of several that give the same bits, a reader believes the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from . import rules
from .make import (
    Wrong,
    encode_with,
    nan_as,
    on_codes,
    on_elements,
    on_inputs,
    on_scale_bytes,
    on_values,
    scaled_by,
    under_profile,
    with_param,
)  # fmt: skip

QUANTISERS = ("quantize_*", "fp8_to_mxfp4", "swiglu_quantize")
FROM_FLOATS = ("quantize_*",)
TO_FP8 = ("mxfp4_to_fp8", "mxfp4_to_fp8_columns")
ENCODERS = ("encode_e2m1", "encode_e4m3")


@dataclass(frozen=True)
class Suspect:
    """One wrong rule."""

    id: str
    words: str
    operations: tuple[str, ...]
    wrong: Wrong


_TIES = (
    ("E2M1_TIES_UP", "ties are rounded away from zero, not to even", "away"),
    ("E2M1_TIES_UP", "ties are rounded up, not to even", "up"),
    ("E2M1_TIES_ZERO", "ties are rounded toward zero, not to even", "zero"),
    ("E2M1_TIES_DOWN", "ties are rounded down, not to even", "down"),
)

SUSPECTS: tuple[Suspect, ...] = (
    *(Suspect(id, words, QUANTISERS, under_profile(ties=ties)) for id, words, ties in _TIES),
    *(Suspect(id, words, ENCODERS, encode_with(ties=ties)) for id, words, ties in _TIES),
    Suspect("E2M1_STICKY_LOST", "bits below the guard bit are dropped, so just above a tie looks like a tie",
            ("quantize_mxfp4",), on_elements(rules.sticky)),
    Suspect("E2M1_TRUNCATED", "elements are truncated, not rounded to nearest", QUANTISERS,
            under_profile(rounding="toward_zero")),
    Suspect("E2M1_TRUNCATED", "elements are truncated, not rounded to nearest", ENCODERS,
            encode_with(rounding="toward_zero")),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the floor of a float32 log2", FROM_FLOATS,
            scaled_by("floor", rules.floor_log2)),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the ceiling of a float32 log2", FROM_FLOATS,
            scaled_by("rceil", rules.ceil_log2)),
    *(Suspect("E8M0_SUBNORMAL_IN", "the float32 quotient amax/6 is rounded wrongly where it is subnormal",
              FROM_FLOATS, scaled_by("rceil", rule)) for rule in (rules.float_quotient_down, rules.float_quotient)),
    *(Suspect("E8M0_MODE", f"the scale follows the rule `{rule}`", QUANTISERS, under_profile(scale_rule=rule))
      for rule in ("floor", "ceil", "even", "rceil")),
    *(Suspect("E8M0_MODE", f"the byte is rounded `{rounding}`", ("encode_e8m0",), with_param("rounding", rounding))
      for rounding in ("up", "down", "nearest")),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 127", QUANTISERS, under_profile(zero_scale=127)),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 0", QUANTISERS, under_profile(zero_scale=0)),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 94", QUANTISERS, under_profile(zero_scale=94)),
    Suspect("INF_POLICY", "Inf in a block saturates", QUANTISERS, under_profile(nonfinite="satfinite")),
    Suspect("INF_POLICY", "Inf in a block makes it a NaN block", QUANTISERS, under_profile(nonfinite="nosat")),
    Suspect("AMAX_DROPS_NAN", "NaN is lost in the block maximum", FROM_FLOATS, on_inputs(rules.no_nan)),
    Suspect("FTZ_SILENT", "subnormal inputs are flushed to zero", (*FROM_FLOATS, "encode_*"), on_inputs(rules.flush)),
    Suspect("FTZ_SILENT", "subnormal results are flushed to zero", ("dequantize_*", "decode_*"),
            on_values(rules.flush_values)),
    Suspect("DOUBLE_ROUNDING", "the input is rounded to bfloat16 first", (*FROM_FLOATS, "encode_*"),
            on_inputs(rules.through(ml_dtypes.bfloat16))),
    Suspect("DOUBLE_ROUNDING", "the input is rounded to float16 first", (*FROM_FLOATS, "encode_*"),
            on_inputs(rules.through(np.float16))),
    Suspect("DOUBLE_ROUNDING", "elements, not the maximum, are rounded to bfloat16 first", FROM_FLOATS,
            on_elements(lambda bits, wide: rules.through(ml_dtypes.bfloat16)(bits))),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is decoded as 0.0, not 2^-127", ("dequantize_*", "decode_e8m0"),
            on_values(rules.byte_zero_is_zero)),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is applied as 2^-126", ("dequantize_*", "mxfp4_*", "fp8_*"),
            on_scale_bytes(lambda scales: np.where(scales == 0, 1, scales).astype(np.uint8))),
    Suspect("E8M0_FF_NOT_NAN", "byte 255 is not NaN: infinity comes out", ("dequantize_*", "decode_e8m0"),
            on_values(rules.ff_is_number)),
    Suspect("E8M0_FF_NOT_NAN", "byte 255 is taken as 254", ("dequantize_*", "mxfp4_*", "fp8_*"),
            on_scale_bytes(lambda scales: np.minimum(scales, 254))),
    Suspect("ZERO_TO_FULL_SCALE", "a zero far below the tile's scale turns into full scale", TO_FP8,
            on_codes(rules.zero_to_full)),
    Suspect("EMPTY_BLOCK_IN_MAX", "the byte of a block of zeros takes part in the maximum", TO_FP8, rules.empty_counts),
    *(Suspect("SCALE_MODE", f"the shared scale follows mode `{mode}`", ("mxfp4_*",), with_param("scale", mode))
      for mode in ("max", "amax")),
    Suspect("UNDERFLOW_KEEPS_MANTISSA", "underflow keeps mantissa bits instead of rounding", ("fp8_columns",),
            with_param("underflow", "te")),
    Suspect("UNDERFLOW_KEEPS_MANTISSA", "underflow rounds where the published kernel keeps mantissa bits",
            ("fp8_columns",), with_param("underflow", "rne")),
    Suspect("E4M3_OVERFLOW_POLICY", "overflow saturates", ("encode_e4m3",), with_param("overflow", "saturate")),
    Suspect("E4M3_OVERFLOW_POLICY", "overflow gives NaN", ("encode_e4m3",), with_param("overflow", "nan")),
    Suspect("E4M3_NAN_SIGN", "NaN keeps the input's sign", ("encode_e4m3", "quantize_fp8_tiles"),
            on_codes(rules.nan_with_sign)),
    Suspect("E4M3_NAN_SIGN", "NaN comes out as 0xFF", ("encode_e4m3",), nan_as(0xFF)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -0", ("encode_e2m1",), nan_as(8)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -6", ("encode_e2m1",), nan_as(15)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "zero, which E8M0 lacks, becomes NaN", ("encode_e8m0",),
            on_codes(rules.zero_is_nan)),
    Suspect("OVERFLOW_WRAPS", "values beyond 6 wrap instead of saturating", ("quantize_mxfp4", "encode_e2m1"),
            rules.wraps),
    Suspect("E4M3_NEG_ZERO", "the sign of zero is lost", ("*",), on_codes(rules.positive_zero)),
    Suspect("SIGN_LOST", "the sign bit is masked off", ("*",), on_codes(rules.signless)),
    Suspect("NIBBLE_ORDER", "the two codes of a byte are swapped", ("*",), on_codes(rules.swap)),
    Suspect("NIBBLE_ORDER", "codes j and j+16 share a byte, not 2j and 2j+1", ("*",), on_codes(rules.split_half)),
    Suspect("NIBBLE_ORDER", "the two input codes of a byte are swapped", ("mxfp4_*", "dequantize_mxfp4"),
            rules.swap_input),
    Suspect("TAIL_OR_LATER_BATCH", "only the first row or tile is written", ("*",), rules.first_only),
    Suspect("OUTPUT_NOT_WRITTEN", "the output is all zeros", ("*",), rules.zeros),
)
