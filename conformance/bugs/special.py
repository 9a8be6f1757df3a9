"""Wrong rules of block maxima, zero and special blocks, and tile geometry."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import float32_bits
from refnum.swiglu import swiglu

from ..cases.case import Case
from ..cases.operation import outputs_of
from .scales import answer_scales
from .tools import (
    INF,
    MAGNITUDE,
    Outputs,
    amax_of,
    blocks_of,
    changed,
    codes_of,
    edited,
    element_format,
    quantised_product,
    quantiser_block,
    requantise,
    row,
    under,
    with_bits,
    with_codes,
)


def drop_nan(case: Case, golden: Outputs) -> Outputs | None:
    """NaN is lost in the maximum and becomes 0."""
    if "gate" in case.inputs:
        y = swiglu(**case.inputs)
        return quantised_product(case, golden, np.where(np.isnan(y), np.float32(0), y))
    if "codes" in case.inputs:
        codes = case.inputs["codes"]
        return changed(case, codes=np.where((codes & 0x7F) == 0x7F, 0, codes).astype(np.uint8))
    return with_bits(case, lambda b: np.where((b & MAGNITUDE) > INF, 0, b))


def infinite_factor(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are multiplied by the quotient of both scales, Inf for zeros under a large scale: 0 * Inf is NaN."""
    given = np.repeat(case.inputs["scales"].astype(np.int32), 4, axis=1)[:, : golden["scales"].shape[1]]
    wide = np.repeat(given - golden["scales"] >= 128, 32, axis=1)
    codes = codes_of(golden)
    return with_codes(golden, np.where(wide & (codes & 7 == 0), 7, codes).astype(np.uint8))


def without_abs(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum is taken without the absolute value."""
    blocks = blocks_of(case)
    positive = np.where(blocks >> 31, 0, blocks).max(axis=-1)
    wide = np.repeat(positive, blocks.shape[-1], axis=1)[:, : case.inputs["x"].shape[1]]
    fake = edited(case, x=np.ascontiguousarray(wide).view(np.float32))
    return requantise(case, golden, answer_scales(fake))


def last_lane_left_out(case: Case, golden: Outputs) -> Outputs:
    """The last lane takes no part in the maximum."""
    blocks = blocks_of(case) & MAGNITUDE
    wide = np.repeat(blocks[..., :-1].max(axis=-1), blocks.shape[-1], axis=1)[:, : case.inputs["x"].shape[1]]
    fake = edited(case, x=np.ascontiguousarray(wide).view(np.float32))
    return requantise(case, golden, answer_scales(fake))


def first_lane_left_out(case: Case, golden: Outputs) -> Outputs | None:
    """The first lane takes no part in the maximum."""
    reverse = edited(case, x=np.ascontiguousarray(case.inputs["x"][:, ::-1]))
    if case.inputs["x"].shape[1] % (quantiser_block(case) or 1):
        return None
    turned = last_lane_left_out(reverse, {**golden, **changed(reverse)})
    return with_codes(golden, codes_of(turned)[:, ::-1], turned["scales"][:, ::-1])


def boundary_shifted(case: Case, golden: Outputs) -> Outputs | None:
    """Blocks start one element later."""
    x = case.inputs["x"]
    turned = changed(case, x=np.roll(x, -1, axis=1))
    return with_codes(golden, np.roll(codes_of(turned), 1, axis=1), turned["scales"])


def other_infinity(case: Case, golden: Outputs) -> Outputs | None:
    """The other policy for Inf in a block."""
    now = refnum.get_profile(case.profile).nonfinite
    return under(case, nonfinite="satfinite" if now == "nosat" else "nosat")


def no_reciprocal(case: Case, golden: Outputs) -> Outputs | None:
    """The reciprocal of byte 254, 2^-127, is flushed to 0: finite elements become 0."""
    top = np.repeat(golden["scales"] == 254, 32, axis=1)
    finite = (float32_bits(case.inputs["x"]) & MAGNITUDE) < INF
    codes, fmt = codes_of(golden), element_format(case)
    sign = fmt.sign_mask if fmt.kind == "float" else 0
    return with_codes(golden, np.where(top & finite, codes & np.uint8(sign), codes))


def zero_byte(case: Case, golden: Outputs) -> Outputs | None:
    """A zero block gets another byte."""
    if row(case).ragged:
        return {**golden, "scales": np.where(golden["scales"] == 0, 127, golden["scales"]).astype(np.uint8)}
    now = refnum.get_profile(case.profile).zero_scale
    return under(case, zero_scale=127 if now != 127 else 0)


def tile_zero_byte(case: Case, golden: Outputs) -> Outputs | None:
    """A tile of zeros gets the byte of a floor of 1e-10, 2^-42 (vLLM's Triton path)."""
    if outputs_of(case)[0].block == "row32":
        return None
    if case.params.get("tile") == [1, 128]:
        return {**golden, "scales": np.where(amax_of(case) == 0, 85, golden["scales"]).astype(np.uint8)}
    return {**golden, "scales": np.where(golden["scales"] == 127, 85, golden["scales"]).astype(np.uint8)}


def tile_nonfinite(case: Case, golden: Outputs) -> Outputs | None:
    """A tile with NaN or Inf gets a NaN scale."""
    bad = (float32_bits(case.inputs["x"]) & MAGNITUDE) >= INF
    tall, wide = case.params["tile"]
    m, k = bad.shape
    padded = np.pad(bad, ((0, -m % tall), (0, -k % wide)))
    hit = padded.reshape(padded.shape[0] // tall, tall, -1, wide).any(axis=(1, 3))
    return {**golden, "scales": np.where(hit, 255, golden["scales"]).astype(np.uint8)}


def reciprocal_overflows(case: Case, golden: Outputs) -> Outputs | None:
    """448 / amax is Inf in float32: the scale becomes 1."""
    amax = amax_of(case)
    tiny = (amax != 0) & (amax < np.float32(448 / 3.4028234e38).view(np.uint32))
    return requantise(case, golden, np.where(tiny, 127, golden["scales"]))


def other_tile(case: Case, golden: Outputs) -> Outputs | None:
    """The other tile shape; where 128 rows share a byte that each should have alone, each gets it."""
    if case.params["tile"] == [128, 128]:
        return changed(case, tile=[1, 128])
    wrong = changed(case, tile=[128, 128])
    return {**wrong, "scales": np.repeat(wrong["scales"], 128, axis=0)[: golden["scales"].shape[0]]}
