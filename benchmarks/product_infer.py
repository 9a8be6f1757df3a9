"""The order of sums of library calls by `refnum infer`'s probes, bfloat16 results among them.

    python benchmarks/product_infer.py --out DIR [--seconds 150]

Each call is made on the device with the operands of `infer_order`; the model answers on the host, in seconds a call.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from product_orders import environment

from refnum.conformance.commands.infer.orders import infer_order

E4M3 = torch.float8_e4m3fn
SHAPES = ((16, 1024, 16384), (64, 1024, 16384), (256, 256, 7168), (1024, 1024, 7168), (64, 2048, 7168))


def codes(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).cuda().view(E4M3)


def numpy(x: torch.Tensor) -> np.ndarray:
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).cpu().numpy().view(np.uint16)
    return x.cpu().numpy()


def scaled(a: np.ndarray, b: np.ndarray, left: torch.Tensor, right: torch.Tensor, dtype: Any, fast: bool) -> np.ndarray:
    return numpy(torch._scaled_mm(codes(a), codes(b).t(), left, right, out_dtype=dtype, use_fast_accum=fast))


def per_tensor(a: np.ndarray, b: np.ndarray, dtype: Any = torch.float32, fast: bool = True) -> np.ndarray:
    one = torch.ones((), device="cuda")
    return scaled(a, b, one, one, dtype, fast)


def per_row(
    a: np.ndarray, b: np.ndarray, a_scales: np.ndarray, b_scales: np.ndarray, dtype: Any = torch.float32,
    fast: bool = True,
) -> np.ndarray:  # fmt: skip
    left, right = (torch.from_numpy(s).cuda() for s in (a_scales, b_scales))
    return scaled(a, b, left, right.t().contiguous(), dtype, fast)


def per_block(
    a: np.ndarray, b: np.ndarray, a_scales: np.ndarray, b_scales: np.ndarray, dtype: Any = torch.float32,
    squares: bool = False,
) -> np.ndarray:  # fmt: skip
    left = torch.from_numpy(a_scales).cuda().t().contiguous().t()
    right = torch.from_numpy(b_scales).cuda()
    right = right.t() if squares else right.t().contiguous()
    return scaled(a, b, left, right, dtype, False)


def grouped(a: np.ndarray, b: np.ndarray, a_scales: np.ndarray, b_scales: np.ndarray, fast: bool = True) -> np.ndarray:
    rows = torch.tensor([a.shape[0]], device="cuda", dtype=torch.int32)
    left, right = (torch.from_numpy(s).cuda().ravel() for s in (a_scales, b_scales))
    out = torch._scaled_grouped_mm(
        codes(a), codes(b)[None].transpose(-2, -1), left, right[None], offs=rows, out_dtype=torch.bfloat16,
        use_fast_accum=fast,
    )  # fmt: skip
    return numpy(out)


def calls() -> dict[str, tuple[Callable[..., np.ndarray], str]]:
    """Return label -> (call, scales)."""
    found: dict[str, tuple[Callable[..., np.ndarray], str]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for fast in (True, False):
            tail = f"fast={fast} {dtype}"
            found[f"per tensor {tail}"] = (functools.partial(per_tensor, dtype=dtype, fast=fast), "none")
            found[f"per row {tail}"] = (functools.partial(per_row, dtype=dtype, fast=fast), "rows")
        for squares in (False, True):
            kind = "squares" if squares else "blocks"
            found[f"{kind} {dtype}"] = (functools.partial(per_block, dtype=dtype, squares=squares), kind)
    for fast in (True, False):
        found[f"grouped fast={fast}"] = (functools.partial(grouped, fast=fast), "rows")
    return found


def main() -> None:
    """Print and write the order of every call at every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150, help="no call is asked after so many seconds")
    given, start, rows = parser.parse_args(), time.perf_counter(), []
    for shape in SHAPES:
        for label, (call, scales) in calls().items():
            begin = time.perf_counter()
            if begin > start + given.seconds:
                break
            try:
                found = infer_order(label, call, shape, scales)
            except Exception as error:
                print(f"{label} {shape}: {str(error).splitlines()[0][:140]}", flush=True)
                continue
            seconds = time.perf_counter() - begin
            nearest = min(found.ruled_out, key=lambda one: one.differing)
            rows.append({**dataclasses.asdict(found), "ruled_out": len(found.ruled_out), "seconds": seconds})
            said = f"{found.fits}" if found.exact else f"none; nearest {nearest.order}, {nearest.differing} differ"
            print(f"[{time.perf_counter() - start:6.1f}] {label} {shape}: {said} ({seconds:.1f} s)", flush=True)
            if not found.exact:
                print(f"    {found.tree or 'no tree'}")
    given.out.mkdir(parents=True, exist_ok=True)
    temporary = given.out / "product_infer.json.tmp"
    temporary.write_text(json.dumps({"calls": rows, "environment": environment()}, indent=1, default=str))
    temporary.rename(given.out / "product_infer.json")


if __name__ == "__main__":
    main()
