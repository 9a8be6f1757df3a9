"""The host build of TetraJet (clause N24)."""

from __future__ import annotations

from ..checks import KINDS
from ..interface import tetrajet
from ..interface.tetrajet import Tetrajet
from .call import Array, HostCall, twin

__all__ = ["q_ema", "quantize_tetrajet"]


@twin(tetrajet.quantize_tetrajet)
def quantize_tetrajet(call: HostCall, given: Tetrajet[Array]) -> None:
    """Quantise block by block, to nearest or by random bits that are given or made by a key."""
    random = call.drawn_bytes(given.random, given.key, given.x.shape)
    rules = given.axis, given.rule, given.away
    call.run("quantize_tetrajet", given.kind, given.x, random, *given.x.shape, *rules, *call.arrays)


@twin(tetrajet.q_ema)
def q_ema(call: HostCall, given: Tetrajet[Array]) -> None:
    """Quantise block by block beside the averages."""
    assert given.ema is not None
    other = KINDS[given.ema.dtype]
    rules = given.axis, given.rule
    call.run("q_ema", given.kind, given.x, other, given.ema, *given.x.shape, *rules, *call.arrays)
