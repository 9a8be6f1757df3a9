"""The host build of SwiGLU with quantisation and of its gradients (clause N11)."""

from __future__ import annotations

from typing import Any

from ..checks import KINDS
from ..interface import swiglu
from ..interface.call import public
from ..silu import silu_table
from .call import Array, HostCall, twin

__all__ = ["swiglu_backward", "swiglu_quantize"]


@twin(swiglu.swiglu_quantize)
def swiglu_quantize(call: HostCall, given: swiglu.Forward[Array]) -> None:
    """Quantise the product to tiles or to blocks."""
    gate, up, prob, mxfp4, rules = given
    function, options = ("swiglu_quantize_mxfp4", rules) if mxfp4 else ("swiglu_quantize_fp8", rules[:1])
    call.run(function, silu_table(), gate, up, prob, *gate.shape, *options, *call.arrays)


@twin(swiglu.swiglu_backward)
def _backward(call: HostCall, given: swiglu.Backward[Array]) -> None:
    """Compute the gradients row by row; without weights there is no third one."""
    grad, gate, up, prob = given
    results = [*call.arrays, *([None] if prob is None else [])]
    call.run("swiglu_backward", silu_table(), KINDS[grad.dtype], grad, gate, up, prob, *gate.shape, *results)


@public(swiglu.swiglu_backward, _backward)
def swiglu_backward(*args: Any, **kwargs: Any) -> Any:
    """As described, with None in the place of a dprob that is not there."""
    return swiglu.three(_backward(*args, **kwargs))
