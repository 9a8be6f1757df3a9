"""Payload, permutation and the weighted sum against plain loops over exact rationals."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle, payload
from refnum.errors import ArgumentError, DtypeError, ShapeError


def frozen(x: np.ndarray) -> np.ndarray:
    """The same values as a strided, read-only view."""
    wide = np.repeat(np.repeat(x, 2, axis=0), 3, axis=-1) if x.ndim > 1 else np.repeat(x, 2)
    view = wide[::2, ::3] if x.ndim > 1 else wide[::2]
    view.flags.writeable = False
    return view


def test_transposed_codes_and_scales_are_packed_into_dense_rows() -> None:
    packed, scales = np.zeros((16, 24), np.uint8).T, np.zeros((1, 24), np.uint8).T
    assert refnum.pack_payload(packed, scales).flags.c_contiguous


@pytest.mark.parametrize("t, k", [(0, 64), (1, 32), (3, 96), (5, 7168)])
def test_pack_and_unpack(t: int, k: int) -> None:
    rng = np.random.default_rng(k)
    packed = rng.integers(0, 256, (t, k // 2)).astype(np.uint8)
    scales = rng.integers(0, 256, (t, k // 32)).astype(np.uint8)
    joined = payload.pack_payload(frozen(packed), frozen(scales))
    assert joined.shape == (t, k * 17 // 32) and joined.dtype == np.uint8
    for row in range(t):
        assert joined[row].tobytes() == packed[row].tobytes() + scales[row].tobytes()
    for got, want in zip(payload.unpack_payload(frozen(joined)), (packed, scales), strict=True):
        assert np.array_equal(got, want) and got.flags.c_contiguous and got.flags.writeable


def test_a_payload_row_has_the_published_size() -> None:
    x = np.ones((1, 7168), np.float32)
    assert payload.pack_payload(*refnum.quantize_mxfp4(x)).shape == (1, 3808)


def routing(rng: np.random.Generator, tokens: int, splits: list[int]) -> np.ndarray:
    return rng.integers(0, tokens, sum(splits))


SPLITS = [[5, 0, 33, 32, 1], [0, 0], [], [64], [0, 7]]


@pytest.mark.parametrize("splits", SPLITS, ids=str)
@pytest.mark.parametrize("align", [1, 16, 32, 128])
def test_permute_pad(splits: list[int], align: int) -> None:
    rng = np.random.default_rng(align)
    data = rng.integers(1, 256, (9, 51)).astype(np.uint8)
    row_map = routing(rng, 9, splits)
    out, offsets = payload.permute_pad(frozen(data), frozen(row_map.astype(np.int32)), splits, align)
    expected, starts, taken = [], [], 0
    for m in splits:
        starts.append(len(expected))
        expected += [data[row_map[taken + j]].tolist() for j in range(m)]
        expected += [[0] * 51] * (-m % align)
        taken += m
    assert out.dtype == np.uint8 and out.shape == (len(expected), 51)
    assert out.tolist() == expected
    assert offsets.dtype == np.int64 and offsets.tolist() == starts


@pytest.mark.parametrize("splits", SPLITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bits"])
@pytest.mark.parametrize("weighted", [True, False])
def test_unpermute_sums_in_expert_order(splits: list[int], dtype: str, weighted: bool) -> None:
    rng = np.random.default_rng(len(splits) + weighted)
    tokens, h, align = 11, 5, 16
    row_map = routing(rng, tokens - 2, splits)  # the last two tokens have no row
    total = sum(-(-m // align) * align for m in splits)
    rows = (rng.standard_normal((total, h)) * 2.0 ** rng.integers(-4, 5, (total, h))).astype(np.float32)
    if dtype != "float32":
        rows = rows.astype(ml_dtypes.bfloat16)
    bits = rows.view(np.uint32) if dtype == "float32" else rows.view(np.uint16).astype(np.uint32) << 16
    rows = rows.view(np.uint16) if dtype == "bits" else rows
    weights = rng.random(sum(splits)).astype(np.float32) if weighted else None
    expected: list[list[int | None]] = [[None] * h for _ in range(tokens)]
    taken, start = 0, 0
    for m in splits:
        for j in range(m):
            w = 0x3F800000 if weights is None else int(weights.view(np.uint32)[taken + j])
            sums = expected[row_map[taken + j]]
            for c in range(h):
                term = oracle.float32_multiply(w, int(bits[start + j, c]))
                before = sums[c]
                sums[c] = term if before is None else oracle.float32_add(before, term)
        taken, start = taken + m, start + -(-m // align) * align
    frozen_weights = None if weights is None else frozen(weights)
    got = payload.unpermute(frozen(rows), frozen(row_map), splits, frozen_weights, tokens, align)
    assert got.dtype == np.float32 and got.shape == (tokens, h)
    assert got.view(np.uint32).tolist() == [[v or 0 for v in line] for line in expected]


def test_the_order_of_the_sum_shows() -> None:
    rows = np.zeros((96, 1), np.float32)
    rows[0], rows[32], rows[64] = 2.0**24, 1, 1
    kept = payload.unpermute(rows, np.zeros(3, np.int64), [1, 1, 1], None, 1)
    rows[0], rows[64] = 1, 2.0**24
    assert kept[0, 0] == 2.0**24
    assert payload.unpermute(rows, np.zeros(3, np.int64), [1, 1, 1], None, 1)[0, 0] == 2.0**24 + 2


def test_padding_rows_are_not_read_and_zero_keeps_its_sign() -> None:
    rows = np.full((32, 2), np.nan, np.float32)
    rows[0] = [-0.0, 1.5]
    out = payload.unpermute(rows, np.array([1]), [1], np.array([2], np.float32), 2)
    assert out.view(np.uint32).tolist() == [[0, 0], [0x80000000, 0x40400000]]


def test_no_tokens_give_no_rows() -> None:
    none = np.zeros(0, np.int64)
    for splits in ([], [0, 0]):
        assert payload.unpermute(np.zeros((0, 7), np.float32), none, splits, None, 0).shape == (0, 7)


def test_permute_then_unpermute_gives_the_rows_back() -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((40, 64)).astype(np.float32)
    packed, scales = refnum.quantize_mxfp4(x)
    row_map, splits = rng.permutation(40), [13, 0, 20, 7]
    out, _ = payload.permute_pad(payload.pack_payload(packed, scales), row_map, splits)
    decoded = refnum.dequantize_mxfp4(*payload.unpack_payload(out))
    back = payload.unpermute(decoded, row_map, splits, np.ones(40, np.float32), 40)
    assert np.array_equal(back, refnum.dequantize_mxfp4(packed, scales))


def test_defaults() -> None:
    assert inspect.signature(payload.permute_pad).parameters["align"].default == 32
    assert inspect.signature(payload.unpermute).parameters["align"].default == 32
    assert inspect.signature(payload.permute_unpack).parameters["align"].default == 32


def test_wrong_arguments_are_named() -> None:
    data, rows = np.zeros((4, 34), np.uint8), np.zeros((32, 3), np.float32)
    row_map, weights = np.zeros(2, np.int64), np.ones(2, np.float32)
    with pytest.raises(ShapeError, match=r"scales has shape \(4, 3\)"):
        payload.pack_payload(data[:, :32], data[:, :3])
    with pytest.raises(ShapeError, match="multiple of 16"):
        payload.pack_payload(data[:, :33], data[:, :2])
    with pytest.raises(DtypeError, match="float32"):
        payload.pack_payload(np.zeros((4, 32), np.float32), data)
    with pytest.raises(ShapeError, match="multiple of 17"):
        payload.unpack_payload(data[:, :33])
    with pytest.raises(ArgumentError, match=r"row_map\[1\] is 4; allowed are 0..3"):
        payload.permute_pad(data, np.array([0, 4]), [2])
    with pytest.raises(ArgumentError, match=r"row_map\[0\] is -1"):
        payload.permute_pad(data, np.array([-1, 0]), [2])
    with pytest.raises(DtypeError, match="row_map has dtype float64"):
        payload.permute_pad(data, np.zeros(2), [2])
    with pytest.raises(ShapeError, match=r"splits sum to 3"):
        payload.permute_pad(data, row_map, [1, 2])
    with pytest.raises(ArgumentError, match="a split is -1"):
        payload.permute_pad(data, row_map, [3, -1])
    with pytest.raises(ArgumentError, match=r"a split is 1\.5"):
        payload.permute_pad(data, row_map, [1.5, 0.5])
    with pytest.raises(ArgumentError, match="align is 0"):
        payload.permute_pad(data, row_map, [2], align=0)
    with pytest.raises(ShapeError, match="need 64 rows"):
        payload.unpermute(rows, row_map, [1, 1], weights, 4)
    for align in (0, 2**31):
        with pytest.raises(ArgumentError, match=f"align is {align}; allowed are integers from 1 to "):
            payload.unpermute(rows, row_map, [2], weights, 4, align)
    with pytest.raises(ArgumentError, match=r"allowed are 0..0, there are 1 tokens"):
        payload.unpermute(rows, row_map + 1, [2], weights, 1)
    with pytest.raises(ArgumentError, match="tokens is -1"):
        payload.unpermute(rows, row_map, [2], weights, -1)
    with pytest.raises(DtypeError, match="rows has dtype float16"):
        payload.unpermute(rows.astype(np.float16), row_map, [2], weights, 4)
    with pytest.raises(DtypeError, match="weights has dtype float64"):
        payload.unpermute(rows, row_map, [2], weights.astype(np.float64), 4)
    with pytest.raises(ShapeError, match=r"weights has shape \(2, 1\)"):
        payload.unpermute(rows, row_map, [2], weights[:, None], 4)


@pytest.mark.parametrize("profile", ["HOPPER", "OCP"])
def test_quantised_payloads_are_codes_then_scale_bytes(profile):
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((5, 160)) * np.exp2(rng.integers(-9, 9, (5, 160)))).astype(np.float32)
    x[2, 32:64], x[3, 7] = 0, np.nan
    out = payload.quantize_payload(x, profile)
    packed, scales = refnum.quantize_mxfp4(x, profile)
    assert out.shape == (5, 85) and out.dtype == np.uint8
    assert [row.tobytes() for row in out] == [p.tobytes() + s.tobytes() for p, s in zip(packed, scales, strict=True)]
    codes, tiles = refnum.quantize_fp8_tiles(x)
    out = payload.fp8_to_payload(codes, tiles, profile)
    packed, scales = refnum.fp8_to_mxfp4(codes, tiles, profile)
    assert [row.tobytes() for row in out] == [p.tobytes() + s.tobytes() for p, s in zip(packed, scales, strict=True)]
    assert payload.quantize_payload(x[:0]).shape == (0, 85)


def test_permute_unpack_is_both_steps():
    data = np.random.default_rng(5).integers(1, 256, (4, 51), dtype=np.uint8)
    packed, scales, offsets = payload.permute_unpack(data, np.array([3, 3, 0]), [2, 0, 1], align=4)
    assert packed.shape == (8, 48) and scales.shape == (8, 3) and offsets.tolist() == [0, 4, 4]
    for row, source in ((0, 3), (1, 3), (4, 0)):
        assert packed[row].tobytes() + scales[row].tobytes() == data[source].tobytes()
    assert not packed[[2, 3, 5, 6, 7]].any() and not scales[[2, 3, 5, 6, 7]].any()
    with pytest.raises(ShapeError, match="multiple of 17"):
        payload.permute_unpack(data[:, :50], np.array([0]), [1])
