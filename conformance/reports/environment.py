"""What a report says about where it was made: versions, flags, environment variables, the model's digest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

from refnum.digest import model_digest

PACKAGES = (
    "refnum",
    "numpy",
    "ml_dtypes",
    "hypothesis",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
    "gfloat",
    "safetensors",
)
OURS = ("REFNUM", "CUPY", "CUDA", "NVRTC", "NVIDIA", "TORCH", "OMP_", "MKL", "NPY_", "HYPOTHESIS", "PYTHONHASHSEED",
        "CXX", "CC", "CFLAGS", "CXXFLAGS")  # fmt: skip
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH")


def versions() -> dict[str, str]:
    """Return the versions of the packages that can change a result, of Python and of the platform."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def variables() -> dict[str, str]:
    """Return the environment variables that can change a result; names that look like secrets are left out."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(OURS) and not any(word in name for word in SECRET)
    }


def environment() -> dict[str, Any]:
    """Return the environment record of reports and replay files."""
    return {"model_digest": model_digest(), "versions": versions(), "variables": variables()}
