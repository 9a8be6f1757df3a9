"""Operands in formats that Hopper does not multiply, quantised and dequantised by torch on the device that has them.

Each function does for all experts at once what the golden operations do expert by expert, in the same float32
operations, so that every bit is the same; the layer's tests compare them with the golden layer, and the witness judges
them while a model trains. Numbers are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from refnum.philox import Key

from .words import random_bytes, random_words

Tensor = torch.Tensor
BF16 = torch.bfloat16
LARGEST = torch.finfo(torch.float32).max
_SIXTH = 0.1666666716337204
"""fl(1/6)."""
_PART = 0.0003720238164532930
"""fl(1/2688)."""


@dataclass(frozen=True)
class Experts:
    """How a matrix is divided among experts: `sizes` rows (dim 0) or columns (dim 1) of each, none of them odd."""

    dim: int
    sizes: tuple[int, ...]

    def parts(self, x: Tensor, by: int = 1) -> list[Tensor]:
        """Return each expert's part of a matrix that has one element for `by` of theirs along the divided side."""
        return list(x.split([size // by for size in self.sizes], dim=self.dim))

    def spread(self, values: Tensor, by: int = 1) -> Tensor:
        """Return one number for each expert, [experts], in the shape that broadcasts over the matrix."""
        parts = [one.expand(size // by) for one, size in zip(values, self.sizes, strict=True)]
        return torch.cat(parts).unsqueeze(1 - self.dim)

    def largest(self, x: Tensor, by: int = 1) -> Tensor:
        """Return the largest number of each expert, 0 where it has none, [experts]."""
        found = [part.amax() if part.numel() else x.new_zeros(()) for part in self.parts(x, by)]
        return torch.stack(found)

    def bytes(self, keys: Sequence[Key], x: Tensor) -> Tensor:
        """Return a random byte for each element of the matrix, in each expert's part row by row."""
        return self._drawn(random_bytes, keys, x)

    def words(self, keys: Sequence[Key], x: Tensor) -> Tensor:
        """Return the bits of a random word for each element of the matrix, likewise, int32."""
        return self._drawn(random_words, keys, x)

    def _drawn(self, draw: Callable[..., Tensor], keys: Sequence[Key], x: Tensor) -> Tensor:
        shapes = [part.shape for part in self.parts(x)]
        counts = [shape.numel() for shape in shapes]
        parts = draw(keys, counts, x.device).split(counts)
        return torch.cat([part.view(shape) for part, shape in zip(parts, shapes, strict=True)], dim=self.dim)

    def turned(self, x: Tensor) -> tuple[Tensor, Experts]:
        """Return each expert's part transposed, rows of one expert below those of another where they are beside."""
        if self.dim:
            return x.t().contiguous(), Experts(0, self.sizes)
        count = len(self.sizes)
        found = x.view(count, -1, x.shape[1]).transpose(1, 2).reshape(-1, x.shape[0] // count)
        return found, Experts(0, (x.shape[1],) * count)


@dataclass(frozen=True)
class Coded:
    """A quantised matrix [M, K].

    values: bfloat16. elements: float32, those that codes stand for. scales: E4M3 codes, uint8, one a block. amax:
    float32 [experts].
    """

    values: Tensor
    elements: Tensor
    scales: Tensor
    amax: Tensor


def nvfp4(x: Tensor, tile: tuple[int, int], experts: Experts, keys: Sequence[Key] = ()) -> Coded:
    """Quantise to NVFP4, variant TE, each expert with its own maximum (N21).

    Args:
        x: bfloat16 [M, K].
        tile: (1, 16) or (16, 16).
        experts: how the matrix is divided.
        keys: of the random words of each expert; none for rounding to nearest.

    Returns:
        The codes and their values.
    """
    m, k = x.shape
    blocks = x.float().view(m, k // 16, 16)
    amax = blocks.abs().amax(2)
    if tile[0] == 16:
        amax = amax.view(m // 16, 16, k // 16).amax(1)
    by = 16 if experts.dim or tile[0] == 16 else 1
    each = experts.largest(amax, by)
    tensor = experts.spread(each, by)
    whole = (torch.full_like(tensor, 2688.0) / tensor).clamp_(max=LARGEST)
    whole = torch.where((tensor == 0) | (whole == 0), 1.0, whole)
    scales = (amax * (whole * _SIXTH)).clamp_(max=448.0).to(torch.float8_e4m3fn)
    wide = scales.float()
    factor = (1.0 / (wide * (1.0 / whole))).clamp_(max=LARGEST)
    back = wide * tensor * _PART
    if tile[0] == 16:
        factor, back = (one.repeat_interleave(16, dim=0) for one in (factor, back))
    y = blocks * factor.unsqueeze(2)
    drawn = experts.bytes(keys, x).view(y.shape) if keys else None
    elements = e2m1(y) if drawn is None else e2m1_at_random(y, drawn)
    values = (elements * back.unsqueeze(2)).to(BF16)
    return Coded(values.view(m, k), elements.view(m, k), scales.view(torch.uint8), each)


def quantum(y: Tensor) -> Tensor:
    """Return the distance of E2M1's numbers around each number: 1/2 below 2, 1 below 4, and 2."""
    binade = (y.view(torch.int32) & 0x7F800000).view(torch.float32)
    return binade.clamp_(1.0, 4.0).mul_(0.5)


def e2m1(y: Tensor) -> Tensor:
    """Return the nearest numbers of E2M1, ties to even, saturating, with the sign of a zero."""
    far = quantum(y).mul_(1.5 * 2.0**23)
    return y.clamp(-6.0, 6.0).add_(far).sub_(far).copysign_(y)


def e2m1_at_random(y: Tensor, drawn: Tensor) -> Tensor:
    """Return numbers of E2M1 by stochastic rounding with eight bits an element (N2.6); drawn: uint8 as y."""
    step = quantum(y).div_(256.0)
    parts = y.abs().clamp_(max=6.0).div_(step).floor_().add_(drawn).div_(256.0).floor_()
    return parts.mul_(step.mul_(256.0)).copysign_(y)


def packed(elements: Tensor) -> Tensor:
    """Return the E2M1 codes uint8 [M, K/2] of numbers [M, K], the even element in the low nibble."""
    size = elements.abs()
    number = torch.where(size < 2, size * 2, torch.where(size < 4, size + 2, size / 2 + 4))
    codes = number.to(torch.uint8) | elements.signbit().to(torch.uint8) << 3
    return codes[:, ::2] | codes[:, 1::2] << 4
