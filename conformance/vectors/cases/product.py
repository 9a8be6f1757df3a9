"""Questions about matrix products (N19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from refnum.arrays import BFLOAT16
from refnum.formats import E4M3, E5M2, Format

from ...cases.corners import product as corners
from ...cases.draw.products import scale_kinds, scales_of_kind, terms_for
from ..draft import DTYPES, Draft, plain

FLAGS = ("PRODUCT_NEVER_PROMOTED", "PRODUCT_NORMALISED", "PRODUCT_PART_RACE", "PRODUCT_ROUNDS_TERMS",
         "PRODUCT_SCALES_SWIZZLED", "PRODUCT_SCALES_TRANSPOSED", "PRODUCT_SCALE_OF_OTHER_BLOCK",
         "PRODUCT_STEP_IN_FLOAT32", "PRODUCT_SUM_LEFT_OUT", "PRODUCT_TERM_BITS", "PRODUCT_ZERO_JOINS_MAX",
         "PRODUCT_ZERO_SIGN")  # fmt: skip
PAIRS = ((E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2), (E5M2, E5M2))
ORDERS = ("promote128", "chain", "split2")
EXPERTS = (((3, 0, 2), "", "promote128"), ((0, 1, 3), "row", "chain"), ((2, 3, 0), "block", "split2"),
           ((1, 0, 2), "square", "promote128"), ((1, 2, 1), "tensor", "promote128"))  # fmt: skip
"""Rows of each expert, kind of scales, order."""


def _draft(
    a: np.ndarray, b: np.ndarray, comment: str, formats: tuple[Format, Format] = PAIRS[0], order: str = "promote128",
    out: str = "float32", **scales: np.ndarray,
) -> Draft:  # fmt: skip
    params: dict[str, Any] = {"order": order, "out": out, "a_format": formats[0].name, "b_format": formats[1].name}
    return Draft({"a": a, "b": b, **scales}, params, FLAGS, comment)


def _steps() -> Iterator[Draft]:
    """Single steps: cuts at every distance, zeros, NaN and Inf, cancellation; all pairs of formats."""
    for left, right in PAIRS:
        formats = left, right
        a, b = corners.one_large(left, right)
        yield _draft(a[3:128:12], b, "one large term among many small ones", formats)
        a, b = corners.beside_powers(left, right)
        yield _draft(a[1:128:9], b[::5], "two terms at every distance", formats)
        a, b = corners.specials(left, right)
        yield _draft(a[::19, :33], b[:, :33], "NaN, infinities and zeros", formats)
        a, b = corners.zeros(right)
        yield _draft(a[:, :3], b[:, :3], "zeros of both signs", formats)
        a, b = corners.cancelling(left, right)
        yield _draft(a[5:384:37], b, "large terms that cancel around small ones", formats)


def _zero_beside_large() -> Iterator[Draft]:
    """Products of which a zero's other factor is the largest number."""
    a = np.array([[0, 0x09, 0x0B, 0x11], [0x7E, 0x09, 0x8B, 0x11]], np.uint8)
    b = np.array([[0x7E, 0x0F, 0x0D, 0x09], [0, 0x0F, 0x0D, 0x09]], np.uint8)
    yield _draft(a, b, "zeros beside the largest numbers")


def _orders() -> Iterator[Draft]:
    """Every order at lengths around steps, runs and parts, both results."""
    for order in ORDERS:
        for k in (1, 31, 33, 128, 129, 257):
            if terms_for(order, k) == k:
                for out in DTYPES:
                    a, b = (corners.finite(E4M3, (2, k), k + side) for side in (0, 1))
                    yield _draft(a, b, f"{order} over {k} terms", order=order, out=out)
    yield _draft(np.zeros((0, 33), np.uint8), np.zeros((2, 33), np.uint8), "no rows")


def _scales() -> Iterator[Draft]:
    """Every kind of scales, equal and unlike on the two sides, and results that overflow, vanish and are subnormal."""
    for order in ORDERS:
        a, b = corners.finite(E4M3, (3, 130), 7), corners.finite(E4M3, (2, 130), 8)
        for number, kind in enumerate(scale_kinds(order)[1:]):
            other = scale_kinds(order)[-1 - number]
            given = {"a_scales": kind, **({"b_scales": other} if other else {})}
            scales = {
                name: np.ascontiguousarray(scales_of_kind(_bytes(len(a if name[0] == "a" else b), number), one))
                for name, one in given.items()
            }
            asked = _draft(a, b, f"scales of a: {kind}, of b: {other or 'none'}", order=order)
            yield replace(asked, inputs={**asked.inputs, **scales})
    for byte in (252, 2, 0):
        scale = np.full((1, 1), byte, np.uint8)
        yield _draft(a, b, f"scales of byte {byte}", a_scales=scale)
        yield _draft(a, b, f"scales of byte {byte}, per row", a_scales=np.repeat(scale, 3, 0), b_scales=scale + 1)


