"""torch.compile of the plain formula: one compiled function a line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnum.arrays import Array

from ....cases import layouts
from ....cases.case import Case
from ....subjects.peers import foreign, formulas
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line
from ..shapes import ALIGN

LIMIT = 10_000
"""Graphs that torch may compile of one formula: one a dtype and shape. It gives up after eight unless told."""
STACKED = ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "fp8_columns")
"""Operations whose tiles of 128 rows begin anew at every expert: their formula is given experts of whole tiles."""
TALL = 128
WHOLE = ("mxfp4_columns", "permute_pad", "permute_unpack", "unpermute")
"""Operations whose formula takes experts of whole groups of rows: it knows no short blocks and no padding."""


def _layouts(p: Mapping[str, Any]) -> dict[str, Any]:
    return {name: p[name] for name in (layouts.IN, layouts.OUT) if name in p}


def _quantize_mxfp4(p: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if p["profile"] == "STOCHASTIC":
        return ("quantize_mxfp4_random" if "philox" in p else "quantize_mxfp4_stochastic"), {}
    return "quantize_mxfp4", {**({"rule": "floor"} if p["profile"] == "OCP" else {}), **_layouts(p)}


def _columns(operation: str) -> Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]:
    return lambda p: (f"{operation}_{p['scale']}" + "_experts" * ("splits" in p), {})


# operation -> (name of the formula from a case's parameters and profile, what is added to its arrays)
_FORMULAS: dict[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]] = {
    "quantize_mxfp4": _quantize_mxfp4,
    "dequantize_mxfp4": lambda p: ("dequantize_mxfp4", {"dtype": p["dtype"], **_layouts(p)}),
    "quantize_fp8_tiles": lambda p: ("quantize_fp8_tiles", {"tall": p["tile"][0], **_layouts(p)}),
    "dequantize_fp8_tiles": lambda p: (
        "dequantize_fp8_tiles", {"dtype": p["dtype"], "tall": p["tile"][0], **_layouts(p)}
    ),
    "fp8_to_mxfp4": lambda p: ("fp8_to_mxfp4", _layouts(p)),
    "mxfp4_to_fp8": lambda p: (f"mxfp4_to_fp8_{p['scale']}", _layouts(p)),
    "mxfp4_to_fp8_columns": _columns("mxfp4_to_fp8_columns"),
    "mxfp4_to_fp8_rows_columns": _columns("mxfp4_to_fp8_rows_columns"),
    "mxfp4_columns": lambda p: ("mxfp4_columns" + "_max" * (p["scale"] == "max"), {}),
    "fp8_columns": lambda p: ("fp8_columns" + "_experts" * ("splits" in p), {}),
    "swiglu_quantize": lambda p: (f"swiglu_to_{p['to']}", {}),
    "swiglu_backward": lambda p: ("swiglu_backward", {}),
    "pack_payload": lambda p: ("pack_payload", {}),
    "unpack_payload": lambda p: ("unpack_payload", {}),
    "quantize_payload": lambda p: ("quantize_payload", {}),
    "fp8_to_payload": lambda p: ("fp8_to_payload", {}),
    "permute_pad": lambda p: ("gather", {}),
    "permute_unpack": lambda p: ("gather_unpacked", {}),
    "unpermute": lambda p: ("scatter", {"tokens": p.get("tokens")}),
    "encode_e2m1": lambda p: ("encode_e2m1", {}),
    "encode_e4m3": lambda p: ("encode_e4m3", {}),
    "encode_e8m0": lambda p: ("encode_e8m0", {}),
}  # fmt: skip
_LACKING = {("fp8_columns", "underflow", "te"): "the published kernel's underflow has no plain formula"}
_PROFILES = {"quantize_mxfp4": ("HOPPER", "OCP", "STOCHASTIC")}
"""Operation -> profiles that its formula follows, where that is not HOPPER alone."""


def offers(line: Line) -> str:
    """Return why the formula does not have a line."""
    if line.operation in WHOLE and line.unit % ALIGN:
        return f"it takes experts of multiples of {ALIGN} rows"
    if line.operation not in _FORMULAS:
        return "no formula"
    known = _PROFILES.get(line.operation, ("HOPPER",))
    if line.profile not in known:
        return f"the formula follows {', '.join(known)}, not {line.profile}"
    for name, value in line.params.items():
        if (line.operation, name, str(value)) in _LACKING:
            return _LACKING[line.operation, name, str(value)]
    return ""


def formula(operation: str, params: Mapping[str, Any], profile: str = "HOPPER") -> tuple[str, dict[str, Any]]:
    """Return the name of an operation's formula and what it is given beside the arrays."""
    import torch

    name, extra = _FORMULAS[operation]({**params, "profile": profile})
    if "dtype" in extra:
        extra["dtype"] = getattr(torch, extra["dtype"])
    return name, extra


@functools.cache
def function(name: str) -> Any:
    """Return a formula compiled as one function, for each shape by itself."""
    return compile_(getattr(formulas, name))


def compile_(plain: Callable[..., Any]) -> Any:
    """Return torch.compile of a function: one graph, its shapes known."""
    import torch
    import torch._dynamo

    torch._dynamo.config.recompile_limit = LIMIT
    torch._dynamo.config.accumulated_recompile_limit = LIMIT
    return torch.compile(plain, fullgraph=True, dynamic=False)


def stacks(case: Case) -> dict[str, Array]:
    """Return where experts of whole tiles have their rows, in the case's library; nothing where tiles do not restart.

    rows: i64, for each row of the tiles the row of the case, -1 where the tile goes on after its expert. keep: i64,
    for each row of the case its place in the tiles.
    """
    if case.operation not in STACKED or "splits" not in case.params:
        return {}
    rows, keep, first, taken = [], [], 0, 0
    for count in case.params["splits"]:
        whole = -(-count // TALL) * TALL
        rows += [np.arange(first, first + count), np.full(whole - count, -1)]
        keep.append(np.arange(taken, taken + count))
        first, taken = first + count, taken + whole
    like = next(iter(case.inputs.values()))
    found = {"rows": np.concatenate(rows), "keep": np.concatenate(keep)}
    return {name: np.asarray(x.astype(np.int64), like=like) for name, x in found.items()}


def arguments(case: Case) -> tuple[str, dict[str, Any]]:
    """Return the name of a case's formula and its keywords, tensors on the case's memory."""
    name, extra = formula(case.operation, case.params, case.profile)
    arrays = {**layouts.stored_inputs(case), **stacks(case)}
    return name, {**{key: to_torch(x) for key, x in arrays.items()}, **extra}


def results(case: Case, found: Any) -> list[Any]:
    """Return a formula's results as the golden operation gives them, in the case's own library."""
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
    return {package: foreign.version(package, "none") for package in ("torch", "triton")}


def contenders(subject: Subject) -> list[Contender]:
    """Return the one contender."""
    return [Contender("torch.compile", offers, prepare, describe, "the plain PyTorch formula, one compiled function")]
