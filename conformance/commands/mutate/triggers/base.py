"""A right kernel that remembers its last answers: many mutants are asked the same call one after another."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

KEPT = 1 << 24
"""Bytes of answers that are remembered."""


def memorised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose answers to its last calls are copied from memory; errors are not remembered."""
    known: OrderedDict[bytes, Any] = OrderedDict()
    lock, kept = threading.Lock(), 0

    @wraps(function)
    def run(**keywords: Any) -> Any:
        nonlocal kept
        key = _digest(keywords)
        with lock:
            held, result = key in known, known.get(key)
        if not held:
            result = function(**keywords)
        with lock:
            kept += 0 if key in known else _bytes(result)
            known[key] = result
            known.move_to_end(key)
            while len(known) > 1 and kept > KEPT:
                kept -= _bytes(known.popitem(last=False)[1])
        return _copy(result)

    return run


def _digest(keywords: dict[str, Any]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for name, value in keywords.items():
        if isinstance(value, np.ndarray):
            state.update(f"{name} {value.dtype.name} {value.shape}".encode())
            state.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
        else:
            state.update(f"{name} {value!r}".encode())
    return state.digest()


def _copy(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_copy, result))
    return None if result is None else np.array(result, order="C", copy=True)


def _bytes(result: Any) -> int:
    if isinstance(result, tuple):
        return sum(map(_bytes, result))
    return 0 if result is None else int(result.nbytes)
