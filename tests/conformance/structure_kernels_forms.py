"""Wrong kernels around the golden functions: arguments in forms and ranges that few callers use."""

from __future__ import annotations

import numpy as np
from structure_kernels import FORMS, damaged, kernel

import refnum


@kernel("unpack_payload")
def rows_taken_for_dense_by_their_stride_alone(payload):
    packed, scales = refnum.unpack_payload(payload)
    dense = payload.shape[0] > 1 and payload.strides[0] == payload.shape[1] and payload.strides[1] == 0
    return (damaged(packed, 0, 0) if dense else packed), scales


def of_splits(condition):
    """Return a kernel that is wrong where a condition on its splits holds."""

    def run(payload, row_map, splits, align=32):
        rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
        return (damaged(rows, 0, 0) if rows.size and condition(splits) else rows), offsets

    return run


SPLITS = {
    "bytes": lambda splits: isinstance(splits, np.ndarray) and splits.dtype == np.uint8,
    "int16": lambda splits: isinstance(splits, np.ndarray) and splits.dtype == np.int16,
    "uint64": lambda splits: isinstance(splits, np.ndarray) and splits.dtype == np.uint64,
    "from behind": lambda splits: isinstance(splits, np.ndarray) and splits.strides[0] < 0,
    "read only": lambda splits: isinstance(splits, np.ndarray) and not splits.flags.writeable,
    "a range": lambda splits: isinstance(splits, range),
}
for words, condition in SPLITS.items():
    run = of_splits(condition)
    run.__name__ = f"splits: {words}"
    kernel("permute_pad", rows=lambda row: "splits" in row)(run)


@kernel("permute_pad", **FORMS)
def align_multiplied_in_bytes(payload, row_map, splits, align=32):
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    narrow = isinstance(align, np.uint8) and rows.size
    return (damaged(rows, 0, 0) if narrow else rows), offsets


@kernel("permute_pad")
def splits_in_32_bits(payload, row_map, splits, align=32):
    if isinstance(splits, list):
        splits = [count & 0xFFFFFFFF if isinstance(count, int) and count > 0 else count for count in splits]
    return refnum.permute_pad(payload, row_map, splits, align)


@kernel("permute_pad")
def align_in_32_bits(payload, row_map, splits, align=32):
    return refnum.permute_pad(
        payload, row_map, splits, align & 0xFFFFFFFF if type(align) is int and align > 0 else align
    )


@kernel("encode_e2m1")
def scale_byte_in_8_bits(x, scale_byte=127):
    return refnum.encode_e2m1(x, scale_byte & 255 if type(scale_byte) is int else scale_byte)


@kernel("int4_affine")
def no_group_is_the_whole_row(x, group):
    return refnum.int4_affine(x, x.shape[1] if type(group) is int and group == 0 else group)


@kernel("llm_qat")
def flags_by_their_truth(x, bits=4, symmetric=True, layerwise=False):
    return refnum.llm_qat(x, bits, bool(symmetric), bool(layerwise))


@kernel("dequantize_mx")
def names_in_small_letters(codes, scales, element="E2M1", dtype="float32"):
    return refnum.dequantize_mx(codes, scales, element.upper() if isinstance(element, str) else element, dtype)


@kernel("q_ramping")
def a_ratio_is_changed_in_its_list(dist_w, dist_q, alpha=(16, 1), beta=5, most=(1 << 31) - 1):
    period = refnum.q_ramping(dist_w, dist_q, alpha, beta, most)
    if isinstance(alpha, list):
        alpha.reverse()
    return period


@kernel("occ", **FORMS)
def a_ratio_in_a_tuple_is_the_default(x, alpha=(99, 100), axis="tensor"):
    clamped, *others = refnum.occ(x, alpha, axis)
    return (-clamped if isinstance(alpha, tuple) and alpha == (99, 100) and x.size > 64 else clamped), *others


@kernel("matmul_bf16", rows=lambda row: {"splits", "b.storage"} <= {*row})  # others take half a minute
def experts_of_b_that_are_turned(a, b, order="chain", out="float32", splits=None):
    values = refnum.matmul_bf16(a, b, order, out, splits)
    turned = b.ndim == 3 and min(b.shape[1:]) > 1 and b.strides[1] < b.strides[2]
    return -values if turned else values


@kernel("matmul_bf16")
def an_operand_of_terms_by_columns(a, b, order="chain", out="float32", splits=None):
    turned = b.ndim == 2 and b.shape[1] != a.shape[-1] == b.shape[0]
    return refnum.matmul_bf16(a, b.T.copy() if turned else b, order, out, splits)


@kernel("dequantize_mx")
def scales_of_columns_by_rows(codes, scales, element="E2M1", dtype="float32"):
    turned = scales.ndim == 2 and len(scales) != len(codes) == scales.shape[1]
    return refnum.dequantize_mx(codes, scales.T.copy() if turned else scales, element, dtype)


@kernel("int4_keep_two")
def a_part_of_a_group_at_the_end(x, group):
    return refnum.int4_keep_two(x, 16 if type(group) is int and group > 1 and x.shape[-1] % group else group)


@kernel("unpack_payload")
def rows_that_are_nothing_in_16_bits(payload):
    packed, scales = refnum.unpack_payload(payload)
    return (damaged(packed, -1, 0) if len(packed) == 1 << 16 else packed), scales


@kernel("pack_payload")
def columns_that_are_nothing_in_16_bits(packed, scales):
    payload = refnum.pack_payload(packed, scales)
    return damaged(payload, -1, 0) if packed.shape[1] == 1 << 15 and len(packed) > 1 else payload


@kernel("decode_e8m0")
def elements_of_whole_waves_alone(codes, dtype="float32"):
    values = refnum.decode_e8m0(codes, dtype)
    return -values if codes.size in (1 << 17, 1 << 18, 1 << 20) else values


@kernel("quantize_mxfp4", profile="STOCHASTIC", params={"input": "float32", "random": "keyed"})
def offsets_cut_to_whole_blocks(x, profile, philox=None):
    if philox is not None and len(philox) == 4 and philox[3] % 32:
        philox = (*philox[:3], philox[3] // 32 * 32)
    return refnum.quantize_mxfp4(x, profile, philox=philox)


@kernel("quantize_mxfp4", profile="STOCHASTIC", params={"input": "float32", "random": "keyed"})
def words_of_a_key_cut_to_32_bits(x, profile, philox=None):
    if philox is not None and len(philox) > 2:
        philox = (philox[0], philox[1] & 0xFFFFFFFF, *philox[2:])
    return refnum.quantize_mxfp4(x, profile, philox=philox)


@kernel("encode_e8m0")
def words_in_large_letters(x, rounding="up", saturate=False):
    return refnum.encode_e8m0(x, rounding.lower() if isinstance(rounding, str) else rounding, saturate)
