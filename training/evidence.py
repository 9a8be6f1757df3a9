"""What the witness writes of a mismatch: a replay file of a conversion or product, or the arrays of a layer's step."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

import refnum
from refnum.arrays import BFLOAT16, Array
from refnum.digest import model_digest
from refnum.profiles import get_profile

from .samples import Sample

PROFILED = ("quantize_mxfp4", "quantize_fp8_tiles", "fp8_to_mxfp4", "swiglu_quantize", "quantize_payload",
            "fp8_to_payload")  # fmt: skip
"""Operations that take a profile; the others have its name alone in a replay file."""


def save_sample(sample: Sample, label: str, folder: Path) -> Path:
    """Write a replay file, which `refnum replay FILE` reads, and return its path.

    An operand of a recipe is no operation that can be replayed: its arrays are written, with its rule in the label.
    """
    if sample.operation == "operand":
        return save_arrays(_both(sample), f"{label}; {json.dumps(sample.params)}", folder)
    profile = get_profile(sample.params.get("profile", "HOPPER"))
    body: dict[str, Any] = {
        "schema": "refnum.replay/1",
        "operation": sample.operation,
        "profile": dataclasses.asdict(profile) if sample.operation in PROFILED else {"name": profile.name},
        "params": _params(sample),
        "inputs": _arrays(sample.inputs),
        "expected": _arrays(sample.expected()),
        "observed": _arrays(sample.observed),
        "subject": {"name": "training", "kind": "user"},
        "finding": f"differs from the model in training: {label}",
        "fails": "L0",
        "label": label,
        "recipe": None,
        "shrunk_from": None,
        "environment": {"model_digest": model_digest(), "versions": _versions(), "variables": {}},
    }
    parts = [body[name] for name in ("operation", "profile", "params", "inputs", "expected", "finding")]
    text = json.dumps([*parts, "training"], sort_keys=True, separators=(",", ":"))
    body["id"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return _write(folder / f"{body['id']}.json", json.dumps(body, indent=1).encode())


def _both(sample: Sample) -> dict[str, Array]:
    arrays = {
        **sample.inputs,
        "values.found": sample.observed["values"],
        "values.expected": sample.expected()["values"],
    }
    return {name: one.view(np.uint16) if one.dtype == BFLOAT16 else one for name, one in arrays.items()}


def save_arrays(arrays: Mapping[str, Array], label: str, folder: Path) -> Path:
    """Write the arrays of a step as safetensors, what was found and what is expected, and return the path."""
    metadata = {"label": label, "refnum": refnum.__version__}
    data = bytes(save({name: np.ascontiguousarray(_host(one)) for name, one in arrays.items()}, metadata=metadata))
    return _write(folder / f"step-{hashlib.sha256(data).hexdigest()[:16]}.safetensors", data)


def _host(x: Array) -> np.ndarray:
    return x.get() if hasattr(x, "get") else x


def _params(sample: Sample) -> dict[str, Any]:
    form = {"x": "input"}
    given = {form[name]: one.dtype.name for name, one in sample.inputs.items() if name in form}
    named = {name: value for name, value in sample.params.items() if name != "profile"}
    return dict(sorted({**given, **named}.items()))


def _arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: {"dtype": one.dtype.name, "shape": list(one.shape), "hex": np.ascontiguousarray(one).tobytes().hex()}
        for name, one in arrays.items()
    }


def _write(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
    return path


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("numpy", "torch", "ml_dtypes")}
