"""Which order each library call takes at which shape, every result compared, and results captured for vectors.

    python benchmarks/product_orders.py --out DIR [--seconds 200]

Calls of torch (cuBLASLt and its row-wise kernel) with float32 results are compared with the kernel of N19 in named
orders, the likely ones first, until one gives every bit. Then small steps and products are captured with all operands.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from check_product_kernel import TORCH, codes, differing
from probe_device import Kernels
from probe_product import INSTRUCTIONS, directed, find_strides, operand_sets

from refnum.gpu.ops import product

ROWS = (16, 64, 256, 1024, 4096, 8192)
COLUMNS = ((256, 7168), (2048, 7168), (4096, 7168), (7168, 2048), (4096, 4096), (1024, 16384), (2048, 512))
START = time.perf_counter()


def line(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - START:6.1f}] {text}", flush=True)


def environment() -> dict[str, Any]:
    """Return what the results depend on."""
    import triton

    lt = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "cublasLt" in line]
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    library = None
    if lt:
        import ctypes

        found = ctypes.CDLL(lt[0])
        found.cublasLtGetVersion.restype = ctypes.c_size_t
        library = found.cublasLtGetVersion()
    return {
        "device": torch.cuda.get_device_name(0), "nvidia-smi": driver, "torch": torch.__version__,
        "cuda": torch.version.cuda, "cublasLt": library, "cupy": cupy.__version__, "triton": triton.__version__,
        "numpy": np.__version__, "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip


def real(rng: Any, shape: tuple[int, ...]) -> Any:
    """Return float32 scales that are no powers of two."""
    return cupy.exp2(rng.uniform(-6, 6, shape)).astype(np.float32)


def tensor(x: Any) -> torch.Tensor:
    return torch.from_dlpack(x)


def tensor_scales(rng: Any, m: int, n: int, k: int) -> tuple[Any, Any]:
    return real(rng, (1, 1)), real(rng, (1, 1))


def row_scales(rng: Any, m: int, n: int, k: int) -> tuple[Any, Any]:
    return real(rng, (m, 1)), real(rng, (n, 1))


def block_scales(rng: Any, m: int, n: int, k: int, kinds: tuple[int, int]) -> tuple[Any, Any]:
    """Scales [rows / tall, K / 128]; of 128x128 rows lie a multiple of four items apart, as cuBLASLt reads them."""
    blocks = -(-k // 128)
    pair = []
    for rows, tall in zip((m, n), kinds, strict=True):
        padded = real(rng, (-(-rows // tall), blocks + (-blocks % 4 if tall == 128 else 0)))
        pair.append(padded[:, :blocks])
    return tuple(pair)  # type: ignore[return-value]


def scaled_mm(a: Any, b: Any, formats: tuple[str, str], sa: torch.Tensor, sb: torch.Tensor, fast: bool) -> Any:
    """Return torch._scaled_mm of codes a [M, K] and b [N, K] in float32."""
    left, right = (tensor(x).view(TORCH[fmt]) for x, fmt in zip((a, b), formats, strict=True))
    return torch._scaled_mm(left, right.t(), sa, sb, out_dtype=torch.float32, use_fast_accum=fast)


Mode = tuple[str, Callable[..., tuple[Any, Any]], Callable[..., tuple[torch.Tensor, torch.Tensor]], bool]


def _tensorwise(sa: Any, sb: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(sa).reshape(()), tensor(sb).reshape(())


def _rowwise(sa: Any, sb: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(sa), tensor(sb).reshape(1, -1)


def _vectors(x: Any) -> torch.Tensor:
    return tensor(cupy.ascontiguousarray(x.T)).t()


def _blocks(kinds: tuple[int, int]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def made(sa: Any, sb: Any) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = (tensor(x) if tall == 128 else _vectors(x) for x, tall in zip((sa, sb), kinds, strict=True))
        return left, right.t()

    return made


MODES: list[Mode] = [
    ("per tensor, fast accumulation", tensor_scales, _tensorwise, True),
    ("per tensor", tensor_scales, _tensorwise, False),
    ("per row, fast accumulation", row_scales, _rowwise, True),
    ("per row", row_scales, _rowwise, False),
    *(
        (f"1x128 by {'128x128' if kinds[1] == 128 else '1x128'}" if kinds[0] == 1 else "128x128 by 1x128",
         lambda rng, m, n, k, kinds=kinds: block_scales(rng, m, n, k, kinds), _blocks(kinds), False)
        for kinds in ((1, 1), (1, 128), (128, 1))
    ),
]  # fmt: skip


def likely(fast: bool, blocks: int) -> list[str]:
    """Return orders to try."""
    parts = [s for s in range(2, 65) if s <= blocks and -(-blocks // s) != -(-blocks // (s - 1))]
    first = ["chain", *(f"split{s}-chain" for s in parts)] if fast else ["promote128", *(f"split{s}" for s in parts)]
    return [*first, *(o for o in ("chain", "promote128", "promote256", "promote512") if o not in first)]


def table(rng: Any, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each mode and shape."""
    rows = []
    for number, ((name, draw, lay, fast), (n, k), m) in enumerate(itertools.product(MODES, COLUMNS, ROWS)):
        if time.perf_counter() - START > seconds:
            line("time is over")
            break
        kind = ("normal", "finite", "near")[number % 3]
        a, b = codes(rng, (m, k), "E4M3", kind), codes(rng, (n, k), "E4M3", kind)
        sa, sb = draw(rng, m, n, k)
        row: dict[str, Any] = {"mode": name, "m": m, "n": n, "k": k, "data": kind, "compared": m * n}
        try:
            out = cupy.from_dlpack(scaled_mm(a, b, ("E4M3", "E4M3"), *lay(sa, sb), fast))
        except RuntimeError as error:
            rows.append({**row, "order": None, "refused": str(error).splitlines()[0][:200]})
            continue
        tried = {}
        for order in likely(fast, k // 128):
            if order in ("chain", "promote256", "promote512") and "128" in name:
                continue
            tried[order] = differing(out, product.matmul_fp8(a, b, sa, sb, order))
            if tried[order] == 0:
                break
        best = min(tried, key=tried.get)  # type: ignore[arg-type]
        row |= {"order": best if tried[best] == 0 else None, "differing": tried[best], "nearest": best}
        rows.append(row)
        if tried[best]:
            line(f"{name} {m}x{n}x{k} {kind}: NO ORDER, {best} differs in {tried[best]} of {m * n}")
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["mode"], str(row["order"] or row.get("refused") or "no named order")[:60]
        found[key] = found.get(key, 0) + 1
    for (mode, order), count in found.items():
        line(f"{mode}: {count} calls: {order}")
    line(f"{sum(r['compared'] for r in rows if r['order'])} results compared and equal")
    return rows


def captured_steps() -> list[dict[str, Any]]:
    """Return single steps of instructions with all operands and the device's bits."""
    kernels, rows = Kernels(), []
    strides = find_strides(kernels, type("Said", (), {"line": staticmethod(line)}))
    for name, (a_format, b_format, _) in INSTRUCTIONS.items():
        if name.endswith("to_fp16"):
            continue
        for label, host in operand_sets(a_format, b_format, False).items():
            a, b, c = (x[:8] for x in host)
            got = cupy.asnumpy(kernels.instruction(name, *map(cupy.asarray, (a, b, c)), strides))
            for p in range(8):
                i, j = (7 * p) % 64, p % 8
                rows.append({
                    "instruction": name, "data": label, "a": a[p, i].tobytes().hex(), "b": b[p, j].tobytes().hex(),
                    "c": f"{c[p, i, j]:08x}", "out": f"{got[p, i, j]:08x}",
                })  # fmt: skip
    for name in ("wgmma_e4m3_e4m3", "wgmma_e5m2_e5m2", "wgmma_bf16_bf16", "mma_bf16_bf16"):
        rows += captured_sums(kernels, name, strides)
    return rows


def captured_sums(kernels: Any, name: str, strides: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the chosen sums of `probe_product.directed` with the device's bits."""
    cases = directed(INSTRUCTIONS[name][0])
    k, dtype = (32, np.uint8) if INSTRUCTIONS[name][0][0] == "E" else (16, np.uint16)
    a, b = np.zeros((len(cases), 64, k), dtype), np.zeros((len(cases), 8, k), dtype)
    c = np.zeros((len(cases), 64, 8), np.uint32)
    for i, (pairs, start) in enumerate(cases.values()):
        for j, (x, y) in enumerate(pairs):
            a[i, 0, j], b[i, 0, j] = x, y
        c[i, 0, 0] = start
    got = cupy.asnumpy(kernels.instruction(name, *map(cupy.asarray, (a, b, c)), strides))
    return [
        {"instruction": name, "data": label, "a": a[i, 0].tobytes().hex(), "b": b[i, 0].tobytes().hex(),
         "c": f"{c[i, 0, 0]:08x}", "out": f"{got[i, 0, 0]:08x}"}
        for i, label in enumerate(cases)
    ]  # fmt: skip


def captured_products(rng: Any) -> list[dict[str, Any]]:
    """Return small products of torch._scaled_mm with all operands, in every mode."""
    rows = []
    for (name, draw, lay, fast), (m, n, k) in itertools.product(MODES, ((16, 16, 128), (16, 32, 640), (128, 16, 256))):
        kind = "finite" if k == 640 else "normal"
        a, b = codes(rng, (m, k), "E4M3", kind), codes(rng, (n, k), "E4M3", kind)
        sa, sb = draw(rng, m, n, k)
        try:
            out = cupy.from_dlpack(scaled_mm(a, b, ("E4M3", "E4M3"), *lay(sa, sb), fast))
        except RuntimeError as error:
            line(f"not captured: {name} {m}x{n}x{k}: {str(error).splitlines()[0][:120]}")
            continue
        order = "chain" if fast else "promote128"
        bad = differing(out, product.matmul_fp8(a, b, sa, sb, order))
        line(f"captured: {name} {m}x{n}x{k}: {bad} of {m * n} differ from {order}")
        rows.append({
            "mode": name, "order": order, "shape": [m, n, k],
            **{key: cupy.asnumpy(cupy.ascontiguousarray(x)).tobytes().hex()
               for key, x in (("a", a), ("b", b), ("a_scales", sa), ("b_scales", sb), ("out", out))},
        })  # fmt: skip
    return rows


def main() -> None:
    """Write product_orders.json and product_captures.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200, help="no call starts after that many seconds")
    given = parser.parse_args()
    rng = cupy.random.default_rng(20)
    given.out.mkdir(parents=True, exist_ok=True)
    documents: dict[str, Callable[[], Any]] = {
        "product_captures": lambda: {"products": captured_products(rng), "steps": captured_steps()},
        "product_orders": lambda: {"calls": table(rng, given.seconds)},
    }
    for name, make in documents.items():
        document = {**make(), "environment": environment()}
        temporary = given.out / f"{name}.json.tmp"
        temporary.write_text(json.dumps(document, indent=1, default=str))
        temporary.rename(given.out / f"{name}.json")
    line(f"done {environment()}")


if __name__ == "__main__":
    main()
