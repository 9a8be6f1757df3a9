"""The lines of the device benchmark: which operation and kernel, on what data, with what options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from refnum.gpu import ops

M, K = 32768, 7168


def noise(shape: tuple[int, int], dtype: Any, seed: int) -> Any:
    """Return standard normal values, each row at its own power of two, as float32, float16 or bfloat16 bits."""
    rng = cupy.random.default_rng(seed)
    out = cupy.empty(shape, np.uint16 if dtype == "bfloat16" else dtype)
    for row in range(0, shape[0], 4096):
        part = rng.standard_normal((min(4096, shape[0] - row), shape[1]), np.float32)
        part *= cupy.exp2(rng.integers(-4, 4, (part.shape[0], 1)).astype(np.float32))
        if dtype == "bfloat16":
            bits = part.view(np.uint32)
            out[row : row + 4096] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        else:
            out[row : row + 4096] = part.astype(dtype)
    return out


def fp8(seed: int) -> tuple[Any, ...]:
    return ops.quantize_fp8_tiles(noise((M, K), "bfloat16", seed))


def fp4(seed: int) -> tuple[Any, ...]:
    return ops.quantize_mxfp4(noise((M, K), "bfloat16", seed))


def floats(dtype: str) -> Callable[[int], tuple[Any, ...]]:
    return lambda seed: (noise((M, K), dtype, seed),)


def expert_rows() -> list[int]:
    """Return rows of 256 experts, unequal, each padded to 32, M together."""
    drawn = np.random.default_rng(0).dirichlet(np.full(256, 4.0)) * (M // 32)
    rows = np.floor(drawn).astype(int)
    rows[: M // 32 - rows.sum()] += 1
    return [32 * int(n) for n in rows]


EXPERT_ROWS = expert_rows()

# name of the line -> (operation, kernel function, inputs from a seed, options)
CASES: dict[str, tuple[str, str, Callable[[int], tuple[Any, ...]], dict[str, Any]]] = {
    "BF16 -> MXFP4": ("quantize_mxfp4", "quantize_mxfp4_bfloat16_flat_rceil", floats("bfloat16"), {}),
    "BF16 -> MXFP4 floor": ("quantize_mxfp4", "quantize_mxfp4_bfloat16_flat", floats("bfloat16"), {"profile": "OCP"}),
    "FP16 -> MXFP4": ("quantize_mxfp4", "quantize_mxfp4_float16_flat_rceil", floats("float16"), {}),
    "FP32 -> MXFP4": ("quantize_mxfp4", "quantize_mxfp4_float32_flat_rceil", floats("float32"), {}),
    "MXFP4 -> BF16": ("dequantize_mxfp4", "dequantize_mxfp4_bfloat16_flat", fp4, {"dtype": "bfloat16"}),
    "MXFP4 -> FP32": ("dequantize_mxfp4", "dequantize_mxfp4_float32_flat", fp4, {"dtype": "float32"}),
    "BF16 -> FP8": ("quantize_fp8_tiles", "quantize_fp8_tiles_bfloat16_flat", floats("bfloat16"), {}),
    "FP16 -> FP8": ("quantize_fp8_tiles", "quantize_fp8_tiles_float16_flat", floats("float16"), {}),
    "FP32 -> FP8": ("quantize_fp8_tiles", "quantize_fp8_tiles_float32_flat", floats("float32"), {}),
    "BF16 -> FP8 128x128": ("quantize_fp8_tiles", "quantize_fp8_squares_bfloat16", floats("bfloat16"),
                            {"tile": (128, 128)}),
    "FP8 -> BF16": ("dequantize_fp8_tiles", "dequantize_fp8_tiles_bfloat16_flat", fp8, {"dtype": "bfloat16"}),
    "FP8 -> FP32": ("dequantize_fp8_tiles", "dequantize_fp8_tiles_float32_flat", fp8, {"dtype": "float32"}),
    "FP8 -> MXFP4": ("fp8_to_mxfp4", "fp8_to_mxfp4_flat_rceil", fp8, {}),
    "MXFP4 -> FP8 max": ("mxfp4_to_fp8", "mxfp4_to_fp8_max_flat", fp4, {"scale": "max"}),
    "MXFP4 -> FP8 columns": ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_columns_max", fp4, {"scale": "max"}),
    "same, 256 experts": ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_columns_max", fp4,
                          {"scale": "max", "splits": EXPERT_ROWS}),
    "same, amax": ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_columns_amax", fp4, {"scale": "amax"}),
    "same, amax, 256 experts": ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_columns_amax", fp4,
                                {"scale": "amax", "splits": EXPERT_ROWS}),
    "MXFP4 -> FP8 both": ("mxfp4_to_fp8_rows_columns", "mxfp4_to_fp8_rows_columns_max", fp4, {"scale": "max"}),
    "both, amax": ("mxfp4_to_fp8_rows_columns", "mxfp4_to_fp8_rows_columns_amax", fp4, {"scale": "amax"}),
    "both, 256 experts": ("mxfp4_to_fp8_rows_columns", "mxfp4_to_fp8_rows_columns_max", fp4,
                          {"scale": "max", "splits": EXPERT_ROWS}),
    "MXFP4 columns amax": ("mxfp4_columns", "mxfp4_columns_amax", fp4, {"scale": "amax"}),
    "MXFP4 columns max": ("mxfp4_columns", "mxfp4_columns_max", fp4, {"scale": "max"}),
    "MXFP4 columns, 256 experts": ("mxfp4_columns", "mxfp4_columns_amax", fp4,
                                   {"scale": "amax", "splits": EXPERT_ROWS}),
    "FP8 columns rne": ("fp8_columns", "fp8_columns_rne", fp8, {"underflow": "rne"}),
    "FP8 columns te": ("fp8_columns", "fp8_columns_te", fp8, {"underflow": "te"}),
    "FP8 columns, 256 experts": ("fp8_columns", "fp8_columns_rne", fp8, {"underflow": "rne", "splits": EXPERT_ROWS}),
    "MXFP4 -> FP8 amax": ("mxfp4_to_fp8", "mxfp4_to_fp8_amax_flat", fp4, {"scale": "amax"}),
}  # fmt: skip
