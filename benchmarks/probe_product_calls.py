"""Library products on the device against named orders: torch, cuBLASLt by ctypes, Triton. Part of probe_product.py."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np
import torch
from probe_device import FORMATS, Kernels, Order, Report, Rule, differing, random_codes

from refnum.product import matmul_bf16, matmul_fp8

SAMPLES = 2048
TORCH = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2, "BF16": torch.bfloat16}
SHAPES = [(256, 256, 256), (256, 512, 2048), (256, 256, 7168), (1024, 1024, 7168), (64, 2048, 7168), (4096, 4096, 7168)]
TO = {torch.float32: 0, torch.bfloat16: 1}
DEVICE = "cuda"


def to_torch(x: Any, dtype: Any = None) -> torch.Tensor:
    """Return torch's view of a CuPy array; codes as the dtype given."""
    signed = {np.dtype(np.uint16): np.int16, np.dtype(np.uint32): np.int32}.get(x.dtype)
    tensor = torch.from_dlpack(x.view(signed) if signed else x)
    return tensor.view(dtype) if dtype is not None else tensor


def bits_of(x: torch.Tensor) -> Any:
    """Return a float result's bits as CuPy's u32."""
    if x.dtype == torch.float32:
        return cupy.from_dlpack(x.contiguous().view(torch.int32)).view(np.uint32)
    return cupy.from_dlpack(x.contiguous().view(torch.int16)).view(np.uint16).astype(np.uint32)


@functools.cache
def _operands(m: int, n: int, k: int, formats: tuple[str, str], kind: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + 7 * n + 13 * k + 1)
    host = [random_codes(rng, (rows, k), fmt, kind) for rows, fmt in zip((m, n), formats, strict=True)]
    if formats[0] == "BF16":  # with all its exponents a sum would overflow
        host = [(x & 0x83FF | 0x3C00).astype(np.uint16) for x in host]
    return cupy.asarray(host[0]), cupy.asarray(host[1])


