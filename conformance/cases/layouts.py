"""How a case's scales are stored: in the layouts of N6.5, on the way to a kernel and on the way back.

A case holds E8M0 bytes, and golden outputs are compared as bytes, whatever the layout: its parameters `layout_in` and
`layout_out` say how a kernel is given them and hands them out. An operation with a layout is the operation on bytes
with the conversion composed (N6.5), so a result is right if its storage is that of the right bytes, padding included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from refnum.layouts import LAYOUTS, scales_to_layout

from .case import FORM, Case
from .findings import NO_PROBLEM, PADDING, SCALE, Problem
from .same_bytes import name_of

PLAIN = "bytes"
IN, OUT = "layout_in", "layout_out"
OTHERS = tuple(name for name in LAYOUTS if name != PLAIN)
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF, 0xFF800001], np.uint32)
"""float32 bits of NaN: quiet and signalling, of either sign, the least and the largest payload."""


def stored_inputs(case: Case) -> Mapping[str, np.ndarray]:
    """Return a case's inputs as a kernel is given them."""
    layout, form = case.params.get(IN, PLAIN), case.params.get(FORM, {})
    given = dict(case.inputs)
    if layout != PLAIN:
        given["scales"] = stored = _with_every_nan(scales_to_layout(case.inputs["scales"], layout))
        if form.get("padding") == "garbage":
            given["scales"] = _with_garbage(stored, scales_to_layout(np.ones_like(case.inputs["scales"]), layout))
    return {name: in_dtype(array, form.get(f"{name}.dtype")) for name, array in given.items()}


def _with_every_nan(stored: np.ndarray) -> np.ndarray:
    """Return a storage whose float32 NaN have bits of every kind in turn: each is byte 255 (N6.5)."""
    if stored.dtype == np.float32:
        places = np.flatnonzero(np.isnan(stored))
        stored.view(np.uint32).reshape(-1)[places] = np.resize(NANS, places.size)
    return stored


def _with_garbage(stored: np.ndarray, ones: np.ndarray) -> np.ndarray:
    """Return a storage whose padding, which is zero where that of byte 1 is, holds other bytes: it is not read (N6.5).

    A word of packed bytes may hold scales and padding; a float32 holds one scale.
    """
    word = np.dtype(np.uint32 if stored.dtype == np.float32 else np.uint8)
    bits, padding = np.ascontiguousarray(stored).view(word), np.ascontiguousarray(ones).view(word) == 0
    return np.where(padding, word.type(0x42280000 if word.itemsize == 4 else 0xD3), bits).view(stored.dtype)


def in_dtype(array: np.ndarray, dtype: str | None) -> np.ndarray:
    """Return an array in another dtype, or byte order: bfloat16 as its uint16 bits, all else by value."""
    if dtype is None or name_of(array) == dtype:
        return array
    return (array.view(np.uint16) if name_of(array) == "bfloat16" else array).astype(dtype, copy=False)


def stored_scales(case: Case, scales: np.ndarray) -> np.ndarray:
    """Return the storage in which an operation hands out these E8M0 bytes."""
    return scales_to_layout(scales, case.params.get(OUT, PLAIN))


def bytes_of(case: Case, want: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, Problem]:
    """Return the E8M0 bytes that a storage holds, and what in it belongs to no bytes.

    want: the golden bytes, u8 [R, C]. given: of the shape and dtype of their storage. Compared as bits.
    """
    layout = case.params[OUT]
    found = _read(given, layout, *want.shape)
    again, bits = _bits(scales_to_layout(found, layout)), _bits(given)
    strange = np.argwhere(again != bits)
    if not strange.size:
        return found, NO_PROBLEM
    index = tuple(int(i) for i in strange[0])
    where = f"scales[{', '.join(map(str, index))}] is 0x{int(bits[index]):0{2 * bits.itemsize}X}"
    if layout in ("packed_ue8m0", "swizzled") or (layout == "gemm_float32" and index[1] >= want.shape[0]):
        return found, Problem(PADDING, f"{where}, which is padding of the layout {layout} and must be zero (N6.2)")
    words = f"{where}; in the layout {layout} a float32 is 2^(byte - 127), or 0x7FC00000 for byte 255 (N0)"
    return found, Problem(SCALE, words)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _read(given: np.ndarray, layout: str, rows: int, columns: int) -> np.ndarray:
    """Read the bytes where the layout has them; what is no power of two gives some byte, for the caller to notice."""
    if layout == "float32":
        return _float_bytes(given)
    if layout == "gemm_float32":
        return _float_bytes(given[:, :rows].T)
    r, c = np.indices((rows, columns))
    if layout == "packed_ue8m0":
        return (given[c // 4, r].astype(np.int64) >> 8 * (c % 4) & 255).astype(np.uint8)
    wide = -(-columns // 4)
    return given.reshape(-1)[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4]


def _float_bytes(values: np.ndarray) -> np.ndarray:
    return (_bits(values) >> np.uint32(23) & np.uint32(255)).astype(np.uint8)


def without_layouts(case: Case) -> Case:
    """Return the case on bytes; itself when it has no layouts."""
    if IN not in case.params and OUT not in case.params:
        return case
    return replace(case, params={name: value for name, value in case.params.items() if name not in (IN, OUT)})
