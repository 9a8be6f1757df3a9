"""Measure what clause N19 leaves open, on one H200: instructions on chosen operands, then library calls.

    python benchmarks/probe_product.py --out DIR [--seconds 140] [--only SECTION ...]

Every result is compared with a plain model whose rule is numbers (probe_product.cu); instructions are compared with
refnum's model on CuPy too. The table says how many bit patterns differ; where any do, the rules nearby that differ
least are named, and the first cases are printed with all their bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import probe_product_calls
import probe_product_more
from probe_device import FORMATS, Kernels, Report, Rule, differing, random_codes

from refnum.product import tensor_core_step

PROBLEMS = 256
SIGN = {"E4M3": 0x80, "E5M2": 0x80, "BF16": 0x8000, "FP16": 0x8000}
ONE = {"E4M3": 0x38, "E5M2": 0x3C, "BF16": 0x3F80, "FP16": 0x3C00}
MAX = {"E4M3": 0x7E, "E5M2": 0x7B, "BF16": 0x7F7F, "FP16": 0x7BFF}
NAN = {"E4M3": 0x7F, "E5M2": 0x7E, "BF16": 0x7FC1, "FP16": 0x7E01}
INF = {"E5M2": 0x7C, "BF16": 0x7F80, "FP16": 0x7C00}


def wgmma(a: str, b: str, to_half: int = 0) -> Rule:
    """Return the rule that N19 supposes of a wgmma."""
    wide = a in ("BF16", "FP16")
    return Rule(FORMATS[a], FORMATS[b], 16 if wide else 32, 25 if wide else 13, 23 if wide else 13, to_half)


def mma(a: str, b: str, to_half: int = 0) -> Rule:
    """Return the rule supposed of an mma.sync; the compiler turns FP8 into two binary16 steps and an addition."""
    if a in ("BF16", "FP16"):
        return wgmma(a, b, to_half)
    return Rule(FORMATS[a], FORMATS[b], 16, 25, 23, to_half, as_half=1, pairs=1, apart=1)


INSTRUCTIONS: dict[str, tuple[str, str, Rule | None]] = {
    **{f"wgmma_{a}_{b}".lower(): (a, b, wgmma(a, b)) for a in ("E4M3", "E5M2") for b in ("E4M3", "E5M2")},
    "wgmma_bf16_bf16": ("BF16", "BF16", wgmma("BF16", "BF16")),
    "wgmma_fp16_fp16": ("FP16", "FP16", wgmma("FP16", "FP16")),
    "mma_bf16_bf16": ("BF16", "BF16", mma("BF16", "BF16")),
    "mma_fp16_fp16": ("FP16", "FP16", mma("FP16", "FP16")),
    "mma_e4m3_e4m3": ("E4M3", "E4M3", mma("E4M3", "E4M3")),
    "mma_e5m2_e5m2": ("E5M2", "E5M2", mma("E5M2", "E5M2")),
    "wgmma_e4m3_e4m3_to_fp16": ("E4M3", "E4M3", wgmma("E4M3", "E4M3", 1)),
    "wgmma_e5m2_e5m2_to_fp16": ("E5M2", "E5M2", wgmma("E5M2", "E5M2", 1)),
    "wgmma_fp16_fp16_to_fp16": ("FP16", "FP16", wgmma("FP16", "FP16", 1)),
    "mma_fp16_fp16_to_fp16": ("FP16", "FP16", mma("FP16", "FP16", 1)),
}


def variants(rule: Rule) -> dict[str, Rule]:
    """Return rules near one, by what they change."""
    found = {}
    for fraction in range(rule.fraction - 3, rule.fraction + 4):
        for kept in sorted({rule.kept, 10, 12, 13, 14, 23}):
            found[f"fraction {fraction}, kept {kept}"] = dataclasses.replace(rule, fraction=fraction, kept=kept)
    for name, value in (
        ("terms", 4), ("terms", 8), ("terms", 16), ("terms", 32), ("zero", 1), ("normalised", 1), ("rounding", 1),
        ("rounding", 2), ("overflow", 1), ("zero_exponent", -126), ("zero_exponent", -132), ("zero_exponent", -149),
        ("zero_exponent", -300), ("apart", 1 - rule.apart), ("pairs", 1 - rule.pairs), ("as_half", 1 - rule.as_half),
    ):  # fmt: skip
        changed = dataclasses.replace(rule, **{name: value})
        fits = changed.terms <= (32 if rule.a < 2 else 16) and (rule.a < 2 or not changed.as_half)
        if changed != rule and fits and not (changed.pairs and changed.terms != 16):
            found[f"{name} {value}"] = changed
    found.pop(f"fraction {rule.fraction}, kept {rule.kept}", None)
    return found


def operand_sets(a: str, b: str, half: bool) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return name -> (a [P, 64, K], b [P, 8, K], c bits [P, 64, 8])."""
    rng = np.random.default_rng(19)
    k = 32 if a in ("E4M3", "E5M2") else 16
    left, right, shape = (PROBLEMS, 64, k), (PROBLEMS, 8, k), (PROBLEMS, 64, 8)

    def near() -> np.ndarray:
        sign = rng.integers(0, 2, shape).astype(np.uint32)
        if half:
            return (rng.integers(0x2000, 0x6000, shape) | sign << 15).astype(np.uint32)
        return (rng.integers(0x3A000000, 0x48000000, shape) | sign << 31).astype(np.uint32)

    def anything() -> np.ndarray:
        return rng.integers(0, 1 << 16 if half else 1 << 32, shape).astype(np.uint32)

    def sparse(codes: np.ndarray) -> np.ndarray:
        return np.where(rng.random(codes.shape) < 0.9, codes & SIGN[a], codes).astype(codes.dtype)

    def small() -> np.ndarray:
        if half:
            return rng.integers(0, 0x800, shape).astype(np.uint32)
        return (rng.integers(0, 1 << 27, shape) | rng.integers(0, 2, shape) << 31).astype(np.uint32)

    zero = np.zeros(shape, np.uint32)
    mirrored = random_codes(rng, left, a, "near")
    mirrored[:, :, k // 2 :] = mirrored[:, :, : k // 2] ^ SIGN[a]
    twice = random_codes(rng, right, b, "near")
    twice[:, :, k // 2 :] = twice[:, :, : k // 2]
    twice[:, ::2, k // 2] ^= 1
    return {
        "near, c = 0": (random_codes(rng, left, a, "near"), random_codes(rng, right, b, "near"), zero),
        "near, c near": (random_codes(rng, left, a, "near"), random_codes(rng, right, b, "near"), near()),
        "finite, c = 0": (random_codes(rng, left, a), random_codes(rng, right, b), zero),
        "finite, c near": (random_codes(rng, left, a), random_codes(rng, right, b), near()),
        "cancelling, c near": (mirrored, twice, near()),
        "sparse, c anything": (sparse(random_codes(rng, left, a)), sparse(random_codes(rng, right, b)), anything()),
        "zeros, c small": (random_codes(rng, left, a) & SIGN[a], random_codes(rng, right, b), small()),
        "anything": (random_codes(rng, left, a, "any"), random_codes(rng, right, b, "any"), anything()),
    }


def show(a: Any, b: Any, c: Any, got: Any, want: Any, most: int = 3) -> list[dict[str, str]]:
    """Return the first results that differ, with all bits of their operands."""
    where = np.argwhere(cupy.asnumpy(got != want))[:most]
    host = [cupy.asnumpy(x) for x in (a, b, c, got, want)]
    return [
        {
            "a": host[0][p, i].tobytes().hex(), "b": host[1][p, j].tobytes().hex(), "c": f"{host[2][p, i, j]:08x}",
            "device": f"{host[3][p, i, j]:08x}", "model": f"{host[4][p, i, j]:08x}",
        }
        for p, i, j in where.tolist()
    ]  # fmt: skip


def find_strides(kernels: Kernels, report: Report) -> tuple[int, int]:
    """Return the (leading, stride) bytes of a descriptor with which a wgmma of small integers is exact."""
    rng = np.random.default_rng(1)
    small = np.array([0, 0x38, 0x40, 0x44, 0xB8, 0xC0], np.uint8)  # 0, 1, 2, 3, -1, -2
    a, b = small[rng.integers(0, 6, (4, 64, 32))], small[rng.integers(0, 6, (4, 8, 32))]
    c = cupy.zeros((4, 64, 8), np.uint32)
    values = {0: 0, 0x38: 1, 0x40: 2, 0x44: 3, 0xB8: -1, 0xC0: -2}
    decoded = [np.vectorize(values.get)(x).astype(np.float32) for x in (a, b)]
    want = cupy.asarray(np.einsum("pik,pjk->pij", *decoded).astype(np.float32).view(np.uint32))
    for strides in ((128, 256), (256, 128)):
        got = kernels.instruction("wgmma_e4m3_e4m3", cupy.asarray(a), cupy.asarray(b), c, strides)
        if differing(got, want) == 0:
            report.line(f"descriptor strides (leading, stride) = {strides}")
            return strides
    raise RuntimeError("no descriptor gives the exact product of small integers")


def probe_instruction(kernels: Kernels, report: Report, name: str, strides: tuple[int, int]) -> dict[str, Any]:
    """Compare one instruction with its supposed rule, with refnum's model, and with rules nearby."""
    a_format, b_format, rule = INSTRUCTIONS[name]
    half, found = name.endswith("to_fp16"), {}
    everything = []
    for label, host in operand_sets(a_format, b_format, half).items():
        a, b, c = map(cupy.asarray, host)
        got = kernels.instruction(name, a, b, c, strides)
        want = kernels.steps(rule, a, b, c)
        row: dict[str, Any] = {"results": got.size, "differing": differing(got, want)}
        row["refnum differs"] = None if half or rule.apart else _refnum(name, a, b, c, a_format, b_format, got)
        if row["differing"]:
            row["cases"] = show(a, b, c, got, want)
        everything.append((a, b, c, got))
        found[label] = row
        if row["differing"] or not str(row["refnum differs"] or 0).startswith("0"):
            report.line(f"{name} {label}: {row['differing']} of {got.size} differ, refnum in {row['refnum differs']}")
        for case in row.get("cases", [])[:2]:
            report.line(f"    {case}")
    total = sum(row["differing"] for row in found.values())
    report.line(f"{name:26s} {total} of {sum(row['results'] for row in found.values())} differ from the rule supposed")
    near = {n: sum(differing(got, kernels.steps(r, a, b, c)) for a, b, c, got in everything)
            for n, r in variants(rule).items()}  # fmt: skip
    ranked = sorted(near.items(), key=lambda item: item[1])
    found["rules nearby"] = dict(ranked)
    report.line(f"    nearest other rules: {ranked[:4]}")
    return found


def _refnum(name: str, a: Any, b: Any, c: Any, a_format: str, b_format: str, got: Any) -> str:
    """Return how many results of every sixteenth problem differ from refnum's model on CuPy."""
    kind = name.split("_")[0] + "_" + ("fp8" if a_format in ("E4M3", "E5M2") else a_format.lower())
    problems, total = range(0, PROBLEMS, 16), 0
    for i in problems:
        want = tensor_core_step(a[i], b[i], c[i].view(np.float32), kind, a_format, b_format)
        total += differing(want.view(np.uint32), got[i])
    return f"{total} of {len(problems) * got[0].size}"


def directed(fmt: str) -> dict[str, tuple[list[tuple[int, int]], int]]:
    """Return name -> (pairs of codes, bits of the float32 accumulator)."""
    one, top, nan, sign, inf = ONE[fmt], MAX[fmt], NAN[fmt], SIGN[fmt], INF.get(fmt)
    count = 32 if fmt in ("E4M3", "E5M2") else 16
    minus = one | sign
    cases = {
        "nan * 0": ([(nan, 0)], 0), "-nan * 1": ([(nan | sign, one)], 0), "1 * nan, c = 1": ([(one, nan)], 0x3F800000),
        "c quiet nan": ([(one, one)], 0x7FC12345), "c signalling nan": ([(one, one)], 0x7F812345),
        "c -nan": ([(0, 0)], 0xFFC00001), "c inf": ([(one, one)], 0x7F800000), "c -inf": ([(top, top)], 0xFF800000),
        "+0 * 1, c = -0": ([(0, one)], 0x80000000), "all -0 * 1, c = -0": ([(sign, one)] * count, 0x80000000),
        "all -0 * 1, c = 0": ([(sign, one)] * count, 0), "1 - 1": ([(one, one), (minus, one)], 0),
        "1 - 1, c = -0": ([(one, one), (minus, one)], 0x80000000), "1, c = -1": ([(one, one)], 0xBF800000),
        "c largest": ([(0, 0)], 0x7F7FFFFF), "c -largest": ([(0, 0)], 0xFF7FFFFF),
        "c largest + max": ([(top, top)] * count, 0x7F7FFFFF),
        "c largest 14 bits + max": ([(top, top)] * count, 0x7F7FFC00),
        **{f"c subnormal {c:08x}": ([(0, 0)], c) for c in (1, 2, 0x3FF, 0x400, 0x7FF, 0x800, 0x7FFFFF, 0x800001)},
        **{f"c subnormal {c:08x}": ([(0, 0)], c) for c in (0x80000001, 0x800003FF, 0x80000400, 0x807FFFFF)},
        "0 * max, c = 2**-40": ([(0, top)] * count, 0x2B8ABCDE), "min * min, c = 0": ([(1, 1)], 0),
        "min * min * count, c = 0": ([(1, 1)] * count, 0), "-min * min, c tiny": ([(1 | sign, 1)], 0x00012345),
    }  # fmt: skip
    if inf is not None:
        cases |= {
            "inf * 1": ([(inf, one)], 0), "inf * -1": ([(inf, minus)], 0), "inf * 0": ([(inf, 0)], 0),
            "inf * -0": ([(inf, sign)], 0), "inf - inf": ([(inf, one), (inf, minus)], 0),
            "inf * inf": ([(inf, inf)], 0), "inf, c = -inf": ([(inf, one)], 0xFF800000),
            "-inf, c = -inf": ([(inf, minus)], 0xFF800000), "inf * nan": ([(inf, nan)], 0),
        }  # fmt: skip
    if fmt == "BF16":
        big, half = 0x7F00, 0x3F00  # 2**127, 1/2
        two, tiny = 0x4000, 0x1A00  # 2, 2**-75
        cases |= {
            "2**128": ([(big, two)], 0), "-2**128": ([(big, two | sign)], 0), "2**254": ([(big, big)], 0),
            "2**128 - 2**128": ([(big, two), (big, two | sign)], 0),
            "2**254 - 2**254 + 1": ([(big, big), (big, big | sign), (one, one)], 0),
            "2**254 - 2**254, c = 1": ([(big, big), (big, big | sign)], 0x3F800000),
            "2**128 - 2**127": ([(big, two), (big, minus)], 0), "2**127 + 2**127": ([(big, one)] * 2, 0),
            "2**128 - 2**103": ([(big, two), (0x7300, minus)], 0),
            "2**128 - 2**102": ([(big, two), (0x7280, minus)], 0),
            "c largest + 2**102": ([(0x7280, one)], 0x7F7FFFFF), "c largest + 2**104": ([(0x7380, one)], 0x7F7FFFFF),
            "2**-150": ([(tiny, tiny)], 0), "2**-150 * 2": ([(tiny, tiny)] * 2, 0),
            "-2**-150": ([(tiny, tiny | sign)], 0),
            "2**-149": ([(tiny, 0x1A80)], 0), "subnormal * 1": ([(1, one)], 0), "subnormal / 2": ([(1, half)], 0),
            **{f"2**-149 - 2**-{e}": ([(tiny, 0x1A80), (tiny, 202 - e << 7 | sign)], 0) for e in range(155, 164)},
        }  # fmt: skip
    return cases


def probe_directed(kernels: Kernels, report: Report, name: str, strides: tuple[int, int]) -> dict[str, Any]:
    """Print what one instruction gives on chosen sums, beside the model where it differs."""
    fmt, _, rule = INSTRUCTIONS[name]
    cases = directed(fmt)
    k, dtype = (32, np.uint8) if fmt in ("E4M3", "E5M2") else (16, np.uint16)
    a, b = np.zeros((len(cases), 64, k), dtype), np.zeros((len(cases), 8, k), dtype)
    c = np.zeros((len(cases), 64, 8), np.uint32)
    for i, (pairs, start) in enumerate(cases.values()):
        for j, (x, y) in enumerate(pairs):
            a[i, 0, j], b[i, 0, j] = x, y
        c[i, 0, 0] = start
    on_device = tuple(map(cupy.asarray, (a, b, c)))
    got = cupy.asnumpy(kernels.instruction(name, *on_device, strides))[:, 0, 0]
    want = cupy.asnumpy(kernels.steps(rule, *on_device))[:, 0, 0]
    wrong = [(n, f"{g:08x}", f"{w:08x}") for n, g, w in zip(cases, got, want, strict=True) if g != w]
    report.line(f"{name}: {len(wrong)} of {len(cases)} directed sums differ (name, device, model)")
    for one in wrong:
        report.line(f"    {one}")
    return {n: [f"{g:08x}", f"{w:08x}"] for n, g, w in zip(cases, got, want, strict=True)}


def main() -> None:
    """Run the sections and write the JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for probe_product.json")
    parser.add_argument("--seconds", type=float, default=140, help="no section starts after that many seconds")
    parser.add_argument("--only", nargs="*", default=[], help="sections whose names start so")
    given = parser.parse_args()
    report = Report(given.out, given.seconds)
    kernels = Kernels()
    report.line("kernels compiled")
    strides = find_strides(kernels, report)
    sections: dict[str, Any] = {}
    for name in INSTRUCTIONS:
        sections[name] = lambda n=name: probe_instruction(kernels, report, n, strides)
    for name in ("wgmma_e4m3_e4m3", "wgmma_e5m2_e5m2", "wgmma_bf16_bf16", "wgmma_fp16_fp16", "mma_bf16_bf16"):
        sections[f"directed {name}"] = lambda n=name: probe_directed(kernels, report, n, strides)
    sections |= probe_product_calls.sections(kernels, report) | probe_product_more.sections(kernels, report)
    for name, function in sections.items():
        if not given.only or any(name.startswith(o) for o in given.only):
            report.section(name, function)
    report.save()
    report.line("done")


if __name__ == "__main__":
    main()
