"""Other numbers for those of a call, four binades away."""

from __future__ import annotations

import functools

import numpy as np

from refnum.formats import Format

TINY = 32
"""Exponent fields of float32 and bfloat16 up to which a number may have a block scale that is subnormal."""


def between_binades(bits: np.ndarray, fmt: Format) -> np.ndarray:
    """Return what changes bits so that each binade is four away, in pairs; those of tiny numbers, and others, stay.

    A normal number stays one, and one whose block scale is normal stays so too.
    """
    table = _binades(fmt)
    exponent = bits >> bits.dtype.type(fmt.mantissa_bits)
    exponent &= bits.dtype.type(len(table) - 1)
    return table.take(exponent)


@functools.cache
def _binades(fmt: Format) -> np.ndarray:
    """Return for each exponent field of a format what `between_binades` gives."""
    top = (1 << fmt.bits - 1 - fmt.mantissa_bits) - 1
    exponent = np.arange(top + 1)
    other = (exponent - 1 ^ 4) + 1
    moved = (exponent > (TINY if top > TINY else 0)) & (np.maximum(exponent, other) < top)
    return (np.where(moved, exponent ^ other, 0) << fmt.mantissa_bits).astype(f"u{fmt.bits // 8}")
