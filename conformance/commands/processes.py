"""What processes of a pool share: each dies with the process that started it, and may keep the memory that it frees."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from contextlib import suppress
from multiprocessing.connection import wait

TRIM_THRESHOLD, MMAP_THRESHOLD, MOST = -1, -3, 1 << 27
"""Two parameters of the C library's `mallopt`, and bytes: of free memory, and of an array, that it keeps."""


def keep_memory() -> None:
    """Make the C library keep freed memory for the next array: a page of the system's is zeroed when it is first used.

    One that has no `mallopt` does as it does.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (TRIM_THRESHOLD, MMAP_THRESHOLD):
            mallopt(parameter, MOST)


def die_with_parent() -> None:
    """End this process when its parent ends: killed, the parent told nobody, and its queue would be waited for."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
