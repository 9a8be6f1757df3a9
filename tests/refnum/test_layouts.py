"""Scale layouts and nibble orders against their formulas, on shapes that are no multiples."""

from __future__ import annotations

import numpy as np
import pytest

from refnum import layouts
from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError

SHAPES = [(1, 1), (4, 4), (5, 3), (7, 9), (128, 4), (130, 5), (256, 8), (300, 17), (0, 3), (3, 0)]


def normal(shape: tuple[int, int]) -> np.ndarray:
    """Bytes 1..254: those that float32 holds as normal numbers."""
    return np.random.default_rng(shape[0] * 1000 + shape[1]).integers(1, 255, shape).astype(np.uint8)


def every(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(shape[0] * 1000 + shape[1]).integers(0, 256, shape).astype(np.uint8)


def frozen_views(x: np.ndarray) -> list[np.ndarray]:
    """The same matrix contiguous, Fortran-ordered and as a strided view, all read-only."""
    wide = np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)
    views = [x.copy(), np.asfortranarray(x), wide[::2, ::3]]
    for view in views:
        view.flags.writeable = False
    return views


def test_float32_of_every_byte() -> None:
    bits = layouts.scales_to_float32(np.arange(256, dtype=np.uint8).reshape(2, 128)).view(np.uint32).reshape(-1)
    assert bits[0] == 0x00400000 and bits[255] == 0x7FC00000
    assert bits[1:255].tolist() == [b << 23 for b in range(1, 255)]
    assert float(bits[127:128].view(np.float32)[0]) == 1.0


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_round_trip(shape: tuple[int, int]) -> None:
    scales = normal(shape)
    for view in frozen_views(scales):
        assert np.array_equal(layouts.scales_from_float32(layouts.scales_to_float32(view)), scales)
    for view in frozen_views(layouts.scales_to_float32(scales)):
        assert np.array_equal(layouts.scales_from_float32(view), scales)


@pytest.mark.parametrize(
    "bits", [0, 0x80000000, 0x00400000, 0x007FFFFF, 0xBF800000, 0x3F800001, 0x3FC00000, 0x7F800000, 0x7FC00000]
)
def test_a_scale_that_is_no_power_of_two_is_refused(bits: int) -> None:
    scales = np.ones((3, 5), np.float32)
    scales.view(np.uint32)[2, 1] = bits
    value = repr(scales[2, 1].item()).replace("-", r"\-").replace("+", r"\+")
    with pytest.raises(ScaleError, match=rf"{value} at index \(2, 1\)"):
        layouts.scales_from_float32(scales)
    gemm = np.zeros((5, 4), np.float32)
    gemm[:, :3] = scales.T
    with pytest.raises(ScaleError, match=r"index \(1, 2\)"):
        layouts.scales_from_gemm_float32(gemm, 3)


