"""Launchers of the model of matrix products on CUDA cores (clause N19): every bit of a named order."""

from __future__ import annotations

import ctypes
from typing import Any

from refnum.errors import ShapeError

from ..device.arrays import View
from ..device.call import DeviceCall
from ..interface import product
from ..interface.call import F32, public
from ..interface.product import Product, Scales

__all__ = ["matmul_bf16", "matmul_fp8"]

KERNELS = {"matmul_fp8": ("BLOCKS=3",), "matmul_bf16": ("BLOCKS=2",)}
"""Kernel file -> its macro: CTAs that a multiprocessor holds; of FP8 it is measured, see docs/results."""
SIDE, THREADS = 64, 128
NAMES = ("e4m3_e4m3", "e5m2_e4m3", "e4m3_e5m2", "e5m2_e5m2")
DOWN = 0xFFFF
"""CTAs of a grid's second axis, at most."""
SCALING = ("", "_blocks", "_whole")


class ProductScales(ctypes.Structure):
    """Mirror of `refnum::ProductScales` in kernels/product_tile.cuh."""

    _fields_ = [
        ("items", ctypes.c_void_p), ("first", ctypes.c_int64), ("row_stride", ctypes.c_int64),
        ("block_stride", ctypes.c_int64), ("tall", ctypes.c_uint32), ("wide", ctypes.c_uint32),
    ]  # fmt: skip


class ProductArguments(ctypes.Structure):
    """Mirror of `refnum::ProductArguments` in kernels/product_tile.cuh."""

    _fields_ = [
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("sums", ctypes.c_void_p), ("narrow", ctypes.c_void_p),
        ("a_first", ctypes.c_int64), ("b_first", ctypes.c_int64), ("out_first", ctypes.c_int64),
        ("a_stride", ctypes.c_int64), ("b_stride", ctypes.c_int64),
        ("a_scales", ProductScales), ("b_scales", ProductScales),
        ("m", ctypes.c_uint32), ("n", ctypes.c_uint32), ("k", ctypes.c_uint32),
        ("run", ctypes.c_uint32), ("part", ctypes.c_uint32), ("aligned", ctypes.c_uint32),
        ("scales_first", ctypes.c_uint32),
    ]  # fmt: skip


def _argument(scales: Scales[View], first_row: int, expert: int) -> ProductScales:
    """Return the scales of rows from `first_row` on, or of an expert."""
    x = scales.x
    if x is None:
        return ProductScales(None)
    row, block, of_expert = scales.strides([n // x.dtype.itemsize for n in x.strides])
    return ProductScales(x.address, first_row * row + expert * of_expert, row, block, scales.tall, int(x.dtype == F32))


def _multiply(call: DeviceCall, given: Product[View]) -> None:
    """Launch one grid for each FP8 product."""
    name = f"matmul_{NAMES[given.formats]}{SCALING[given.scaling]}"
    _launched(call, given, "matmul_fp8", name)


def _multiply_bf16(call: DeviceCall, given: Product[View]) -> None:
    """Launch one grid for each BF16 product."""
    _launched(call, given, "matmul_bf16", "matmul_bf16")


def _launched(call: DeviceCall, given: Product[View], kernel: str, name: str) -> None:
    (m, n, k), order, result = given.shape, given.order, call.results[0].address
    scratch = call.scratch(4 * m * n) if given.narrow and order.parts > 1 else None
    places = (scratch, result) if given.narrow else (result, None)
    if any(-(-count // SIDE) > DOWN for _, _, count in given.parts()):
        raise ShapeError(f"a has shape {given.a.shape}; a product takes at most {DOWN * SIDE} rows")
    aligned = all(x.address % 16 == 0 and all(n % 16 == 0 for n in x.strides[:-1]) for x in (given.a, given.b))
    for expert, first, count in given.parts():
        of_expert = 0 if given.rows is None else expert * given.b.strides[0]
        arguments = ProductArguments(
            given.a.address, given.b.address, *places, first * given.a.strides[0], of_expert, first * n,
            given.a.strides[0], given.b.strides[-2], _argument(given.a_scales, first, 0),
            _argument(given.b_scales, 0, expert), count, n, k, order.run, order.part, int(aligned),
            int(given.scales_first(count)),
        )  # fmt: skip
        call.launch(kernel, name, KERNELS[kernel], (-(-n // SIDE), -(-count // SIDE)), THREADS, arguments)


@public(product.matmul_fp8, _multiply)
def matmul_fp8(*args: Any, **kwargs: Any) -> Any:
    """Run a call; its signature and docstring are those of its description."""
    call = DeviceCall("matmul_fp8")
    try:
        _multiply(call, product.matmul_fp8(call, *args, **kwargs))
        return call.finish()
    finally:
        call.wait_if_lent()


@public(product.matmul_bf16, _multiply_bf16)
def matmul_bf16(*args: Any, **kwargs: Any) -> Any:
    """Run a call; its signature and docstring are those of its description."""
    call = DeviceCall("matmul_bf16")
    try:
        _multiply_bf16(call, product.matmul_bf16(call, *args, **kwargs))
        return call.finish()
    finally:
        call.wait_if_lent()
