"""NVFP4 blocks (clause N21): what the kernels have of it."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, shown

from .. import checks
from ..checks import KINDS
from .call import F32, FLOATS, U8, A, Call

BLOCK = 16
"""Elements of a block along K."""
VARIANTS = ("TE", "TE_2_8", "TORCHAO", "MODELOPT", "FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE")
"""In the order of `Nvfp4Order` of the headers."""
ORDERS = ("te", "product", "four_over_six")
"""In the order of `Nvfp4Product` of the headers."""
LAYOUTS = ("bytes", "swizzled")
TILES = ((1, BLOCK), (BLOCK, BLOCK))


class Nvfp4(NamedTuple, Generic[A]):
    """The checked arguments of a conversion from or to NVFP4.

    x: floats or packed codes. k: elements of a row. order: of the float32 operations, see the headers. layout: of the
    scales. amax: the tensor's maximum, None for that of x. scales: those of packed codes. kind: the `FloatKind` of
    values. tall: rows of a block, 1 or 16. random, key: of stochastic rounding.
    """

    x: A
    k: int
    order: int
    layout: str
    amax: A | None = None
    scales: A | None = None
    kind: int = 0
    tall: int = 1
    random: A | None = None
    key: tuple[int, int, int, int] | None = None


def quantize_nvfp4(
    call: Call[A],
    x: Any,
    variant: str = "TE",
    tensor_amax: Any = None,
    tile: tuple[int, int] = (1, 16),
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Any = None,
) -> Nvfp4[A]:
    """Quantise floats to NVFP4 (N21).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K a multiple of 16.
        variant: one of `VARIANTS`, an order of float32 operations.
        tensor_amax: the tensor's largest magnitude, float32 [1]; that of x if None, found by a pass of its own.
        tile: (1, 16), or (16, 16) for weights, whose last blocks may be short in rows.
        rbits: random bits [M, K]: uint8 for a kernel, any unsigned integers below 256 for the host build.
        philox: the key of a stream of random bits: (seed, stream, step) or (seed, stream, step, offset) (N13.5).
        layout_out: the storage layout of the scales, "bytes" or "swizzled" (N21.6).
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], E4M3 scale codes of [M, K/16] or [ceil(M/16), K/16] in `layout_out`, the tensor's
        maximum float32 [1]).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.matrix("x", x, BLOCK)
    if view.dtype not in KINDS:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are {FLOATS}")
    order, tall = checks.choice("variant", variant, VARIANTS), _rows(tile)
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    key = None if philox is None else checks.philox_key(philox)
    random = None if rbits is None else call.random_bits(rbits, view)
    amax = None if tensor_amax is None else call.weights("tensor_amax", tensor_amax, view, 1, "a tensor has one")
    m, k = view.shape
    wanted = [((m, k // 2), U8), stored(-(-m // tall), k, "layout_out", layout_out), ((1,), F32)]
    call.outputs(out, wanted, [each for each in (view, amax, random) if each is not None])
    return Nvfp4(view, k, order, layout_out, amax, kind=KINDS[view.dtype], tall=tall, random=random, key=key)


def dequantize_nvfp4(
    call: Call[A],
    packed: Any,
    scales: Any,
    tensor_amax: Any,
    order: str = "te",
    tile: tuple[int, int] = (1, 16),
    dtype: Any = "float32",
    *,
    layout_in: str = "bytes",
    out: Any = None,
) -> Nvfp4[A]:
    """Dequantise NVFP4: one float32 product an element (N21.7).

    Args:
        packed: codes u8 [M, K/2], two in a byte, K a multiple of 16.
        scales: E4M3 codes u8 of [M, K/16] or [ceil(M/16), K/16] in `layout_in`.
        tensor_amax: the tensor's maximum, float32 [1].
        order: "te", "product" or "four_over_six".
        tile: (1, 16) or (16, 16).
        dtype: float32 or bfloat16, by name or as a dtype of NumPy, ml_dtypes or torch.
        layout_in: the storage layout of the scales, "bytes" or "swizzled" (N21.6).
        out: the array to write.

    Returns:
        The values [M, K].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    number = checks.choice("order", order, ORDERS)
    kind, result = checks.output_dtype(dtype)
    tall = _rows(tile)
    stored(-(-m // tall), k, "layout_in", layout_in)
    beside = call.scales(scales, (-(-m // tall), k // BLOCK), view, layout_in)
    amax = call.weights("tensor_amax", tensor_amax, view, 1, "a tensor has one")
    call.outputs(out, [((m, k), result)], [view, beside, amax])
    return Nvfp4(view, k, number, layout_in, amax, beside, kind, tall)


def _rows(tile: Any) -> int:
    """Return the rows of one of `TILES`."""
    plain = isinstance(tile, tuple | list) and all(isinstance(n, int | np.integer) for n in tile)
    if not plain or bool in map(type, tile) or tuple(tile) not in TILES:
        raise ArgumentError(f"tile={shown(tile)}; allowed are {', '.join(map(repr, TILES))}")
    return int(tile[0])


def stored(m: int, k: int, name: str, layout: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the scales of m rows of blocks of K elements in a layout that NVFP4 has."""
    checks.choice(name, layout, LAYOUTS)
    return checks.layout_of(m, k // BLOCK, layout)
