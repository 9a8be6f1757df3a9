"""The host build of logarithmic FP4 (clause N23)."""

from __future__ import annotations

import numpy as np

from ..interface import logarithmic
from ..interface.logarithmic import Luq, Radix4
from .call import Array, HostCall, twin

__all__ = ["dequantize_luq", "dequantize_radix4", "luq", "radix4"]


@twin(logarithmic.luq)
def luq(call: HostCall, given: Luq[Array]) -> None:
    """Quantise element by element under the step of the tensor's maximum, given or found first."""
    assert given.r_under is not None and given.r_log is not None
    packed, alpha = call.arrays
    words = given.r_under.astype(np.uint32), given.r_log.astype(np.uint32)
    divisor = int(np.float32(given.divisor).view(np.uint32))
    call.run("luq", given.kind, given.x, *words, given.x.size, given.number, divisor, given.power, packed, alpha)


@twin(logarithmic.dequantize_luq)
def dequantize_luq(call: HostCall, given: Luq[Array]) -> None:
    """Dequantise element by element."""
    call.run("dequantize_luq", given.x, given.number, 2 * given.x.size, given.kind, call.arrays[0])


@twin(logarithmic.radix4)
def radix4(call: HostCall, given: Radix4[Array]) -> None:
    """Quantise element by element."""
    call.run("radix4", given.kind, given.x, given.x.size, given.exponent, given.threshold, call.arrays[0])


@twin(logarithmic.dequantize_radix4)
def dequantize_radix4(call: HostCall, given: Radix4[Array]) -> None:
    """Dequantise element by element."""
    call.run("dequantize_radix4", given.x, 2 * given.x.size, given.exponent, given.kind, call.arrays[0])
