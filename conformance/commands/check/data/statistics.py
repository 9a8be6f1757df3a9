"""What quantisation does to a tensor: saturation, underflow, scales, distances, signal to noise.

These numbers describe data and are no verdicts, so they may use float64, in which every value here is exact.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import refnum
from refnum.errors import ArgumentError
from refnum.formats import E2M1, E4M3, Format

CHUNK = 1 << 20


def statistics(x: np.ndarray, operation: str = "quantize_mxfp4", profile: str = "HOPPER") -> dict[str, Any]:
    """Return what `quantize_mxfp4` or `quantize_fp8_tiles` (1x128) does to x, [M, K] of a float input dtype.

    elements; nonfinite: NaN and Inf elements; saturated: finite elements beyond the largest value at their
    scale; underflowed: finite non-zero elements that became 0; zero: elements that are 0 in x;
    scales: E8M0 byte -> blocks; nan_blocks, zero_blocks (all elements 0); sqnr_db: 10 log10 of the signal's
    energy over the error's, finite elements of ordinary blocks only, None where there is no error or no signal;
    error_free: whether every such element came back exactly; distances (MXFP4): binades between a block's
    scale and the largest of its 1x128 tile -> blocks, empty and NaN blocks left out.
    All values are JSON values; histogram keys are strings. Raises ArgumentError for another operation.
    """
    if operation not in ("quantize_mxfp4", "quantize_fp8_tiles"):
        raise ArgumentError(f"operation={operation!r} has no statistics; choose quantize_mxfp4 or quantize_fp8_tiles.")
    counts: Counter[str] = Counter()
    scales: Counter[int] = Counter()
    distances: Counter[int] = Counter()
    energy = np.zeros(2)
    rows = max(1, CHUNK // max(1, x.shape[1]))
    for start in range(0, x.shape[0], rows):
        part = _part(x[start : start + rows], operation, profile)
        counts.update(part["counts"])
        scales.update(part["scales"])
        distances.update(part["distances"])
        energy += part["energy"]
    result: dict[str, Any] = {"elements": int(x.size)}
    for name in ("nonfinite", "saturated", "underflowed", "zero", "nan_blocks", "zero_blocks"):
        result[name] = int(counts[name])
    result["scales"] = {str(byte): int(count) for byte, count in sorted(scales.items())}
    result["sqnr_db"] = float(10 * np.log10(energy[0] / energy[1])) if energy.all() else None
    result["error_free"] = bool(energy[1] == 0)
    if operation == "quantize_mxfp4":
        result["distances"] = {str(distance): int(count) for distance, count in sorted(distances.items())}
    return result


def tensor_statistics(x: np.ndarray, profile: str = "HOPPER") -> dict[str, dict[str, Any]]:
    """Return {"mxfp4": ..., "fp8": ...}, see `statistics`."""
    return {"mxfp4": statistics(x, "quantize_mxfp4", profile), "fp8": statistics(x, "quantize_fp8_tiles", profile)}


def _part(x: np.ndarray, operation: str, profile: str) -> dict[str, Any]:
    chosen = refnum.get_profile(profile)
    block, element = (32, E2M1) if operation == "quantize_mxfp4" else (128, E4M3)
    if operation == "quantize_mxfp4":
        rbits = np.zeros(x.shape, np.uint32) if chosen.rounding == "stochastic" else None
        codes, scales = refnum.quantize_mx(x, E2M1, chosen, rbits=rbits)
        values = refnum.dequantize_mx(codes, scales, E2M1)
    else:
        codes, scales = refnum.quantize_fp8_tiles(x, (1, 128), chosen)
        values = refnum.dequantize_fp8_tiles(codes, scales)
    wide = x.astype(np.float64)
    byte = np.repeat(scales, block, axis=1)[:, : x.shape[1]]
    return {"counts": _counts(wide, codes, byte, scales, element, block),
            "scales": dict(zip(*(part.tolist() for part in np.unique(scales, return_counts=True)), strict=True)),
            "distances": _distances(codes, scales) if block == 32 else {},
            "energy": _energy(wide, values.astype(np.float64), byte)}  # fmt: skip


def _counts(
    x: np.ndarray, codes: np.ndarray, byte: np.ndarray, scales: np.ndarray, element: Format, block: int
) -> dict[str, int]:
    finite = np.isfinite(x) & (byte != 255)
    top = float(element.max_value) * np.ldexp(1.0, byte.astype(int) - 127)
    magnitude = codes & np.uint8(element.sign_mask - 1)
    missing = -x.shape[1] % block
    blocks = np.pad(x == 0, ((0, 0), (0, missing)), constant_values=True).reshape(x.shape[0], -1, block)
    return {"nonfinite": int((~np.isfinite(x)).sum()), "zero": int((x == 0).sum()),
            "saturated": int((finite & (np.abs(np.where(finite, x, 0)) > top)).sum()),
            "underflowed": int((finite & (x != 0) & (magnitude == 0)).sum()),
            "nan_blocks": int((scales == 255).sum()), "zero_blocks": int(blocks.all(axis=-1).sum())}  # fmt: skip


def _energy(x: np.ndarray, values: np.ndarray, byte: np.ndarray) -> np.ndarray:
    """Energy of the signal and of the error over finite elements of blocks that are not NaN."""
    usable = np.isfinite(x) & np.isfinite(values) & (byte != 255)
    signal = np.where(usable, x, 0.0)
    error = signal - np.where(usable, values, 0.0)
    return np.array([np.sum(signal * signal), np.sum(error * error)])


def _distances(codes: np.ndarray, scales: np.ndarray) -> dict[int, int]:
    rows, blocks = scales.shape
    empty = ((codes & 7) == 0).reshape(rows, blocks, 32).all(axis=-1) | (scales == 255)
    level = np.where(empty, -1, scales.astype(int))
    missing = -blocks % 4
    level = np.pad(level, ((0, 0), (0, missing)), constant_values=-1).reshape(rows, -1, 4)
    below = level.max(axis=-1, keepdims=True) - level
    distance, count = np.unique(below[level >= 0], return_counts=True)
    return dict(zip(distance.tolist(), count.tolist(), strict=True))
