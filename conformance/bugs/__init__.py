"""The bugs of the field as wrong rules: what each note's bug gives for a case.

A rule is a function (case, golden outputs) -> the outputs of the buggy kernel, or None where it does not apply.
A vector carries a flag only where the flag's rule gives another answer, so that a flag is a promise: a kernel
with this bug fails here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import numpy as np

from ..cases.case import Case
from . import (
    converting,
    decoding,
    estimators,
    hadamard,
    integer,
    logarithmic,
    moving,
    nvfp4,
    oscillation,
    products,
    rounding,
    scales,
    special,
    tetrajet,
    tetrajet_v2,
    updates,
)
from .tools import Outputs, Rule, on_codes

Q = ("quantize_*", "fp8_to_mxfp4")
F = ("quantize_*",)
ENC = ("encode_*",)
COL = ("*_columns",)
MATMUL = ("matmul_fp8",)
NVFP4 = ("*_nvfp4",)
ROTATED = ("hadamard*",)
TETRAJET = ("quantize_tetrajet", "q_ema")
V2, V2_READ = ("quantize_tetrajet_v2",), ("dequantize_tetrajet_v2",)
LUQ, RADIX4 = ("luq",), ("radix4",)
DGE, OCC = ("dge",), ("occ",)
SAWB, AFFINE, KEEP, QAT = ("sawb",), ("int4_affine", "efficient_qat"), ("int4_keep_two",), ("llm_qat",)
ADAM, SPAM, STABLE = ("adam_apply",), ("spam_apply",), ("stable_spam_apply",)
PERIOD, STEP, RESET, MOVED = ("q_ramping",), ("ramping_step",), ("osci_reset",), ("osci_reset_by_distance",)
CHOSEN = ("out_control",)
INT4_READ, LLM_FP4 = ("dequantize_int4",), ("llm_fp4",)
SCALES = ("a_scales", "b_scales")
SIGNED = ("quantize_*", "dequantize_*", "encode_e[24]*", "encode_element", "decode_*", "fp8_to_mxfp4", "mxfp4_to_fp8")
EXACT = frozenset({*TETRAJET, *V2, *V2_READ, *INT4_READ, *RESET})
"""Operations that only rules which name them, or all, are for: they have no profile, which rules of all quantisers
change, and no scale bytes, which those of all that dequantise do."""
BYTES_IN = ("dequantize_*", "fp8_to_mxfp4", "fp8_columns", "mxfp4_*")

WRONG: dict[str, tuple[tuple[tuple[str, ...], Rule], ...]] = {
    "E2M1_TIES_UP": (((*Q, *ENC, "mxfp4_columns"), rounding.ties("away")),),
    "E2M1_TIES_TO_ZERO": (((*Q, *ENC, "mxfp4_columns"), rounding.ties("zero")),),
    "E4M3_TIES_UP": (((*Q, *ENC), rounding.ties("away")),),
    "ELEMENT_TIES_UP": (((*Q, *ENC), rounding.ties("away")),),
    "ELEMENT_TIES_TO_ZERO": (((*Q, *ENC), rounding.ties("zero")),),
    "ELEMENT_TRUNCATED": (((*Q, *ENC), rounding.truncated),),
    "E2M1_STICKY_LOST": (((*F, *ENC), rounding.sticky_lost),),
    "DOUBLE_ROUNDING_BF16": (((*F, *ENC), rounding.through_bfloat16),),
    "DOUBLE_ROUNDING_FP16": (((*F, *ENC), rounding.through_float16),),
    "SIGN_OF_ZERO_LOST": ((SIGNED, rounding.positive_zero),),
    "E4M3_NEG_ZERO": ((SIGNED, rounding.positive_zero),),
    "TOP_VALUE_UNREACHABLE": (((*F, *ENC), rounding.top_unreachable),),
    "OVERFLOW_WRAPS": (((*F, *ENC), rounding.overflow_wraps),),
    "E4M3_CARRY_LOST": ((("encode_e4m3",), rounding.carry_lost),),
    "E4M3_SATURATES_EARLY": ((("encode_e4m3", "quantize_fp8_tiles"), rounding.saturates_early),),
    "E4M3_NAN_SIGN": ((("encode_e4m3", "quantize_fp8_tiles"), rounding.nan_with_sign),),
    "E4M3_OVERFLOW_POLICY": ((("encode_*",), rounding.other_overflow),),
    "SPECIAL_INPUT_UNDEFINED": (((*F, *ENC), rounding.nan_input_is_minus_zero),),
    "E4M3_SUBNORMAL_SCALE": (
        (
            ("decode_e4m3", "decode_element", "dequantize_fp8_tiles", "encode_e4m3", "fp8_to_mxfp4"),
            rounding.subnormal_quantum,
        ),
    ),
    "FTZ_SILENT": (
        (("quantize_*", "encode_*", "dequantize_*", "decode_*", "swiglu_quantize", "unpermute"), rounding.flush_inputs),
    ),
    "FTZ_HALF_INPUT": ((F, rounding.flush_half),),
    "TIE_RULE": ((ENC, rounding.default_ties),),
    "NEGATIVE_ZERO_POLICY": ((ENC, rounding.keeps_negative_zero),),
    "E8M0_MODE": ((Q, scales.other_scale_rule),),
    "E8M0_EXP_BY_LOG2": ((F, scales.by_log2),),
    "SCALE_LOG2_OF_QUOTIENT": ((F, scales.log2_of_quotient),),
    "DIV_BY_RECIPROCAL": ((F, scales.reciprocal_high),),
    "SCALE_BOUNDARY_INCLUSIVE": ((Q, scales.boundary_inclusive),),
    "SCALE_FLOOR_OF_QUOTIENT": ((F, scales.floor_of_quotient),),
    "SCALE_EMAX_NOT_SUBTRACTED": ((F, scales.emax_not_subtracted),),
    "SCALE_MANTISSA_MASK": ((F, scales.mantissa_mask),),
    "AMAX_NARROWED": ((F, scales.amax_narrowed),),
    "SCALE_ROUNDED_AFTER": ((F, scales.rounded_after),),
    "EVEN_INTEGER_WIDTH": ((("quantize_mx",), scales.even_width_of_the_sign),),
    "SCALE_OVERFLOW_TO_NAN": ((F, scales.overflow_to_nan),),
    "SCALE_EXPONENT_WRAPS": ((Q, scales.exponent_wraps),),
    "SCALE_CLAMP_IGNORED": ((Q, scales.clamp_ignored),),
    "SCALE_BYTE_ABOVE_254": ((("fp8_to_mxfp4",), scales.byte_above),),
    "SCALE_MIN_NORMAL": ((("quantize_mx*", "dequantize_*"), scales.min_normal),),
    "E8M0_SUBNORMAL_IN": (((*F, "encode_e8m0"), scales.subnormal_quotient),),
    "AMAX_CLAMP": ((Q, scales.floor_clamp),),
    "AMAX_DROPS_NAN": (((*Q, "swiglu_quantize"), special.drop_nan),),
    "AMAX_WITHOUT_ABS": ((F, special.without_abs),),
    "AMAX_LANE_LEFT_OUT": ((F, special.last_lane_left_out), (F, special.first_lane_left_out)),
    "BLOCK_BOUNDARY_SHIFTED": ((F, special.boundary_shifted),),
    "INF_BLOCK_POLICY": ((F, special.other_infinity),),
    "BYTE_254_RECIPROCAL": ((F, special.no_reciprocal),),
    "ZERO_BLOCK_BYTE": (((*Q, "mxfp4_columns", "swiglu_quantize"), special.zero_byte),),
    "TILE_ZERO_BYTE": (
        (("quantize_fp8_tiles", "mxfp4_to_*", "fp8_columns", "swiglu_quantize"), special.tile_zero_byte),
    ),
    "TILE_NONFINITE": ((("quantize_fp8_tiles",), special.tile_nonfinite),),
    "TILE_RECIPROCAL_OVERFLOW": ((("quantize_fp8_tiles",), special.reciprocal_overflows),),
    "TILE_GEOMETRY": ((("quantize_fp8_tiles",), special.other_tile),),
    "STOCHASTIC_BITS_IGNORED": (((*F, "encode_element"), rounding.no_random),),
    "STOCHASTIC_EXACT_MOVES": ((F, rounding.always_up),),
    "RANDOM_BITS_CUT": ((("encode_element",), rounding.eight_random_bits),),
    "OVERFLOW_SATURATES": ((("quantize_mx", "quantize_fp8_tiles"), rounding.saturates),),
    "E8M0_EXP2_INEXACT": ((("quantize_mx*", "dequantize_*"), rounding.inexact_power),),
    "E8M0_ENCODE_ROUNDING": ((("encode_e8m0",), scales.encode_rounding),),
    "E8M0_OVERFLOW_POLICY": ((("encode_e8m0",), scales.encode_overflow),),
    "E8M0_ZERO_IS_TINY": (
        (("dequantize_*", "decode_e8m0", "decode_element", "scales_to_gemm_float32"), decoding.byte_zero_is_zero),
    ),
    "E8M0_FF_NOT_NAN": (
        ((*BYTES_IN, "decode_e8m0", "decode_element", "encode_e8m0", "scales_to_gemm_float32"), decoding.ff_is_number),
    ),
    "SCALE_APPLIED_PER_ELEMENT": ((("dequantize_*",), decoding.per_element),),
    "SCALE_EXP_ADD_WRAP": ((("dequantize_mxfp4",), decoding.exponent_added),),
    "DEQUANTISED_OVERFLOW_CLAMPED": ((("dequantize_*",), decoding.overflow_clamped),),
    "DEQUANTISED_THROUGH_FP16": ((("dequantize_*",), decoding.through_float16),),
    "LOGICAL_VS_PACKED_SHAPE": ((("dequantize_mxfp4",), decoding.half_the_row),),
    "E4M3_TOP_IS_NAN": ((("decode_e4m3", "decode_element", "dequantize_fp8_tiles"), decoding.top_is_number),),
    "NIBBLE_ORDER": (
        (
            (
                "quantize_mxfp4",
                "fp8_to_mxfp4",
                "mxfp4_*",
                "dequantize_mxfp4",
                *LUQ,
                "*radix4",
                "dequantize_luq",
                *V2,
                *V2_READ,
            ),
            decoding.nibbles_swapped,
        ),
        (("codes_to_packed",), moving.other_nibble_order),
    ),
    "SPLIT_HALF_ORDER": (
        (("quantize_mxfp4", "fp8_to_mxfp4", "dequantize_mxfp4"), decoding.split_halves),
        (("codes_to_packed",), moving.ggml_order),
    ),
    "SCALE_OF_NEIGHBOUR": (((*F, *BYTES_IN), decoding.neighbour_scale),),
    "TAIL_OR_LATER_BATCH": (((*F, *BYTES_IN), decoding.first_row_or_tile),),
    "RECIPE_ZERO_FULL_SCALE": ((("mxfp4_to_*",), converting.zero_to_full_scale),),
    "ZERO_TIMES_INF_FACTOR": ((("fp8_to_mxfp4",), special.infinite_factor),),
    "SIGN_LOST": (
        (("quantize_mxfp4", "fp8_to_mxfp4", "mxfp4_to_fp8", "quantize_fp8_tiles"), on_codes(converting.signless)),
    ),
    "OUTPUT_NOT_WRITTEN": ((("*",), converting.not_written),),
    "RECIPE_SIGN_LOST": ((("mxfp4_to_fp8_columns",), on_codes(converting.signless)),),
    "RECIPE_SCALE_BYTE_WRAPS": ((("mxfp4_to_*",), converting.byte_wraps),),
    "EMPTY_BLOCK_JOINS_MAX": ((("mxfp4_*", "fp8_columns"), converting.everything_joins),),
    "NAN_BLOCK_JOINS_MAX": ((("mxfp4_*", "fp8_columns"), converting.everything_joins),),
    "SHARED_SCALE_MODE": ((("mxfp4_*",), converting.other_mode),),
    "E4M3_FLUSHES_SUBNORMALS": ((("mxfp4_to_*",), converting.flush_e4m3),),
    "UNDERFLOW_KEEPS_MANTISSA": ((("fp8_columns",), converting.other_underflow),),
    "UNDERFLOW_FLUSHED": ((("fp8_columns",), converting.underflow_flushed),),
    "TRANSPOSE_MISSING": ((("*_columns", "scales_to_gemm_float32"), converting.not_transposed),),
    "RAGGED_BLOCK_RESTART": ((COL, converting.splits_ignored),),
    "PAD_SCALE_READ": ((("mxfp4_to_fp8", "scales_to_*"), converting.missing_blocks_read),),
    "PAD_STRIDE": (
        (
            ("dequantize_fp8_tiles", "fp8_columns", "fp8_to_mxfp4", "mxfp4_to_fp8", "quantize_fp8_tiles"),
            converting.unpadded_stride,
        ),
    ),
    "SWIGLU_BF16_INTERMEDIATE": ((("swiglu_quantize",), moving.bfloat16_between),),
    "SWIGLU_PROB_IGNORED": ((("swiglu_quantize",), moving.prob_ignored),),
    "SWIGLU_EXP_OVERFLOW": ((("swiglu_*",), moving.exp_overflows),),
    "SILU_OFF_BY_ULP": ((("swiglu_quantize",), moving.silu_one_above), (("swiglu_quantize",), moving.silu_one_below)),
    "FMA_CONTRACTION": ((("swiglu_backward", "unpermute"), moving.contracted),),
    "SUM_ORDER": ((("swiglu_backward", "unpermute"), moving.other_order),),
    "PADDING_READ": ((("unpermute",), moving.padding_read),),
    "PAYLOAD_ORDER": ((("*_payload", "permute_unpack"), moving.scales_first),),
    "PADDING_NOT_ZERO": ((("permute_*",), moving.padding_dirty),),
    "ROW_MAP_INVERTED": ((("permute_*",), moving.map_inverted),),
    "SWIZZLE_LAYOUT": ((("scales_to_swizzled",), moving.row_major),),
    "UE8M0_PACK_ORDER": ((("scales_to_packed_ue8m0",), moving.first_byte_high),),
    "SCALE_LAYOUT_REVERSED": ((("scales_from_layout",), moving.written_again),),
    "PHILOX_WIDTH": ((("philox4x32",), moving.philox4x64),),
    "PHILOX_STREAM_STEP": ((("random_bits",), moving.stream_and_step_swapped),),
    "RANDOM_LOW_BITS": ((("random_bits",), moving.low_bits),),
    "NVFP4_NO_TENSOR_SCALE": ((NVFP4, nvfp4.without_tensor_scale),),
    "NVFP4_OTHER_ORDER": tuple((NVFP4, rule) for rule in nvfp4.OTHERS),
    "NVFP4_SCALE_ROUNDED_UP": ((NVFP4, nvfp4.scale_rounded_up),),
    "NVFP4_SCALE_NOT_ROUNDED": ((NVFP4, nvfp4.scale_not_rounded),),
    "NVFP4_ABOVE_SIX_WRAPS": ((("quantize_nvfp4",), nvfp4.above_six_wraps),),
    "NVFP4_NAN_IN_MAXIMUM": ((NVFP4, nvfp4.nan_in_maximum),),
    "NVFP4_MAXIMUM_OF_32": ((NVFP4, nvfp4.maximum_of_two_blocks),),
    "STOCHASTIC_FALSE_CARRY": ((NVFP4, nvfp4.false_carry),),
    "ROTATION_OTHER_SIGNS": tuple((ROTATED, rule) for rule in hadamard.OTHER_SIGNS),
    "ROTATION_OTHER_ORDER": ((ROTATED, hadamard.other_order),),
    "ROTATION_OTHER_ROWS": ((ROTATED, hadamard.by_sign_changes),),
    "ROTATION_ROUNDED_TWICE": ((ROTATED, hadamard.rounded_twice),),
    "ROTATION_NOT_ROUNDED": ((ROTATED, hadamard.not_rounded),),
    "ROTATION_MAXIMUM_BEFORE": ((ROTATED, hadamard.maximum_before),),
    "TETRAJET_OTHER_RULE": tuple((TETRAJET, rule) for rule in tetrajet.RULES),
    "TETRAJET_OTHER_RATIO": tuple((TETRAJET, rule) for rule in tetrajet.RATIOS),
    "TETRAJET_OTHER_TIES": tuple((TETRAJET, rule) for rule in tetrajet.TIES),
    "TETRAJET_ZERO_BYTE": tuple((TETRAJET, tetrajet.zero_byte(byte)) for byte in (0, 127)),
    "TETRAJET_OTHER_AXIS": ((TETRAJET, tetrajet.scale_of_other_axis),),
    "TETRAJET_BITS_IGNORED": ((TETRAJET[:1], tetrajet.bits_ignored),),
    "QEMA_IGNORED": ((TETRAJET[1:], tetrajet.average_ignored),),
    "QEMA_AVERAGE_ROUNDED": ((TETRAJET[1:], tetrajet.average_quantised),),
    "QEMA_TIE_DOWN": ((TETRAJET[1:], tetrajet.tie_stays),),
    "QEMA_SIGN_LOST": ((TETRAJET[1:], tetrajet.sign_of_average_lost),),
    "QEMA_ZERO_MOVES": ((TETRAJET[1:], tetrajet.zero_moves),),
    "V2_ONE_DIVISION": ((V2, tetrajet_v2.one_division),),
    "V2_DIVIDED": ((V2, tetrajet_v2.divided),),
    "V2_SCALES_IN_TURN": ((V2, tetrajet_v2.scales_in_turn),),
    "V2_NAN_IN_MAXIMUM": ((V2, tetrajet_v2.nan_in_maximum),),
    "V2_ZERO_SCALE": ((V2, tetrajet_v2.zero_scale),),
    "V2_SCALE_NOT_ZERO": ((V2, tetrajet_v2.scale_not_zero),),
    "V2_ELEMENT_TIES_AWAY": ((V2, tetrajet_v2.ties_away),),
    "V2_NOISE_IGNORED": ((V2, tetrajet_v2.ignored),),
    "V2_NOISE_OF_ROWS": ((V2, tetrajet_v2.of_rows),),
    "V2_NOISE_STATE_OF_EACH": ((V2, tetrajet_v2.of_each),),
    "V2_NOISE_LOW_BITS": ((V2, tetrajet_v2.low_bits),),
    "V2_NOISE_UNBOUNDED": ((V2, tetrajet_v2.unbounded),),
    "V2_NOISE_WITHOUT_STEP": ((V2, tetrajet_v2.without_step),),
    "V2_PRODUCT_IN_TURN": ((V2_READ, tetrajet_v2.product_in_turn),),
    "V2_SCALE_OF_GROUP": ((V2_READ, tetrajet_v2.scale_of_group),),
    "LUQ_KEEPS_ON_EQUAL": ((LUQ, logarithmic.with_levels(logarithmic.kept_on_equal)),),
    "LUQ_WORD_REVERSED": ((LUQ, logarithmic.with_levels(logarithmic.word_reversed)),),
    "LUQ_ONE_WORD": ((LUQ, logarithmic.with_levels(logarithmic.one_word)),),
    "LUQ_WORDS_IGNORED": ((LUQ, logarithmic.with_levels(logarithmic.words_ignored)),),
    "LUQ_NOT_PRUNED": ((LUQ, logarithmic.with_levels(logarithmic.not_pruned)),),
    "LUQ_EIGHTH_LEVEL": ((LUQ, logarithmic.with_levels(logarithmic.wraps)),),
    "LUQ_BY_RECIPROCAL": ((LUQ, logarithmic.by_reciprocal),),
    "LUQ_SIGNED_MAXIMUM": ((LUQ, logarithmic.signed_maximum),),
    "LUQ_NAN_IN_MAXIMUM": ((LUQ, logarithmic.nan_in_maximum),),
    "LUQ_MAXIMUM_IGNORED": ((LUQ, logarithmic.maximum_ignored),),
    "LUQ_OTHER_STEP": (
        *((LUQ, logarithmic.other_choice("divisor", divisor)) for divisor in (64, 128, 16)),
        *((LUQ, logarithmic.other_choice("step", step)) for step in ("real", "power_of_two")),
    ),
    "LOG_PRUNED_SIGN": (((*LUQ, *RADIX4), logarithmic.pruned_sign),),
    "LOG_NAN_AS_ZERO": (((*LUQ, *RADIX4), logarithmic.nan_as_zero),),
    "LOG_ONE_LEVEL_UP": ((("dequantize_luq", "dequantize_radix4"), logarithmic.one_level_up),),
    "RADIX4_TIE_UP": ((RADIX4, logarithmic.tie_up),),
    "RADIX4_ZERO_AT_HALF": ((RADIX4, logarithmic.zero_at_half),),
    "RADIX4_OTHER_THRESHOLD": tuple(
        (RADIX4, logarithmic.other_choice("threshold", one)) for one in ("midpoint", "0.4", "log")
    ),
    "RADIX4_PHASES_SWAPPED": tuple((("*radix4",), logarithmic.other_choice("phase", one)) for one in ("even", "odd")),
    "RADIX4_ODD_IS_HALF": ((("*radix4",), logarithmic.odd_is_half),),
    "DGE_OTHER_EDGES": ((DGE, estimators.other_edges),),
    "DGE_POWER_ROUNDED": ((DGE, estimators.power_rounded),),
    "DGE_WITHOUT_CAP": ((DGE, estimators.without_cap),),
    "DGE_INPUT_NARROWED": ((DGE, estimators.narrowed),),
    "DGE_EVEN_INTERVALS": ((DGE, estimators.even_intervals),),
    "DGE_NAN": ((DGE, estimators.slope_of_nan),),
    "OCC_INDEX_IN_FLOAT64": ((OCC, estimators.index_in_float64),),
    "OCC_UPPER_ALONE": ((OCC, estimators.upper_alone),),
    "OCC_BY_MAGNITUDE": ((OCC, estimators.by_magnitude),),
    "OCC_RESIDUAL_LEFT_OUT": ((OCC, estimators.residual_left_out),),
    "OCC_OTHER_AXIS": ((OCC, estimators.other_axis),),
    "INT4_TIES_AWAY": (((*SAWB, *AFFINE, *KEEP, *QAT), integer.rounding(integer.away)),),
    "INT4_TRUNCATED": (((*SAWB, *AFFINE, *KEEP, *QAT), integer.rounding(np.trunc)),),
    "INT4_SYMMETRIC": (((*SAWB, *KEEP), integer.symmetric),),
    "SAWB_SEVENTEEN_LEVELS": ((SAWB, integer.seventeen_levels),),
    "SAWB_CLIP_UNGUARDED": ((SAWB, integer.unguarded),),
    "SAWB_NONFINITE_COUNTED": ((SAWB, integer.nonfinite_counted),),
    "AFFINE_BY_RECIPROCAL": ((AFFINE, integer.by_reciprocal),),
    "AFFINE_OTHER_BOUNDS": ((AFFINE, integer.other_bounds),),
    "AFFINE_ROUNDED_AFTER_ZERO": ((AFFINE, integer.after_zero),),
    "AFFINE_SIGNED_CLAMP": ((AFFINE, integer.signed_clamp),),
    "AFFINE_ZERO_IN_RANGE": ((AFFINE, integer.zero_in_range),),
    "AFFINE_ZERO_POINT_LOST": ((AFFINE, integer.zero_point_lost),),
    "KEPT_IN_SCALE": ((KEEP, integer.kept_in_scale),),
    "KEPT_LATER_FIRST": ((KEEP, integer.later_first),),
    "KEPT_ONE": ((KEEP, integer.kept_one),),
    "KEPT_QUOTIENT_FIRST": ((KEEP, integer.quotient_first),),
    "QAT_NAN_DROPPED": ((QAT, integer.nan_dropped),),
    "QAT_OTHER_RULE": ((QAT, integer.other_rule),),
    "QAT_OTHER_VECTOR": ((QAT, integer.other_vector),),
    "QAT_WITHOUT_EPSILON": ((QAT, integer.without_epsilon),),
    "RAMPING_ROUNDED_QUOTIENT": ((PERIOD, oscillation.rounded_quotient),),
    "RAMPING_EPSILON_LEFT_OUT": ((PERIOD, oscillation.epsilon_left_out),),
    "RAMPING_ALPHA_BELOW": ((PERIOD, oscillation.alpha_below),),
    "RAMPING_ONE_LEFT_OUT": ((PERIOD, oscillation.one_left_out),),
    "RAMPING_PERIOD_WRAPS": ((PERIOD, oscillation.period_wraps),),
    "RAMPING_UNBOUNDED": ((PERIOD, oscillation.unbounded),),
    "RAMPING_ONLY_AT_PERIOD": ((STEP, oscillation.only_at_the_period),),
    "RAMPING_MEAN_OF_PERIOD": ((STEP, oscillation.mean_of_the_period),),
    "RAMPING_FINITE_BY_ELEMENT": ((STEP, oscillation.finite_by_element),),
    "RAMPING_TOTAL_STAYS": ((STEP, oscillation.total_stays),),
    "OSCI_RECIPROCAL": ((RESET, oscillation.reciprocal),),
    "OSCI_ONE_WIDTH": ((RESET, oscillation.one_width),),
    "OSCI_EDGE_COUNTS": ((RESET, oscillation.edge_counts),),
    "OSCI_NAN_RESETS": ((RESET, oscillation.nan_resets),),
    "OSCI_ABOVE_ONLY": ((MOVED, oscillation.above_only),),
    "OSCI_STILL_WEIGHTS": ((MOVED, oscillation.still_weights),),
    "OSCI_BY_PRODUCT": ((MOVED, oscillation.by_product),),
    "CHANNELS_ROUNDED_DOWN": ((CHOSEN, oscillation.rounded_down),),
    "CHANNELS_NOT_ROUNDED": ((CHOSEN, oscillation.not_rounded),),
    "CHANNELS_NOT_LOWERED": ((CHOSEN, oscillation.not_lowered),),
    "CHANNELS_PRODUCT_RAISED": ((CHOSEN, oscillation.product_raised),),
    "CHANNELS_SHARE_IN_FLOAT32": ((CHOSEN, oscillation.in_float32),),
    "CHANNELS_LAST_OF_TIES": ((CHOSEN, oscillation.last_of_ties),),
    "CHANNELS_NAN_BELOW": ((CHOSEN, oscillation.nan_below),),
    "CHANNELS_BY_MAGNITUDE": ((CHOSEN, oscillation.by_magnitude),),
    "CHANNELS_BY_BITS": ((CHOSEN, oscillation.by_bits),),
    "CHANNELS_OF_FIRST_ROW": ((CHOSEN, oscillation.of_first_row),),
    "INT4_UNSIGNED": ((INT4_READ, integer.unsigned),),
    "INT4_ZERO_ADDED": ((INT4_READ, integer.zero_added),),
    "INT4_ZERO_SCALED_ALONE": ((INT4_READ, integer.zero_scaled_alone),),
    "INT4_ZERO_SIGNED": ((INT4_READ, integer.zero_signed),),
    "INT4_SCALE_OF_NEIGHBOUR": ((INT4_READ, integer.scale_of_neighbour),),
    "FP4_TIES_AWAY": ((LLM_FP4, integer.fp4_rounding(integer.away)),),
    "FP4_TRUNCATED": ((LLM_FP4, integer.fp4_rounding(np.trunc)),),
    "FP4_BY_SCALE": ((LLM_FP4, integer.by_scale),),
    "FP4_NOT_CLIPPED": ((LLM_FP4, integer.not_clipped),),
    "FP4_ZERO_SIGN_LOST": ((LLM_FP4, integer.zero_sign_lost),),
    "FP4_NAN_AS_ZERO": ((LLM_FP4, integer.nan_as_zero),),
    "FP4_OTHER_WIDTH": ((LLM_FP4, integer.other_width),),
    "FP4_FIRST_MAXVAL": ((LLM_FP4, integer.first_maxval),),
    "STEP_FUSED": (((*ADAM, *SPAM, *STABLE), updates.fused),),
    "STEP_LERP": (((*ADAM, *SPAM, *STABLE), updates.lerp),),
    "STEP_SQUARE_LATER": (((*ADAM, *SPAM, *STABLE), updates.square_later),),
    "STEP_WEIGHT_FUSED": (((*ADAM, *SPAM, *STABLE), updates.weight_fused),),
    "STEP_RATE_FIRST": (((*ADAM, *SPAM, *STABLE), updates.rate_before),),
    "STEP_EPS_INSIDE": (((*ADAM, *SPAM, *STABLE), updates.eps_inside),),
    "STEP_EPS_CORRECTED": (((*ADAM, *STABLE), updates.eps_corrected),),
    "STEP_RECIPROCAL": (((*ADAM, *SPAM, *STABLE), updates.reciprocal),),
    "STEP_ROOT_NEAR": (((*ADAM, *SPAM, *STABLE), updates.root_near),),
    "STEP_OLD_MOMENT": (((*ADAM, *SPAM, *STABLE), updates.old_moment),),
    "STEP_DECAY_LEFT_OUT": (((*ADAM, *STABLE), updates.decay_left_out),),
    "STEP_SUBNORMALS_LOST": (((*ADAM, *SPAM, *STABLE), updates.subnormals_lost),),
    "SPAM_NOT_CLIPPED": ((SPAM, updates.not_clipped),),
    "SPAM_SIGN_LOST": ((SPAM, updates.sign_lost),),
    "SPAM_CLIP_BY_NEW_V": ((SPAM, updates.clip_by_new_v),),
    "SPAM_DECAY_FIRST": ((SPAM, updates.decay_first),),
    "SPAM_RESET_AFTER": ((SPAM, updates.reset_after),),
    "STABLE_SPAM_CLAMPED": ((STABLE, updates.clamped),),
    "STABLE_SPAM_NOT_SCALED": ((STABLE, updates.not_scaled),),
    "STABLE_SPAM_FORGETS_OTHERWISE": ((STABLE, updates.forgets_otherwise),),
    "PRODUCT_TERM_BITS": tuple((MATMUL, products.stepped(products.Step(bits, bits))) for bits in (12, 14)),
    "PRODUCT_ROUNDS_TERMS": ((MATMUL, products.stepped(products.Step(nearest=True, nearest_result=True))),),
    "PRODUCT_NORMALISED": ((MATMUL, products.stepped(products.Step(normalised=True))),),
    "PRODUCT_ZERO_JOINS_MAX": ((MATMUL, products.stepped(products.Step(zeros_join=True))),),
    "PRODUCT_SUM_LEFT_OUT": ((MATMUL, products.stepped(products.Step(products_alone=True))),),
    "PRODUCT_NEVER_PROMOTED": ((MATMUL, products.in_order("chain")),),
    "PRODUCT_STEP_IN_FLOAT32": ((MATMUL, products.stepped(products.Fused())),),
    "PRODUCT_SCALES_TRANSPOSED": tuple((MATMUL, products.with_scales(products.turned, (name,))) for name in SCALES),
    "PRODUCT_SCALE_OF_OTHER_BLOCK": tuple(
        (MATMUL, products.with_scales(relaid)) for relaid in (products.first_block, products.next_block)
    ),
    "PRODUCT_SCALES_SWIZZLED": tuple((MATMUL, products.with_scales(products.swizzled, (name,))) for name in SCALES),
    "PRODUCT_ZERO_SIGN": ((MATMUL, products.zero_kept_its_sign),),
    "PRODUCT_PART_RACE": tuple((MATMUL, products.parts_raced(twice)) for twice in (False, True)),
}
"""Note -> pairs of operation patterns and the wrong rule of a kernel with this bug."""


def wrong_answers(note: str, case: Case, golden: Outputs) -> Iterator[Outputs]:
    """Yield what every rule of the note gives for the case; nothing when none applies to its operation."""
    for patterns, rule in WRONG.get(note, ()):
        if asked_of(patterns, case.operation):
            with np.errstate(all="ignore"):
                outputs = rule(case, golden)
            if outputs is not None:
                yield outputs


def asked_of(patterns: Iterable[str], operation: str) -> bool:
    """Whether a rule is for an operation."""
    if operation in EXACT:
        return operation in patterns or "*" in patterns
    return any(fnmatchcase(operation, pattern) for pattern in patterns)


def same(a: Outputs, b: Outputs) -> bool:
    """Whether two results agree in names, shapes and every bit."""
    return set(a) == set(b) and all(_words(a[name], b[name]) for name in a)


def _words(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.shape != b.shape or a.dtype.itemsize != b.dtype.itemsize:
        return False
    return bool(np.array_equal(a.view(f"u{a.dtype.itemsize}"), b.view(f"u{b.dtype.itemsize}")))


def earned(flags: Iterable[str], case: Case, golden: Outputs) -> tuple[str, ...]:
    """Return, sorted, those flags whose bug would give another answer to this case."""
    return tuple(
        flag
        for flag in sorted(set(flags))
        if any(not same(outputs, golden) for outputs in wrong_answers(flag, case, golden))
    )
