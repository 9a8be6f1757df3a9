"""torch.compile of the plain formula: one compiled function a line."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from ...case import Case
from ...subject import Subject
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line

# operation -> (name of the formula from the line's parameters, what is added to its arguments)
_FORMULAS: dict[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]] = {
    "quantize_mxfp4": lambda p: ("quantize_mxfp4", {}),
    "dequantize_mxfp4": lambda p: ("dequantize_mxfp4", {"dtype": p["dtype"]}),
    "quantize_fp8_tiles": lambda p: ("quantize_fp8_tiles", {"tall": p["tile"][0]}),
    "dequantize_fp8_tiles": lambda p: ("dequantize_fp8_tiles", {"dtype": p["dtype"]}),
    "fp8_to_mxfp4": lambda p: ("fp8_to_mxfp4", {}),
    "mxfp4_to_fp8": lambda p: (f"mxfp4_to_fp8_{p['scale']}", {}),
    "mxfp4_to_fp8_columns": lambda p: (f"mxfp4_to_fp8_columns_{p['scale']}", {}),
    "mxfp4_columns": lambda p: ("mxfp4_columns", {}),
    "fp8_columns": lambda p: ("fp8_columns", {}),
    "swiglu_quantize": lambda p: (f"swiglu_to_{p['to']}", {}),
    "swiglu_backward": lambda p: ("swiglu_backward", {}),
    "pack_payload": lambda p: ("pack_payload", {}),
    "unpack_payload": lambda p: ("unpack_payload", {}),
    "quantize_payload": lambda p: ("quantize_payload", {}),
    "fp8_to_payload": lambda p: ("fp8_to_payload", {}),
    "permute_pad": lambda p: ("gather", {}),
    "permute_unpack": lambda p: ("gather_unpacked", {}),
    "unpermute": lambda p: ("scatter", {"tokens": p.get("tokens")}),
}
_LACKING = {
    ("mxfp4_columns", "scale", "max"): "no formula for the shared maximum",
    ("fp8_columns", "underflow", "te"): "the published kernel's underflow has no plain formula",
}
RAGGED_FORMULAS = ("permute_pad", "permute_unpack", "unpermute")
"""Operations whose formula knows no experts because every expert has whole groups of rows already."""


def missing_torch() -> str:
    """Return why torch cannot be used on a GPU here, or an empty string."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: install refnum[torch]"
    import torch

    return "" if torch.cuda.is_available() else "this torch sees no GPU"


def offers(line: Line) -> str:
    """Return why the formula does not have a line."""
    if line.operation not in _FORMULAS:
        return "no formula"
    if line.profile != "HOPPER":
        return f"the formula follows HOPPER, not {line.profile}"
    for name, value in line.params.items():
        if (line.operation, name, str(value)) in _LACKING:
            return _LACKING[line.operation, name, str(value)]
    if line.experts and line.operation not in RAGGED_FORMULAS:
        return "the formula knows no experts"
    return ""


def formula(operation: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of an operation's formula and what it is given beside the arrays."""
    import torch

    name, extra = _FORMULAS[operation](params)
    if "dtype" in extra:
        extra["dtype"] = getattr(torch, extra["dtype"])
    return name, extra


@functools.cache
def function(name: str) -> Any:
    """Return a formula compiled as one function."""
    import torch

    from . import formulas

    return torch.compile(getattr(formulas, name), fullgraph=True)


def arguments(case: Case) -> tuple[str, dict[str, Any]]:
    """Return the name of a case's formula and its keywords, tensors on the case's memory."""
    name, extra = formula(case.operation, case.params)
    return name, {**{key: to_torch(x) for key, x in case.inputs.items()}, **extra}


def results(case: Case, found: Any) -> list[Any]:
    """Return a formula's results as the golden operation gives them, in the case's own library."""
    import numpy as np

    like = next(iter(case.inputs.values()))
    arrays = [from_torch(x, like) for x in as_tuple(found)]
    if case.operation.startswith("permute"):
        splits = case.params["splits"]
        arrays.append(np.asarray(np.cumsum([0, *splits[:-1]]).astype(np.int64), like=like))
    return arrays


def prepare(line: Line, case: Case) -> Prepared:
    """Make a case ready for its compiled formula."""
    name, keywords = arguments(case)
    run = function(name)
    tensors = [x for x in keywords.values() if hasattr(x, "data_ptr")]
    return Prepared(lambda: run(**keywords), tensors, lambda found: results(case, found))


def describe() -> dict[str, str]:
    """Return the versions of torch and of Triton, which compiles for it."""
    found = {}
    for package in ("torch", "triton"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def contenders(subject: Subject) -> list[Contender]:
    """Return the one contender."""
    return [Contender("torch.compile", offers, prepare, describe, "the plain PyTorch formula, one compiled function")]