@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_float32(shape: tuple[int, int]) -> None:
    scales = normal(shape)
    for view in frozen_views(scales):
        out = layouts.scales_to_gemm_float32(view)
        assert out.shape == (shape[1], (shape[0] + 3) // 4 * 4) and out.dtype == np.float32
        assert out.flags.c_contiguous
        assert np.array_equal(out[:, : shape[0]], layouts.scales_to_float32(scales).T)
        assert not out[:, shape[0] :].any()
        back = layouts.scales_from_gemm_float32(out, shape[0])
        assert np.array_equal(back, scales) and back.dtype == np.uint8


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_ue8m0(shape: tuple[int, int]) -> None:
    scales = every(shape)
    rows, columns = shape
    for view in frozen_views(scales):
        packed = layouts.scales_to_packed_ue8m0(view)
        assert packed.dtype == np.int32 and packed.flags.c_contiguous
        assert packed.shape == ((columns + 3) // 4, (rows + 3) // 4 * 4)
        for q in range(packed.shape[0]):
            for r in range(packed.shape[1]):
                word = int(packed[q, r]) & 0xFFFFFFFF
                held = [word >> 8 * j & 255 for j in range(4)]
                expected = [int(scales[r, 4 * q + j]) if r < rows and 4 * q + j < columns else 0 for j in range(4)]
                assert held == expected
        assert np.array_equal(layouts.scales_from_packed_ue8m0(packed, rows, columns), scales)


@pytest.mark.parametrize("shape", SHAPES)
def test_swizzle_follows_the_formula(shape: tuple[int, int]) -> None:
    scales = every(shape)
    rows, columns = shape
    wide = (columns + 3) // 4
    expected = np.zeros((rows + 127) // 128 * 128 * wide * 4, np.uint8)
    for m in range(rows):
        for k in range(columns):
            at = ((m // 128) * wide + k // 4) * 512 + (m % 32) * 16 + ((m % 128) // 32) * 4 + k % 4
            expected[at] = scales[m, k]
    for view in frozen_views(scales):
        swizzled = layouts.scales_to_swizzled(view)
        assert np.array_equal(swizzled, expected)
        assert np.array_equal(layouts.scales_from_swizzled(swizzled, rows, columns), scales)
        assert np.array_equal(layouts.scales_from_swizzled(swizzled.reshape(-1, wide * 4 or 1), rows, columns), scales)


def test_padding_is_checked_or_ignored() -> None:
    scales = every((5, 3))
    gemm = layouts.scales_to_gemm_float32(normal((5, 3)))
    packed, swizzled = layouts.scales_to_packed_ue8m0(scales), layouts.scales_to_swizzled(scales)
    gemm[1, 6], packed[0, 2], swizzled[511] = np.nan, packed[0, 2] | -(1 << 31), 7
    with pytest.raises(ScaleError, match=r"nan at index \(1, 6\) is padding"):
        layouts.scales_from_gemm_float32(gemm, 5)
    with pytest.raises(ScaleError, match=r"128 at index \(2, 3\) is padding"):
        layouts.scales_from_packed_ue8m0(packed, 5, 3)
    with pytest.raises(ScaleError, match=r"7 at index \(127, 3\) is padding"):
        layouts.scales_from_swizzled(swizzled, 5, 3)
    assert np.array_equal(layouts.scales_from_gemm_float32(gemm, 5, padding="ignore"), normal((5, 3)))
    assert np.array_equal(layouts.scales_from_packed_ue8m0(packed, 5, 3, padding="ignore"), scales)
    assert np.array_equal(layouts.scales_from_swizzled(swizzled, 5, 3, padding="ignore"), scales)
    with pytest.raises(ArgumentError, match="padding='skip'"):
        layouts.scales_from_swizzled(swizzled, 5, 3, padding="skip")


def test_nibble_orders() -> None:
    codes = (np.arange(128, dtype=np.uint8) * 7 % 16).reshape(2, 64)
    for view in frozen_views(codes):
        low, high, ggml = (layouts.codes_to_packed(view, order) for order in layouts.NIBBLE_ORDERS)
        for m in range(2):
            for j in range(32):
                assert low[m, j] == codes[m, 2 * j] | codes[m, 2 * j + 1] << 4
                assert high[m, j] == codes[m, 2 * j] << 4 | codes[m, 2 * j + 1]
                first = j // 16 * 32 + j % 16
                assert ggml[m, j] == codes[m, first] | codes[m, first + 16] << 4
    for order, packed in zip(layouts.NIBBLE_ORDERS, (low, high, ggml), strict=True):
        for view in frozen_views(packed):
            assert np.array_equal(layouts.codes_from_packed(view, order), codes)
            for target, expected in zip(layouts.NIBBLE_ORDERS, (low, high, ggml), strict=True):
                assert np.array_equal(layouts.repack_nibbles(view, order, target), expected)
    assert layouts.codes_from_packed(np.zeros((0, 16), np.uint8), "ggml").shape == (0, 32)
    assert layouts.codes_to_packed(np.zeros((3, 0), np.uint8)).shape == (3, 0)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 256, 257, 385])
def test_the_swizzle_has_whole_blocks(rows: int) -> None:
    scales = (np.arange(rows * 5) % 251 + 1).astype(np.uint8).reshape(rows, 5)
    laid = layouts.scales_to_swizzled(scales)
    assert laid.shape == (-(-rows // 128) * 2 * 512,) and np.count_nonzero(laid) == scales.size
    assert np.array_equal(layouts.scales_from_swizzled(laid, rows, 5), scales)


@pytest.mark.parametrize("layout", ["float32", "gemm_float32"])
def test_a_named_float_layout_takes_every_nan_and_nothing_else_than_powers_of_two(layout: str) -> None:
    def read(bits: int) -> int:
        values = np.array([[1.0, 1.0]], np.float32)
        values.view(np.uint32)[0, 1] = bits
        laid = values if layout == "float32" else np.pad(values.T, ((0, 0), (0, 3)))
        return int(layouts.scales_from_layout(laid, layout, 1, 2)[0, 1])

    for nan in (0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF):
        assert read(nan) == 255
    assert [read(bits) for bits in (0x00400000, 0x00800000, 0x7F000000)] == [0, 1, 254]
    for wrong in (0, 1 << 31, 0x00400001, 0x80400000, 0x7F800000, 0xFF800000, 0x3F800001, 0xBF800000):
        with pytest.raises(ScaleError, match="no positive normal power of two"):
            read(wrong)


def test_nibble_orders_of_long_and_of_odd_rows() -> None:
    codes = (np.arange(2 * 1024) * 7 % 16).astype(np.uint8).reshape(2, 1024)
    for order in layouts.NIBBLE_ORDERS:
        assert np.array_equal(layouts.codes_from_packed(layouts.codes_to_packed(codes, order), order), codes)
    assert layouts.codes_from_packed(np.array([[0x21, 0x43, 0x65]], np.uint8)).tolist() == [[1, 2, 3, 4, 5, 6]]
    with pytest.raises(ShapeError, match="multiple of 2"):
        layouts.codes_to_packed(np.zeros((1, 3), np.uint8))
    with pytest.raises(ShapeError, match="multiple of 32"):
        layouts.codes_to_packed(np.zeros((1, 16), np.uint8), "ggml")
    with pytest.raises(ShapeError, match="multiple of 16"):
        layouts.codes_from_packed(np.zeros((1, 8), np.uint8), "ggml")


def test_wrong_arguments_are_named() -> None:
    scales = normal((5, 3))
    with pytest.raises(DtypeError, match="int32"):
        layouts.scales_to_swizzled(scales.astype(np.int32))
    with pytest.raises(DtypeError, match="float64"):
        layouts.scales_from_float32(scales.astype(np.float64))
    with pytest.raises(ShapeError, match="two axes"):
        layouts.scales_from_float32(np.ones(3, np.float32))
    with pytest.raises(ShapeError, match=r"\(3, 8\)"):
        layouts.scales_from_gemm_float32(np.ones((3, 5), np.float32), 5)
    with pytest.raises(ShapeError, match="packed form of 9 x 3"):
        layouts.scales_from_packed_ue8m0(layouts.scales_to_packed_ue8m0(scales), 9, 3)
    with pytest.raises(DtypeError, match="int64"):
        layouts.scales_from_packed_ue8m0(np.zeros((1, 8), np.int64), 5, 3)
    with pytest.raises(ShapeError, match="swizzle of 129 x 3"):
        layouts.scales_from_swizzled(layouts.scales_to_swizzled(scales), 129, 3)
    with pytest.raises(ArgumentError, match="order='middle'"):
        layouts.codes_to_packed(scales, "middle")
    with pytest.raises(ShapeError, match="multiple of 32"):
        layouts.codes_to_packed(np.zeros((1, 16), np.uint8), "ggml")
    with pytest.raises(ArgumentError, match="above 15"):
        layouts.codes_to_packed(np.full((1, 2), 16, np.uint8))
    with pytest.raises(DtypeError, match="no array of numbers"):
        layouts.scales_to_float32([["1"]])


def test_a_refused_scale_is_named_where_it_was_given():
    given = layouts.scales_to_gemm_float32(np.full((3, 2), 127, np.uint8))
    given[1, 2] = 3
    for read in (
        lambda: layouts.scales_from_layout(given, "gemm_float32", 3, 2),
        lambda: layouts.scales_from_gemm_float32(given, 3),
    ):
        with pytest.raises(ScaleError, match=r"3\.0 at index \(1, 2\)"):
            read()
