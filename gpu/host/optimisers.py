"""The host build of Stable-SPAM's step (clause N27.4)."""

from __future__ import annotations

from ..interface import optimisers
from ..interface.optimisers import Step
from .call import Array, HostCall, twin

__all__ = ["stable_spam_apply"]


@twin(optimisers.stable_spam_apply)
def stable_spam_apply(call: HostCall, given: Step[Array]) -> None:
    """Step weight by weight."""
    call.run("stable_spam_apply", *given.arrays, given.factors, given.forget, given.arrays[0].size, *call.arrays)
