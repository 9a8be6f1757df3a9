"""Rounding to E2M1 as plain PyTorch, for the formulas. Codes one a byte."""

from __future__ import annotations

import torch

T = torch.Tensor


def e2m1(x: T) -> T:
    """Round to E2M1 codes, to nearest even."""
    a = x.abs()
    code = (a > 0.25).to(torch.uint8) + (a >= 0.75) + (a > 1.25) + (a >= 1.75) + (a > 2.5) + (a >= 3.5) + (a > 5.0)
    return code.to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)


def e2m1_stochastic(x: T, random: T) -> T:
    """Round to E2M1 codes, away from zero where eight random bits and the first eight discarded ones carry."""
    a = x.abs()
    low = torch.where(a < 2, 0.0, torch.where(a < 4, 2.0, 4.0))
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    code = torch.where(a < 2, 0, torch.where(a < 4, 4, 6))
    above = ((a - low) / step * 256).to(torch.int32)
    return (code + ((above + random) >> 8)).to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)
