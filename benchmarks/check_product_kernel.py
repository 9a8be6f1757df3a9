"""The kernel of FP8 products on one GPU: against refnum's model, against the tensor cores, and its speed.

    python benchmarks/check_product_kernel.py --out DIR [--results 1e9] [--seconds 120]

First every format, order, kind of scale, ragged shape and special code against the model on CuPy; then multiply-adds a
second over shapes and resident CTAs; then whole products of torch._scaled_mm (cuBLASLt), every result compared, until
so many results are done.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum import product as model
from refnum.gpu.ops import product

FORMATS = ("E4M3", "E5M2")
FINITE = {"E4M3": 0x7E, "E5M2": 0x7B}
TORCH = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}
SPEEDS = ((4096, 4096, 4096), (8192, 4096, 7168), (1024, 1024, 7168))
START = time.perf_counter()


def line(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - START:6.1f}] {text}", flush=True)


def random_bytes(rng: Any, low: int, high: int, shape: tuple[int, ...]) -> Any:
    """Return random u8 from `low` to `high` - 1 on the device."""
    return rng.integers(low, high, shape).astype(np.uint8)


def codes(rng: Any, shape: tuple[int, ...], fmt: str = "E4M3", kind: str = "finite") -> Any:
    """Return random codes on the device: `any`, `finite`, `near` (exponents close together) or `normal` values."""
    found = random_bytes(rng, 0, 256, shape)
    if kind == "any":
        return found
    magnitude, sign = found & np.uint8(0x7F), found & np.uint8(0x80)
    if kind == "near":
        magnitude = (magnitude & np.uint8(0x1F)) | np.uint8(0x20)
    if kind == "normal":
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(16)
        tensor = torch.from_dlpack(values).to(TORCH[fmt])
        return cupy.from_dlpack(tensor.view(torch.uint8))
    return np.minimum(magnitude, np.uint8(FINITE[fmt])) | sign


def differing(got: Any, want: Any) -> int:
    """Return how many results differ in their bits."""
    kind = np.uint32 if got.dtype == np.float32 else np.uint16
    return int((got.view(kind) != want.view(kind)).sum())


def check_model(rng: Any) -> dict[str, Any]:
    """Compare the kernel with the model on CuPy over everything that an argument can be."""
    compared = wrong = 0
    orders = ("chain", "promote32", "promote96", "promote128", "split2", "split3")
    shapes = ((64, 64, 384), (70, 130, 417), (1, 300, 1000), (257, 65, 512), (130, 3, 2048))
    kinds = ("none", "tensor", "row", "1x128", "128x128")
    first: list[str] = []
    for number, (shape, order, kind) in enumerate(itertools.product(shapes, orders, kinds)):
        if kind in ("1x128", "128x128") and order in ("chain", "promote96"):
            continue
        (m, n, k), blocks = shape, -(-shape[2] // 128)
        formats = (FORMATS[number % 2], FORMATS[number // 2 % 2])
        drawn = "any" if number % 4 == 3 else "finite"
        a, b = codes(rng, (m, k), formats[0], drawn), codes(rng, (n, k), formats[1], drawn)
        real = number % 7 == 6
        low, high = (0, 255) if number % 5 == 0 else (110, 140)

        def scales(
            rows: int, kind: str = kind, low: int = low, high: int = high, blocks: int = blocks, real: bool = real
        ) -> Any:
            wanted = {"tensor": (1, 1), "row": (rows, 1), "1x128": (rows, blocks), "128x128": (-(-rows // 128), blocks)}
            if kind == "none":
                return None
            found = random_bytes(rng, low, high, wanted[kind])
            return found.astype(np.float32) * np.float32(0.0137) if real else found

        given = (a, b, scales(m), scales(n), order, ("float32", "bfloat16")[number % 2], None)
        got, want = product.matmul_fp8(*given, *formats), model.matmul_fp8(*given, *formats)
        compared, bad = compared + got.size, differing(got, want)
        wrong += bad
        if bad and len(first) < 5:
            first.append(f"{shape} {order} {kind} {formats}: {bad} of {got.size}")
    a, b = codes(rng, (300, 256)), codes(rng, (4, 96, 256))
    sa, sb = (random_bytes(rng, 110, 140, s) for s in ((300, 2), (4, 96, 2)))
    splits = [128, 0, 150, 22]
    wrong += differing(product.matmul_fp8(a, b, sa, sb, splits=splits), model.matmul_fp8(a, b, sa, sb, splits=splits))
    line(f"against the model: {wrong} of {compared + 300 * 96} differ {first}")
    return {"compared": compared + 300 * 96, "differing": wrong, "first": first}


def measure(rng: Any) -> list[dict[str, Any]]:
    """Return multiply-adds a second for shapes, resident CTAs and scales."""
    rows = []
    for (m, n, k), resident in itertools.product(SPEEDS, (2, 3)):
        product.KERNELS["matmul_fp8"] = (f"BLOCKS={resident}",)
        a, b = codes(rng, (m, k)), codes(rng, (n, k))
        sa, sb = (random_bytes(rng, 120, 130, (r, k // 128)) for r in (m, n))
        out = cupy.empty((m, n), np.float32)
        for name, given in (("chain", (None, None, "chain")), ("1x128", (sa, sb, "promote128"))):
            product.matmul_fp8(a, b, *given, out=out)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            for _ in range(3):
                product.matmul_fp8(a, b, *given, out=out)
            end.record()
            end.synchronize()
            ms = cupy.cuda.get_elapsed_time(begin, end) / 3
            rows.append({"shape": (m, n, k), "resident": resident, "scales": name, "ms": ms, "T": m * n * k / ms / 1e9})
            line(f"{m}x{n}x{k} {name:6s} {resident} CTAs: {ms:8.2f} ms, {rows[-1]['T']:.2f} T multiply-adds/s")
    best = max(rows, key=lambda row: row["T"])["resident"]
    product.KERNELS["matmul_fp8"] = (f"BLOCKS={best}",)
    return rows


MODES = (
    ("fast", "E4M3", "E4M3"), ("slow", "E4M3", "E4M3"), ("1x128", "E4M3", "E4M3"),
    ("fast", "E5M2", "E4M3"), ("slow", "E4M3", "E5M2"),
)  # fmt: skip
SHAPES = ((8192, 8192, 1024), (4096, 8192, 2048), (8192, 4096, 512), (2048, 4096, 7168))
OTHERS = ("chain", "promote128", *(f"split{s}" for s in range(2, 9)), "promote256", "promote512")


def campaign(rng: Any, results: float, seconds: float) -> dict[str, Any]:
    """Compare whole products of torch._scaled_mm with the kernel, in the orders that N19 names."""
    done: dict[str, dict[str, int]] = {}
    total = wrong = 0
    cases = itertools.cycle(itertools.product(("finite", "near", "normal"), MODES, SHAPES))
    for kind, mode, (m, n, k) in cases:
        if total >= results or time.perf_counter() - START > seconds:
            break
        a, b = codes(rng, (m, k), mode[1], kind), codes(rng, (n, k), mode[2], kind)
        out, want, given = one_call(rng, mode, a, b)
        bad, order = differing(out, want), given["order"]
        if bad:
            fits = [o for o in OTHERS if o != "chain" or mode[0] != "1x128"]
            fits = [o for o in fits if not differing(out, product.matmul_fp8(a, b, **{**given, "order": o}))]
            order = f"{fits or 'no named order'}, not {order}"
            line(f"{mode} {kind} {m}x{n}x{k}: {bad} of {m * n} differ from {given['order']}; {order}")
        key = f"{mode[0]} {mode[1]} x {mode[2]} {m}x{n}x{k} {order}"
        found = done.setdefault(key, {"compared": 0, "differing": 0})
        found["compared"] += m * n
        found["differing"] += bad
        total, wrong = total + m * n, wrong + bad
    line(f"tensor cores: {total} results, {wrong} differ")
    for key, found in done.items():
        line(f"    {key}: {found}")
    return {"results": total, "differing": wrong, "calls": done}


def one_call(rng: Any, mode: tuple[str, str, str], a: Any, b: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return (result of torch._scaled_mm, of the kernel, the kernel's arguments)."""
    left, right = (torch.from_dlpack(x).view(TORCH[fmt]) for x, fmt in zip((a, b), mode[1:], strict=True))
    given: dict[str, Any] = {"a_format": mode[1], "b_format": mode[2]}
    if mode[0] == "1x128":
        sa, sb = (random_bytes(rng, 120, 134, (x.shape[0], x.shape[1] // 128)) for x in (a, b))
        wide = [
            torch.from_dlpack(cupy.ascontiguousarray((s.astype(np.uint32) << np.uint32(23)).view(np.float32).T))
            for s in (sa, sb)
        ]
        out = torch._scaled_mm(left, right.t(), wide[0].t(), wide[1], out_dtype=torch.float32)
        given |= {"a_scales": sa, "b_scales": sb, "order": "promote128"}
    else:
        one, fast = torch.ones((), device="cuda"), mode[0] == "fast"
        out = torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)
        given["order"] = "chain" if fast else "promote128"
    torch.cuda.synchronize()
    return cupy.from_dlpack(out), product.matmul_fp8(a, b, **given), given


def main() -> None:
    """Check, measure, compare, and write the JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for product_kernel.json")
    parser.add_argument("--results", type=float, default=1e9, help="results of tensor cores to compare")
    parser.add_argument("--seconds", type=float, default=120, help="no comparison starts after that many seconds")
    given = parser.parse_args()
    rng = cupy.random.default_rng(19)
    document: dict[str, Any] = {"model": check_model(rng)}
    document["speed"] = measure(rng)
    document["tensor_cores"] = campaign(rng, given.results, given.seconds)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        temporary = given.out / "product_kernel.json.tmp"
        temporary.write_text(json.dumps(document, indent=1, default=str))
        temporary.rename(given.out / "product_kernel.json")
    line("done")


if __name__ == "__main__":
    main()
