"""Scale layouts and nibble orders by definition (N0, N6)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from refnum import oracle

from ..load import Vector


def scales_to_swizzled(vector: Vector) -> Any:
    """N6: byte ((r/128) * ceil(C/4) + c/4) * 512 + (r%32) * 16 + (r%128)/32 * 4 + c%4 holds scale (r, c)."""
    rows, columns = vector.inputs["scales"].shape
    wide = (columns + 3) // 4
    out = [0] * ((rows + 127) // 128 * wide * 512)
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = byte
    return (out,)


def scales_to_packed_ue8m0(vector: Vector) -> Any:
    """N6: word [q, r] holds scales [r, 4q .. 4q+3], the first in the lowest byte."""
    rows, columns = vector.inputs["scales"].shape
    out = [[0] * ((rows + 3) // 4 * 4) for _ in range((columns + 3) // 4)]
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[c // 4][r] += byte << 8 * (c % 4)
    return (out,)


def scales_to_gemm_float32(vector: Vector) -> Any:
    """N6: transposed float32, rows padded to four with 0.0."""
    rows, columns = vector.inputs["scales"].shape
    out = [[0] * ((rows + 3) // 4 * 4) for _ in range(columns)]
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[c][r] = oracle.float_bits(oracle.decode("E8M0", byte))
    return (out,)


def scales_from_layout(vector: Vector) -> Any:
    """N6.5: every place of the layout that holds a scale is read; padding is not."""
    rows, columns, layout = (vector.params[name] for name in ("rows", "columns", "layout"))
    flat = vector.inputs["stored"].reshape(-1)
    words = flat.view(f"u{flat.dtype.itemsize}").tolist()
    tall, wide = (rows + 3) // 4 * 4, (columns + 3) // 4
    place: dict[str, Callable[[int, int], int]] = {
        "bytes": lambda r, c: words[r * columns + c],
        "float32": lambda r, c: _scale_byte(words[r * columns + c]),
        "gemm_float32": lambda r, c: _scale_byte(words[c * tall + r]),
        "packed_ue8m0": lambda r, c: words[c // 4 * tall + r] >> 8 * (c % 4) & 255,
        "swizzled": lambda r, c: words[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4],
    }
    return ([[place[layout](r, c) for c in range(columns)] for r in range(rows)],)


def _scale_byte(bits: int) -> int:
    """The byte of a float32 scale by its value: NaN is 255, 2^-127 is 0."""
    value = oracle.float_value(bits)
    return 255 if value == oracle.NAN else oracle.floor_log2(Fraction(value)) + 127


def codes_to_packed(vector: Vector) -> Any:
    """N0: where the partner of each code sits in the three nibble orders."""
    out = []
    for line in vector.inputs["codes"].tolist():
        packed = []
        for j in range(len(line) // 2):
            low, high = 2 * j, 2 * j + 1
            if vector.params["order"] == "high_first":
                low, high = high, low
            elif vector.params["order"] == "ggml":
                low = j // 16 * 32 + j % 16
                high = low + 16
            packed.append(line[low] + 16 * line[high])
        out.append(packed)
    return (out,)
