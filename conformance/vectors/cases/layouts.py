"""Questions about the scale layouts and the nibble orders (N0, N6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refnum import layouts

from ..draft import NAN, SIGN, Draft, counted, octets, plain


def _scales_to_swizzled() -> Iterator[Draft]:
    """Blackwell's 128x4 blocks, whole and padded."""
    for rows, columns in ((128, 4), (1, 1), (33, 5), (130, 3), (256, 8)):
        padded = rows % 128 or columns % 4
        yield Draft(
            {"scales": counted(rows, columns)},
            flags=("SWIZZLE_LAYOUT", "PAD_SCALE_READ") if padded else ("SWIZZLE_LAYOUT",),
            comment=f"{rows} x {columns} scales",
        )


def _scales_to_packed_ue8m0() -> Iterator[Draft]:
    """Four bytes an integer, column-major, both axes padded to four."""
    for rows, columns in ((4, 4), (1, 1), (3, 5), (6, 8)):
        padded = rows % 4 or columns % 4
        yield Draft(
            {"scales": counted(rows, columns)},
            comment=f"{rows} x {columns} scales",
            flags=("UE8M0_PACK_ORDER", "PAD_SCALE_READ") if padded else ("UE8M0_PACK_ORDER",),
        )


def _scales_to_gemm_float32() -> Iterator[Draft]:
    """Transposed float32 scales, rows padded to four."""
    for rows, columns in ((4, 2), (5, 3), (1, 1)):
        yield Draft(
            {"scales": counted(rows, columns)},
            flags=("TRANSPOSE_MISSING", "PAD_SCALE_READ") if rows == 5 else (),
            comment=f"{rows} x {columns} scales",
        )
    yield Draft(
        {"scales": octets([[0, 255], [1, 254]])},
        flags=("E8M0_ZERO_IS_TINY", "E8M0_FF_NOT_NAN"),
        comment="bytes 0 and 255",
    )


def _scales_from_layout() -> Iterator[Draft]:
    """Stored scales of every layout, as an operation reads them: bytes 0 and 255 among them, padding not zero."""
    for rows, columns in ((6, 7), (130, 5), (1, 1)):
        scales = counted(rows, columns)
        scales[0, -1] = 255
        scales[-1, 0] = 0
        for layout in layouts.LAYOUTS:
            stored = layouts.scales_to_layout(scales, layout).copy()
            words = stored.view(f"u{stored.dtype.itemsize}")
            if layout == "gemm_float32":
                words[:, rows:] = 0xDEADBEEF
            elif layout == "packed_ue8m0":
                words[:, rows:] = 0xEE
                words[-1] |= np.uint32(0xEE000000) if columns % 4 else np.uint32(0)
            elif layout == "swizzled":
                held = layouts.scales_to_swizzled(np.ones_like(scales))
                words[held == 0] = 0xEE
            yield Draft(
                {"stored": stored},
                {"layout": layout, "rows": rows, "columns": columns},
                flags=("SCALE_LAYOUT_REVERSED",) if layout != "bytes" else (),
                comment=f"{rows} x {columns} scales, whatever lies in the padding",
            )
    nans = np.asarray([[NAN, SIGN | NAN, 0x7F800001, 0xFFFFFFFF, 0x00400000, 0x00800000, 0x7F000000]], np.uint32)
    yield Draft(
        {"stored": nans.view(np.float32)},
        {"layout": "float32", "rows": 1, "columns": 7},
        flags=("SCALE_LAYOUT_REVERSED",),
        comment="every NaN is byte 255, 2^-127 is byte 0, and both ends of the normal range",
    )


def _codes_to_packed() -> Iterator[Draft]:
    """Three nibble orders of the same codes."""
    codes = (np.arange(128) * 5 % 16).astype(np.uint8).reshape(2, 64)
    for order in layouts.NIBBLE_ORDERS:
        yield Draft(
            {"codes": codes}, {"order": order}, flags=("NIBBLE_ORDER", "SPLIT_HALF_ORDER"), comment=f"order {order}"
        )


scales_to_swizzled, scales_to_packed_ue8m0 = plain(_scales_to_swizzled), plain(_scales_to_packed_ue8m0)
scales_to_gemm_float32, scales_from_layout = plain(_scales_to_gemm_float32), plain(_scales_from_layout)
codes_to_packed = plain(_codes_to_packed)