def _float_scales() -> Iterator[Draft]:
    """float32 scales that are no powers of two: of which two factors are rounded first decides a bit (N19.5)."""
    a, b = corners.finite(E4M3, (3, 130), 11), corners.finite(E4M3, (2, 130), 12)
    yield _draft(a, b, "float32 scales, one a row of both", a_scales=_odd(3, 1), b_scales=_odd(2, 1))
    yield _draft(a, b, "float32 scales, one a tensor and one a row", a_scales=_odd(1, 1), b_scales=_odd(2, 1))
    yield _draft(a, b, "float32 scales of blocks of both", a_scales=_odd(3, 2), b_scales=_odd(2, 2))
    yield _draft(a, b, "float32 scales of blocks and of squares", a_scales=_odd(3, 2), b_scales=_odd(1, 2))


def _odd(rows: int, blocks: int) -> np.ndarray:
    bits = 0x3F9E_3779 + 0x0012_3457 * np.arange(rows * blocks, dtype=np.uint32).reshape(rows, blocks)
    return bits.astype(np.uint32).view(np.float32)


def _zeros() -> Iterator[Draft]:
    """Scaled sums that are exactly zero, and that round to zero: one has no sign, the other keeps its own."""
    a, b = np.array([[0x40], [0xC0], [0x80], [0]], np.uint8), np.array([[0x38], [0x01]], np.uint8)
    for order in ("chain", "promote128"):
        for out in DTYPES:
            for left, right in ((0x00000000, 0x3F800000), (0x12800000, 0x92800000), (0x00000001, 0x1F000000)):
                yield _draft(a, b, "a scaled sum that is zero", order=order, out=out, a_scales=_number(left),
                             b_scales=_number(right))  # fmt: skip
            yield _draft(a, b, "a negative scale", order=order, out=out, a_scales=_number(0xBF800000))
        yield _draft(a, b, "a scaled sum that rounds to zero", order=order, a_scales=_number(0x1C800000),
                     b_scales=_number(0x1A000000))  # fmt: skip
        yield _draft(a, b, "zero with scales of rows", order=order, a_scales=np.repeat(_number(0x92800000), 4, 0),
                     b_scales=np.repeat(_number(0x12800000), 2, 0))  # fmt: skip


def _number(bits: int) -> np.ndarray:
    return np.array([[bits]], np.uint32).view(np.float32)


def _signs() -> Iterator[Draft]:
    """Sums of -0, and zero times infinity."""
    a = np.array([[0x80, 0x80, 0x80], [0x80, 0, 0x80]], np.uint8)
    one = np.array([[0x38, 0x38, 0x38], [0xB8, 0x38, 0x38]], np.uint8)
    yield _draft(a, one, "chains of zeros of both signs", order="chain")
    infinite = np.array([[0x7C, 0x3C], [0xFC, 0x3C], [0x7C, 0xFC]], np.uint8)
    yield _draft(infinite, np.array([[0, 0x3C], [0x80, 0x3C]], np.uint8), "zero times infinity", PAIRS[3])


def _experts() -> Iterator[Draft]:
    """Products of three experts of which one has no rows (N19.8): every kind of scales, each end of the rows."""
    for number, (splits, kind, order) in enumerate(EXPERTS):
        k, rows, wide = 160, sum(splits), 2
        a, b = (corners.finite(E4M3, (side, k), 21 + side) for side in (rows, 3 * wide))
        given = {"a_scales": "row" if kind == "square" else kind, "b_scales": kind} if kind else {}
        scales = {
            name: np.ascontiguousarray(scales_of_kind(_bytes(rows, number), one))
            if name[0] == "a" or one == "tensor"
            else np.stack([scales_of_kind(_bytes(wide, number + 2 * expert), one) for expert in range(3)])
            for name, one in given.items()
        }
        asked = _draft(a, b.reshape(3, wide, k), f"three experts, scales: {kind or 'none'}", order=order)
        inputs, params = {**asked.inputs, **scales}, {**asked.params, "splits": list(splits)}
        yield replace(asked, inputs=inputs, params=params)


def _experts_bf16() -> Iterator[Draft]:
    """The same of bfloat16."""
    for splits, _, order in EXPERTS[:3]:
        a, b = (corners.near((side, 144), 31 + side).view(BFLOAT16) for side in (sum(splits), 6))
        yield Draft({"a": a, "b": b.reshape(3, 2, 144)}, {"order": order, "out": "float32", "splits": list(splits)},
                    ("OUTPUT_NOT_WRITTEN",), "three experts, one without rows")  # fmt: skip


def _bytes(rows: int, seed: int) -> np.ndarray:
    return (115 + (5 * np.arange(rows)[:, None] + 7 * np.arange(2)[None, :] + 3 * seed) % 23).astype(np.uint8)


def _bf16() -> Iterator[Draft]:
    """BF16 products: cuts, cancellation, overflow, subnormal sums, specials, every order and both results."""
    flags = ("OUTPUT_NOT_WRITTEN",)
    for order in ORDERS:
        for out in DTYPES:
            for number, (label, inputs, *other) in enumerate(corners.matmul_bf16("matmul_bf16", {"order": order})):
                if other or (out == "bfloat16" and number % 3 != 1):
                    continue
                cut = {"a": inputs["a"][:: max(1, len(inputs["a"]) // 5)], "b": inputs["b"]}
                yield Draft(cut, {"order": order, "out": out}, flags, label)


matmul_bf16 = plain(_bf16, _experts_bf16)
matmul_fp8 = plain(_steps, _zero_beside_large, _orders, _scales, _float_scales, _zeros, _signs, _experts)
