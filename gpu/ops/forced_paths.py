"""Code paths that launchers choose by size alone, and contexts that force one of them for calls of every size."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

from ..device import plans
from . import payload_permute, payload_sum, swiglu


@contextlib.contextmanager
def _bound(module: ModuleType, name: str, value: int) -> Iterator[None]:
    """Replace a launcher's bound and drop all plans, before and after. No other thread may call at the same time."""
    before = getattr(module, name)
    plans.forget()
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
        plans.forget()


_ALONE = {"one CTA takes all": functools.partial(_bound, swiglu, "STAYING", 1)}
_ONCE = {"every row read once": functools.partial(_bound, payload_permute, "ONCE", 0)}
FORCED_PATHS: Mapping[str, Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]]] = {
    "permute_pad": _ONCE,
    "permute_unpack": _ONCE,
    "unpermute": {"lists in memory": functools.partial(_bound, payload_sum, "TOGETHER", 0)},
    "swiglu_quantize": _ALONE,
    "swiglu_backward": _ALONE,
}
"""Operation -> name of a path -> a context in which its launcher takes that path wherever it can."""
