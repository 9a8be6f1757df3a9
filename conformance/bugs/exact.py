"""Wrong rules of released kernels to the last bit, where the rule of a note leaves open what else the kernel does."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import float32_bits, unpack_nibbles
from refnum.codec import encode_bits

from ..cases.case import Case
from .decoding import spread_scales
from .scales import fp8_exponent, right
from .tools import (
    INF,
    MAGNITUDE,
    Outputs,
    Rule,
    blocks_of,
    changed,
    codes_of,
    element_format,
    quantiser_block,
    rescaled,
    row,
    with_bits,
    with_codes,
)


def wrapping(rule: Rule) -> Rule:
    """Make a wrong rule of E2M1 quantisers: the scales of another one, and codes above the largest keep three bits."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if quantiser_block(case) != 32 or element_format(case) is not refnum.E2M1:
            return None
        outputs = rule(case, golden)
        if outputs is None:
            return None
        exponent = outputs["scales"].astype(np.int32)[..., None] - 125  # four times the scale: two exponents lower
        blocks = blocks_of(case)
        profile = refnum.get_profile(case.profile)
        low = encode_bits(refnum.E2M1, blocks, exponent, profile).reshape(blocks.shape[0], -1)
        finite = np.repeat((blocks & MAGNITUDE).max(axis=-1) < INF, 32, axis=1)
        codes, size = codes_of(outputs), low & 7
        beyond = finite & (size >= 4)
        return with_codes(outputs, np.where(beyond, (low & 8) | ((size + 4) & 7), codes))

    return wrong


def mantissa_mask(case: Case, golden: Outputs) -> Outputs | None:
    """The upper mantissa bits are tested under the mask 0x4FFFFF, those of subnormal maxima too."""
    return rescaled(case, golden, lambda e, f, fmt: right(case, e, f & 0x4FFFFF, fmt))


def byte_above(case: Case, golden: Outputs) -> Outputs | None:
    """The byte is 255 where it is clamped at 254; elements are those of the clamped byte."""
    beyond = (fp8_exponent(case) + 127 > 254) & (codes_of(golden).reshape(*golden["scales"].shape, 32) & 7).any(axis=2)
    return {**golden, "scales": np.where(beyond, 255, golden["scales"]).astype(np.uint8)}


def exponent_wraps_at_the_top(case: Case, golden: Outputs) -> Outputs | None:
    """An exponent field of 256 and more is cut to the sign bit, which it sets; smaller ones are right."""
    if golden["values"].dtype != np.float32:
        return None
    plain = refnum.dequantize_mxfp4(case.inputs["packed"], np.full_like(case.inputs["scales"], 127)).view(np.uint32)
    scales = np.repeat(case.inputs["scales"].astype(np.int64), 32, axis=1)
    field = ((plain.astype(np.int64) & 0x7FFFFFFF) >> 23) + scales - 127
    bits = (plain & 0x807FFFFF) | ((field << 23) & 0xFFFFFFFF).astype(np.uint32)
    gone = (field >= 255) & (scales != 255) & (plain & 0x7FFFFFFF != 0)
    return {"values": np.where(gone, bits, golden["values"].view(np.uint32)).astype(np.uint32).view(np.float32)}


def top_is_number(case: Case, golden: Outputs) -> Outputs | None:
    """The NaN codes of E4M3 are decoded as 480 of their sign."""
    values, codes, byte = golden["values"].astype(np.float32), case.inputs["codes"], spread_scales(case)
    plain = np.where(codes >> 7, np.float32(-480), np.float32(480))
    shift = 0 if byte is None else byte.astype(int) - 127
    nan = np.isnan(values) & ((codes & 0x7F) == 0x7F) & (True if byte is None else byte != 255)
    with np.errstate(over="ignore"):
        return {"values": np.where(nan, np.ldexp(plain, shift), values).astype(golden["values"].dtype)}


def half_of_the_sticky_bits(case: Case, golden: Outputs) -> Outputs | None:
    """The lowest 15 bits of every float32 are dropped before rounding."""
    return with_bits(case, lambda b: np.where((b & MAGNITUDE) < INF, b & np.uint32(0xFFFF8000), b))


def through_finite_bfloat16(case: Case, golden: Outputs) -> Outputs | None:
    """Inputs are rounded to bfloat16 first, and cut where that would give Inf."""

    def edit(b: np.ndarray) -> np.ndarray:
        rounded = b + np.uint32(0x7FFF) + (b >> np.uint32(16) & np.uint32(1))
        kept = np.where((b & MAGNITUDE) < 0x7F7F8000, rounded, b) & np.uint32(0xFFFF0000)
        return np.where((b & MAGNITUDE) >= INF, b, kept)

    return with_bits(case, edit)


