"""The golden model's own digest: what a report, a certificate or a replay file was made by."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def model_digest() -> str:
    """Return SHA-256 over the golden model's source files (names and bytes, in order of name)."""
    root = Path(__file__).parent
    state = hashlib.sha256()
    for path in sorted([*root.glob("*.py"), *root.glob("oracle/*.py")]):
        state.update(path.relative_to(root).as_posix().encode() + b"\0")
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return "sha256:" + state.hexdigest()
