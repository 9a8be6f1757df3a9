"""Random words of Philox4x32-10 (N13) as torch tensors, of several streams at once, on the device that needs them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from refnum.philox import Key

Tensor = torch.Tensor
_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
BLOCK = 16
"""Bytes of one block of the generator."""


def random_words(keys: Sequence[Key], counts: Sequence[int], device: torch.device) -> Tensor:
    """Return the first words of several streams, one stream after the other.

    Args:
        keys: of one seed and one step, and each with a stream of its own; offsets are not read.
        counts: words of each stream, multiples of 4.
        device: where they are made.

    Returns:
        int32, the bits of the words, their sum.
    """
    blocks = [torch.arange(count // 4, device=device) for count in counts]
    streams = [torch.full_like(block, key.stream) for block, key in zip(blocks, keys, strict=True)]
    return _words(torch.cat(blocks), torch.cat(streams), keys[0].seed, keys[0].step)


def random_bytes(keys: Sequence[Key], counts: Sequence[int], device: torch.device) -> Tensor:
    """Return the first bytes of several streams, uint8: one for each element of as many tensors.

    Arguments as of `random_words`; counts are multiples of 16.
    """
    return random_words(keys, [count // 4 for count in counts], device).view(torch.uint8)


def _words(block: Tensor, stream: Tensor, seed: int, step: int) -> Tensor:
    """Return the words of blocks, four of each, as int32 bits. int64 products keep their low 64 bits."""
    x, y, z, w = block, torch.zeros_like(block), stream, torch.full_like(block, step)
    first, second = seed & _LOW, seed >> 32
    for _ in range(10):
        left, right = x * _MULTIPLIERS[0], z * _MULTIPLIERS[1]
        x, y = (right >> 32).bitwise_xor_(y).bitwise_xor_(first).bitwise_and_(_LOW), right.bitwise_and_(_LOW)
        z, w = (left >> 32).bitwise_xor_(w).bitwise_xor_(second).bitwise_and_(_LOW), left.bitwise_and_(_LOW)
        first, second = (first + _WEYL[0]) & _LOW, (second + _WEYL[1]) & _LOW
    return torch.stack([x, y, z, w], dim=1).flatten().to(torch.int32)
