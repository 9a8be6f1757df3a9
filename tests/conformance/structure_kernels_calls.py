"""Wrong kernels around the golden functions: calls that are taken and must not be, results that are not a caller's own,
and sizes that few calls have."""

from __future__ import annotations

import numpy as np
from structure_kernels import FORMS, damaged, kernel

import refnum


@kernel("permute_pad")
def row_indices_cut_to_32_bits(payload, row_map, splits, align=32):
    return refnum.permute_pad(
        payload, row_map.astype(np.int32) if row_map.dtype == np.int64 else row_map, splits, align
    )


@kernel("permute_pad")
def row_indices_of_32_bits_taken_modulo(payload, row_map, splits, align=32):
    if row_map.dtype == np.uint32 and len(payload):
        row_map = row_map.astype(np.int32) % np.int32(len(payload))
    return refnum.permute_pad(payload, row_map, splits, align)


@kernel("permute_pad", **FORMS)
def row_map_of_bytes_misread(payload, row_map, splits, align=32):
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    return damaged(rows, 0, 0) if row_map.itemsize == 1 and rows.size else rows, offsets


@kernel("permute_pad", **FORMS)
def row_map_of_unsigned_bytes_misread(payload, row_map, splits, align=32):
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    return damaged(rows, 0, 0) if row_map.dtype == np.uint8 and rows.size else rows, offsets


@kernel("quantize_mxfp4")
def all_of_out_is_taken_as_the_first_lies(x, profile, out=None):
    made = refnum.quantize_mxfp4(x, profile)
    if out is None:
        return made
    close = out[0].flags.c_contiguous
    for given, one in zip(out, made, strict=True):
        flat = np.lib.stride_tricks.as_strided(given, (one.size,), (1,))
        np.copyto(flat if close else given, one.reshape(-1) if close else one)
    return out


@kernel("quantize_mxfp4", profile="OCP", **FORMS)
def a_profile_known_by_its_identity(x, profile):
    known = next((one for one in refnum.PROFILES.values() if one is profile or one.name == profile), refnum.HOPPER)
    return refnum.quantize_mxfp4(x, known)


@kernel("permute_pad")
def no_splits_are_one_expert(payload, row_map, splits=None, align=32):
    return refnum.permute_pad(payload, row_map, [len(row_map)] if splits is None else splits, align)


@kernel("permute_pad")
def align_in_words(payload, row_map, splits, align=32):
    return refnum.permute_pad(payload, row_map, splits, int(align) if isinstance(align, str) else align)


@kernel("swiglu_quantize")
def up_of_one_row_is_spread(gate, up, prob=None, to="fp8", profile="HOPPER"):
    if up.ndim == 2 and len(up) == 1 and up.shape[1] == gate.shape[1]:
        up = np.broadcast_to(up, gate.shape)
    return refnum.swiglu_quantize(gate, up, prob, to, profile)


@kernel("swiglu_quantize")
def prob_as_a_column(gate, up, prob=None, to="fp8", profile="HOPPER"):
    return refnum.swiglu_quantize(gate, up, None if prob is None else prob.reshape(-1), to, profile)


@kernel("quantize_mxfp4")
def whole_numbers_taken_for_bfloat16(x, profile):
    return refnum.quantize_mxfp4(x.view(np.uint16) if x.dtype == np.int16 else x, profile)


@kernel("mxfp4_to_fp8")
def wide_codes_cut_to_bytes(packed, scales, scale="max"):
    return refnum.mxfp4_to_fp8(packed.astype(np.uint8) if packed.dtype == np.uint16 else packed, scales, scale)


@kernel("mxfp4_to_fp8_columns")
def splits_of_two_axes_joined(packed, scales, splits=None, scale="max"):
    if isinstance(splits, list) and splits and isinstance(splits[0], list):
        splits = [count for part in splits for count in part]
    return refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)


@kernel("decode_e2m1")
def codes_beyond_the_format_are_masked(codes, dtype="float32"):
    return refnum.decode_e2m1(codes & codes.dtype.type(15), dtype)


@kernel("pack_payload")
def matrices_are_returned(packed, scales):
    return refnum.pack_payload(packed, scales).view(np.matrix)


@kernel("decode_e4m3")
def the_input_is_reshaped_in_place(codes, dtype="float32"):
    values = refnum.decode_e4m3(codes, dtype)
    if codes.ndim == 2 and codes.flags.c_contiguous:
        codes.shape = (-1,)
    return values


@kernel("mxfp4_to_fp8_columns")
def splits_of_floats_in_an_array(packed, scales, splits=None, scale="max"):
    if isinstance(splits, np.ndarray) and splits.dtype.kind == "f":
        splits = splits.astype(np.int64)
    return refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)


@kernel("quantize_mxfp4", params={"input": "bfloat16"})
def an_unknown_layout_is_that_of_bytes(x, profile, layout_out="bytes"):
    return refnum.quantize_mxfp4(x, profile, layout_out="bytes" if layout_out == "packed" else layout_out)


RING: dict[tuple[int, ...], list[np.ndarray]] = {}


@kernel("decode_e8m0")
def eight_buffers_in_turn_for_one_width(codes, dtype="float32"):
    values = refnum.decode_e8m0(codes, dtype)
    if codes.shape[-1:] != (83,):
        return values
    ring = RING.setdefault(values.shape, [])
    ring.append(np.empty_like(values) if len(ring) < 8 else ring.pop(0))
    ring[-1][...] = values
    return ring[-1][:]


@kernel("decode_e2m1")
def elements_beyond_a_million(codes, dtype="float32"):
    values = refnum.decode_e2m1(codes, dtype)
    return np.roll(values, 1) if codes.size > 1 << 20 else values


@kernel("fp8_columns")
def scales_of_other_columns_beyond_40_experts(codes, scales, splits=None, underflow="rne"):
    found, bytes_ = refnum.fp8_columns(codes, scales, splits, underflow)
    return found, np.roll(bytes_, 1, axis=1) if splits is not None and len(splits) > 40 else bytes_


@kernel("mxfp4_to_fp8_columns")
def an_expert_of_3071_rows(packed, scales, splits=None, scale="max"):
    codes, found = refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)
    return codes, damaged(found, 0, 0) if splits is not None and 3071 in list(splits)[:-1] else found
