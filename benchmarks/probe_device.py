"""What both parts of the product probe share: the compiled kernels, rules and orders as numbers, sections, samples."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

SOURCE = Path(__file__).with_name("probe_product.cu")
FORMATS = {"E4M3": 0, "E5M2": 1, "BF16": 2, "FP16": 3}


@dataclasses.dataclass(frozen=True)
class Rule:
    """`Rule` of probe_product.cu, field by field."""

    a: int
    b: int
    terms: int
    fraction: int
    kept: int
    to_half: int = 0
    zero: int = 0
    zero_exponent: int = -133
    normalised: int = 0
    as_half: int = 0
    pairs: int = 0
    apart: int = 0
    rounding: int = 0
    overflow: int = 0

    def on_device(self) -> Any:
        """Return the fields as an int32 array."""
        return cupy.asarray(np.array(dataclasses.astuple(self), np.int32))


@dataclasses.dataclass(frozen=True)
class Order:
    """`Order` of probe_product.cu, and its name."""

    name: str
    k: int
    run: int
    part: int
    descending: int = 0
    scaling: int = 0
    blocks: int = 1

    def on_device(self) -> Any:
        """Return the fields as an int32 array."""
        return cupy.asarray(np.array(dataclasses.astuple(self)[1:], np.int32))


class Kernels:
    """The kernels of probe_product.cu, compiled with nvcc for sm_90a."""

    def __init__(self) -> None:
        cubin = Path(tempfile.mkdtemp()) / "probe.cubin"
        command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-fmad=false", "-cubin", str(SOURCE), "-o", str(cubin)]
        subprocess.run(command, check=True, timeout=120)
        self.module = cupy.RawModule(path=str(cubin))

    def run(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Launch a kernel."""
        self.module.get_function(name)((blocks,), (threads,), arguments)

    def instruction(self, name: str, a: Any, b: Any, c: Any, strides: tuple[int, int]) -> Any:
        """Return bits u32 [P, 64, 8] of an instruction on a [P, 64, .] and b [P, 8, .] codes, c u32 [P, 64, 8]."""
        out = cupy.zeros_like(c)
        self.run(name, c.shape[0], 128, a, b, c, out, np.uint32(strides[0]), np.uint32(strides[1]))
        return out

    def steps(self, rule: Rule, a: Any, b: Any, c: Any) -> Any:
        """Return what a rule predicts for `instruction`."""
        out = cupy.zeros_like(c)
        self.run("predict_steps", -(-c.size // 128), 128, rule.on_device(), a, b, c, out, np.int32(c.size))
        return out

    def products(self, rule: Rule, order: Order, a: Any, b: Any, scales: Any, rows: Any, columns: Any) -> Any:
        """Return float32 bits of chosen results of a @ b.T."""
        out = cupy.zeros(rows.size, np.uint32)
        given = (rule.on_device(), order.on_device(), a, b, scales[0], scales[1], rows, columns, out)
        self.run("predict_products", -(-rows.size // 64), 64, *given, np.int32(rows.size))
        return out

    def epilogue(self, kind: int, to: int, sums: Any, addend: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Return bits of sums after an epilogue of predict_epilogue."""
        out = cupy.zeros_like(sums)
        given = (np.int32(kind), np.int32(to), np.float32(alpha), np.float32(beta), sums, addend, out)
        self.run("predict_epilogue", -(-sums.size // 128), 128, *given, np.int32(sums.size))
        return out


class Report:
    """Lines as they come, and a JSON document."""

    def __init__(self, out: Path | None, seconds: float) -> None:
        self.out, self.seconds, self.start = out, seconds, time.perf_counter()
        self.document: dict[str, Any] = {}

    def line(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"[{time.perf_counter() - self.start:6.1f}] {text}", flush=True)

    def section(self, name: str, function: Callable[[], Any]) -> None:
        """Run a section unless time is over; what it raises is recorded, and the next one runs."""
        if time.perf_counter() - self.start > self.seconds:
            self.document[name] = "time was over"
            self.line(f"{name}: left out, time is over")
            return
        try:
            self.document[name] = function()
        except Exception as error:
            self.document[name] = {"error": traceback.format_exc()}
            self.line(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        self.summary(name)
        self.save()

    def summary(self, name: str) -> None:
        """Print how often a section's calls took each order, and which calls took the rarer ones."""
        rows = self.document[name] if isinstance(self.document[name], dict) else {}
        orders: dict[str, list[str]] = {}
        for label, row in rows.items():
            if isinstance(row, dict) and "order" in row:
                orders.setdefault(f"{row['order']} (scaling {row.get('scaling')})", []).append(label)
        for order, labels in sorted(orders.items(), key=lambda item: -len(item[1])):
            self.line(f"{name}: {len(labels):4d} calls: {order}")
            if len(labels) <= 12:
                for label in labels:
                    print(f"             {label}")

    def save(self) -> None:
        """Write the document; under a temporary name first."""
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        temporary = self.out / "probe_product.json.tmp"
        temporary.write_text(json.dumps(self.document, indent=1, default=str))
        temporary.rename(self.out / "probe_product.json")


def random_codes(rng: np.random.Generator, shape: tuple[int, ...], fmt: str, kind: str = "finite") -> np.ndarray:
    """Return codes: `finite` (all alike), `any` (NaN and Inf too), `near` (exponents close together)."""
    bits, top = (
        (8, {"E4M3": 0x7E, "E5M2": 0x7B}[fmt]) if fmt[1] in "45" else (16, {"BF16": 0x7F7F, "FP16": 0x7BFF}[fmt])
    )
    sign = 1 << (bits - 1)
    dtype = np.uint8 if bits == 8 else np.uint16
    if kind == "any":
        return rng.integers(0, 2 * sign, shape).astype(dtype)
    low, high = {
        "finite": (0, top + 1),
        "near": {"E4M3": (0x20, 0x58), "E5M2": (0x30, 0x50), "BF16": (0x3E00, 0x4180), "FP16": (0x3000, 0x4800)}[fmt],
    }[kind]
    return (rng.integers(low, high, shape) | rng.integers(0, 2, shape) * sign).astype(dtype)


def differing(got: Any, want: Any) -> int:
    """Return how many bits patterns differ."""
    return int((got != want).sum())