def through_eleven_bits(case: Case, golden: Outputs) -> Outputs | None:
    """Inputs are rounded to the eleven significant bits of float16 first, in the range of float32."""

    def edit(b: np.ndarray) -> np.ndarray:
        rounded = (b + np.uint32(0xFFF) + (b >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
        return np.where((b & MAGNITUDE) >= INF, b, rounded)

    return with_bits(case, edit)


def no_draws(case: Case, golden: Outputs) -> Outputs | None:
    """Random bits are taken as zeros: elements are truncated."""
    return changed(case, rbits=np.zeros_like(case.inputs["rbits"])) if "rbits" in case.inputs else None


def _recoded(case: Case, golden: Outputs, byte: np.ndarray) -> Outputs:
    """Return the tiles of an MXFP4 tensor as FP8 at other scale bytes; blocks under NaN stay."""
    nibbles, source = unpack_nibbles(case.inputs["packed"]), np.repeat(case.inputs["scales"], 32, axis=1)
    wide = np.repeat(byte.astype(np.int32), 128, axis=1)[:, : nibbles.shape[1]]
    values = refnum.codec.decode_table(refnum.E2M1)[nibbles].view(np.float32)
    codes = refnum.encode(refnum.E4M3, values, wide - source.astype(np.int32), profile="HOPPER")
    return {"codes": np.where(source == 255, golden["codes"], codes), "scales": byte.astype(np.uint8)}


def _largest(case: Case, joins: np.ndarray) -> np.ndarray:
    """Return the largest byte, plus one, of the blocks of each tile that join; 0 where none does."""
    part = np.where(joins, case.inputs["scales"].astype(np.int32) + 1, 0)
    return np.pad(part, ((0, 0), (0, -part.shape[1] % 4))).reshape(part.shape[0], -1, 4).max(axis=2)


def _occupied(case: Case) -> np.ndarray:
    nibbles = unpack_nibbles(case.inputs["packed"])
    return (nibbles.reshape(*case.inputs["scales"].shape, 32) & 7).any(axis=2)


def byte_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """The largest byte minus 6 wraps in eight bits, an empty tile's to 250; elements are those of that byte."""
    if case.params["scale"] != "max" or row(case).ragged:
        return None
    most = _largest(case, _occupied(case) & (case.inputs["scales"] != 255))
    return _recoded(case, golden, np.where(most == 0, 250, (most - 7) & 255))


def nan_blocks_join(case: Case, golden: Outputs) -> Outputs | None:
    """The byte 255 of a block that is not empty takes part in the maximum; elements are those of the tile's byte."""
    if case.params["scale"] != "max" or row(case).ragged:
        return None
    most = _largest(case, _occupied(case))
    return _recoded(case, golden, np.where(most == 0, 127, np.maximum(most - 7, 0)))


def short_tile_reads_behind(case: Case, golden: Outputs) -> Outputs | None:
    """The byte of a short last tile comes from behind its row."""
    if case.inputs["packed"].shape[1] * 2 % 128 == 0:
        return None
    scales = golden["scales"].copy()
    scales[:, -1] = 240
    return {**golden, "scales": scales}


def first_half_of_many_rows(case: Case, golden: Outputs) -> Outputs | None:
    """Of more than two rows the second half is never written."""
    rows = next(iter(golden.values())).shape[0]
    if rows <= 2 or row(case).ragged:
        return None
    return {name: np.where(np.arange(rows)[:, None] < rows // 2, array, 0) for name, array in golden.items()}


def first_block_alone(case: Case, golden: Outputs) -> Outputs | None:
    """Only the first block of the array is written."""
    if quantiser_block(case) is None:
        return None
    codes, scales = np.zeros_like(codes_of(golden)), np.zeros_like(golden["scales"])
    codes[:1, : quantiser_block(case)], scales[:1, :1] = (
        codes_of(golden)[:1, : quantiser_block(case)],
        golden["scales"][:1, :1],
    )
    return with_codes(golden, codes, scales)


def first_half_of_the_blocks(case: Case, golden: Outputs) -> Outputs | None:
    """Packed bytes are counted as elements: the second half of all blocks is zeros."""
    values = golden["values"].reshape(-1, 32).copy()
    values[-(-len(values) // 2) :] = 0
    return {"values": values.reshape(golden["values"].shape)}


def scattered(case: Case, golden: Outputs) -> Outputs | None:
    """Row j of the payload goes to place row_map[j]; what is read behind the payload may be anything."""
    if "rows" not in golden:
        return None
    payload, rows, masked = case.inputs["payload"], np.zeros_like(golden["rows"]), np.zeros(golden["rows"].shape, bool)
    splits, align = case.params["splits"], int(case.params["align"])
    end = sum(-(-m // align) * align for m in splits[:-1]) + splits[-1] if splits else 0
    for j, to in enumerate(case.inputs["row_map"]):
        if to < end:
            rows[to] = payload[j] if j < len(payload) else 0
            masked[to] = j >= len(payload)
    return {**golden, "rows": np.ma.MaskedArray(rows, mask=masked)}


def overflow_and_nan_wrap(case: Case, golden: Outputs) -> Outputs | None:
    """What rounds beyond the largest value, Inf and NaN included, keeps its sign alone."""
    fmt = element_format(case)
    if fmt is not refnum.E2M1:
        return None
    magnitude = float32_bits(case.inputs["x"]) & MAGNITUDE
    codes = codes_of(golden)
    return with_codes(golden, np.where(magnitude >= np.float32(7).view(np.uint32), codes & 8, codes))
