"""Scales in a storage layout: which bytes it holds, and what in it belongs to no bytes."""

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import NO_PROBLEM, PADDING, SCALE
from refnum.conformance.cases.layouts import (
    IN,
    NANS,
    OTHERS,
    OUT,
    bytes_of,
    in_dtype,
    stored_inputs,
    stored_scales,
    without_layouts,
)
from refnum.layouts import scales_to_layout

SHAPES = [(1, 1), (3, 2), (4, 4), (33, 5), (128, 4), (130, 8), (257, 9)]
PADDED = [layout for layout in OTHERS if layout != "float32"]
GARBAGE = {1: 0xD3, 4: 0x42280000}


def case_of(layout, scales=None, form=None):
    params = {"input": "float32", OUT: layout}
    if scales is None:
        return Case("quantize_mxfp4", "HOPPER", params, {})
    return Case("dequantize_mxfp4", "HOPPER", {IN: layout, **(form or {})}, {"scales": scales})


def drawn(shape):
    return np.random.default_rng(shape[0]).integers(0, 256, shape, np.uint8)


def bits_of(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").copy()


def padding_of(layout, shape):
    """Where a storage has words that no scale sets: of 4 bytes where a word is a float32, else of one."""
    every = np.stack([words_of(scales_to_layout(np.full(shape, byte, np.uint8), layout)) for byte in (1, 254)])
    return (every == 0).all(axis=0)


def words_of(stored):
    return np.ascontiguousarray(stored).view(np.uint32 if stored.dtype == np.float32 else np.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", OTHERS)
def test_a_storage_holds_the_bytes_that_were_stored(layout, shape):
    want = drawn(shape)
    stored = stored_scales(case_of(layout), want)
    found, problem = bytes_of(case_of(layout), want, stored)
    assert problem is NO_PROBLEM and found.dtype == np.uint8 and np.array_equal(found, want)
    assert np.array_equal(bits_of(stored), bits_of(scales_to_layout(want, layout)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", PADDED)
def test_padding_that_is_not_zero_is_told_with_its_place(layout, shape):
    want = drawn(shape)
    places = np.argwhere(padding_of(layout, shape))
    for place in map(tuple, (*places[:2], *places[-2:])):
        stored = np.ascontiguousarray(stored_scales(case_of(layout), want)).copy()
        words_of(stored)[place] = 0x42
        found, problem = bytes_of(case_of(layout), want, stored)
        assert np.array_equal(found, want)
        item = stored.itemsize // words_of(stored).itemsize
        index = (*(int(i) for i in place[:-1]), int(place[-1]) // item)
        told = f"scales[{', '.join(map(str, index))}] is 0x{int(bits_of(stored)[index]):0{2 * stored.itemsize}X}"
        words = f"{told}, which is padding of the layout {layout} and must be zero (N6.2)"
        assert (problem.finding, problem.words) == (PADDING, words)
    assert len(places) or shape[0] % 4 == 0


@pytest.mark.parametrize(
    "strange", [0x00000000, 0x40400000, 0xBF800000, 0x7F800000, 0x7FC00001, 0xFFC00000, 0x00400001]
)
@pytest.mark.parametrize("layout", ["float32", "gemm_float32"])
def test_a_float32_that_is_the_scale_of_no_byte_is_told(layout, strange):
    want = drawn((6, 3))
    bits = bits_of(stored_scales(case_of(layout), want))
    for place in ((2, 5), (1, 4)) if layout == "gemm_float32" else ((5, 2), (4, 1)):  # the first of both is told
        bits[place] = strange
    _, problem = bytes_of(case_of(layout), want, bits.view(np.float32))
    words = (
        f"scales[{place[0]}, {place[1]}] is 0x{strange:08X}; in the layout {layout} a float32 is 2^(byte - 127), or "
        "0x7FC00000 for byte 255 (N0)"
    )
    assert (problem.finding, problem.words) == (SCALE, words)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", OTHERS)
def test_garbage_in_the_padding_leaves_every_scale(layout, shape):
    want = drawn(shape)
    clean = stored_inputs(case_of(layout, want))["scales"]
    dirty = stored_inputs(case_of(layout, want, {"form": {"padding": "garbage"}}))["scales"]
    assert dirty.dtype == clean.dtype and dirty.shape == clean.shape
    plain, garbage = words_of(clean), words_of(dirty)
    other = plain.dtype.type(GARBAGE[plain.itemsize])
    assert np.array_equal(garbage, np.where(padding_of(layout, shape), other, plain))


def test_inputs_change_their_dtype_by_value_and_bfloat16_to_its_bits():
    numbers = np.array([1, 2, 300], np.int64)
    assert in_dtype(numbers, None) is numbers and in_dtype(numbers, "int64") is numbers
    assert in_dtype(numbers, "int32").dtype == np.int32 and in_dtype(numbers, "int32").tolist() == [1, 2, 300]
    assert in_dtype(numbers, ">i8").dtype.str == ">i8" and in_dtype(numbers, ">i8").tolist() == [1, 2, 300]
    halves = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    assert in_dtype(halves, "uint16").tolist() == [0x3F80, 0xC000] and in_dtype(halves, "bfloat16") is halves


@pytest.mark.parametrize("names", [(), (IN,), (OUT,), (IN, OUT)])
def test_a_case_without_layouts_is_one_on_bytes(names):
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32", **dict.fromkeys(names, "swizzled")}, {})
    plain = without_layouts(case)
    assert dict(plain.params) == {"input": "float32"} and (plain is case) == (not names)


@pytest.mark.parametrize("layout", ["float32", "gemm_float32"])
def test_a_nan_of_every_kind_is_a_stored_scale_of_byte_255_and_is_read_as_such(layout):
    scales = np.resize(np.array([255, 127, 255], np.uint8), (33, 4))
    stored = stored_inputs(case_of(layout, scales))["scales"]
    assert set(bits_of(stored[np.isnan(stored)]).tolist()) == set(NANS.tolist())
    packed = np.full((33, 64), 0x22, np.uint8)
    read = refnum.dequantize_mxfp4(packed, stored, layout_in=layout)
    assert bits_of(read).tolist() == bits_of(refnum.dequantize_mxfp4(packed, scales)).tolist()
