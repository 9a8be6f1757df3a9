"""Products of torch (cuBLASLt) on a GPU as a subject: `refnum check -o 'matmul*' -s benchmarks/torch_products.py`.

`scaled_mm_any` and `mm_any` claim level P1 (N16): results that some order gives. Sides are padded with zeros to what
the library takes: products of zeros change no sum (N19.2). Which order a call takes depends on its shape; where it is
not the one asked for, the page names it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from refnum.conformance import implements
from refnum.conformance.cases.case import Case
from refnum.errors import ShapeError
from refnum.tiles import tile_count

TILE, UNIT = 128, 16
FORMATS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}
OUT = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if params["order"] == "split2":
        return "which products are split is cuBLASLt's choice"
    if params["a_format"] == params["b_format"] == "E5M2":
        return "cuBLASLt multiplies no two operands of E5M2"
    return ""


def _outside(case: Case) -> str:
    """Refuse scales that cuBLASLt does not take together."""
    k = case.inputs["a"].shape[1]
    sides = [_kind(case.inputs.get(f"{name}_scales"), len(case.inputs[name]), k) for name in "ab"]
    if sides == ["squares", "squares"]:
        return "cuBLASLt takes 128x128 scales of one operand"
    if "squares" in sides and "tensor" in sides:
        return "it has no scale a tensor beside 128x128 scales"
    if "squares" in sides and k <= TILE:
        return "it takes no 128x128 scales of one block of K"
    by_row = {*sides} == {"tensor", "rows"} or ({*sides} == {"tensor", "blocks"} and k <= TILE)
    if by_row and all(case.inputs.get(f"{name}_scales") is not None for name in "ab"):
        return "it multiplies by a scale a row and by one a tensor in turn, not by their product (N19.5)"
    return ""


def _kind(scales: Any, rows: int, k: int) -> str:
    """Return `tensor` (none, too), `rows`, `blocks` or `squares`."""
    if scales is None or np.prod(scales.shape) == 1:
        return "tensor"
    if scales.shape[0] != rows:
        return "squares"
    return "rows" if scales.shape[1] == 1 and tile_count(k) > 1 else "blocks"


def _sizes(a: torch.Tensor, b: torch.Tensor) -> tuple[tuple[int, int], int]:
    """Return ((M, K), N); padding would hide that the operands do not fit."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"operands of shapes {tuple(a.shape)} and {tuple(b.shape)}; allowed are [M, K] and [N, K]")
    return (a.shape[0], a.shape[1]), b.shape[0]


def _padded(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    out = torch.zeros((rows, columns), dtype=x.dtype, device=x.device)
    out[: x.shape[0], : x.shape[1]] = x
    return out


def _floats(scales: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Return scales as float32: bytes are exponents, byte 0 is 2**-127."""
    if scales is None:
        return torch.ones((1, 1), device=device)
    if scales.dtype == torch.float32:
        return scales
    bits = scales.to(torch.int32) << 23
    return torch.where(scales == 0, 0x00400000, bits).to(torch.int32).view(torch.float32)


def _blocks(scales: torch.Tensor, kind: str, rows: int, padded: int, blocks: int) -> torch.Tensor:
    """Return scales of 128 of K [padded, blocks], neighbours down the rows; of squares, rows four items apart."""
    if kind == "squares":
        return _padded(scales, -(-padded // TILE), blocks + -blocks % 4)[:, :blocks]
    whole = torch.ones((padded, blocks), device=scales.device)
    whole[:rows] = scales.expand(rows, blocks)
    return whole.t().contiguous().t()


@implements("matmul_fp8", name="torch._scaled_mm", arrays="torch-cuda", supports=_supports, outside=_outside)
def scaled_mm(
    a: torch.Tensor, b: torch.Tensor, a_scales: torch.Tensor | None = None, b_scales: torch.Tensor | None = None,
    order: str = "promote128", out: str = "float32", a_format: str = "E4M3", b_format: str = "E4M3",
) -> torch.Tensor:  # fmt: skip
    """Return torch._scaled_mm of codes; `chain` is fast accumulation."""
    (m, k), n = _sizes(a, b)
    kinds = [_kind(s, r, k) for s, r in ((a_scales, m), (b_scales, n))]
    by_block = "squares" in kinds or ("blocks" in kinds and k > TILE)
    rows, columns, depth = (-(-max(x, 1) // u) * u for x, u in ((m, TILE), (n, TILE), (k, TILE if by_block else UNIT)))
    left = _padded(a, rows, depth).view(FORMATS[a_format])
    right = _padded(b, columns, depth).view(FORMATS[b_format]).t()
    sa, sb = _floats(a_scales, a.device), _floats(b_scales, a.device)
    if by_block:
        blocks = depth // TILE
        sa, sb = _blocks(sa, kinds[0], m, rows, blocks), _blocks(sb, kinds[1], n, columns, blocks).t()
    elif kinds == ["tensor", "tensor"]:
        sa, sb = sa.reshape(()), sb.reshape(())
    else:
        sa = _padded(sa.reshape(-1, 1).expand(m, 1), rows, 1)
        sb = _padded(sb.reshape(-1, 1).expand(n, 1), columns, 1).reshape(1, -1)
    found = torch._scaled_mm(left, right, sa, sb, out_dtype=OUT[out], use_fast_accum=order == "chain")
    return found[:m, :n].contiguous()


@implements(
    "matmul_bf16", name="torch.mm", arrays="torch-cuda",
    supports=lambda operation, profile, params: "" if params["order"] == "chain" else "torch.mm has no such order",
)  # fmt: skip
def mm(a: torch.Tensor, b: torch.Tensor, order: str = "chain", out: str = "float32") -> torch.Tensor:
    """Return torch.mm of bfloat16 matrices."""
    (m, k), n = _sizes(a, b)
    rows, columns, depth = (-(-max(x, 1) // UNIT) * UNIT for x in (m, n, k))
    found = torch.mm(_padded(a, rows, depth), _padded(b, columns, depth).t(), out_dtype=OUT[out])
    return found[:m, :n].contiguous()


@implements(
    "matmul_fp8", name="torch._scaled_mm, any order", arrays="torch-cuda", level="P1", supports=_supports,
    outside=_outside,
)  # fmt: skip
@functools.wraps(scaled_mm)
def scaled_mm_any(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Return torch._scaled_mm of codes."""
    return scaled_mm(*args, **kwargs)


@implements(
    "matmul_bf16", name="torch.mm, any order", arrays="torch-cuda", level="P1",
    supports=lambda operation, profile, params: "" if params["order"] == "chain" else "torch.mm has no such order",
)  # fmt: skip
@functools.wraps(mm)
def mm_any(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Return torch.mm of bfloat16 matrices."""
    return mm(*args, **kwargs)
