"""Operands of TetraJet, SAWB, LUQ, radix 4 and E2M1 vectors by torch, as `forms` has those of NVFP4 (N28.4).

Each function takes a bfloat16 matrix [M, K] of all experts and returns its bfloat16 values, each expert's by its own
statistics; the float32 operations are those of the golden functions, so that every bit is the same. Numbers are finite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from refnum.estimators import dge
from refnum.philox import Key

from .forms import BF16, Experts, e2m1, e2m1_at_random, quantum
from .recipes import KEPT, RADIX4_N0, Operand

Tensor = torch.Tensor
_FIRST, _SECOND = 12.1, 12.2


def values(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return the values of an operand's codes; `average`: float32 [M, K] where one chooses them."""
    return FORMS[operand.form](x, operand, experts, keys, average)


def tetrajet(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return MXFP4 by the rule `truncation_free` in blocks of a row (N24.2 to N24.4), or by the average (N24.7)."""
    m, k = x.shape
    blocks = x.float().view(m, k // 32, 32)
    byte = _block_bytes(blocks.abs().amax(2)).unsqueeze(2)
    inverse, scale = _power(254 - byte), _power(byte)
    y = blocks * inverse
    if average is not None:
        found = _chosen(y, average.view(y.shape) * inverse)
    else:
        found = e2m1_at_random(y, experts.bytes(keys, x).view(y.shape)) if keys else e2m1(y)
    return (found * scale).to(BF16).view(m, k)


def _block_bytes(amax: Tensor) -> Tensor:
    """Return E8M0 bytes, int32, of the largest magnitudes: the least power of two from bf16(fl(a / 6)) on."""
    sixth = (amax / torch.full_like(amax, 6.0)).to(BF16).view(torch.int16).to(torch.int32)
    field, fraction = sixth >> 7, sixth & 127
    byte = torch.where(field == 0, (fraction > 64).to(torch.int32), field + (fraction != 0))
    return torch.where(amax == 0, 98, byte.clamp_(max=254))


def _power(byte: Tensor) -> Tensor:
    """Return 2**(byte - 127), float32, of bytes 0 to 254."""
    return torch.where(byte == 0, 0x00400000, byte << 23).to(torch.int32).view(torch.float32)


def _chosen(y: Tensor, average: Tensor) -> Tensor:
    """Return of each scaled weight the neighbour that the scaled average is nearer to, from the middle on the upper."""
    size = y.abs().clamp_(max=6.0)
    step = quantum(size)
    low = (size / step).floor_() * step
    wide = quantum(low)
    up = (average * torch.ones_like(y).copysign_(y) >= low + wide * 0.5) & (y != 0) & (low < 6.0)
    return torch.where(up, low + wide, low).copysign_(y)


def sawb(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return INT4 under the clip of SAWB (N26.1)."""
    wide = x.float()
    scale = experts.spread(_sawb_scales(x, experts))
    found = (wide / scale).round_().clamp_(-8.0, 7.0).add_(0.0)  # an integer has one zero
    return torch.where(wide == 0, 0.0, found * scale).to(BF16)


def _sawb_scales(x: Tensor, experts: Experts) -> Tensor:
    """Return fl(fl(2 clip) / 15) of each expert, float32 [experts].

    The clip's means are sums in float64, rounded once, and not exact ones: the device need not be waited for. They are
    those of N26.1 but where a mean is nearer than about 2**-49 of itself to the middle of two float32 numbers.
    """
    sums = [torch.stack([part.square().sum(), part.abs().sum()]) / max(part.numel(), 1)
            for part in (one.double() for one in experts.parts(x))]  # fmt: skip
    square, mean = torch.stack(sums).float().unbind(1)
    clip = square.double().sqrt().float() * _FIRST - mean * _SECOND
    clip = torch.where(clip > 0, clip, experts.largest(x.abs()).float())
    return clip * 2 / torch.full_like(clip, 15.0)


def luq(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return [1,3,0] codes' values by LUQ with divisor 64 (N23.2 to N23.6); without keys each choice is the nearest."""
    wide = x.float()
    alpha = experts.spread(experts.largest(wide.abs()) / 64)
    quotient = wide.abs() / alpha
    bits = quotient.view(torch.int32)
    word = experts.words(keys, x) if keys else None
    under = 0.5 if word is None else (word >> 8 & 0xFFFFFF).to(torch.float32) * 2.0**-24
    more = 1 << 22 if word is None else word >> 9 & 0x7FFFFF
    level = ((bits >> 23).clamp_(min=127) - 126 + (((bits & 0x7FFFFF) + more) >> 23)).clamp_(max=7)
    level = torch.where(quotient >= 1, level, (quotient > under).to(torch.int32))
    power = ((level + 126) << 23).view(torch.float32)
    found = torch.where((level > 0) & (wide != 0), (power * alpha).copysign_(wide), 0.0)
    return found.to(BF16)


def radix4(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return powers of four, or twice those (N23.8), of the matrix times a power of two: the one that N28.4 says."""
    wide = x.float()
    bits = experts.largest(wide.abs()).view(torch.int32)
    field = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    field = torch.where(bits == 0, 127, field.clamp_(1, 253))
    scale, back = (experts.spread(_power(one)) for one in (254 - field, field))
    bounds, table = _levels(operand.phase, x.device)
    found = table[torch.bucketize(wide.abs() * scale, bounds)] * back
    return torch.where(found > 0, found.copysign(wide), 0.0).to(BF16)


@functools.lru_cache(maxsize=8)
def _levels(phase: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the largest magnitude below each level, five eighths of it, and the levels after zero."""
    levels = [(1 + (phase == "odd")) * 4.0 ** (RADIX4_N0 + c) for c in range(7)]
    return torch.tensor([0.625 * one for one in levels], device=device), torch.tensor([0.0, *levels], device=device)


def vectors(x: Tensor, operand: Operand, experts: Experts, keys: Sequence[Key], average: Tensor | None) -> Tensor:
    """Return E2M1 under the scale 6 / amax of each row (N25.5), with what OCC cut off added again."""
    kept = clamped(x, experts) if operand.clamped else x
    wide = kept.float()
    scale = row_scales(wide)
    found = (e2m1(wide * scale) / scale).to(BF16)
    return (found.float() + (x.float() - wide).to(BF16).float()).to(BF16) if operand.clamped else found


def row_scales(wide: Tensor) -> Tensor:
    """Return fl(6 / amax) of each row of float32 [..., K], 1 where that is Inf."""
    amax = wide.abs().amax(-1, keepdim=True)
    scale = torch.full_like(amax, 6.0) / amax
    return torch.where(scale.isinf(), 1.0, scale)


def clamped(x: Tensor, experts: Experts) -> Tensor:
    """Return the matrix between two order statistics of each expert (N25.4)."""
    bits = x.view(torch.int16).to(torch.int32)
    keys = torch.where(bits < 0, -32769 - bits, bits)
    found = []
    for part in experts.parts(keys):
        order, n = part.reshape(-1).sort().values, part.numel()
        low, high = (KEPT[1] - KEPT[0]) * n // KEPT[1], min(KEPT[0] * n // KEPT[1], n - 1)
        found.append(part.clamp(order[low], order[high]) if n else part)
    inside = torch.cat(found, dim=experts.dim)
    return torch.where(inside < 0, -32769 - inside, inside).to(torch.int16).view(BF16)


@functools.lru_cache(maxsize=8)
def _slopes(device: torch.device) -> Tensor:
    """Return the slope of DGE at all bfloat16 numbers, float32 [65536]."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    return torch.from_numpy(dge(patterns).view(np.uint16).copy()).view(BF16).float().to(device)


def estimated(dw: Tensor, weight: Tensor) -> Tensor:
    """Return gradients of weights, bfloat16 [..., N, K], times DGE's slope at the scaled weights."""
    wide = weight.float()
    placed = (wide * row_scales(wide)).to(BF16)
    slope = _slopes(dw.device)[placed.view(torch.int16).to(torch.int64) & 0xFFFF]
    return (dw.float() * slope).to(BF16)


FORMS: dict[str, Callable[[Tensor, Operand, Experts, Sequence[Key], Tensor | None], Tensor]] = {
    "tetrajet": tetrajet, "sawb": sawb, "luq": luq, "radix4": radix4, "vectors": vectors,
}  # fmt: skip
"""Form of an operand -> its function."""
