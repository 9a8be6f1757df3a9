"""The frozen table of silu and sigmoid over all 65,536 bfloat16 gates, which the SwiGLU kernels take (N11)."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import FileError

SHA256 = "1b53a40552a13b4d8967a44c45a383614edda6cb0c1084821c86a92e1b07349e"


def path() -> Path:
    """Return the path of the table in the golden model's package; the model is not imported."""
    spec = importlib.util.find_spec("refnum")
    if spec is None or spec.origin is None:
        raise FileError("the package refnum has no folder here; install it from its wheel or its repository")
    return Path(spec.origin).with_name("silu_bf16.bin")


@functools.cache
def silu_table() -> np.ndarray[Any, Any]:
    """Return float32 bits, u32 [2, 65536]: silu, then sigmoid, each by the gate's bits. FileError when damaged."""
    file = path()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FileError(f"{file} cannot be read ({error}); install refnum again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise FileError(f"{file} has sha256 {found}, not {SHA256}; install refnum again")
    return np.frombuffer(data, "<u4").astype(np.uint32).reshape(2, 1 << 16)
