"""A step of Stable-SPAM whose scalars are known (clause N27.4)."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import DtypeError, ShapeError

from .. import checks
from .call import F32, A, Call

FACTORS = 12
"""Scalars of a step, in the order of `SpamFactors` of the headers."""
FORGETS = ("", "before", "after")
"""In the order of `SpamForget` of the headers."""


class Step(NamedTuple, Generic[A]):
    """The checked arguments: gradient, weight, m and v; the scalars; the number of `forget`."""

    arrays: tuple[A, A, A, A]
    factors: A
    forget: int


def stable_spam_apply(
    call: Call[A], gradient: Any, weight: Any, m: Any, v: Any, factors: Any, forget: str = "", *, out: Any = None
) -> Step[A]:
    """Return weight and moments after a step of Stable-SPAM whose scalars are known (N27.4).

    Args:
        gradient, weight, m, v: float32 of one shape, contiguous on a device.
        factors: float32 [12], the scalars of the step.
        forget: "before" begins from zero moments, "after" gives zero moments, "" neither.
        out: the arrays to write.

    Returns:
        (weight, m, v), float32 in the shape given.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    first = call.look("gradient", gradient)
    others = [call.look(name, x) for name, x in (("weight", weight), ("m", m), ("v", v))]
    scalars = call.look("factors", factors)
    for name, view in zip(("gradient", "weight", "m", "v", "factors"), (first, *others, scalars), strict=True):
        if view.dtype != F32:
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed is float32")
        wanted = (FACTORS,) if name == "factors" else first.shape
        if view.shape != wanted:
            raise ShapeError(f"{name} has shape {view.shape}; allowed is {wanted}")
        call.check_elements(view)
        call.check_beside(view, first)
    call.check_items("factors", scalars)
    number = checks.choice("forget", forget, FORGETS)
    call.outputs(out, [(first.shape, F32)] * 3, [first, *others, scalars])
    return Step((first, others[0], others[1], others[2]), scalars, number)
