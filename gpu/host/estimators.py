"""The host build of DGE and OCC (clause N25)."""

from __future__ import annotations

from ..checks import KINDS
from ..interface import estimators
from ..interface.estimators import Clamp, Slopes
from .call import Array, HostCall, twin

__all__ = ["dge", "occ"]


@twin(estimators.dge)
def dge(call: HostCall, given: Slopes[Array]) -> None:
    """Compute slopes number by number."""
    x = given.x
    call.run("dge", KINDS[x.dtype], x, x.size, given.k, given.cap, given.wide, given.compat, call.arrays[0])


@twin(estimators.occ)
def occ(call: HostCall, given: Clamp[Array]) -> None:
    """Find the thresholds by selection, then clamp number by number."""
    x = given.x
    call.run("occ", KINDS[x.dtype], x, *x.shape, given.axis, given.lower, given.upper, *call.arrays)
