"""Products on one GPU in two minutes: torch's under `refnum check`, our kernels' bits and speed, in one JSON document.

    python benchmarks/check_products.py --out DIR [--seconds 100]

First the speeds of both kernels, alone; then the BF16 kernel against the model and against torch.mm, and the FP8 kernel
against torch._scaled_mm; meanwhile three checks run: torch._scaled_mm, torch.mm and our BF16 kernel, at level
standard. A check that is not done in time is interrupted, and its report says how far it came.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from check_product_kernel import START, campaign, differing, line, random_bytes
from product_checks import finished, started

from refnum import product as model
from refnum.gpu.ops import product

SPEEDS = ((4096, 4096, 4096), (8192, 4096, 7168))


def bf16(rng: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Return bits of bfloat16 on the device: of near exponents, of all, or mostly zeros and tiny ones."""
    low, high = {"near": (0x3C00, 0x4300), "tiny": (0, 0x2100), "any": (0, 0x8000)}[kind]
    found = rng.integers(low, high, shape).astype(np.uint16)
    sign = (random_bytes(rng, 0, 2, shape).astype(np.uint16)) << np.uint16(15)
    return found | sign


def speeds(rng: Any, seconds: float = 0.3) -> list[dict[str, Any]]:
    """Return multiply-adds a second of both kernels, the best of several calls."""
    rows = []
    for m, n, k in SPEEDS:
        codes = [random_bytes(rng, 0x20, 0x60, (r, k)) for r in (m, n)]
        scales = [random_bytes(rng, 120, 130, (r, k // 128)) for r in (m, n)]
        floats = [bf16(rng, (r, k), "near") for r in (m, n)]
        out = cupy.empty((m, n), np.float32)
        calls = {
            "matmul_fp8 chain": lambda c=codes, o=out: product.matmul_fp8(*c, order="chain", out=o),
            "matmul_fp8 1x128": lambda c=codes, s=scales, o=out: product.matmul_fp8(*c, *s, out=o),
            "matmul_bf16 chain": lambda f=floats, o=out: product.matmul_bf16(*f, out=o),
        }
        for name, call in calls.items():
            call()
            taken, end = [], time.perf_counter() + seconds
            while not taken or time.perf_counter() < end:
                begin, stop = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                call()
                stop.record()
                stop.synchronize()
                taken.append(cupy.cuda.get_elapsed_time(begin, stop))
            rows.append({"kernel": name, "shape": (m, n, k), "ms": min(taken), "T": m * n * k / min(taken) / 1e9})
            line(f"{name:18s} {m}x{n}x{k}: {min(taken):8.2f} ms, {rows[-1]['T']:.2f} T multiply-adds/s")
    return rows


def bf16_against_model(rng: Any) -> dict[str, int]:
    """Compare the BF16 kernel with the model on CuPy: orders, kinds of numbers, ragged groups."""
    compared = wrong = 0
    for number, (order, kind) in enumerate((o, d) for o in ORDERS for d in ("near", "any", "tiny")):
        for m, n, k in ((70, 130, 417), (257, 65, 512), (1, 300, 1000), (640, 512, 1024)):
            a, b = bf16(rng, (m, k), kind), bf16(rng, (n, k), kind)
            a[: m // 2, k // 2 :] = a[: m // 2, : k - k // 2] ^ np.uint16(0x8000)
            given = (a, b, order, ("float32", "bfloat16")[number % 2])
            got, want = product.matmul_bf16(*given), model.matmul_bf16(*given)
            compared, wrong = compared + got.size, wrong + differing(got, want)
    a, b, splits = (
        bf16(rng, (300, 256), "near"),
        bf16(rng, (4 * 96, 256), "near").reshape(4, 96, 256),
        [128, 0, 150, 22],
    )
    wrong += differing(product.matmul_bf16(a, b, splits=splits), model.matmul_bf16(a, b, splits=splits))
    line(f"BF16 kernel against the model: {wrong} of {compared + 300 * 96} differ")
    return {"compared": compared + 300 * 96, "differing": wrong}


ORDERS = ("chain", "promote16", "promote128", "split2", "split3-chain")


def bf16_against_torch(rng: Any) -> list[dict[str, Any]]:
    """Compare whole products of torch.mm with the BF16 kernel in named orders, the likely ones first."""
    rows = []
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 7168), (256, 256, 2048)):
        a, b = bf16(rng, (m, k), "near"), bf16(rng, (n, k), "near")
        left, right = (torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16) for x in (a, b))
        got = cupy.from_dlpack(torch.mm(left, right.t(), out_dtype=torch.float32))
        row: dict[str, Any] = {"shape": (m, n, k), "compared": m * n, "order": None}
        for order in ("chain", "promote128", *(f"split{s}-chain" for s in range(2, 7))):
            bad = differing(got, product.matmul_bf16(a, b, order))
            row.setdefault("differing from chain", bad)
            if not bad:
                row["order"] = order
                break
        rows.append(row)
        line(f"torch.mm of bfloat16 {m}x{n}x{k}: {row['order'] or 'no named order'}")
    return rows


def main() -> None:
    """Measure, compare, judge, and write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for products.json and the checks' own reports")
    parser.add_argument("--seconds", type=float, default=100, help="checks end after so many seconds")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rng = cupy.random.default_rng(19)
    document: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    document["speed"] = speeds(rng)
    checks = started(given.out)
    document["matmul_bf16 against the model"] = bf16_against_model(rng)
    document["torch.mm"] = bf16_against_torch(rng)
    document["torch._scaled_mm"] = campaign(rng, 2e8, time.perf_counter() - START + 15)
    for name, (check, path) in checks.items():
        document[f"check of {name}"] = finished(check, path, START + given.seconds)
        line(f"{name}: {document[f'check of {name}']['verdict']}")
    temporary = given.out / "products.json.tmp"
    temporary.write_text(json.dumps(document, indent=1, default=str))
    temporary.rename(given.out / "products.json")
    line("done")


if __name__ == "__main__":
    main()
