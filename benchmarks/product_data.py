"""Operands and scales of products, drawn on the device that sums them: what a campaign of products asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Pair = tuple[torch.Tensor, torch.Tensor]
FINITE = {"E4M3": 0x7E, "E5M2": 0x7B}
NAN = {"E4M3": 0x7F, "E5M2": 0x7C, "BF16": 0x7F80}
"""A code that is NaN, or of a format with an infinity that infinity."""
FLOATS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2, "BF16": torch.bfloat16}
SPECIAL_ROWS = 64
"""One row of so many holds a NaN or an infinity."""


def _codes(random: torch.Generator, rows: int, k: int, fmt: str, low: int, high: int) -> torch.Tensor:
    """Return codes [rows, k] whose magnitude's bits lie from `low` to `high` - 1, of either sign."""
    wide = {"size": (rows, k), "generator": random, "device": random.device}
    if fmt == "BF16":
        magnitude = torch.randint(low, high, dtype=torch.int32, **wide)
        return (magnitude | torch.randint(0, 2, dtype=torch.int32, **wide) << 15).to(torch.int16)
    return torch.randint(low, high, dtype=torch.uint8, **wide) | torch.randint(0, 2, dtype=torch.uint8, **wide) << 7


def _each(draw: Callable[..., torch.Tensor]) -> Callable[..., Pair]:
    """Return a draw of both operands from a draw of one."""

    def both(random: torch.Generator, m: int, n: int, k: int, formats: tuple[str, str]) -> Pair:
        a, b = (draw(random, rows, k, fmt) for rows, fmt in zip((m, n), formats, strict=True))
        return _given(a, formats[0]), _given(b, formats[1])

    return both


def _given(x: torch.Tensor, fmt: str) -> torch.Tensor:
    return x.view(torch.bfloat16) if fmt == "BF16" else x


def _normal(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    values = torch.randn((rows, k), generator=random, device=random.device) * 16
    return values.to(FLOATS[fmt]).view(torch.int16 if fmt == "BF16" else torch.uint8)


def _finite(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    low, high = (0x3000, 0x4F00) if fmt == "BF16" else (0, FINITE[fmt] + 1)
    return _codes(random, rows, k, fmt, low, high)


def _near(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    return _codes(random, rows, k, fmt, *((0x3E00, 0x4180) if fmt == "BF16" else (0x20, 0x40)))


def _tiny(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    """Subnormal numbers and zeros, and of BF16 numbers whose products are subnormal."""
    return _codes(random, rows, k, fmt, *((0x1C80, 0x2080) if fmt == "BF16" else (0, 9)))


def _special(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    out = _finite(random, rows, k, fmt)
    out[::SPECIAL_ROWS, k // 3] = NAN[fmt]
    return out


def _spread(random: torch.Generator, rows: int, k: int, fmt: str) -> torch.Tensor:
    """Blocks of 128 with exponents of their own, so that sums of runs round, and tell the orders of runs apart."""
    low, high, mantissa = {"E4M3": (1, 14, 3), "E5M2": (1, 28, 2), "BF16": (100, 150, 7)}[fmt]
    out = _codes(random, rows, k, fmt, 0, 2 << mantissa)
    wide = {"generator": random, "device": random.device, "dtype": torch.int32}
    fields = torch.randint(low, high, (rows, -(-k // 128)), **wide).repeat_interleave(128, 1)[:, :k] << mantissa
    sign = 0x8000 if fmt == "BF16" else 0x80
    magnitude = (out.to(torch.int32) & (sign - 1)) + fields
    return (magnitude | (out.to(torch.int32) & sign)).to(out.dtype)


def _cancelling(random: torch.Generator, m: int, n: int, k: int, formats: tuple[str, str]) -> Pair:
    """Sums whose second half takes away the first, but for one term in sixteen."""
    a, b = (_finite(random, rows, k, fmt) for rows, fmt in zip((m, n), formats, strict=True))
    half, sign = k // 2, 0x8000 if formats[0] == "BF16" else 0x80
    turned = (a[:, :half].to(torch.int32) ^ sign).to(a.dtype)
    kept = a[:, k - half :: 16].clone()
    a[:, k - half :], b[:, k - half :] = turned, b[:, :half].clone()
    a[:, k - half :: 16] = kept
    return _given(a, formats[0]), _given(b, formats[1])


KINDS: dict[str, Callable[..., Pair]] = {
    "spread": _each(_spread), "finite": _each(_finite), "near": _each(_near), "normal": _each(_normal),
    "cancelling": _cancelling, "tiny": _each(_tiny), "special": _each(_special),
}  # fmt: skip
"""Name -> draw of (generator, M, N, K, formats), which gives codes u8 or bfloat16 of both operands."""


def scales(random: torch.Generator, kind: str, rows: int, k: int) -> torch.Tensor | None:
    """Return float32 scales of an operand, no powers of two: one item, [rows, 1], or of blocks of 128 of K."""
    blocks = -(-k // 128)
    shapes = {"tensor": (1, 1), "row": (rows, 1), "1x128": (rows, blocks), "128x128": (-(-rows // 128), blocks)}
    if kind == "none":
        return None
    drawn: Any = torch.rand(shapes[kind], generator=random, device=random.device)
    return torch.exp2(drawn * 12 - 6)