class Product:
    """Operands of one product, and what orders predict for chosen results of it."""

    def __init__(
        self, kernels: Kernels, m: int, n: int, k: int, formats: tuple[str, str], kind: str = "finite"
    ) -> None:
        rng = np.random.default_rng(m + 7 * n + 13 * k)
        self.kernels, self.shape, self.formats = kernels, (m, n, k), formats
        self.host = (random_codes(rng, (m, k), formats[0], kind), random_codes(rng, (n, k), formats[1], kind))
        if formats[0] == "BF16":  # all exponents would overflow
            self.host = tuple((x & 0x83FF | 0x3C00).astype(np.uint16) for x in self.host)  # type: ignore[assignment]
        self.a, self.b = map(cupy.asarray, self.host)
        count = min(SAMPLES, m * n)
        chosen = rng.choice(m * n, count, replace=False).astype(np.int64)
        self.chosen = cupy.asarray(chosen)
        self.rows, self.columns = (cupy.asarray(x.astype(np.int32)) for x in np.divmod(chosen, n))
        wide = formats[0] == "BF16"
        terms, fraction, kept = (16, 25, 23) if wide else (32, 13, 13)
        self.rule = Rule(FORMATS[formats[0]], FORMATS[formats[1]], terms, fraction, kept)
        one = cupy.ones((max(m, n), 1), np.float32)
        self.scales, self.blocks = (one, one), 1

    def orders(self, scalings: tuple[int, ...], quick: bool = False) -> Iterator[Order]:
        """Yield orders, the likely ones first."""
        k, blocks = self.shape[2], -(-self.shape[2] // 128)
        plain = [("chain", 0, k), ("promote128", 128, k)]
        plain += [(f"split{s}", 128, -(-blocks // s) * 128) for s in range(2, 17) if s <= blocks]
        plain += [(f"split{s} of chains", 0, -(-blocks // s) * 128) for s in range(2, 17) if s <= blocks]
        plain += [(f"promote{n}", n, k) for n in (16, 32, 64, 256, 512, 1024) if n >= self.rule.terms]
        for scaling, (name, run, part) in itertools.product(scalings, plain):
            yield Order(name, k, run, part, 0, scaling, self.blocks)
        if not quick:
            for scaling, s in itertools.product(scalings, range(3, 17)):
                if s <= blocks:
                    yield Order(f"split{s} last first", k, 128, -(-blocks // s) * 128, 1, scaling, self.blocks)

    def judge(self, out: torch.Tensor, scalings: tuple[int, ...] = (0,), finish: Any = None) -> dict[str, Any]:
        """Return the first order that gives every chosen bit, or those nearest; `finish` maps sums to bits."""
        got = bits_of(out).ravel()[self.chosen]
        to = TO[out.dtype]
        finish = finish or (lambda sums: self.kernels.epilogue(0, to, sums, self.scales[0]))
        found = []
        for order in self.orders(scalings):
            sums = self.kernels.products(self.rule, order, self.a, self.b, self.scales, self.rows, self.columns)
            want = finish(sums)
            found.append((differing(got, want), order.name, order.scaling))
            if found[-1][0] == 0:
                return {"order": order.name, "scaling": order.scaling, "compared": got.size, "tried": len(found)}
            if len(found) == 1:
                first = [[f"{int(x):08x}" for x in cupy.asnumpy(side[:6])] for side in (got, want)]
        return {"order": None, "nearest": sorted(found)[:5], "compared": got.size, "first (device, chain)": first}

    def block_scales(self, rng: np.random.Generator, kinds: tuple[str, str], real: bool, spread: int) -> Any:
        """Set scales of 128 of K, and return them as torch's [K/128, R] for 1x128 or [K/128, R/128] for 128x128."""
        sides, given = [], []
        for rows, kind in zip(self.shape[:2], kinds, strict=True):
            blocks = -(-self.shape[2] // 128)
            tall = -(-rows // 128) if kind == "128x128" else rows
            scale = np.exp2(rng.integers(-spread, spread + 1, (tall, blocks))).astype(np.float32)
            if real:
                scale *= rng.uniform(1, 2, scale.shape).astype(np.float32)
            given.append(scale)
            sides.append(cupy.asarray(np.repeat(scale, 128, axis=0)[:rows] if kind == "128x128" else scale))
            if kind == "128x128":  # rows of these lie a multiple of four items apart
                given[-1] = np.pad(scale, ((0, 0), (0, -blocks % 4)))
        self.scales, self.blocks = tuple(cupy.ascontiguousarray(s) for s in sides), sides[0].shape[1]
        return [torch.from_numpy(s).to(DEVICE)[:, :blocks] for s in given]


def _row(report: Report, label: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return what `judge` found; said at once only where no order fits."""
    if not found["order"]:
        report.line(f"{label}: NO ORDER; nearest {found['nearest'][:3]} of {found['compared']}")
    return found


def tensorwise(kernels: Kernels, report: Report) -> dict[str, Any]:
    """Scales a tensor: fast and slow accumulation, powers of two and not, formats, output dtypes."""
    found = {}
    for (m, n, k), fast, real in itertools.product(SHAPES, (True, False), (False, True)):
        for formats, dtype in itertools.product((("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E4M3", "E5M2")), TO):
            if m * n > 1 << 20 and (formats[0] != formats[1] or real):
                continue
            p = Product(kernels, m, n, k, formats)
            sa, sb = (0.37, 1.9) if real else (1.0, 1.0)
            p.scales = tuple(cupy.full((max(m, n), 1), s, np.float32) for s in (sa, sb))
            out = torch._scaled_mm(
                to_torch(p.a, TORCH[formats[0]]), to_torch(p.b, TORCH[formats[1]]).t(),
                torch.tensor(sa, device=DEVICE), torch.tensor(sb, device=DEVICE), out_dtype=dtype, use_fast_accum=fast,
            )  # fmt: skip
            label = f"tensorwise {'x'.join(formats)} {m}x{n}x{k} fast={fast} real={real} {dtype}"
            found[label] = _row(report, label, p.judge(out, (5, 6, 7) if real else (0,)))
    return found


def tensorwise_bias(kernels: Kernels, report: Report) -> dict[str, Any]:
    """A bfloat16 bias: is it added to the rounded product, or fused?"""
    found = {}
    for fast, kind in itertools.product((True, False), ("near", "finite")):
        p = Product(kernels, 256, 512, 2048, ("E4M3", "E4M3"), kind)
        bias = torch.randn(512, device=DEVICE, dtype=torch.bfloat16) * 100
        sa, sb = 0.37, 1.9
        out = torch._scaled_mm(
            to_torch(p.a, TORCH["E4M3"]), to_torch(p.b, TORCH["E4M3"]).t(), torch.tensor(sa, device=DEVICE),
            torch.tensor(sb, device=DEVICE), bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast,
        )  # fmt: skip
        addend = cupy.from_dlpack(bias.float().contiguous())[p.columns]
        alpha = float(np.float32(sa) * np.float32(sb))
        for how in (1, 2):
            finish = functools.partial(_with_addend, kernels, how, 1, addend, alpha, 0.0)
            label = f"bias {kind} fast={fast} epilogue {how}"
            found[label] = _row(report, label, p.judge(out, (0,), finish))
    return found


def _with_addend(kernels: Kernels, how: int, to: int, addend: Any, alpha: float, beta: float, sums: Any) -> Any:
    return kernels.epilogue(how, to, sums, addend, alpha, beta)


def blockwise(kernels: Kernels, report: Report) -> dict[str, Any]:
    """1x128 and 128x128 scales of float32: powers of two, not, and so far apart that products leave float32."""
    found = {}
    rng = np.random.default_rng(5)
    pairs = (("1x128", "1x128"), ("1x128", "128x128"), ("128x128", "1x128"))
    for (m, n, k), kinds in itertools.product(SHAPES, pairs):
        for (real, spread), dtype in itertools.product(((False, 6), (True, 6), (False, 70)), TO):
            if (m * n > 1 << 20 or k != 7168) and dtype == torch.bfloat16:
                continue
            p = Product(kernels, m, n, k, ("E4M3", "E4M3"))
            given = p.block_scales(rng, kinds, real, spread)
            label = f"{kinds[0]} x {kinds[1]} {m}x{n}x{k} real={real} spread={spread} {dtype}"
            try:
                out = _scaled_blocks(p, given, kinds, dtype)
            except RuntimeError as error:
                found[label] = str(error)[:300]
                report.line(f"{label:72s} refused: {str(error)[:100]}")
                continue
            found[label] = _row(report, label, p.judge(out, (8, 2, 9, 1, 3, 4)))
    return found


def _scaled_blocks(p: Product, given: list[torch.Tensor], kinds: tuple[str, str], dtype: torch.dtype) -> torch.Tensor:
    """Call torch._scaled_mm; scales of 128x128 have K contiguous, those of 1x128 the rows."""
    a, b = to_torch(p.a, TORCH["E4M3"]), to_torch(p.b, TORCH["E4M3"]).t()
    left = given[0].t().contiguous().t() if kinds[0] == "1x128" else given[0]
    right = given[1].t().contiguous() if kinds[1] == "1x128" else given[1].t()
    return torch._scaled_mm(a, b, left, right, out_dtype=dtype, use_fast_accum=False)


def rowwise(kernels: Kernels, report: Report) -> dict[str, Any]:
    """One scale a row of each operand."""
    found = {}
    rng = np.random.default_rng(6)
    for (m, n, k), fast, real, dtype in itertools.product(
        SHAPES, (True, False), (False, True), (torch.bfloat16, torch.float32)
    ):
        if m * n > 1 << 20 and real:
            continue
        p = Product(kernels, m, n, k, ("E4M3", "E4M3"))
        scales = [np.exp2(rng.integers(-6, 7, (r, 1))).astype(np.float32) for r in (m, n)]
        if real:
            scales = [s * rng.uniform(1, 2, s.shape).astype(np.float32) for s in scales]
        p.scales = tuple(map(cupy.asarray, scales))
        label = f"row-wise {m}x{n}x{k} fast={fast} real={real} {dtype}"
        try:
            out = torch._scaled_mm(
                to_torch(p.a, TORCH["E4M3"]), to_torch(p.b, TORCH["E4M3"]).t(), torch.from_numpy(scales[0]).to(DEVICE),
                torch.from_numpy(scales[1]).to(DEVICE).t().contiguous(), out_dtype=dtype, use_fast_accum=fast,
            )  # fmt: skip
        except RuntimeError as error:
            found[label] = str(error)[:300]
            report.line(f"{label:72s} refused: {str(error)[:100]}")
            continue
        found[label] = _row(report, label, p.judge(out, (5, 6, 7)))
    return found


def grouped(kernels: Kernels, report: Report) -> dict[str, Any]:
    """torch._scaled_grouped_mm: ragged rows, one scale a row."""
    found = {}
    rng = np.random.default_rng(7)
    for k, fast in itertools.product((512, 2048, 7168), (True, False)):
        counts, n = (128, 0, 256, 64), 256
        parts = [Product(kernels, max(m, 1), n, k, ("E4M3", "E4M3")) for m in counts]
        a = cupy.concatenate([p.a[:m] for p, m in zip(parts, counts, strict=True)])
        b = cupy.stack([p.b for p in parts])
        sa = np.exp2(rng.uniform(-3, 3, (a.shape[0], 1))).astype(np.float32)
        sb = np.exp2(rng.uniform(-3, 3, (len(counts), n, 1))).astype(np.float32)
        offsets = torch.tensor(np.cumsum(counts).astype(np.int32), device=DEVICE)
        out = torch._scaled_grouped_mm(
            to_torch(a, TORCH["E4M3"]), to_torch(b, TORCH["E4M3"]).transpose(-2, -1),
            torch.from_numpy(sa.ravel()).to(DEVICE), torch.from_numpy(sb[:, :, 0]).to(DEVICE), offs=offsets,
            out_dtype=torch.bfloat16, use_fast_accum=fast,
        )  # fmt: skip
        for expert, (p, m) in enumerate(zip(parts, counts, strict=True)):
            if m:
                first = sum(counts[:expert])
                p.scales = (cupy.asarray(sa[first : first + m]), cupy.asarray(sb[expert]))
                label = f"grouped expert {expert} {m}x{n}x{k} fast={fast}"
                found[label] = _row(report, label, p.judge(out[first : first + m], (5, 6, 7)))
    return found


def bf16(kernels: Kernels, report: Report) -> dict[str, Any]:
    """torch.mm and addmm of bfloat16, float32 and bfloat16 out."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    found = {}
    for m, n, k in SHAPES:
        p = Product(kernels, m, n, k, ("BF16", "BF16"))
        a, b = to_torch(p.a, TORCH["BF16"]), to_torch(p.b, TORCH["BF16"]).t()
        calls: dict[str, Callable[[], torch.Tensor]] = {"bfloat16": lambda a=a, b=b: a @ b}
        calls["float32"] = lambda a=a, b=b: torch.mm(a, b, out_dtype=torch.float32)
        for name, call in calls.items():
            try:
                out = call()
            except (RuntimeError, TypeError) as error:
                found[f"bf16 {m}x{n}x{k} {name}"] = str(error)[:200]
                continue
            found[f"bf16 {m}x{n}x{k} {name}"] = _row(report, f"bf16 {m}x{n}x{k} {name}", p.judge(out))
    return found


def whole_products(kernels: Kernels, report: Report) -> dict[str, Any]:
    """refnum's model on CuPy against every result of a few calls."""
    found = {}
    for k, fast in itertools.product((512, 2048), (True, False)):
        p = Product(kernels, 512, 512, k, ("E4M3", "E4M3"))
        one = torch.ones((), device=DEVICE)
        out = torch._scaled_mm(
            to_torch(p.a, TORCH["E4M3"]), to_torch(p.b, TORCH["E4M3"]).t(), one, one, out_dtype=torch.float32,
            use_fast_accum=fast,
        )  # fmt: skip
        want = matmul_fp8(p.a, p.b, order="chain" if fast else "promote128").view(np.uint32)
        found[f"512x512x{k} fast={fast}"] = different = differing(bits_of(out), want)
        report.line(f"refnum on CuPy, tensorwise 512x512x{k} fast={fast}: {different} of {want.size} differ")
    p = Product(kernels, 256, 256, 1024, ("BF16", "BF16"))
    out = to_torch(p.a, TORCH["BF16"]) @ to_torch(p.b, TORCH["BF16"]).t()
    want = matmul_bf16(p.a, p.b, out="bfloat16").view(np.uint16).astype(np.uint32)
    found["bf16"] = differing(bits_of(out), want)
    report.line(f"refnum on CuPy, bf16 256x256x1024: {found['bf16']} of {want.size} differ")
    return found


def sections(kernels: Kernels, report: Report) -> dict[str, Callable[[], Any]]:
    """Return the sections of torch's products, and of the model on CuPy beside them."""
    functions = {
        "refnum on CuPy": whole_products, "blockwise": blockwise, "tensorwise": tensorwise, "row-wise": rowwise,
        "bias": tensorwise_bias, "grouped": grouped, "bf16": bf16,
    }  # fmt: skip
    return {name: functools.partial(function, kernels, report) for name, function in functions.items()}
