"""What processes of a pool share: each dies with the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait


def die_with_parent() -> None:
    """End this process when its parent ends: killed, the parent told nobody, and its queue would be waited for."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
