"""The wrong rules that a mismatch is compared with: every note's own, and finer ones that say more in a line.

A suspect has the id of a note, one line, and a function (case, golden outputs) -> the outputs that the wrong rule
gives, or None where it does not apply. `FINER` and `COARSE` are literal entries here; the rest of `SUSPECTS` are
the rules that the flags of the test vectors are earned by (`refnum.conformance.bugs`), one for each note. Of
several that give the same bits, a reader believes the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from .. import WRONG
from . import rules
from .make import (
    Wrong,
    encode_with,
    nan_as,
    on_codes,
    on_elements,
    on_floats,
    on_scale_bytes,
    under_profile,
    with_param,
)

QUANTISERS = ("quantize_*", "fp8_to_mxfp4", "swiglu_quantize")
FROM_FLOATS = ("quantize_*",)
ENCODERS = ("encode_e2m1", "encode_e4m3")


@dataclass(frozen=True)
class Suspect:
    """One wrong rule. words: empty where the note of that id says it."""

    id: str
    words: str
    operations: tuple[str, ...]
    wrong: Wrong


_TIES = (
    ("E2M1_TIES_UP", "ties are rounded away from zero, not to even", "away"),
    ("E2M1_TIES_UP", "ties are rounded up, not to even", "up"),
    ("E2M1_TIES_TO_ZERO", "ties are rounded toward zero, not to even", "zero"),
    ("TIE_RULE", "ties are rounded down, not to even", "down"),
)

FINER: tuple[Suspect, ...] = (
    *(Suspect(id, words, QUANTISERS, under_profile(ties=ties)) for id, words, ties in _TIES),
    *(Suspect(id, words, ENCODERS, encode_with(ties=ties)) for id, words, ties in _TIES),
    Suspect(
        "E8M0_SUBNORMAL_IN",
        "the float32 quotient amax/6 is rounded wrongly where it is subnormal",
        FROM_FLOATS,
        rules.subnormal_quotient,
    ),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the floor of a float32 log2", FROM_FLOATS, rules.floor_log2),
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
    Suspect("FTZ_SILENT", "subnormal results are flushed to zero", ("dequantize_*", "decode_*"), rules.flush_values),
    Suspect(
        "E8M0_FF_NOT_NAN",
        "byte 255 is taken as 254",
        ("dequantize_*", "mxfp4_*", "fp8_*"),
        on_scale_bytes(rules.at_most_254),
    ),
    *(
        Suspect("SHARED_SCALE_MODE", f"the shared scale follows mode `{mode}`", ("mxfp4_*",), with_param("scale", mode))
        for mode in ("max", "amax")
    ),
    *(
        Suspect("E4M3_OVERFLOW_POLICY", words, ("encode_e4m3",), with_param("overflow", policy))
        for policy, words in (("saturate", "overflow saturates"), ("nan", "overflow gives NaN"))
    ),
    Suspect("E4M3_NAN_SIGN", "NaN comes out as 0xFF", ("encode_e4m3",), nan_as(0xFF)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -0", ("encode_e2m1",), nan_as(8)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -6", ("encode_e2m1",), nan_as(15)),
    Suspect("SIGN_OF_ZERO_LOST", "zeros come out negative", ENCODERS, on_codes(rules.negative_zero)),
    Suspect("SCALE_MANTISSA_MASK", "the mantissa is tested under 0x4FFFFF", ("encode_e8m0",), rules.byte_under_mask),
    Suspect(
        "SPECIAL_INPUT_UNDEFINED", "zero, which E8M0 lacks, becomes NaN", ("encode_e8m0",), on_codes(rules.zero_is_nan)
    ),
    Suspect(
        "OVERFLOW_WRAPS",
        "what rounds beyond the largest value becomes zero",
        (*FROM_FLOATS, *ENCODERS),
        on_codes(rules.overflow_wraps),
    ),
    Suspect("AMAX_DROPS_NAN", "a NaN block gets byte 0, a number", QUANTISERS, rules.nan_block_gets_zero),
    Suspect("RAGGED_BLOCK_RESTART", "column blocks run on over experts", ("*_columns",), rules.blocks_run_on),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is decoded as 0.0, not 2^-127", ("dequantize_*",), rules.byte_zero_is_zero),
    Suspect(
        "E8M0_FF_NOT_NAN",
        "byte 255 decodes to infinity, not NaN",
        ("dequantize_*", "decode_e8m0"),
        rules.ff_is_infinity,
    ),
    Suspect(
        "EMPTY_BLOCK_JOINS_MAX",
        "the byte of a block of zeros takes part in the maximum",
        ("mxfp4_to_fp8", "mxfp4_to_fp8_columns"),
        rules.empty_counts,
    ),
)

STEPS: tuple[Suspect, ...] = tuple(
    Suspect(
        "AMAX_LANE_LEFT_OUT",
        f"elements {step} apart have maxima of their own: the reduction lacks a step",
        FROM_FLOATS,
        rules.step_lost(step),
    )
    for step in (1, 2, 4, 8, 16, 32, 64)
)
"""Believed after the notes' own rules: they take long, and few cases show them."""

COARSE: tuple[Suspect, ...] = (
    Suspect(
        "DOUBLE_ROUNDING_BF16",
        "elements, not the maximum, are rounded to bfloat16 first",
        FROM_FLOATS,
        on_elements(rules.through_bfloat16),
    ),
    Suspect("E4M3_NEG_ZERO", "the sign of zero is lost", ("*",), on_codes(rules.positive_zero)),
    Suspect("SIGN_LOST", "the sign bit is masked off", ("*",), on_codes(rules.signless)),
    Suspect("OUTPUT_NOT_WRITTEN", "the output is all zeros", ("*",), rules.zeros),
)
"""Rules that explain much at once: believed only when nothing finer does."""


def _of_note(note: str) -> list[Suspect]:
    return [Suspect(note, "", patterns, on_floats(cast(Wrong, rule))) for patterns, rule in WRONG[note]]


_LIKELIER = ("E2M1_STICKY_LOST", "FTZ_SILENT")
"""Notes whose bits a rarer bug gives as well, say double rounding of the same element."""

_NOTES = (*_LIKELIER, *(note for note in WRONG if note not in _LIKELIER))

SUSPECTS: tuple[Suspect, ...] = (*FINER, *(suspect for note in _NOTES for suspect in _of_note(note)), *STEPS, *COARSE)
