"""Triton's own MXFP4: the kernels of `triton_kernels` where they are installed, else the torch helpers in Triton.

The helpers, `triton.tools.mxfp`, are what Triton's tests check matrix products with, and are not meant to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from refnum.errors import UnsupportedError

from ....cases import layouts
from ....cases.case import Case
from ....subjects.peers import foreign, formulas
from ....subjects.peers import triton_mxfp as triton
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line

Functions = Mapping[str, Callable[..., Any]]


def _quantise(x: Any) -> tuple[Any, Any]:
    """Scale by the plain formula, then MXFP4Tensor(data=...).to_packed_tensor."""
    m, k = x.shape
    byte = formulas.scale_byte(x.view(m, k // 32, 32).abs().amax(-1), "mxfp4")
    scaled = (x.view(m, k // 32, 32) * formulas.power(254 - byte)[..., None]).view(m, k)
    return triton.tools().MXFP4Tensor(data=scaled).to_packed_tensor(dim=1), byte.to(torch.uint8)


def _dequantise(packed: Any, scales: Any, dtype: str) -> Any:
    """MXFP4Tensor.unpack_packed_tensor, times the scale by the plain formula."""
    m, half = packed.shape
    codes = triton.tools().MXFP4Tensor(size=(m, 2 * half), device=packed.device)
    codes.data = codes.unpack_packed_tensor(packed, 1, (m, 2 * half))
    values = codes.to(torch.float32).view(m, half // 16, 32)
    return (values * formulas.power(scales)[..., None]).view(m, 2 * half)


KERNELS: Functions = {"quantize_mxfp4": triton.quantize_mxfp4, "dequantize_mxfp4": triton.dequantize_mxfp4}
HELPERS: Functions = {"quantize_mxfp4": _quantise, "dequantize_mxfp4": _dequantise}


def _found(load: Callable[[], Any]) -> bool:
    try:
        load()
    except UnsupportedError:
        return False
    return True


def missing() -> str:
    """Return why neither can be used here, or an empty string."""
    return "" if _found(triton.module) or _found(triton.tools) else "neither triton_kernels nor triton.tools is here"


def _offers(line: Line) -> str:
    if line.operation not in KERNELS:
        return "Triton has MXFP4 from and to floating point only"
    if {layouts.IN, layouts.OUT} & set(line.params):
        return "Triton has scale bytes in rows"
    return "Triton rounds scales up and values to nearest" if line.profile != "HOPPER" else ""


def _offers_helpers(line: Line) -> str:
    if line.operation == "quantize_mxfp4" and line.params["input"] != "float32":
        return "the helper takes float32"
    if line.operation == "dequantize_mxfp4" and line.params["dtype"] != "float32":
        return "the helper gives float32"
    return _offers(line)


def _prepare(functions: Functions, case: Case) -> Prepared:
    like = next(iter(case.inputs.values()))
    tensors = [to_torch(x) for x in case.inputs.values()]
    named = {name: case.params[name] for name in ("dtype",) if name in case.params}
    run = functions[case.operation]

    def canonical(found: Any) -> list[Any]:
        return [from_torch(x, like) for x in as_tuple(found)]

    return Prepared(lambda: run(*tensors, **named), tensors, canonical)


def describe() -> dict[str, str]:
    """Return Triton's version."""
    return {"triton": foreign.version("triton")}


def contenders(subject: Subject) -> list[Contender]:
    """Return the kernels where they are installed, else the helpers."""
    if _found(triton.module):
        kernels = lambda line, case: _prepare(KERNELS, case)  # noqa: E731
        return [Contender("triton_kernels", _offers, kernels, describe, "Triton's mxfp kernels")]
    helpers = lambda line, case: _prepare(HELPERS, case)  # noqa: E731
    note = "triton.tools.mxfp, torch helpers"
    return [Contender("triton.tools.mxfp", _offers_helpers, helpers, describe, note, slow=True)]
