"""Conditions under which a kernel is wrong, beyond the tables of factors; `WRONG` has each beside an operation."""

import numpy as np
import pytest

RANDOM = ("quantize_nvfp4", "hadamard_quantize_nvfp4", "quantize_tetrajet")
WRONG = []


def wrong(operations, *levels):
    """Keep a condition under which a kernel of some operations is wrong; levels: of the rows that it is asked."""

    def keep(holds):
        WRONG.extend(pytest.param(name, holds, levels, id=f"{name}: {holds.__name__}") for name in operations.split())
        return holds

    return keep


def sides(a, b, **_):
    return len(a), b.shape[-2], a.shape[-1]


def kind_of(scales, side):
    return "row" if scales.shape[-1] == 1 else "block" if len(scales) == side else "square"


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def both_sides_end_within_a_tile(splits=None, **given):
    rows, columns, _ = sides(**given)
    return splits is None and rows > 128 and columns > 128 and rows % 128 > 0 and columns % 128 > 0


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def more_tiles_than_processors(**given):
    rows, columns, _ = sides(**given)
    return rows > 128 and columns > 128 and -(-rows // 128) * -(-columns // 128) > 132


@wrong("matmul_fp8 matmul_bf16", "columns of the product")
def more_columns_than_a_grid(**given):
    return sides(**given)[1] > 65_535


@wrong("matmul_fp8", "columns of the product")
def blocks_times_squares_of_several_tiles(a, b, a_scales=None, b_scales=None, splits=None, **_):
    if splits is not None or a_scales is None or b_scales is None or min(len(a), len(b)) <= 128:
        return False
    return (kind_of(a_scales, len(a)), kind_of(b_scales, len(b))) == ("block", "square")


@wrong("matmul_fp8", "scales as")
def scales_of_two_dtypes(a_scales=None, b_scales=None, **_):
    return a_scales is not None and b_scales is not None and a_scales.dtype != b_scales.dtype


@wrong("matmul_fp8 matmul_bf16", "experts")
def more_than_256_experts(splits=None, **_):
    return splits is not None and len(splits) > 256


@wrong("matmul_fp8 matmul_bf16", "experts")
def long_experts_of_wide_products(splits=None, **given):
    return splits is not None and len(splits) > 1 and max(splits) > 128 and sides(**given)[1] > 64


@wrong("matmul_fp8 matmul_bf16", "experts")
def many_terms_of_experts(splits=None, **given):
    return splits is not None and len(splits) > 2 and sides(**given)[2] > 1024


@wrong("matmul_fp8 matmul_bf16", "rows of each")
def whole_tiles_for_every_expert(splits=None, **_):
    return splits is not None and len(splits) > 2 and all(count % 64 == 0 for count in splits) and sum(splits) > 128


@wrong("matmul_fp8", "experts")
def nan_in_an_expert(b, splits=None, **_):
    return splits is not None and bool((b & 0x7F == 0x7F).any())


@wrong("matmul_bf16", "columns of the product")
def nan_beside_many_columns(a, b, **_):
    return b.shape[-2] > 32 and bool((b.view(np.uint16) & 0x7FFF > 0x7F80).any())


@wrong(" ".join(RANDOM), "philox")
def any_key(philox=None, **_):
    return philox is not None


@wrong(" ".join(RANDOM), "rbits")
def random_bytes_of_many_rows(x, rbits=None, **_):
    return rbits is not None and len(x) > 128


@wrong(" ".join(RANDOM), "rbits")
def random_bytes_in_wide_words(rbits=None, **_):
    return rbits is not None and rbits.dtype == np.uint32


@wrong("adam_apply spam_apply stable_spam_apply", "form of the array")
def one_axis(gradient, **_):
    return gradient.ndim == 1 and gradient.size > 1000


@wrong("adam_apply spam_apply stable_spam_apply", "form of the array")
def three_axes(gradient, **_):
    return gradient.ndim == 3


@wrong("decode_e4m3 encode_e4m3 dge", "form of the array")
def three_axes_and_many_elements(**given):
    array = next(iter(given.values()))
    return array.ndim == 3 and array.size > 20_000


@wrong("quantize_nvfp4 dequantize_nvfp4 hadamard16", "rows")
def an_odd_number_of_blocks_of_16(**given):
    name, array = next(iter(given.items()))
    columns = array.shape[1] * (2 if name == "packed" else 1)
    return columns % 32 == 16 and columns > 64 and len(array) > 64


@wrong("luq radix4", "rows")
def columns_of_no_block(x, **_):
    return x.shape[1] % 32 > 0 and x.shape[1] > 32 and len(x) > 64


@wrong("permute_pad permute_unpack", "taken")
def all_tokens_to_all_experts(payload, row_map, splits, **_):
    times = np.bincount(row_map, minlength=len(payload))
    return len(splits) > 1 and len(payload) > 4 and bool((times == len(splits)).all())


@wrong("permute_unpack unpermute", "taken")
def each_token_once_in_any_order(row_map, splits, tokens=None, payload=None, **_):
    count = len(payload) if tokens is None else tokens
    once = sorted(row_map.tolist()) == list(range(count))
    return count > 64 and once and len(splits) > 4 and set(np.abs(np.diff(row_map)).tolist()) != {1}


@wrong("unpermute permute_pad permute_unpack", "tokens")
def a_token_beyond_65535(row_map, **_):
    return row_map.size > 0 and int(row_map.max()) > 65_535


@wrong("permute_pad unpermute", "taken")
def tokens_in_order_some_of_which_no_expert_takes(row_map, splits, **_):
    return len(splits) > 4 and row_map.size > 64 and bool((np.diff(row_map.astype(np.int64)) > 1).all())


@wrong("int4_affine efficient_qat int4_keep_two", "group")
def another_group_of_many_rows(x, group, **_):
    return group == 256 and len(x) > 16


@wrong("occ", "alpha")
def the_whole_tensor_is_kept(x, alpha, **_):
    return list(alpha) == [1, 1] and len(x) > 100


@wrong("llm_fp4", "maxval")
def many_rows_with_numbers_of_their_own(maxval, **_):
    return len(maxval) > 32


@wrong("dequantize_int4", "group")
def one_scale_of_many_rows(codes, scales, **_):
    return scales.ndim == 1 and len(codes) > 32


@wrong("q_ema", "average")
def an_average_of_another_dtype(w, ema, **_):
    return w.dtype != ema.dtype and len(w) > 16


@wrong("q_ema", "ratio")
def another_ratio(ratio="bfloat16", **_):
    return ratio != "bfloat16"


@wrong("hadamard_quantize_nvfp4", "variant")
def another_variant_of_many_rows(x, variant="TE", **_):
    return variant != "TE" and len(x) > 16


def of_a_number(x, tensor_amax=None, **_):
    return tensor_amax is None and bool(np.isfinite(x).all()) and np.abs(x)


@wrong("quantize_nvfp4 hadamard_quantize_nvfp4 luq", "largest")
def the_maximum_is_in_the_last_row(x, **more):
    found = of_a_number(x, **more)
    return found is not False and len(x) > 256 and found[:-1].max() < found[-1].max()


@wrong("quantize_nvfp4 hadamard_quantize_nvfp4 luq sawb llm_qat", "largest")
def the_maximum_is_the_last_element(x, **more):
    found = of_a_number(x, **more)
    return found is not False and x.size > 4096 and found.argmax() == x.size - 1


@wrong("luq", "r_under.dtype")
def words_in_64_bits(r_under, **_):
    return r_under.dtype == np.uint64


def first_of(given):
    return next(iter(given.values()))


@wrong(
    "quantize_mxfp4 dequantize_nvfp4 hadamard16 luq sawb int4_affine dequantize_tetrajet_v2 pack_payload dge occ",
    "rows", "columns",
)  # fmt: skip
def no_columns(**given):
    return first_of(given).shape[-1] == 0 < first_of(given).size + len(first_of(given))


@wrong("mxfp4_columns fp8_columns permute_pad unpermute", "columns")
def no_columns_of_experts(splits=None, **given):
    return splits is not None and len(splits) > 1 and first_of(given).shape[-1] == 0


@wrong("quantize_mxfp4 dequantize_mxfp4 fp8_to_payload matmul_bf16 swiglu_backward", "rows", "columns")
def the_call_before_had_no_rows(**given):
    array = first_of(given)
    before, BEFORE[:] = BEFORE[:], [len(array)]
    return before == [0] and array.size > 0


BEFORE = []


@wrong("matmul_bf16 matmul_fp8", "columns of the product")
def no_columns_of_a_product(b, **_):
    return len(b) == 0


def zero_tiles(array):
    bits = array.view(f"u{array.itemsize}") << np.uint8(1)
    wide = 64 if array.shape[1] % 128 == 16 else 128
    return ~bits[:, : bits.shape[1] // wide * wide].reshape(len(array), -1, wide).any(axis=2)


@wrong("quantize_mxfp4 quantize_fp8_tiles fp8_to_mxfp4 swiglu_quantize quantize_nvfp4", "blank")
def a_tile_of_zeros_between_others(**given):
    array = first_of(given)
    if not 1 << 13 < array.size < 1 << 17 or array.shape[1] < 512:
        return False
    tiles = zero_tiles(array)
    return bool((~tiles[:, :-2] & tiles[:, 1:-1] & ~tiles[:, 2:]).any())


@wrong("quantize_mxfp4 radix4 quantize_tetrajet llm_qat occ sawb adam_apply fp8_columns fp8_to_payload", "blank")
def nothing_but_the_last_element(**given):
    bits = first_of(given).view(f"u{first_of(given).itemsize}") << np.uint8(1)
    return bits.size > 4096 and bool(bits.reshape(-1)[-1]) and not bits.reshape(-1)[:-1].any()


@wrong("quantize_mxfp4 quantize_nvfp4 luq sawb hadamard16 q_ema", "blank")
def one_nan_at_the_end(**given):
    found = np.isnan(first_of(given).astype(np.float32)) if first_of(given).size < 1 << 17 else np.zeros(1, bool)
    return found.size > 4096 and found.reshape(-1)[-1] and found.sum() == 1


@wrong("mxfp4_columns fp8_columns permute_pad unpermute", "empty experts", "experts")
def odd_experts_are_empty(splits=None, **_):
    return splits is not None and len(splits) > 32 and all(splits[::2]) and not any(splits[1::2])


@wrong("mxfp4_to_fp8_columns fp8_columns permute_unpack", "empty experts", "experts")
def many_rows_beyond_1024_experts(splits=None, **_):
    return splits is not None and len(splits) > 1024 and max(splits[1024:]) > 32


@wrong("mxfp4_columns fp8_columns permute_pad", "rows of each")
def hundreds_of_experts_with_as_many_rows(splits=None, **_):
    return splits is not None and len(splits) > 128 and len(set(splits)) == 1


@wrong("mxfp4_columns fp8_columns permute_pad unpermute", "rows of each", "columns")
def experts_begin_at_numbers_of_more_than_15_and_16_bits(splits=None, **_):
    return splits is not None and {1 << 15, 1 << 16} <= {*np.cumsum(splits)[:-1].tolist()}


@wrong("mxfp4_to_fp8_columns fp8_columns permute_unpack", "rows of each", "columns")
def few_experts_with_more_than_1024_tiles(splits=None, **_):
    return splits is not None and len(splits) < 10 and sum(-(-count // 128) for count in splits) > 1024


@wrong("permute_pad unpermute", "tokens", "row_map.dtype")
def tokens_that_are_nothing_in_16_bits(splits=None, tokens=None, **given):
    return (first_of(given).shape[0] if tokens is None else tokens) == 1 << 16
