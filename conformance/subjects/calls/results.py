"""What results must be: contiguous, writable, apart from each other, and the caller's own for good."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ...cases.findings import Finding
from ..arrays import is_contiguous, share_memory, to_numpy

PLAIN = ("ndarray", "Tensor")
"""Classes of plain arrays of NumPy and CuPy, and of torch."""
KEPT, LARGEST = 3, 1 << 22
"""Calls of an operation whose results are held, and bytes of the largest result that is."""
ROUND, MOST_ASKED = 10, 24
"""Calls after which a buffer of several that are handed out in turn comes round, and times that they are made."""
_asked: Counter[tuple[str, str]] = Counter()
BESIDE = 3
"""References to the memory of a result that `kept_elsewhere` itself has: a list, a variable and an argument."""
_held: dict[tuple[str, str], deque[list[tuple[Any, bytearray | None]]]] = {}
"""Subject and operation -> results of its latest calls, each with a copy of its bytes, which is compared with the
memory itself, at once."""
Found = tuple[str, str] | None


def made_wrong(live: tuple[Any, ...], turned: Collection[tuple[int, ...]] = ()) -> Found:
    """Return how results are no arrays of a caller's own, as finding and words, or None.

    turned: shapes of inputs whose columns lie together: a result of such a shape may lie with its axes in any order.
    """
    for number, result in enumerate(live):
        if not (type(result) is np.ndarray and result.flags.c_contiguous and result.flags.writeable):
            found = _wrong(number, result, turned)
            if found:
                return found
        for other in range(number):
            if share_memory(live[other], result):
                return Finding.OVERLAP, f"results {other} and {number} share memory: writing one changes the other"
    return None


def _wrong(number: int, result: Any, turned: Collection[tuple[int, ...]]) -> Found:
    """Return how one result is no plain array that a caller can write; see `made_wrong`."""
    if type(result).__name__ not in PLAIN and any(kind.__name__ in PLAIN for kind in type(result).__mro__):
        return Finding.SUBCLASS, f"result {number} is a {type(result).__name__}, which computes otherwise"
    if getattr(result, "requires_grad", False):
        return Finding.SUBCLASS, f"result {number} requires a gradient, which no input does"
    if 0 not in result.shape and not is_contiguous(result, any_order=tuple(result.shape) in turned):
        return Finding.NOT_CONTIGUOUS, f"result {number} is not contiguous"
    if isinstance(result, np.ndarray) and result.size and not result.flags.writeable:
        return Finding.READ_ONLY, f"result {number} cannot be written"
    return None


def held_before(key: tuple[str, str], live: tuple[Any, ...]) -> Found:
    """Return how a call spoiled the results of one of the calls before it, as finding and words, or None.

    key: subject and operation. live: results of this call, which are held from now on. Bytes of those on a device are
    not compared: an array that is held is nobody else's, so that a later result in its memory tells enough.
    """
    calls = _held.setdefault(key, deque(maxlen=KEPT))
    found: Found = None
    for earlier in calls:
        for kept, data in earlier:
            if data is not None and data != _bytes(kept):
                found = (
                    Finding.HELD,
                    "a result of an earlier call changed: it is the subject's buffer",
                )
            elif any(share_memory(kept, result) for result in live):
                found = found or (Finding.HELD, "a result lies in the memory of an earlier call's result")
    if found:
        calls.clear()
    own = [result for result in live if 0 < result.nbytes <= LARGEST]
    calls.append([(result, bytearray(_bytes(result)) if _is_here(result) else None) for result in own])
    return found


def own(
    key: tuple[str, str],
    live: tuple[Any, ...],
    again: Callable[[], tuple[Any, ...]],
    turned: Collection[tuple[int, ...]] = (),
) -> Found:
    """Return how results are not what a caller can own, as finding and words, or None.

    key: subject and operation. turned: as in `made_wrong`. again: makes the call once more; it is made where
    something else than the results holds their memory, for a buffer that comes round shows in a later call only.
    """
    found = made_wrong(live, turned) or held_before(key, live)
    if found or not kept_elsewhere(live) or _asked[key] >= MOST_ASKED:
        return found
    _asked[key] += 1
    for _ in range(ROUND):
        if any(share_memory(one, other) for one in again() for other in live):
            return Finding.HELD, "a result lies in the memory of an earlier call's result"
    return None


def kept_elsewhere(live: tuple[Any, ...]) -> bool:
    """Whether the memory that a result is a part of is referred to by more than the results."""
    for base in [result.base for result in live if isinstance(result, np.ndarray)]:
        if isinstance(base, np.ndarray):
            views = sum(getattr(result, "base", None) is base for result in live)
            if sys.getrefcount(base) > views + BESIDE:
                return True
    return False


def _is_here(array: Any) -> bool:
    return isinstance(array, np.ndarray) or str(getattr(array, "device", "")) == "cpu"


def _bytes(array: Any) -> memoryview:
    return np.ascontiguousarray(to_numpy(array)).reshape(-1).view(np.uint8).data
