"""One call of every launcher, as the golden model is given it, and what it must give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np

import refnum

M, K, T = 192, 320, 150
SPLITS = [64, 0, 130 - 64, 62]


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(np.float32)


def bf16(rng: np.random.Generator, *shape: int) -> Any:
    return floats(rng, *shape).astype(samples.BFLOAT16)


def bytes_of(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def scales(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(100, 140, shape, dtype=np.uint8)


def codes(rng: np.random.Generator, *shape: int) -> Any:
    """Return E4M3 codes without NaN."""
    x = bytes_of(rng, *shape)
    return np.where((x & 0x7F) == 0x7F, 0, x).astype(np.uint8)


def make(name: str) -> dict[str, Any]:
    """Return the golden keywords of one call of an operation."""
    rng = np.random.default_rng(0)
    mxfp4 = {"packed": bytes_of(rng, M, K // 2), "scales": scales(rng, M, K // 32)}
    fp8 = {"codes": codes(rng, M, K), "scales": scales(rng, M, -(-K // 128))}
    pair = {"gate": bf16(rng, M, K), "up": bf16(rng, M, K), "prob": rng.random(M).astype(np.float32)}
    row_map = rng.integers(0, T, M).astype(np.int64)
    return {
        "quantize_mxfp4": {"x": bf16(rng, M, K), "profile": "OCP"},
        "dequantize_mxfp4": {**mxfp4, "dtype": "bfloat16"},
        "quantize_fp8_tiles": {"x": floats(rng, M, K), "tile": (128, 128)},
        "dequantize_fp8_tiles": {**fp8, "dtype": "bfloat16"},
        "quantize_nvfp4": {"x": bf16(rng, M, K), "tensor_amax": np.array([40], np.float32)},
        "dequantize_nvfp4": {"packed": bytes_of(rng, M, K // 2), "scales": bytes_of(rng, M, K // 16) % 127,
                             "tensor_amax": np.array([3.3], np.float32), "dtype": "bfloat16"},
        "hadamard16": {"x": bf16(rng, M, K), "axis": 0, "signs": 0x1234},
        "hadamard_quantize_nvfp4": {"x": bf16(rng, M, K), "tensor_amax": np.array([40], np.float32)},
        "luq": {"x": bf16(rng, M, K), "r_under": rng.integers(0, 1 << 24, (M, K), dtype=np.uint32),
                "r_log": rng.integers(0, 1 << 23, (M, K), dtype=np.uint32), "step": "power_of_two"},
        "dequantize_luq": {"packed": bytes_of(rng, M, K // 2), "alpha": np.array([0.3], np.float32),
                           "dtype": "bfloat16"},
        "radix4": {"x": bf16(rng, M, K), "n0": -4, "phase": "odd", "threshold": "0.4"},
        "dequantize_radix4": {"packed": bytes_of(rng, M, K // 2), "n0": -5, "dtype": "bfloat16"},
        "quantize_tetrajet": {"x": bf16(rng, M, K), "axis": 0, "ties": "away", "ratio": "float32"},
        "q_ema": {"w": bf16(rng, M, K), "ema": floats(rng, M, K), "rule": "exact"},
        "dge": {"x": floats(rng, 2, 3, 70), "target": "float32"},
        "occ": {"x": bf16(rng, M, K), "alpha": (9, 10), "axis": "channel"},
        "stable_spam_apply": {
            **{name: floats(rng, M, K) for name in ("gradient", "weight", "m")}, "v": np.abs(floats(rng, M, K)),
            "factors": rng.random(12).astype(np.float32), "forget": "before",
        },
        "fp8_to_mxfp4": fp8,
        "mxfp4_to_fp8": {**mxfp4, "scale": "amax"},
        "mxfp4_to_fp8_columns": {**mxfp4, "splits": SPLITS},
        "mxfp4_columns": {**mxfp4, "splits": SPLITS},
        "mxfp4_to_fp8_rows_columns": {**mxfp4, "splits": SPLITS},
        "fp8_columns": {**fp8, "splits": SPLITS},
        "swiglu_quantize": {**pair, "to": "mxfp4"},
        "swiglu_backward": {"grad": bf16(rng, M, K), **pair},
        "pack_payload": mxfp4,
        "unpack_payload": {"payload": bytes_of(rng, M, K // 32 * 17)},
        "quantize_payload": {"x": bf16(rng, M, K)},
        "fp8_to_payload": fp8,
        "permute_unpack": {"payload": bytes_of(rng, T, K // 32 * 17), "row_map": row_map, "splits": SPLITS},
        "matmul_fp8": {
            "a": fp8["codes"], "b": codes(rng, len(SPLITS), 9, K), "a_scales": fp8["scales"],
            "b_scales": scales(rng, len(SPLITS), 9, -(-K // 128)), "order": "split2", "out": "bfloat16",
            "splits": SPLITS,
        },
        "matmul_bf16": {
            "a": bf16(rng, M, K), "b": bf16(rng, len(SPLITS), 9, K), "order": "promote32", "splits": SPLITS,
        },
        "encode_e2m1": {"x": bf16(rng, 2, 3, 70)},
        "encode_e4m3": {"x": floats(rng, 2, 3, 70), "overflow": "nan"},
        "encode_e8m0": {"x": floats(rng, 2, 3, 70), "saturate": True},
        "permute_pad": {"payload": bytes_of(rng, T, K // 32 * 17), "row_map": row_map, "splits": SPLITS},
        "unpermute": {
            "rows": bf16(rng, 64 + 96 + 64, K), "row_map": row_map, "splits": SPLITS,
            "weights": rng.random(M).astype(np.float32), "tokens": T,
        },
    }[name]  # fmt: skip


def wanted(name: str) -> list[Any]:
    """Return the model's results of that call."""
    found = getattr(refnum, name)(**make(name))
    return list(found) if isinstance(found, tuple) else [found]


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with everything in its place, as users do: such calls are planned, and the next comes from the plan."""
    left = dict(arguments)
    places = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = [left.pop(place.name, place.default) for place in places]
    return function(*given, **left)
