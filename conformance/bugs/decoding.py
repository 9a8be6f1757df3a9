"""Wrong rules of decoding, nibble order and scale addressing."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import pack_nibbles, unpack_nibbles

from ..cases.case import Case
from .tools import Outputs, changed, row


def spread_scales(case):
    """The scale byte of every element of a decoding operation, or None for a scalar decode."""
    if "scales" not in case.inputs:
        return None
    scales = case.inputs["scales"]
    first = case.inputs[row(case).inputs[0]]
    rows, columns = first.shape[0], first.shape[1] * (2 if row(case).main == "packed" else 1)
    tall, wide = case.params.get("tile", (1, row(case).reads.width))
    return np.repeat(np.repeat(scales, tall, axis=0), wide, axis=1)[:rows, :columns]


def byte_zero_is_zero(case: Case, golden: Outputs) -> Outputs | None:
    """Byte 0 is decoded as 0.0."""
    values = golden["values"]
    if row(case).main == "scales":
        return {"values": np.where(values == np.float32(2.0**-127), 0, values).astype(values.dtype)}
    byte = spread_scales(case)
    zero = case.inputs["codes"] == 0 if byte is None else byte == 0
    return {"values": np.where(zero, values * 0, values).astype(values.dtype)}


def ff_is_number(case: Case, golden: Outputs) -> Outputs | None:
    """Byte 255 is 2^128: as a number, as a participant, as a scale that is applied."""
    if row(case).main == "values":
        return {"codes": np.where(golden["codes"] == 255, 254, golden["codes"]).astype(np.uint8)}
    if "values" in golden:
        if row(case).main == "scales":
            gone = np.isnan(golden["values"])
        else:
            byte = spread_scales(case)
            gone = case.inputs["codes"] == 255 if byte is None else byte == 255
        return {"values": np.where(gone, np.inf, golden["values"].astype(np.float32)).astype(golden["values"].dtype)}
    return changed(case, scales=np.minimum(case.inputs["scales"], 254))


def per_element(case: Case, golden: Outputs) -> Outputs | None:
    """Byte 255 as Inf, applied to each element: 0 * Inf is NaN, the others are Inf."""
    gone = np.repeat(case.inputs["scales"] == 255, 32, axis=1)
    plain = changed(case, scales=np.full_like(case.inputs["scales"], 127))["values"].astype(np.float32)
    with np.errstate(invalid="ignore"):
        wrong = np.where(gone, plain * np.float32(np.inf), golden["values"].astype(np.float32))
    return {"values": wrong.astype(golden["values"].dtype)}


def exponent_added(case: Case, golden: Outputs) -> Outputs | None:
    """The scale is added to the exponent field of the decoded float32 bits, which wraps."""
    plain = refnum.dequantize_mxfp4(case.inputs["packed"], np.full_like(case.inputs["scales"], 127)).view(np.uint32)
    shift = np.repeat(case.inputs["scales"].astype(np.int64) - 127, 32, axis=1)
    wrong = ((plain.astype(np.int64) + (shift << 23)) & 0xFFFFFFFF).astype(np.uint32)
    wrong = np.where((plain & 0x7FFFFFFF) == 0, plain, wrong)
    if golden["values"].dtype != np.float32:
        return {"values": (wrong >> 16).astype(np.uint16)}
    return {"values": wrong}


def overflow_clamped(case: Case, golden: Outputs) -> Outputs | None:
    """Values of 2^128 and more are clamped to the largest bfloat16."""
    values = golden["values"].astype(np.float32)
    top = np.float32(3.3895314e38)
    return {"values": np.clip(values, -top, top).astype(golden["values"].dtype)}


def through_float16(case: Case, golden: Outputs) -> Outputs | None:
    """Values pass through float16 with subnormals flushed: 2^16 and more is Inf, below 2^-14 is zero."""
    wide = golden["values"].astype(np.float32)
    narrow = np.where(np.abs(wide) < 2.0**-14, wide * 0, wide.astype(np.float16).astype(np.float32))
    return {"values": narrow.astype(golden["values"].dtype)}


def half_the_row(case: Case, golden: Outputs) -> Outputs | None:
    """Packed bytes are counted as elements: the second half of every row is never written."""
    wrong = golden["values"].copy()
    wrong[:, wrong.shape[1] // 2 :] = 0
    return {"values": wrong}


def top_is_number(case: Case, golden: Outputs) -> Outputs | None:
    """0x7F is decoded as 480, as if E4M3 had no NaN."""
    values, codes = golden["values"].astype(np.float32), case.inputs["codes"]
    byte = spread_scales(case)
    plain = np.float32(480) * (1 if byte is None else np.ldexp(np.float32(1), byte.astype(int) - 127))
    wrong = np.where((codes & 0x7F) == 0x7F, plain, values)
    return {"values": wrong.astype(golden["values"].dtype)}


def nibbles_swapped(case: Case, golden: Outputs) -> Outputs | None:
    """The two codes of a byte are swapped."""
    if "packed" in golden:
        return {**golden, "packed": (golden["packed"] << 4 | golden["packed"] >> 4).astype(np.uint8)}
    packed = case.inputs["packed"]
    return changed(case, packed=(packed << 4 | packed >> 4).astype(np.uint8))


def split_halves(case: Case, golden: Outputs) -> Outputs | None:
    """Codes j and j+16 of a block share a byte."""

    def order(codes):
        blocks = codes.reshape(codes.shape[0], -1, 2, 16)
        return blocks.transpose(0, 1, 3, 2).reshape(codes.shape)

    if "packed" in golden:
        return {**golden, "packed": pack_nibbles(order(unpack_nibbles(golden["packed"])))}
    return changed(case, packed=pack_nibbles(order(unpack_nibbles(case.inputs["packed"]))))


def neighbour_scale(case: Case, golden: Outputs) -> Outputs | None:
    """Every block uses the scale of the block before it (of the row before it when there is one block)."""
    if "scales" in case.inputs:
        return changed(case, scales=np.roll(case.inputs["scales"], 1))
    return {**golden, "scales": np.roll(golden["scales"], 1)}


def first_row_or_tile(case: Case, golden: Outputs) -> Outputs | None:
    """Only the first row block, or the first expert, is written."""
    wrong = {}
    for name, array in golden.items():
        array = array.copy()
        if row(case).ragged:
            if name == "scales":
                array[1:] = 0
            else:
                array[:, 32 if array.shape[1] < 128 else 128 // (2 if name == "packed" else 1) :] = 0
        else:
            array[max(1, array.shape[0] // 2) :] = 0
        wrong[name] = array
    return wrong
