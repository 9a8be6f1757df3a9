"""Triton's tl.dot and cuBLASLt called directly (algorithms, split K, beta). Part of probe_product.py."""

from __future__ import annotations

import ctypes
import functools
import glob
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from probe_device import Kernels, Report, Rule
from probe_product_calls import TORCH, Product, _row, _with_addend, to_torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def dot_kernel(
        a,
        b,
        out,
        n,
        k,
        IMPRECISE: tl.constexpr,
        INTO: tl.constexpr,
        BM: tl.constexpr,
        BN: tl.constexpr,
        BK: tl.constexpr,
    ):
        """out [M, N] = a [M, K] @ b [N, K].T, one block a program."""
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        ks = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            x = tl.load(a + rows[:, None] * k + start + ks[None, :])
            y = tl.load(b + columns[None, :] * k + start + ks[:, None])
            if INTO:
                total = tl.dot(x, y, total, max_num_imprecise_acc=IMPRECISE)
            else:
                total += tl.dot(x, y, max_num_imprecise_acc=IMPRECISE)
        tl.store(out + rows[:, None] * n + columns[None, :], total)


FALLBACKS = {
    "FP16 steps": Rule(0, 0, 16, 25, 23, as_half=1),
    "FP16 steps in pairs, accumulator apart": Rule(0, 0, 16, 25, 23, as_half=1, pairs=1, apart=1),
    "FP16 steps in pairs": Rule(0, 0, 16, 25, 23, as_half=1, pairs=1),
    "25 bits": Rule(0, 0, 32, 25, 23),
}


