"""The 24 bug classes with which the project began, from issues of MX code in public: who shows each in the museum."""

from __future__ import annotations

SHOWN: dict[str, tuple[str, ...]] = {
    "E2M1_TIES_UP": (
        "ties up, in the quantiser", "ties up, in the conversion from FP8", "ties up, in the scalar conversion",
    ),
    "E2M1_STICKY_LOST": ("sticky bits lost", "sticky bits lost, in the scalar conversion"),
    "E4M3_SUBNORMAL_SCALE": ("subnormal codes four times too large",),
    "E4M3_OVERFLOW_POLICY": ("NaN where it should saturate",),
    "E4M3_NAN_SIGN": ("NaN keeps its sign",),
    "E4M3_NEG_ZERO": ("sign of zero lost, decoding", "sign of zero lost, encoding"),
    "E8M0_ZERO_IS_TINY": ("byte 0 is zero", "subnormals of byte 0 flushed"),
    "E8M0_FF_NOT_NAN": ("NaN block gets byte 0", "byte 255 is infinity"),
    "E8M0_SUBNORMAL_IN": ("every subnormal goes up a byte",),
    "E8M0_MODE": (
        "scale rule ignored", "ceil for the rule that rounds up late", "bytes to nearest where they go up",
    ),
    "SCALE_APPLIED_PER_ELEMENT": ("NaN scale applied to each element",),
    "SCALE_EXP_ADD_WRAP": ("scale added to the bits wraps",),
    "AMAX_DROPS_NAN": ("NaN lost by the maximum", "NaN block gets byte 0"),
    "FTZ_SILENT": ("subnormals of byte 0 flushed", "values through float16", "subnormal inputs flushed"),
    "FMA_CONTRACTION": ("product and sum fused",),
    "DIV_BY_RECIPROCAL": ("boundary of the scale rule included",),
    "PAD_SCALE_READ": ("byte of a short tile from behind its end",),
    "PAD_STRIDE": ("stride of the scales without the short tile",),
    "SWIZZLE_LAYOUT": ("scales not swizzled",),
    "LOGICAL_VS_PACKED_SHAPE": ("packed width taken for elements",),
    "SPECIAL_INPUT_UNDEFINED": ("NaN becomes -0",),
    "TAIL_OR_LATER_BATCH": ("only the first half of the rows", "packed width taken for elements"),
}  # fmt: skip
"""Class, an id of vectors/notes.json -> the exhibits that have it."""

UNSHOWN: dict[str, str] = {
    "E8M0_EXP_BY_LOG2": "our kernels read exponents from bit fields: there is no log2 to make wrong by an edit",
    "E8M0_EXP2_INEXACT": "our kernels write powers of two as bit fields: there is no exp2 to make wrong by an edit",
}
"""Class -> why no edit of our kernels can have it; vectors hunt it in others' by the rule in `conformance/bugs`."""
