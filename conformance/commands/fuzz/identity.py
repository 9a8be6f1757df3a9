"""The identity of a worker: host, process, device with driver, clocks and ECC counts, and software versions."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import refnum
from refnum.digest import model_digest

from ...reports.environment import versions
from ...reports.gpus import smi

REVISION = "REFNUM_REVISION"
"""Environment variable by which a worker learns the git hash from its parent, which has asked git already."""


@functools.cache
def revision() -> str:
    """Return the git hash of the source tree, `+` appended where it is edited; empty for an installed package."""
    if REVISION in os.environ:
        return os.environ[REVISION]
    root = Path(refnum.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        edits = subprocess.run(["git", "-C", str(root), "status", "--porcelain", "-uno"], capture_output=True,
                               text=True, timeout=10)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if edits.stdout.strip() else "")


def identity() -> dict[str, Any]:
    """Return the record of this process as a worker; `device` is the GPU's UUID, else the host's name."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    cards = smi(visible) if visible and "," not in visible else []
    host = platform.node()
    return {
        "key": f"{host}:{os.getpid()}:{time.time_ns():x}",
        "host": host,
        "pid": os.getpid(),
        "device": cards[0]["uuid"] if cards else f"cpu of {host}",
        "card": cards[0] if cards else {},
        "git": revision(),
        "model": model_digest(),
        "versions": versions(),
    }