def triton_dots(kernels: Kernels, report: Report) -> dict[str, Any]:
    """tl.dot of FP8: the accumulator inside or outside, and max_num_imprecise_acc."""
    found: dict[str, Any] = {"version": getattr(triton, "__version__", None)}
    m, n, k = 256, 256, 2048
    cases = itertools.product((64, 128), (None, 0, 32, 64, 128), (True, False), (64, 128))
    for bk, imprecise, into, bm in cases:
        if imprecise is not None and imprecise > bk:
            continue
        p = Product(kernels, m, n, k, ("E4M3", "E4M3"))
        out = torch.zeros((m, n), device="cuda")
        a, b = to_torch(p.a, TORCH["E4M3"]), to_torch(p.b, TORCH["E4M3"])
        label = f"triton {bm}x64x{bk} max_num_imprecise_acc={imprecise} acc {'inside' if into else 'outside'}"
        try:
            dot_kernel[(m // bm, n // 64)](a, b, out, n, k, imprecise, into, bm, 64, bk)
            row = p.judge(out)
            for name, rule in FALLBACKS.items():
                if row["order"] is None:
                    p.rule = rule
                    row = {**p.judge(out), "rule": name}
            found[label] = _row(report, f"{label} {row.get('rule', '')}", row)
        except Exception as error:
            found[label] = str(error)[:300]
            report.line(f"{label}: {type(error).__name__} {str(error)[:120]}")
    return found


# ------------------------------------------------------------------------------------------ cuBLASLt

F32, BF16, E4M3 = 0, 14, 28
COMPUTE_32F = 68
TRANSA, BIAS_POINTER, A_SCALE, B_SCALE, FAST_ACCUM, A_MODE, B_MODE = 3, 8, 17, 18, 25, 31, 32
SCALAR, OUTER, VEC128, BLOCK128 = 0, 3, 4, 5
WORKSPACE = 64 << 20
ALGORITHM = {"id": (0, 4), "tile": (1, 4), "split_k": (2, 4), "reduction": (3, 4), "custom": (5, 4), "stages": (6, 4)}


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


class CublasLt:
    """cublasLtMatmul with the algorithms that its heuristic offers."""

    def __init__(self) -> None:
        folders = [str(Path(torch.__file__).parents[1] / "nvidia" / "*" / "lib" / "libcublasLt.so.1*")]
        names = [*itertools.chain.from_iterable(map(glob.glob, folders)), "libcublasLt.so.13", "libcublasLt.so"]
        for name in names:
            try:
                self.library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise RuntimeError("libcublasLt was not found")
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = self.library.cublasLtGetVersion()
        self.handle = ctypes.c_void_p()
        self.call("Create", ctypes.byref(self.handle))
        self.workspace = cupy.zeros(WORKSPACE, np.uint8)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; RuntimeError unless it succeeds."""
        code = getattr(self.library, f"cublasLt{name}")(*arguments)
        if code:
            raise RuntimeError(f"cublasLt{name} gave {code}")

    def _set(self, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self.call(
            "MatmulDescSetAttribute", descriptor, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    def layout(self, kind: int, rows: int, columns: int, lead: int) -> ctypes.c_void_p:
        """Return a column-major matrix layout."""
        made = ctypes.c_void_p()
        self.call("MatrixLayoutCreate", ctypes.byref(made), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                  ctypes.c_int64(lead))  # fmt: skip
        return made

    def prepare(self, p: Product, scales: Any, modes: tuple[int, int], fast: bool, out: int = F32) -> Any:
        """Return (descriptor, layouts, heuristics) of p's product; its result is [M, N] in rows, so b comes first."""
        m, n, k = p.shape
        descriptor = ctypes.c_void_p()
        self.call("MatmulDescCreate", ctypes.byref(descriptor), COMPUTE_32F, F32)
        self._set(descriptor, TRANSA, ctypes.c_int32(1))
        self._set(descriptor, FAST_ACCUM, ctypes.c_int8(fast))
        for attribute, scale in ((A_SCALE, scales[1]), (B_SCALE, scales[0])):
            self._set(descriptor, attribute, ctypes.c_void_p(scale.data.ptr))
        for attribute, mode in ((A_MODE, modes[1]), (B_MODE, modes[0])):
            self._set(descriptor, attribute, ctypes.c_int32(mode))
        layouts = [self.layout(E4M3, k, n, k), self.layout(E4M3, k, m, k), self.layout(out, n, m, n)]
        preference = ctypes.c_void_p()
        self.call("MatmulPreferenceCreate", ctypes.byref(preference))
        size = ctypes.c_size_t(WORKSPACE)
        self.call("MatmulPreferenceSetAttribute", preference, 1, ctypes.byref(size), ctypes.c_size_t(8))
        results, count = (Heuristic * 8)(), ctypes.c_int()
        self.call("MatmulAlgoGetHeuristic", self.handle, descriptor, *layouts, layouts[2], preference, 8, results,
                  ctypes.byref(count))  # fmt: skip
        return descriptor, layouts, [r for r in results[: count.value] if r.state == 0]

    def matmul(
        self, p: Product, prepared: Any, algo: Heuristic, out: Any, beta: float = 0.0, alpha: float = 1.0
    ) -> None:
        """Compute out = alpha * scaled product + beta * out."""
        descriptor, layouts, _ = prepared
        a, b, d = (ctypes.c_void_p(x.data.ptr) for x in (p.a, p.b, out))
        factors = [ctypes.byref(ctypes.c_float(x)) for x in (alpha, beta)]
        workspace = ctypes.c_void_p(self.workspace.data.ptr), ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(0)
        left, right = (factors[0], b, layouts[0], a, layouts[1]), (factors[1], d, layouts[2], d, layouts[2])
        self.call("Matmul", self.handle, descriptor, *left, *right, ctypes.byref(algo), *workspace)
        cupy.cuda.Device().synchronize()

    def describe(self, algo: Heuristic) -> dict[str, int]:
        """Return what an algorithm's configuration says of itself."""
        said = {}
        for name, (attribute, size) in ALGORITHM.items():
            value, written = ctypes.c_uint32(), ctypes.c_size_t()
            self.call("MatmulAlgoConfigGetAttribute", ctypes.byref(algo), attribute, ctypes.byref(value),
                      ctypes.c_size_t(size), ctypes.byref(written))  # fmt: skip
            said[name] = value.value
        return said


def cublaslt(kernels: Kernels, report: Report) -> dict[str, Any]:
    """Every algorithm that the heuristic offers, its split of K, and the order measured; then beta."""
    library = CublasLt()
    found: dict[str, Any] = {"version": library.version}
    report.line(f"cublasLt {library.version}")
    one = cupy.ones(1, np.float32)
    for (m, n, k), fast in itertools.product(((256, 256, 7168), (64, 2048, 7168), (1024, 1024, 2048)), (True, False)):
        p = Product(kernels, m, n, k, ("E4M3", "E4M3"))
        prepared = library.prepare(p, (one, one), (SCALAR, SCALAR), fast)
        _algorithms(library, report, found, p, prepared, (0,), f"cublasLt tensorwise {m}x{n}x{k} fast={fast}")
    rng = np.random.default_rng(8)
    for (m, n, k), kinds in itertools.product(
        ((256, 256, 7168), (1024, 1024, 7168), (64, 2048, 7168)), (("1x128", "1x128"), ("1x128", "128x128"))
    ):
        p = Product(kernels, m, n, k, ("E4M3", "E4M3"))
        given = p.block_scales(rng, kinds, False, 6)
        laid = [cupy.asarray(s.cpu().numpy() if kind == "128x128" else np.ascontiguousarray(s.cpu().numpy().T))
                for s, kind in zip(given, kinds, strict=True)]  # fmt: skip
        modes = tuple(BLOCK128 if kind == "128x128" else VEC128 for kind in kinds)
        prepared = library.prepare(p, laid, modes, False)
        _algorithms(library, report, found, p, prepared, (1, 2, 3, 4), f"cublasLt {kinds[0]} x {kinds[1]} {m}x{n}x{k}")
    found["beta"] = _beta(kernels, report, library)
    return found


def _algorithms(
    library: CublasLt,
    report: Report,
    found: dict[str, Any],
    p: Product,
    prepared: Any,
    scalings: tuple[int, ...],
    label: str,
) -> None:
    for index, algo in enumerate(prepared[2]):
        out = cupy.zeros(p.shape[:2], np.float32)
        library.matmul(p, prepared, algo, out)
        said = library.describe(algo)
        row = _row(
            report,
            f"{label} #{index} split_k={said['split_k']} red={said['reduction']}",
            p.judge(_tensor(out), scalings),
        )
        found[f"{label} #{index}"] = {**row, **said}


def _tensor(x: Any) -> torch.Tensor:
    return torch.from_dlpack(x)


def _beta(kernels: Kernels, report: Report, library: CublasLt) -> dict[str, Any]:
    """What beta * C adds to: out = product + beta * out, in float32."""
    found = {}
    one = cupy.ones(1, np.float32)
    for fast, beta, alpha in itertools.product((True, False), (1.0, 0.37), (1.0, 1.7)):
        p = Product(kernels, 256, 512, 2048, ("E4M3", "E4M3"))
        start = cupy.asarray(np.random.default_rng(9).normal(0, 1e5, p.shape[:2]).astype(np.float32))
        prepared = library.prepare(p, (one, one), (SCALAR, SCALAR), fast)
        out = start.copy()
        library.matmul(p, prepared, prepared[2][0], out, beta, alpha)
        addend = start.ravel()[p.chosen]
        for how in (3, 4, 5):
            finish = functools.partial(_with_addend, kernels, how, 0, addend, alpha, beta)
            label = f"beta={beta} alpha={alpha} fast={fast} epilogue {how}"
            found[label] = _row(report, label, p.judge(_tensor(out), (0,), finish))
    return found


def sections(kernels: Kernels, report: Report) -> dict[str, Callable[[], Any]]:
    """Return the sections of Triton's products and of cuBLASLt called directly."""
    functions = {"triton": triton_dots, "cublasLt": cublaslt}
    return {name: functools.partial(function, kernels, report) for name, function in functions.items()}
