"""Triton's own MXFP4: the kernels of `triton_kernels` where they are installed, else the torch helpers in Triton.

`triton_kernels` lives in Triton's repository and is not on PyPI; a package of that name there is something else. The
helpers, `triton.tools.mxfp`, are what Triton's tests check matrix products with, and are not meant to be fast.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

from ....cases import layouts
from ....cases.case import Case
from ....subjects.peers import formulas
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line

KERNELS = "triton_kernels.numerics_details.mxfp"
HELPERS = "triton.tools.mxfp"
OPERATIONS = ("quantize_mxfp4", "dequantize_mxfp4")


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def missing() -> str:
    """Return why neither can be used here, or an empty string."""
    return "" if _found(KERNELS) or _found(HELPERS) else f"neither {KERNELS} nor {HELPERS} is installed"


def _offers(line: Line) -> str:
    if line.operation not in OPERATIONS:
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


def _prepare_kernels(line: Line, case: Case) -> Prepared:
    import torch

    module = importlib.import_module(KERNELS)
    like = next(iter(case.inputs.values()))
    tensors = [to_torch(x) for x in case.inputs.values()]
    if case.operation == "quantize_mxfp4":
        call: Any = lambda: module.downcast_to_mxfp(tensors[0], torch.uint8, axis=1)  # noqa: E731
    else:
        dtype = getattr(torch, case.params["dtype"])
        call = lambda: module.upcast_from_mxfp(*tensors, dtype, axis=1)  # noqa: E731
    return Prepared(call, tensors, lambda found: [from_torch(x, like) for x in as_tuple(found)])


def _prepare_helpers(line: Line, case: Case) -> Prepared:
    import torch

    module = importlib.import_module(HELPERS)
    like = next(iter(case.inputs.values()))
    tensors = [to_torch(x) for x in case.inputs.values()]

    def quantise(x: Any) -> tuple[Any, Any]:
        m, k = x.shape
        byte = formulas.scale_byte(x.view(m, k // 32, 32).abs().amax(-1), "mxfp4")
        scaled = (x.view(m, k // 32, 32) * formulas.power(254 - byte)[..., None]).view(m, k)
        return module.MXFP4Tensor(data=scaled).to_packed_tensor(dim=1), byte.to(torch.uint8)

    def dequantise(packed: Any, scales: Any) -> Any:
        m, half = packed.shape
        codes = module.MXFP4Tensor(size=(m, 2 * half), device=packed.device)
        codes.data = codes.unpack_packed_tensor(packed, 1, (m, 2 * half))
        values = codes.to(torch.float32).view(m, half // 16, 32)
        return (values * formulas.power(scales)[..., None]).view(m, 2 * half)

    run = quantise if case.operation == "quantize_mxfp4" else dequantise
    return Prepared(lambda: run(*tensors), tensors, lambda found: [from_torch(x, like) for x in as_tuple(found)])


def describe() -> dict[str, str]:
    """Return Triton's version."""
    return {"triton": importlib.metadata.version("triton")}


def contenders(subject: Subject) -> list[Contender]:
    """Return the kernels where they are installed, else the helpers."""
    if _found(KERNELS):
        return [Contender("triton_kernels", _offers, _prepare_kernels, describe, "Triton's mxfp kernels")]
    note = "triton.tools.mxfp, torch helpers"
    return [Contender("triton.tools.mxfp", _offers_helpers, _prepare_helpers, describe, note, slow=True)]
