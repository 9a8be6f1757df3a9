"""The host build of matrix products (clause N19): the device kernel's arithmetic, one result after another."""

from __future__ import annotations

import numpy as np

from ..interface import product
from ..interface.call import F32
from ..interface.product import Product, Scales
from .call import Array, HostCall, twin

__all__ = ["matmul_bf16", "matmul_fp8"]


def _part(scales: Scales[Array], first_row: int, expert: int) -> Array | None:
    """Return the contiguous scales of rows from `first_row` on, or of an expert."""
    if scales.x is None:
        return None
    x = scales.x[expert] if scales.by_expert else scales.x
    return np.ascontiguousarray(x[first_row:] if scales.kind == "rows" else x)


def _strides(scales: Scales[Array]) -> list[int]:
    """Return items from a row and from a block of K to the next, rows that share an item, whether it is a float32."""
    if scales.x is None:
        return [0, 0, 1, 0]
    row, block, _ = scales.strides((0, scales.x.shape[-1], 1))
    return [row, block, scales.tall, int(scales.x.dtype == F32)]


def _multiply(call: HostCall, given: Product[Array]) -> None:
    """Run one product after another."""
    _, n, k = given.shape
    strides = np.array([*_strides(given.a_scales), *_strides(given.b_scales)], np.int64)
    for expert, first, count in given.parts():
        part = call.arrays[0][first : first + count]
        call.run(
            "matmul_fp8", given.a[first : first + count], given.b if given.rows is None else given.b[expert],
            _part(given.a_scales, first, 0), _part(given.b_scales, 0, expert), count, n, k, given.order.run,
            given.order.part, strides, given.scaling, int(given.scales_first(count)), given.formats,
            *((None, part) if given.narrow else (part, None)),
        )  # fmt: skip


def _multiply_bf16(call: HostCall, given: Product[Array]) -> None:
    """Run one product after another."""
    _, n, k = given.shape
    for expert, first, count in given.parts():
        part = call.arrays[0][first : first + count]
        right = given.b if given.rows is None else given.b[expert]
        call.run(
            "matmul_bf16", given.a[first : first + count], right, count, n, k, given.order.run, given.order.part,
            *((None, part) if given.narrow else (part, None)),
        )  # fmt: skip


matmul_fp8 = twin(product.matmul_fp8)(_multiply)
matmul_bf16 = twin(product.matmul_bf16)(_multiply_bf16)
