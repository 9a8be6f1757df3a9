"""The host build of TetraJet (clause N24)."""

from __future__ import annotations

import numpy as np

from ..checks import KINDS
from ..interface import tetrajet
from ..interface.call import U8
from ..interface.tetrajet import Tetrajet
from .call import Array, HostCall, twin

__all__ = ["q_ema", "quantize_tetrajet"]


@twin(tetrajet.quantize_tetrajet)
def quantize_tetrajet(call: HostCall, given: Tetrajet[Array]) -> None:
    """Quantise block by block, to nearest or by random bits that are given or made by a key."""
    random = None if given.random is None else np.ascontiguousarray(given.random, dtype=U8)
    if given.key is not None:
        random = np.empty(given.x.shape, U8)
        call.run("philox_bytes", *given.key, random.size, random)
    rules = given.axis, given.rule, given.away
    call.run("quantize_tetrajet", given.kind, given.x, random, *given.x.shape, *rules, *call.arrays)


@twin(tetrajet.q_ema)
def q_ema(call: HostCall, given: Tetrajet[Array]) -> None:
    """Quantise block by block beside the averages."""
    assert given.ema is not None
    other = KINDS[given.ema.dtype]
    rules = given.axis, given.rule
    call.run("q_ema", given.kind, given.x, other, given.ema, *given.x.shape, *rules, *call.arrays)
