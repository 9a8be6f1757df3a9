"""Payloads of the host build (N12): against plain loops over bytes, against NumPy's float32, and the golden model."""

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.environment import flushes_subnormals
from refnum.errors import ArgumentError, DtypeError, ShapeError

SPLITS = [[5, 0, 33, 32, 1], [0, 0], [], [64], [0, 7]]


def loose(x):
    """The same values reversed in memory with gaps, read-only."""
    wide = np.zeros([2 * n for n in x.shape], x.dtype)
    view = wide[(slice(None, None, -2),) * x.ndim]
    view[...] = x
    view.flags.writeable = False
    return view


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


@pytest.mark.parametrize("t, k", [(0, 64), (1, 32), (3, 96), (5, 7168)])
def test_pack_and_unpack(host, t, k):
    rng = np.random.default_rng(k)
    packed = rng.integers(0, 256, (t, k // 2), dtype=np.uint8)
    scales = rng.integers(0, 256, (t, k // 32), dtype=np.uint8)
    joined = host.pack_payload(loose(packed), loose(scales))
    assert joined.shape == (t, 17 * k // 32) and joined.dtype == np.uint8
    for row in range(t):
        assert joined[row].tobytes() == packed[row].tobytes() + scales[row].tobytes()
    assert np.array_equal(joined, refnum.pack_payload(packed, scales))
    for got, wanted in zip(host.unpack_payload(loose(joined)), (packed, scales), strict=True):
        assert np.array_equal(got, wanted) and got.dtype == np.uint8


@pytest.mark.parametrize("splits", SPLITS, ids=str)
@pytest.mark.parametrize("align", [1, 16, 32, 128])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64, np.uint8])
def test_permute_pad(host, splits, align, dtype):
    rng = np.random.default_rng(align)
    data = rng.integers(1, 256, (9, 51), dtype=np.uint8)
    row_map = rng.integers(0, 9, sum(splits)).astype(dtype)
    out, offsets = host.permute_pad(loose(data), loose(row_map), np.array(splits, np.int32), np.int64(align))
    wanted, starts, taken = [], [], 0
    for m in splits:
        starts.append(len(wanted))
        wanted += [data[row_map[taken + j]].tolist() for j in range(m)] + [[0] * 51] * (-m % align)
        taken += m
    assert out.tolist() == wanted and out.shape == (len(wanted), 51) and out.dtype == np.uint8
    assert offsets.tolist() == starts and offsets.dtype == np.int64
    for got, model in zip((out, offsets), refnum.permute_pad(data, row_map, splits, align), strict=True):
        assert got.dtype == model.dtype and np.array_equal(got, model)


def summed(rows, row_map, splits, weights, tokens, align):
    """Expert by expert, one row after the other, each product and each sum one operation of NumPy's float32."""
    assert not flushes_subnormals(), "the host flushes subnormals: it is no reference"
    out, seen, taken, start = np.zeros((tokens, rows.shape[1]), np.float32), set(), 0, 0
    with np.errstate(all="ignore"):
        for m in splits:
            for j in range(m):
                token = int(row_map[taken])
                term = (np.float32(1) if weights is None else weights[taken]) * rows[start + j]
                out[token] = out[token] + term if token in seen else term
                seen.add(token)
                taken += 1
            start += -(-m // align) * align
    return np.where(np.isnan(out), np.uint32(0x7FC00000), out.view(np.uint32))


@pytest.mark.parametrize("splits", SPLITS, ids=str)
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "bits", "wild"])
@pytest.mark.parametrize("weighted", [True, False])
def test_unpermute(host, splits, kind, weighted):
    rng = np.random.default_rng([len(splits), weighted])
    tokens, align = 11, 16
    row_map = rng.integers(0, tokens - 2, sum(splits))  # the last two tokens have no row
    total = sum(-(-m // align) * align for m in splits)
    wide = (rng.standard_normal((total, 5)) * 2.0 ** rng.integers(-4, 5, (total, 5))).astype(np.float32)
    if kind == "wild":  # NaN, Inf, subnormals, signed zeros
        wide = rng.integers(0, 1 << 32, (total, 5), dtype=np.uint32).view(np.float32)
        wide = np.where(rng.random((total, 5)) < 0.3, np.float32(-0.0), wide)
    rows = wide.astype(ml_dtypes.bfloat16) if kind in ("bfloat16", "bits") else wide
    given = rows.view(np.uint16) if kind == "bits" else rows
    weights = rng.standard_normal(sum(splits)).astype(np.float32) if weighted else None
    factors = None if weights is None else loose(weights)
    got = host.unpermute(loose(given), loose(row_map), splits, factors, tokens, align)
    assert got.dtype == np.float32 and got.shape == (tokens, 5)
    assert np.array_equal(bits(got), summed(rows.astype(np.float32), row_map, splits, weights, tokens, align))
    assert np.array_equal(bits(got), bits(refnum.unpermute(given, row_map, splits, weights, tokens, align)))
    assert not bits(got)[-2:].any()


def test_the_order_of_the_sum_shows(host):
    rows = np.array([[2.0**24], [1], [1]], np.float32)
    there, back = np.zeros(3, np.int64), rows[::-1].copy()
    assert host.unpermute(rows, there, [1, 1, 1], None, 1, 1).tolist() == [[2.0**24]]
    assert host.unpermute(back, there, [1, 1, 1], None, 1, 1).tolist() == [[2.0**24 + 2]]
    minus = host.unpermute(np.full((1, 1), -0.0, np.float32), there[:1], [1], None, 1, 1)
    assert np.signbit(minus[0, 0])  # a first row is not added to a +0


def test_empty_arrays(host):
    none = np.zeros((0, 34), np.uint8)
    out, offsets = host.permute_pad(none, np.zeros(0, np.int64), [0, 0])
    assert out.shape == (0, 34) and offsets.tolist() == [0, 0]
    assert host.unpermute(np.zeros((0, 5), np.float32), np.zeros(0, np.int64), [], None, 0).shape == (0, 5)
    assert host.unpermute(np.zeros((32, 0), np.float32), np.zeros(1, np.int64), [1], None, 2).shape == (2, 0)
    assert [x.shape for x in host.unpack_payload(none)] == [(0, 32), (0, 2)]


def test_out_is_filled_and_returned(host):
    rng = np.random.default_rng(2)
    packed, scales = rng.integers(0, 256, (4, 32), dtype=np.uint8), rng.integers(0, 256, (4, 2), dtype=np.uint8)
    payload, row_map, splits = host.pack_payload(packed, scales), np.array([3, 0, 0, 1, 2]), [2, 3]
    rows = rng.standard_normal((64, 7)).astype(np.float32)
    for call in (
        lambda out=None: host.pack_payload(packed, scales, out=out),
        lambda out=None: host.unpack_payload(payload, out=out),
        lambda out=None: host.permute_pad(payload, row_map, splits, out=out),
        lambda out=None: host.unpermute(rows, row_map, splits, None, 4, out=out),
    ):
        wanted = call()
        arrays = wanted if isinstance(wanted, tuple) else (wanted,)
        for make in (lambda x: np.full_like(x, 99), lambda x: np.full((*x.shape, 2), 99, x.dtype)[..., 0]):
            out = tuple(make(x) for x in arrays)
            got = call(out if len(out) > 1 else out[0])
            got = got if isinstance(got, tuple) else (got,)
            assert all(a is b for a, b in zip(got, out, strict=True))
            assert all(np.array_equal(a, b) for a, b in zip(got, arrays, strict=True))
        with pytest.raises(ShapeError, match="out"):
            call(tuple(x[:0] for x in arrays))
    with pytest.raises(ArgumentError, match="shares memory"):
        host.unpack_payload(payload, out=(payload[:, :32], payload[:, 32:]))


def test_wrong_arguments_are_named(host):
    packed, scales = np.zeros((4, 32), np.uint8), np.zeros((4, 2), np.uint8)
    payload, row_map = np.zeros((4, 34), np.uint8), np.array([3, 0, 1])
    rows, weights = np.zeros((64, 5), np.float32), np.ones(3, np.float32)
    for error, match, call in (
        (ShapeError, "scales has shape", lambda: host.pack_payload(packed, scales[:3])),
        (ShapeError, "multiple of 16", lambda: host.pack_payload(packed[:, :10], scales)),
        (DtypeError, "packed has dtype int8", lambda: host.pack_payload(packed.astype(np.int8), scales)),
        (ShapeError, "multiple of 17", lambda: host.unpack_payload(payload[:, :33])),
        (DtypeError, "payload is a list", lambda: host.unpack_payload(payload.tolist())),
        (ShapeError, "splits sum to 4", lambda: host.permute_pad(payload, row_map, [2, 2])),
        (ArgumentError, r"row_map\[0\] is 3", lambda: host.permute_pad(payload[:3], row_map, [3])),
        (ArgumentError, r"row_map\[2\] is -1", lambda: host.permute_pad(payload, np.array([0, 1, -1]), [3])),
        (DtypeError, "row_map has dtype float64", lambda: host.permute_pad(payload, row_map * 1.0, [3])),
        (ArgumentError, "a split is -1", lambda: host.permute_pad(payload, row_map, [4, -1])),
        (ArgumentError, "a split is 1.5", lambda: host.permute_pad(payload, row_map, [1.5, 1.5])),
        (ArgumentError, "splits=3", lambda: host.permute_pad(payload, row_map, 3)),
        (ArgumentError, "align is 0", lambda: host.permute_pad(payload, row_map, [3], 0)),
        (ArgumentError, "align is True", lambda: host.permute_pad(payload, row_map, [3], True)),
        (ShapeError, "need 64 rows", lambda: host.unpermute(rows[:40], row_map, [2, 1], weights, 4)),
        (DtypeError, "rows has dtype float16", lambda: host.unpermute(rows.astype(np.float16), row_map, [3], None, 4)),
        (ArgumentError, "tokens is -1", lambda: host.unpermute(rows, row_map, [2, 1], weights, -1)),
        (ArgumentError, "there are 3 tokens", lambda: host.unpermute(rows, row_map, [2, 1], weights, 3)),
        (ShapeError, "weights has shape", lambda: host.unpermute(rows, row_map, [2, 1], weights[:2], 4)),
        (
            DtypeError,
            "weights has dtype float64",
            lambda: host.unpermute(rows, row_map, [2, 1], weights.astype(np.float64), 4),
        ),
    ):
        with pytest.raises(error, match=match):
            call()


@pytest.mark.parametrize("splits", SPLITS, ids=str)
def test_permute_unpack(host, splits):
    rng = np.random.default_rng(len(splits))
    data = rng.integers(1, 256, (9, 85), dtype=np.uint8)
    row_map = rng.integers(0, 9, sum(splits))
    got = host.permute_unpack(loose(data), loose(row_map), splits, 16)
    rows, offsets = host.permute_pad(data, row_map, splits, 16)
    for ours, wanted in zip(got, (rows[:, :80], rows[:, 80:], offsets), strict=True):
        assert ours.dtype == wanted.dtype and np.array_equal(ours, wanted)
    for ours, model in zip(got, refnum.permute_unpack(data, row_map, splits, 16), strict=True):
        assert np.array_equal(ours, model)


@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "CEIL", "EVEN"])
def test_quantised_payloads(host, profile):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((6, 160)) * np.exp2(rng.integers(-30, 30, (6, 160)))).astype(np.float32)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            values = x.astype(dtype)
        got = host.quantize_payload(loose(values), profile)
        assert np.array_equal(got, refnum.pack_payload(*refnum.quantize_mxfp4(values, profile)))
    codes, scales = rng.integers(0, 256, (6, 160), dtype=np.uint8), rng.integers(0, 256, (6, 2), dtype=np.uint8)
    got = host.fp8_to_payload(loose(codes), loose(scales), profile)
    assert np.array_equal(got, refnum.pack_payload(*refnum.fp8_to_mxfp4(codes, scales, profile)))
