"""Storage layouts of E8M0 scales and of packed codes, and the way back from each (clauses N0 and N6).

A scale matrix is u8 [R, C] of E8M0 bytes, row-major: R rows, C scales a row. Every other layout holds the
same bytes elsewhere. What a layout adds as padding is written as zero, and is checked on the way back unless
`padding="ignore"` (some producers leave it uninitialised).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import MOST_ROWS, require_choice, require_integer
from .arrays import Array, contiguous, require_array, require_codes, require_scales
from .errors import ArgumentError, DtypeError, ScaleError, ShapeError

LAYOUTS = ("bytes", "float32", "gemm_float32", "packed_ue8m0", "swizzled")
"""Names of the scale layouts of N6.2, for the `layout_in` and `layout_out` of the row-wise operations (N6.5)."""
NIBBLE_ORDERS = ("low_first", "high_first", "ggml")


def _runs(n: int, length: int) -> int:
    return -(-n // length)


def _roundup(n: int, multiple: int) -> int:
    return _runs(n, multiple) * multiple


def _padded(x: Array, rows: int, columns: int) -> Array:
    out = np.zeros((rows, columns), dtype=x.dtype, like=x)
    out[: x.shape[0], : x.shape[1]] = x
    return out


def _unpadded(padded: Array, rows: int, columns: int, padding: str) -> Array:
    """Return a copy of padded[:rows, :columns]; the rest must be zero unless it is ignored."""
    require_choice("padding", padding, ("zero", "ignore"))
    if padding == "zero":
        rest = padded != padded.dtype.type(0)
        rest[:rows, :columns] = False
        _refuse_where(rest, padded, "is padding and must be zero: clear it, or pass padding='ignore'")
    return padded[:rows, :columns].copy()


def _refuse_where(bad: Array, x: Array, why: str) -> None:
    """Raise ScaleError naming the first bad value and its index."""
    if bool(np.any(bad)):
        flat = int(np.argmax(bad.ravel()))
        index = tuple(int(i) for i in np.unravel_index(flat, tuple(x.shape)))
        raise ScaleError(f"the scale {x[index].item()!r} at index {index} {why}")


def _require_shape(name: str, x: Array, shape: tuple[int, ...], dtype: Any, what: str) -> None:
    require_array(name, x)
    if x.dtype != dtype:
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is {np.dtype(dtype)}")
    if tuple(x.shape) != shape:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; {what} has {shape}")


# ----------------------------------------------------------------------------------------- float32 scales


def scales_to_float32(scales: Array) -> Array:
    """E8M0 bytes u8 [R, C] -> float32 [R, C], exact (N0).

    Byte 0 gives 2**-127, a float32 subnormal (bits 0x00400000), and byte 255 the quiet NaN 0x7FC00000:
    neither is a scale that `scales_from_float32` takes back. Raises DtypeError, ShapeError.
    """
    require_codes("scales", scales)
    bits = scales.astype(np.uint32) << np.uint32(23)
    bits = np.where(scales == np.uint8(0), np.uint32(0x00400000), bits)
    return np.where(scales == np.uint8(255), np.uint32(0x7FC00000), bits).view(np.float32)


def scales_from_float32(scales: Array) -> Array:
    """float32 [R, C] -> E8M0 bytes u8 [R, C] (N6).

    Raises ScaleError naming the value and the index of the first scale that is not a positive normal power of
    two (zero, negative, subnormal, NaN and Inf included); DtypeError, ShapeError.
    """
    require_array("scales", scales)
    _require_shape("scales", scales, _two_axes(scales), np.float32, "a scale matrix [R, C]")
    return _float32_bytes(scales)


def _float32_bytes(scales: Array) -> Array:
    bits = scales.view(np.uint32)
    field = bits >> np.uint32(23)  # a set sign bit lifts it above 255
    bad = ((bits & np.uint32(0x7FFFFF)) != np.uint32(0)) | (field < np.uint32(1)) | (field > np.uint32(254))
    _refuse_where(bad, scales, "is no positive normal power of two: it cannot be an E8M0 byte, quantise again")
    return field.astype(np.uint8)


def _axis(name: str, value: int) -> int:
    return require_integer(name, value, 0, MOST_ROWS)


def _two_axes(x: Array) -> tuple[int, int]:
    if x.ndim != 2:
        raise ShapeError(f"the array has shape {tuple(x.shape)}; allowed are two axes: reshape it")
    return (int(x.shape[0]), int(x.shape[1]))


def scales_to_gemm_float32(scales: Array) -> Array:
    """E8M0 bytes u8 [R, C] -> float32 [C, roundup(R, 4)]: transposed, GEMM-ready (N6).

    This is TransformerEngine's GEMM_READY form and DeepGEMM's Hopper form (rows contiguous, 16-byte aligned).
    The padding columns hold 0.0. Raises DtypeError, ShapeError.
    """
    values = scales_to_float32(scales)
    return _padded(values.T, values.shape[1], _roundup(values.shape[0], 4))


def scales_from_gemm_float32(scales: Array, rows: int, padding: str = "zero") -> Array:
    """float32 [C, roundup(rows, 4)] -> E8M0 bytes u8 [rows, C]; undoes `scales_to_gemm_float32`.

    Raises ScaleError as `scales_from_float32`, and for padding that is not 0.0 unless padding="ignore"; DtypeError,
    ShapeError, ArgumentError.
    """
    require_array("scales", scales)
    columns, _ = _two_axes(scales)
    rows = _axis("rows", rows)
    shape = (columns, _roundup(rows, 4))
    _require_shape("scales", scales, shape, np.float32, f"the GEMM-ready form of {rows} rows")
    return _float32_bytes(_unpadded(scales, columns, rows, padding)).T.copy()


# ------------------------------------------------------------------------------------ packed UE8M0 int32


def scales_to_packed_ue8m0(scales: Array) -> Array:
    """E8M0 bytes u8 [R, C] -> int32 [ceil(C/4), roundup(R, 4)], four scales of a row an integer (N6).

    DeepGEMM's form: element [q, r] holds scales [r, 4q .. 4q+3], the first in the lowest byte; C is padded to
    four and R to four (16 bytes, what TMA asks for) with zero bytes. The array is the physical order: of the
    logical [R, ceil(C/4)] matrix the strides in elements are (1, roundup(R, 4)), that is, column-major.
    Raises DtypeError, ShapeError.
    """
    require_codes("scales", scales)
    rows, quads = scales.shape[0], _runs(scales.shape[1], 4)
    octets = _padded(scales, _roundup(rows, 4), quads * 4)
    packed = octets.view("<i4").astype(np.int32)
    return packed.T.copy()


def scales_from_packed_ue8m0(packed: Array, rows: int, columns: int, padding: str = "zero") -> Array:
    """int32 [ceil(columns/4), roundup(rows, 4)] -> E8M0 bytes u8 [rows, columns].

    Raises DtypeError, ShapeError, ArgumentError, and ScaleError for padding that is not zero unless padding="ignore".
    """
    rows, columns = _axis("rows", rows), _axis("columns", columns)
    shape = (_runs(columns, 4), _roundup(rows, 4))
    _require_shape("packed", packed, shape, np.int32, f"the packed form of {rows} x {columns} scales")
    octets = packed.T.copy().astype("<i4").view(np.uint8)
    return _unpadded(octets.reshape(shape[1], shape[0] * 4), rows, columns, padding)


# --------------------------------------------------------------------------------------- 128x4 swizzle


def scales_to_swizzled(scales: Array) -> Array:
    """E8M0 bytes u8 [R, C] -> u8 [roundup(R, 128) * roundup(C, 4)], Blackwell's 128x4 blocks (N6).

    Scale (r, c) goes to byte ((r//128) * ceil(C/4) + c//4) * 512 + (r%32) * 16 + (r%128)//32 * 4 + c%4, the
    order of cuBLAS and CUTLASS; padding is zero. Raises DtypeError, ShapeError.
    """
    require_codes("scales", scales)
    high, wide = _runs(scales.shape[0], 128), _runs(scales.shape[1], 4)
    blocks = _padded(scales, high * 128, wide * 4).reshape(high, 4, 32, wide, 4)
    return blocks.transpose(0, 3, 2, 1, 4).ravel()


def scales_from_swizzled(swizzled: Array, rows: int, columns: int, padding: str = "zero") -> Array:
    """u8 of roundup(rows, 128) * roundup(columns, 4) bytes, any shape -> E8M0 bytes u8 [rows, columns].

    Raises DtypeError, ShapeError, ArgumentError, and ScaleError for padding that is not zero unless padding="ignore".
    """
    require_array("swizzled", swizzled)
    rows, columns = _axis("rows", rows), _axis("columns", columns)
    high, wide = _runs(rows, 128), _runs(columns, 4)
    flat = swizzled.ravel()
    _require_shape("swizzled", flat, (high * wide * 512,), np.uint8, f"the swizzle of {rows} x {columns} scales")
    blocks = flat.reshape(high, wide, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    return _unpadded(blocks.copy().reshape(high * 128, wide * 4), rows, columns, padding)


# ------------------------------------------------------------------------------------- layouts by name


def scales_to_layout(scales: Array, layout: str) -> Array:
    """E8M0 bytes u8 [R, C] -> the same scales in the layout of that name (N6.5); `bytes` gives them as they are.

    Raises DtypeError, ShapeError, and ArgumentError for a name that is not in LAYOUTS.
    """
    require_choice("layout_out", layout, LAYOUTS)
    require_codes("scales", scales)
    make = {
        "float32": scales_to_float32,
        "gemm_float32": scales_to_gemm_float32,
        "packed_ue8m0": scales_to_packed_ue8m0,
        "swizzled": scales_to_swizzled,
    }.get(layout)
    return scales if make is None else make(scales)


def scales_from_layout(scales: Array, layout: str, rows: int, columns: int) -> Array:
    """Scales in the layout of that name -> E8M0 bytes u8 [rows, columns]; undoes `scales_to_layout` (N6.5).

    Padding is not read. In the float32 layouts 2**-127 comes back as byte 0 and NaN as byte 255; any other value
    that is no positive power of two raises ScaleError. `bytes` gives the array as it is; ScaleError if it is not u8.
    Raises DtypeError, ShapeError, ArgumentError otherwise.
    """
    require_choice("layout_in", layout, LAYOUTS)
    rows, columns = _axis("rows", rows), _axis("columns", columns)
    if layout == "packed_ue8m0":
        return scales_from_packed_ue8m0(scales, rows, columns, "ignore")
    if layout == "swizzled":
        return scales_from_swizzled(scales, rows, columns, "ignore")
    if layout == "float32":
        _require_shape("scales", scales, (rows, columns), np.float32, f"the layout {layout} of {rows} x {columns}")
        return _any_float32_bytes(contiguous(scales))
    if layout == "gemm_float32":
        shape = (columns, _roundup(rows, 4))
        _require_shape("scales", scales, shape, np.float32, f"the layout {layout} of {rows} x {columns} scales")
        return _any_float32_bytes(scales[:, :rows].copy()).T.copy()
    require_scales(scales, (rows, columns), f"a matrix of {rows} x {columns} scales")
    return scales


def _any_float32_bytes(scales: Array) -> Array:
    """As `_float32_bytes`, with 2**-127 as byte 0 and NaN as byte 255: what `scales_to_float32` makes of them."""
    bits = scales.view(np.uint32)
    least, nan = bits == np.uint32(0x00400000), (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    plain = np.where(least | nan, np.uint32(0x3F800000), bits).view(np.float32)
    return np.where(least, np.uint8(0), np.where(nan, np.uint8(255), _float32_bytes(plain)))


# ----------------------------------------------------------------------------------------- nibble orders


def codes_to_packed(codes: Array, order: str = "low_first") -> Array:
    """Four-bit codes u8 [M, K] -> u8 [M, K/2] in a nibble order.

    `low_first`: byte j = code 2j | code 2j+1 << 4 (ours, N0); `high_first`: the other way round; `ggml`: in
    each block of 32, byte j = code j | code j+16 << 4 (K % 32 == 0).
    Raises DtypeError, ShapeError, and ArgumentError for another order or a code above 15.
    """
    require_choice("order", order, NIBBLE_ORDERS)
    require_codes("codes", codes, 32 if order == "ggml" else 2)
    if bool(np.any(codes > np.uint8(15))):
        raise ArgumentError("codes holds a byte above 15; allowed are four-bit codes, one a byte: unpack it first")
    first, second = _halves(codes, order)
    packed = first | (second << np.uint8(4))
    return packed.reshape(codes.shape[0], codes.shape[1] // 2)


def _halves(codes: Array, order: str) -> tuple[Array, Array]:
    """The codes that go to the low and to the high nibbles, in the order of their bytes."""
    if order == "ggml":
        blocks = codes.reshape(codes.shape[0], codes.shape[1] // 32, 2, 16)
        return blocks[:, :, 0], blocks[:, :, 1]
    even, odd = codes[:, 0::2], codes[:, 1::2]
    return (even, odd) if order == "low_first" else (odd, even)


def codes_from_packed(packed: Array, order: str = "low_first") -> Array:
    """u8 [M, K/2] in a nibble order -> four-bit codes u8 [M, K]; undoes `codes_to_packed`.

    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_choice("order", order, NIBBLE_ORDERS)
    require_codes("packed", packed, 16 if order == "ggml" else 1)
    rows, half = packed.shape
    codes = np.empty((rows, half * 2), dtype=np.uint8, like=packed)
    first, second = _halves(codes, order)
    first[...] = (packed & np.uint8(15)).reshape(first.shape)
    second[...] = (packed >> np.uint8(4)).reshape(second.shape)
    return codes


def repack_nibbles(packed: Array, source: str, target: str) -> Array:
    """u8 [M, K/2] in the nibble order `source` -> the same codes in the order `target`.

    Raises DtypeError, ShapeError, ArgumentError.
    """
    return codes_to_packed(codes_from_packed(packed, source), target)
