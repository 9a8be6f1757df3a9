"""Known disagreements between a peer and the golden model, as data.

A peer's file lists its `DIFFERENCES`. The tests run the peer and assert that it differs exactly there, so an entry
that a new release of the peer makes untrue fails, and so does a disagreement that no entry names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Range = tuple[int, int]

LOG2_SLACK = 64
"""ulps beside a power of two within which a float32 log2 may already be whole; 44 were measured."""

POSITIVE_NAN: Range = (0x7F800001, 0x7FFFFFFF)
NEGATIVE_NAN: Range = (0xFF800001, 0xFFFFFFFF)
NANS: tuple[Range, ...] = (POSITIVE_NAN, NEGATIVE_NAN)
INF32 = 0x7F800000
TINY: Range = (1, (3 << 23) - 1)
HUGE: Range = (253 << 23, INF32 - 1)
FINITE: Range = (3 << 23, (253 << 23) - 1)
"""Magnitudes of the input classes T, H and F (N17)."""

_CLASSES = (("F", 3 << 23, (253 << 23) - 1), ("T", 1, (3 << 23) - 1), ("H", 253 << 23, INF32 - 1), ("Z", 0, 0),
            ("I", INF32, INF32), ("N", INF32 + 1, 0x7FFFFFFF))  # fmt: skip

BUG_CLASSES: Mapping[str, str] = {
    "e2m1-nan-is-zero": "SPECIAL_INPUT_UNDEFINED",
    "e4m3-nan-sign": "E4M3_NAN_SIGN",
    "e4m3-nan-code": "E4M3_NAN_SIGN",
    "e8m0-nearest-bottom-binade": "E8M0_ENCODE_ROUNDING",
    "e8m0-ties-to-even-code": "E8M0_ENCODE_ROUNDING",
    "inf-block-clips": "INF_BLOCK_POLICY",
    "log2-below-power-of-two": "E8M0_EXP_BY_LOG2",
    "rceil-subnormal-quotient": "E8M0_SUBNORMAL_IN",
    "subnormal-quotient-bumps": "E8M0_SUBNORMAL_IN",
    "log2-above-power-of-two": "SCALE_LOG2_OF_QUOTIENT",
    "even-overflows-to-nan": "SCALE_OVERFLOW_TO_NAN",
    "even-overflows": "SCALE_EXPONENT_WRAPS",
    "exponent-wraps": "SCALE_EXPONENT_WRAPS",
    "nan-block-wraps": "SCALE_EXPONENT_WRAPS",
    "nan-block-is-zero-scale": "SCALE_EXPONENT_WRAPS",
    "inf-block-wraps": "INF_BLOCK_POLICY",
    "byte-0-applied-wrong": "SCALE_MIN_NORMAL",
    "decode-scale-shifted": "E8M0_ZERO_IS_TINY",
    "decode-scale-255": "E8M0_FF_NOT_NAN",
    "nan-block-is-nan-scale": "NVFP4_NAN_IN_MAXIMUM",
    "above-six-wraps": "NVFP4_ABOVE_SIX_WRAPS",
    "minus-zero-lost": "SIGN_OF_ZERO_LOST",
    "underflow-keeps-sign": "NEGATIVE_ZERO_POLICY",
    "plus-zero-is-minus-zero": "NEGATIVE_ZERO_POLICY",
    "zero-tile-scale": "TILE_ZERO_BYTE",
    "zero-times-inf-factor": "ZERO_TIMES_INF_FACTOR",
    "inf-tile-scale": "TILE_NONFINITE",
    "nan-tile-scale": "TILE_NONFINITE",
    "e2m1-nan-sign": "SPECIAL_INPUT_UNDEFINED",
    "rounded-power": "DGE_POWER_ROUNDED",
    "square-later": "STEP_SQUARE_LATER",
    "moment-interpolated": "STEP_LERP",
    "rate-first": "STEP_RATE_FIRST",
    "weight-fused": "STEP_WEIGHT_FUSED",
}
"""Note of a difference -> its bug class in `vectors/notes.json`; the other notes are matters of policy."""


@dataclass(frozen=True)
class Difference:
    """One known disagreement.

    subject, operation: whose, and of what; params: only variants whose parameters include these; profile: only
    under this profile, empty for every one. note: its name. clause: what the golden model follows there.
    bug_class: the class of bugs it belongs to, empty where the libraries merely chose otherwise.
    where: inclusive ranges of float32 bit patterns, of the element (`of="x"`, casts), of the block's amax magnitude
    (`of="amax"`, quantisers) or of any element divided by the golden scale (`of="quotient"`, quantisers); or of the
    golden scale byte (`of="byte"`, quantisers), the code (`of="codes"`, decoders), the scale byte (`of="scales"`), or
    that of a tile with a block of zeros (`of="zero_block"`), or 1 for a row with a -0 (`of="minus_zero"`); or of the
    gradient (`of="gradient"`, steps of optimisers).
    example: the smallest such pattern; golden, peer: what each gives there (the scale byte for `amax`, unless
    `output` says `codes`: then both give the same scale and other codes). A peer value of None means it refuses.
    exact: False when only the place is known and not every pattern there differs (it depends on a maths library).
    """

    subject: str
    operation: str
    note: str
    words: str
    clause: str
    where: tuple[Range, ...]
    example: int
    golden: int
    peer: int | None
    of: str = "x"
    output: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    profile: str = ""
    exact: bool = True

    @property
    def bug_class(self) -> str:
        """Name of an entry of `vectors/notes.json`, or an empty string."""
        return BUG_CLASSES.get(self.note, "")

    @property
    def input_classes(self) -> str:
        """Letters of the input classes (N17) that the ranges meet; of the element itself for a cast, none for codes."""
        if self.of in ("codes", "zero_block", "minus_zero"):
            return ""
        spans = [(low & 0x7FFFFFFF, high & 0x7FFFFFFF) for low, high in self.where]
        return "".join(
            letter for letter, first, last in _CLASSES if any(low <= last and high >= first for low, high in spans)
        )

    def covers(self, operation: str, params: Mapping[str, Any], profile: str = "") -> bool:
        """Whether this entry speaks about a variant."""
        return (
            self.operation == operation
            and (not self.profile or self.profile == profile)
            and all(params.get(name) == value for name, value in self.params.items())
        )

    def holds_at(self, patterns: np.ndarray) -> np.ndarray:
        """Return which patterns (unsigned integers) lie in the ranges of this entry."""
        hit = np.zeros(patterns.shape, bool)
        for low, high in self.where:
            hit |= (patterns >= patterns.dtype.type(low)) & (patterns <= patterns.dtype.type(high))
        return hit


def expected(differences: Iterable[Difference], patterns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (where a difference must be, where one may be) for patterns, from the entries of one variant."""
    must = np.zeros(patterns.shape, bool)
    may = np.zeros(patterns.shape, bool)
    for difference in differences:
        hit = difference.holds_at(patterns)
        may |= hit
        if difference.exact:
            must |= hit
    return must, may


