"""Products by torch on tensor cores: cuBLASLt, in whatever order of sums it takes."""

from __future__ import annotations

from typing import Any

from ....cases.case import Case
from ....subjects.peers import foreign
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, from_torch, to_torch
from ..lines import Line

PAD = 4
"""Scales of 128x128 have rows so many items apart, or a multiple of it."""


def _offers(line: Line) -> str:
    return "" if line.at == "product" else "no product"


def _floats(scales: Any) -> Any:
    """Return E8M0 bytes below 255 as float32."""
    import torch

    bits = torch.where(scales == 0, 0x00400000, scales.to(torch.int32) << 23)
    return bits.to(torch.int32).view(torch.float32)


def _vectors(scales: Any) -> Any:
    """Return scales of 1x128 [M, K/128] with neighbours down the rows."""
    return _floats(scales).t().contiguous().t()


def _squares(scales: Any) -> Any:
    """Return scales of 128x128 [N/128, K/128] as the library reads them, blocks of K first."""
    import torch

    floats = _floats(scales)
    wide = torch.zeros((floats.shape[0], -(-floats.shape[1] // PAD) * PAD), device=floats.device)
    wide[:, : floats.shape[1]] = floats
    return wide[:, : floats.shape[1]].t()


def _call(case: Case, arrays: dict[str, Any]) -> Any:
    """Return the library's call of a case."""
    import torch

    a, b = arrays["a"], arrays["b"]
    out = getattr(torch, case.params.get("out", "float32"))
    if case.operation == "matmul_bf16":
        return lambda: torch.mm(a, b.t(), out_dtype=out)
    left, right = (x.view(torch.float8_e4m3fn) for x in (a, b))
    fast = case.params["order"] == "chain"
    if "a_scales" in arrays:
        scales = _vectors(arrays["a_scales"]), _squares(arrays["b_scales"])
    else:
        scales = (torch.ones((), device=a.device),) * 2
    return lambda: torch._scaled_mm(left, right.t(), *scales, out_dtype=out, use_fast_accum=fast)


def prepare(line: Line, case: Case) -> Prepared:
    """Make a case ready: codes as they are, scales as float32 in the library's layouts."""
    arrays = {name: to_torch(x) for name, x in case.inputs.items()}
    like = next(iter(case.inputs.values()))
    return Prepared(_call(case, arrays), list(arrays.values()), lambda found: [from_torch(found, like)])


def contenders(subject: Subject) -> list[Contender]:
    """Return the one contender."""
    note = "torch._scaled_mm and torch.mm, which sum on tensor cores"
    return [Contender("torch, cuBLASLt", _offers, prepare, lambda: {"torch": foreign.version("torch", "none")}, note)]
