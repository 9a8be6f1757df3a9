"""What a report says about where it was made: versions, flags, environment variables, the model's digest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import refnum
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
VARIABLES = (
    "CC", "CFLAGS", "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
    "CUPY_ACCELERATORS", "CUPY_TF32", "CXX", "CXXFLAGS", "MKL_CBWR", "MKL_NUM_THREADS", "NPY_DISABLE_CPU_FEATURES",
    "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)  # fmt: skip
"""Environment variables that can change a result; no other one is recorded."""


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
    """Return the environment variables of `VARIABLES` that are set; of a path, its last name only."""
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {name: " ".join(Path(word).name for word in value.split()) for name, value in given.items()}


def command_line() -> list[str]:
    """Return the words of the command line as a published record has them: of an absolute path, its last name only.

    A script of the checkout that runs is named from the checkout's root.
    """
    return [_bare(word) for word in sys.argv]


def _bare(word: str) -> str:
    option, equals, value = word.partition("=")
    path = Path(value if equals else option)
    if path.is_absolute():
        root = Path(refnum.__file__).resolve().parents[1]
        value = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return f"{option}{equals}{value}" if equals else value or option


def environment() -> dict[str, Any]:
    """Return the environment record of reports and replay files."""
    return {"model_digest": model_digest(), "versions": versions(), "variables": variables()}