def log2_above_power_of_two(subject: str) -> Difference:
    """Return the disagreement of a library whose MXFP4 scale is ceil(log2(amax / 6)) in float32."""
    words = "ceil(log2(amax / 6)) in float32 is one too small just above 1.5 * 2^k"
    places = tuple((field << 23 | 0x400001, (field << 23 | 0x400000) + LOG2_SLACK) for field in range(255))
    return Difference(subject, "quantize_mxfp4", "log2-above-power-of-two", words, "N3", places, 0x01C00001, 2, 1,
                      of="amax", exact=False)  # fmt: skip


def special_exponent_wraps(subject: str, words: str) -> tuple[Difference, ...]:
    """Return the disagreements of a library that casts the exponent of an Inf or NaN amax to uint8."""
    places = (("inf-block-wraps", (INF32, INF32)), ("nan-block-wraps", POSITIVE_NAN))
    return tuple(
        Difference(subject, "quantize_mxfp4", note, words, "N4", (place,), place[0], 255, 0, of="amax")
        for note, place in places
    )


def nan_block_is_zero_scale(subject: str, operation: str, words: str, **params: Any) -> Difference:
    """Return the disagreement of a library whose rounding constant, added to a NaN amax, wraps to byte 0."""
    return Difference(subject, operation, "nan-block-is-zero-scale", words, "N4", (POSITIVE_NAN,), POSITIVE_NAN[0],
                      255, 0, of="amax", params=params)  # fmt: skip


def nan_scale_codes(subject: str, operation: str, code: int, **params: Any) -> Difference:
    """Return the disagreement of a library that leaves other codes than zeros under byte 255, `code` first."""
    words = "an Inf leaves other codes under byte 255; the model writes zeros"
    return Difference(subject, operation, "nan-scale-codes", words, "N4", ((INF32, INF32),), INF32, 0, code,
                      of="amax", output="codes", params=params)  # fmt: skip


def minus_zero_lost(subject: str, words: str) -> Difference:
    """Return the disagreement of a quantiser to MXFP4 that gives code 0 for -0."""
    return Difference(subject, "quantize_mxfp4", "minus-zero-lost", words, "N2", ((1 << 31, 1 << 31),), 1 << 31, 8, 0,
                      of="quotient", output="codes", exact=False)  # fmt: skip


def tile_scale(subject: str, kind: str, words: str, place: Range, scale: int) -> Difference:
    """Return a disagreement of an FP8 tile quantiser about an amax that is zero, Inf or NaN; the model gives 127."""
    return Difference(subject, "quantize_fp8_tiles", f"{kind}-tile-scale", words, "N6", (place,), place[0], 127, scale,
                      of="amax")  # fmt: skip


def nvfp4_nan_block(subject: str, golden: int, peer: int, words: str) -> Difference:
    """Return the disagreement of an NVFP4 quantiser whose block with a NaN has the scale NaN."""
    return Difference(subject, "quantize_nvfp4", "nan-block-is-nan-scale", words, "N21", (POSITIVE_NAN,),
                      POSITIVE_NAN[0], golden, peer, of="amax")  # fmt: skip


def nvfp4_minus_zero(subject: str, words: str) -> Difference:
    """Return the disagreement of an NVFP4 quantiser that makes -0 to +0."""
    return Difference(subject, "quantize_nvfp4", "minus-zero-lost", words, "N21", ((1, 1),), 1, 8, 0, of="minus_zero",
                      output="codes", exact=False)  # fmt: skip


def zero_tile_scale(subject: str) -> Difference:
    """Return the disagreement of a library that lifts amax to 1e-4 in a tile of zeros too."""
    words = "a zero tile has the scale of amax 1e-4, byte 105; in the model a zero tile's scale is 1"
    return tile_scale(subject, "zero", words, (0, 0), 105)


def decode_scale_shifted(subject: str, operation: str, exact: bool = True) -> Difference:
    """Return the disagreement of a decoder that shifts a scale byte by 23: byte 0 is 0 and byte 255 is Inf."""
    words = "scales are float32: byte 0 is 0 and byte 255 Inf when shifted by 23"
    return Difference(subject, operation, "decode-scale-shifted", words, "N1", ((0, 0), (255, 255)), 0, 0x00200000, 0,
                      of="scales", exact=exact)  # fmt: skip
