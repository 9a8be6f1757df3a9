"""Peers: public implementations that install everywhere, judged through the same door as any kernel.

One file a peer, imported when the list is asked for; the library behind it only when an operation runs. A peer that
is not installed stays in the list with the reason. Its known disagreements are data, `DIFFERENCES` in its file.
"""

from __future__ import annotations

import importlib
from typing import Any

PEERS = ("ml_dtypes_casts", "gfloat_blocks", "torch_dtypes", "nvidia_headers")
"""Modules of this package with a `subjects()` and `DIFFERENCES`; adding a peer adds one file and one name here."""


def subjects() -> list[dict[str, Any]]:
    """Return the subjects of every peer, in the form of the entry-point group."""
    return [entry for name in PEERS for entry in importlib.import_module(f"{__name__}.{name}").subjects()]


def differences() -> tuple[Any, ...]:
    """Return every known disagreement of every peer (`difference.Difference`)."""
    return tuple(entry for name in PEERS for entry in importlib.import_module(f"{__name__}.{name}").DIFFERENCES)
