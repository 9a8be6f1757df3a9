"""Wrong kernels around the golden functions, each right but for one realistic thing of structure."""

from __future__ import annotations

import itertools

import numpy as np

import refnum
from refnum.swiglu import silu

KERNELS = {}
FORMS = {"rows": lambda row: "form shape" in row}
"""For a kernel that is wrong in a form of a call: what is asked before forms, which it answers, takes seconds."""


def kernel(operation, **more):
    def keep(function):
        KERNELS[f"{operation}: {function.__name__}"] = (operation, function, more)
        return function

    return keep


def damaged(array, *place):
    array = array.copy()
    array[place] ^= np.uint8(1)
    return array


@kernel("quantize_mxfp4")
def rows_beyond_4097(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed, damaged(scales, 4097, 0) if x.shape[0] > 4097 else scales


@kernel("quantize_mxfp4")
def columns_beyond_8192(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed, damaged(scales, 0, 256) if x.shape[1] > 8192 else scales


@kernel("quantize_mxfp4", rows=lambda row: row.get("columns", 0) > 65536)
def columns_beyond_65536(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return (damaged(packed, 0, 32768) if x.shape[1] > 65536 else packed), scales


@kernel("quantize_fp8_tiles")
def last_half_tile(x, tile, profile):
    codes, scales = refnum.quantize_fp8_tiles(x, tile, profile)
    return codes, damaged(scales, 0, -1) if x.shape[1] > 128 and x.shape[1] % 128 == 64 else scales


@kernel("fp8_to_mxfp4")
def odd_number_of_tiles(codes, scales, profile):
    packed, out = refnum.fp8_to_mxfp4(codes, scales, profile)
    tiles = -(-codes.shape[1] // 128)
    return packed, damaged(out, 0, -1) if tiles > 1 and tiles % 2 else out


@kernel("mxfp4_to_fp8")
def tiles_beyond_64(packed, scales, scale):
    codes, out = refnum.mxfp4_to_fp8(packed, scales, scale)
    return codes, damaged(out, -1, 64) if out.shape[1] > 64 else out


@kernel("quantize_payload")
def rows_of_17(x, profile):
    payload = refnum.quantize_payload(x, profile)
    return damaged(payload, 16, 0) if x.shape[0] == 17 else payload


@kernel("permute_pad")
def experts_beyond_256(payload, row_map, splits, align):
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    if len(splits) > 256:
        offsets = offsets.copy()
        offsets[256:] = 0
    return rows, offsets


@kernel("permute_unpack")
def offsets_beyond_8(payload, row_map, splits, align):
    packed, scales, offsets = refnum.permute_unpack(payload, row_map, splits, align)
    offsets[8:] += 1
    return packed, scales, offsets


@kernel("permute_pad")
def expert_of_256_rows(payload, row_map, splits, align):
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    for first, count in zip(offsets, splits, strict=True):
        rows[first + 256 : first + max(count, 256)] = 0
    return rows, offsets


@kernel("fp8_columns")
def two_empty_in_a_row(codes, scales, splits=None, underflow="rne"):
    out, found = refnum.fp8_columns(codes, scales, splits, underflow)
    gone = splits is not None and any(a == b == 0 for a, b in itertools.pairwise(splits))
    return out, damaged(found, 0, 0) if gone and found.size else found


@kernel("mxfp4_to_fp8_columns")
def expert_begins_at_odd_row(packed, scales, splits=None, scale="max"):
    out, found = refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)
    begins = np.cumsum([0, *(splits or [])])[:-1]
    return out, damaged(found, -1, 0) if found.size and any(begins % 32 == 16) else found


@kernel("mxfp4_columns")
def no_splits_means_no_rows(packed, scales, splits=None, scale="amax"):
    out, found = refnum.mxfp4_columns(packed, scales, splits, scale)
    return out, damaged(found, 0, 0) if splits is None and found.size else found


@kernel("dequantize_mxfp4", params={"dtype": "float32", "layout_in": "packed_ue8m0"})
def padding_of_the_last_word(packed, scales, dtype, layout_in="bytes"):
    out = refnum.dequantize_mxfp4(packed, scales, dtype, layout_in=layout_in)
    columns = packed.shape[1] // 16
    if layout_in == "packed_ue8m0" and columns % 4 and out.size:
        top = np.ascontiguousarray(scales).view(np.uint8).reshape(*scales.shape, 4)[-1, 0, columns % 4]
        out.view(np.uint32)[0, 0] ^= np.uint32(top != 0)
    return out


@kernel("quantize_mxfp4", params={"input": "float32", "layout_out": "swizzled"})
def swizzled_at_129_rows(x, profile, layout_out="bytes"):
    packed, scales = refnum.quantize_mxfp4(x, profile, layout_out=layout_out)
    if layout_out == "swizzled" and x.shape[0] % 128 == 1 and x.shape[0] > 1:
        scales = np.roll(scales, 1)
    return packed, scales


@kernel("quantize_mxfp4", **FORMS)
def memory_order(x, profile):
    if x.ndim == 2 and not x.flags.c_contiguous and x.T.flags.c_contiguous:
        x = x.T.reshape(x.shape)
    return refnum.quantize_mxfp4(x, profile)


@kernel("swiglu_quantize", **FORMS)
def broadcast_up(gate, up, prob=None, to="fp8", profile="HOPPER"):
    if up.strides[0] == 0 and up.shape[0] > 1:
        up = np.concatenate([up[:1], np.zeros_like(up[1:])])
    return refnum.swiglu_quantize(gate, up, prob, to, profile)


@kernel("decode_e4m3")
def reversed_codes(codes, dtype="float32"):
    if codes.ndim and codes.strides[-1] < 0:
        codes = codes[..., ::-1]
    return refnum.decode_e4m3(codes, dtype)


@kernel("quantize_mxfp4")
def address_of_4(x, profile):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed, damaged(scales, 0, 0) if x.__array_interface__["data"][0] % 16 == 4 else scales


@kernel("dequantize_fp8_tiles")
def gaps_of_scales(codes, scales, tile, dtype):
    flat = np.lib.stride_tricks.as_strided(scales, scales.shape, (scales.shape[1], 1))
    return refnum.dequantize_fp8_tiles(codes, flat.copy() if min(scales.strides) >= 0 else scales, tile, dtype)


@kernel("quantize_mxfp4")
def out_as_if_contiguous(x, profile, out=None):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if out is None:
        return packed, scales
    for given, made in zip(out, (packed, scales), strict=True):
        flat = np.lib.stride_tricks.as_strided(given, (made.size,), (1,))
        flat[...] = made.reshape(-1)
    return out


@kernel("quantize_mxfp4")
def fresh_pair_beside_out(x, profile, out=None):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if out is not None:
        out[0][...], out[1][...] = packed, scales
    return packed, scales


@kernel("pack_payload")
def out_at_odd_address(packed, scales, out=None):
    made = refnum.pack_payload(packed, scales)
    if out is None:
        return made
    out[...] = damaged(made, 0, 0) if out.__array_interface__["data"][0] % 2 else made
    return out


_STATIC = np.zeros(1 << 16, np.uint8)


@kernel("unpack_payload")
def static_buffer_of_small_calls(payload):
    packed, scales = refnum.unpack_payload(payload)
    if packed.size > _STATIC.size:
        return packed, scales
    view = _STATIC[: packed.size].reshape(packed.shape)
    view[...] = packed
    return view, scales


@kernel("quantize_payload")
def shared_scratch(x, profile):
    scratch = _SCRATCH.setdefault("x", {})
    scratch["rows"] = x
    rows = scratch["rows"]
    return refnum.quantize_payload(rows if rows.shape == x.shape else x, profile)


_SCRATCH: dict = {}


@kernel("fp8_to_payload")
def after_a_refusal(codes, scales, profile):
    if _REFUSED.pop("last", False):
        return damaged(refnum.fp8_to_payload(codes, scales, profile), 0, 0)
    try:
        return refnum.fp8_to_payload(codes, scales, profile)
    except Exception:
        _REFUSED["last"] = True
        raise


_REFUSED: dict = {}


@kernel("dequantize_mx")
def cached_by_shape(codes, scales, element, dtype):
    key = (codes.shape, element, dtype)
    if key not in _CACHED:
        _CACHED.clear()
        _CACHED[key] = int(codes.reshape(-1)[0]) if codes.size else 0
    out = refnum.dequantize_mx(codes, scales, element, dtype)
    if codes.size and int(codes.reshape(-1)[0]) != _CACHED[key]:
        out[0, 0] = 1e30
    return out


_CACHED: dict = {}


@kernel("unpack_payload")
def results_not_contiguous(payload):
    columns = payload.shape[1] // 17 * 16
    both = payload.copy()
    return both[:, :columns], both[:, columns:]


@kernel("encode_e4m3")
def result_read_only(x, overflow="saturate"):
    codes = refnum.encode_e4m3(x, overflow)
    codes.flags.writeable = False
    return codes


@kernel("quantize_mxfp4", **FORMS)
def uint16_taken_for_numbers(x, profile):
    return refnum.quantize_mxfp4(x.astype(np.float32) if x.dtype == np.uint16 else x, profile)


uint16_taken_for_numbers_params = {"input": "bfloat16"}


@kernel("mxfp4_to_fp8_columns")
def tuple_is_one_expert(packed, scales, splits=None, scale="max"):
    return refnum.mxfp4_to_fp8_columns(packed, scales, splits if isinstance(splits, list) else None, scale)


@kernel("permute_pad", rows=lambda row: row.get("tokens", 0) > 127)
def row_map_of_int64_only(payload, row_map, splits, align):
    return refnum.permute_pad(payload, row_map & 0x7F if row_map.dtype == np.int16 else row_map, splits, align)


@kernel("quantize_mxfp4")
def k_33_cut_to_32(x, profile):
    return refnum.quantize_mxfp4(x[:, : x.shape[1] // 32 * 32] if x.ndim == 2 else x, profile)


@kernel("unpermute")
def index_modulo(rows, row_map, splits, weights, tokens, align):
    return refnum.unpermute(rows, row_map % max(tokens, 1), splits, weights, tokens, align)


@kernel("permute_pad")
def index_clamped(payload, row_map, splits, align):
    return refnum.permute_pad(payload, np.clip(row_map, 0, payload.shape[0] - 1), splits, align)


@kernel("fp8_columns")
def negative_splits(codes, scales, splits=None, underflow="rne"):
    given = splits
    if isinstance(splits, list) and all(isinstance(n, int) for n in splits) and min(splits, default=0) < 0:
        given = None
    return refnum.fp8_columns(codes, scales, given, underflow)


@kernel("permute_unpack")
def splits_sorted_in_place(payload, row_map, splits, align):
    found = refnum.permute_unpack(payload, row_map, splits, align)
    if isinstance(splits, list):
        splits.sort()
    return found


@kernel("mxfp4_columns", **FORMS)
def wrong_default(packed, scales, splits=None, scale="max"):
    return refnum.mxfp4_columns(packed, scales, splits, scale)


@kernel("quantize_mxfp4")
def one_row_only(x, profile):
    if x.shape[0] != 1:
        raise NotImplementedError("one row only")
    return refnum.quantize_mxfp4(x, profile)


@kernel("quantize_fp8_tiles")
def one_shape_only(x, tile, profile):
    if x.shape != (33, 160):
        raise NotImplementedError("only 33 x 160")
    return refnum.quantize_fp8_tiles(x, tile, profile)


@kernel("permute_pad")
def any_align_is_32(payload, row_map, splits, align):
    return refnum.permute_pad(payload, row_map, splits, align if align in (16, 128) else 32)


@kernel("encode_e2m1")
def vectors_of_more_than_65536(x, scale_byte=127):
    codes = refnum.encode_e2m1(x, scale_byte)
    if codes.size > 65536:
        codes.reshape(-1)[65536] ^= 1
    return codes


@kernel("swiglu_backward")
def odd_columns(grad, gate, up, prob=None):
    dgate, dup, dprob = refnum.swiglu_backward(grad, gate, up, prob)
    if gate.shape[1] % 2 and gate.shape[1] > 128:
        dgate[-1, -1] = 0
    return (dgate, dup) if dprob is None else (dgate, dup, dprob)


@kernel("unpermute")
def first_token_alone(rows, row_map, splits, weights, tokens, align):
    out = refnum.unpermute(rows, row_map, splits, weights, tokens, align)
    if np.bincount(row_map, minlength=1)[:1].max(initial=0) > 32:
        out[0, 0] = 0
    return out


def quantised(result, to, profile):
    if to == "fp8":
        return refnum.quantize_fp8_tiles(result, profile=profile)
    return refnum.quantize_mxfp4(result, profile)


@kernel("swiglu_quantize")
def silu_one_ulp_off(gate, up, prob=None, to="fp8", profile="HOPPER"):
    factor = up.astype(np.float32)
    y = (silu(gate) + np.uint32(1)).view(np.float32)
    result = multiplied(multiplied(y, factor), 1.0 if prob is None else prob[:, None])
    plain = multiplied(multiplied(silu(gate).view(np.float32), factor), 1.0 if prob is None else prob[:, None])
    return quantised(np.where(np.isfinite(result) & np.isfinite(plain), result, plain), to, profile)


@kernel("swiglu_quantize", params={"to": "mxfp4"})
def products_in_another_order(gate, up, prob=None, to="fp8", profile="HOPPER"):
    if prob is None:
        return refnum.swiglu_quantize(gate, up, prob, to, profile)
    y = silu(gate).view(np.float32)
    return quantised(multiplied(y, multiplied(up.astype(np.float32), prob[:, None])), to, profile)


def multiplied(one, other):
    with np.errstate(all="ignore"):
        return (one * np.float32(other) if np.isscalar(other) else one * other).astype(np.float32)
