"""What the scales make of a result that vanishes, in every mode of torch's FP8 products: its bits and sign (N19.5).

    python benchmarks/probe_product_zeros.py --out DIR

Every sum has one product of two codes, so that the sum is known; scales are zeros, subnormal, tiny, huge and negative.
Each call's results are compared with the rules below, computed on the host.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from product_orders import environment

from refnum import softfloat
from refnum.codec import decode_table
from refnum.formats import E4M3

Bits = np.ndarray
CODES = np.array(
    [0x38, 0xB8, 0x00, 0x80, 0x01, 0x81, 0x7E, 0xFE, 0x40, 0xC0, 0x3C, 0xBD, 0x08, 0x88, 0x23, 0xA3], np.uint8
)
SCALES = np.array(
    [0x3F800000, 0xBF800000, 0, 0x80000000, 1, 0x80000001, 0x200, 0x00400000, 0x00800000, 0x0D800000, 0x8D800000,
     0x1A000000, 0x21800000, 0x1C8CCCCD, 0x1A59999A, 0x71800000, 0xFF000000, 0x7F7FFFFF, 0x00000155, 0x3F9E3779,
     0x20123457, 0x9FABCDEF],
    np.uint32,
)  # fmt: skip
SHAPES = ((128, 128, 512), (256, 256, 7168), (16, 1024, 16384), (64, 1024, 16384))
KEPT = 64
"""Rows and columns of a result that are compared, at most."""
OUT = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def zero(x: Bits) -> Bits:
    return np.zeros_like(x)


def fused(x: Bits, y: Bits, c: Bits | None = None) -> Bits:
    """Return x * y + c, or + 0, rounded once."""
    x, y = np.broadcast_arrays(x, y)
    return softfloat.multiply_add(x, y, zero(x) if c is None else c)


def rules(t: Bits, a: Bits, b: Bits) -> dict[str, Bits]:
    """Return name -> float32 bits of a sum with its scales."""
    times = softfloat.multiply
    both = times(a, b)
    found = {
        "t*(a*b)": times(t, both), "t*(a*b), fused +0": fused(t, both),
        "(t*b)*a": times(times(t, b), a), "(t*b)*a, fused +0": fused(times(t, b), a),
        "(t*a)*b": times(times(t, a), b), "(t*a)*b, fused +0": fused(times(t, a), b),
    }  # fmt: skip
    for name in ("t*(a*b)", "(t*b)*a", "(t*a)*b", "t*(a*b), fused +0", "(t*a)*b, fused +0"):
        found[f"{name}, then +0"] = softfloat.add(found[name], zero(found[name]))
    for name in list(found):
        small = (found[name] & 0x7FFFFFFF) < 0x00800000
        found[f"{name}, flushed"] = np.where(small, found[name] & 0x80000000, found[name])
        found[f"{name}, flushed to +0"] = np.where(small, np.uint32(0), found[name])
    return found


def narrowed(bits: Bits, out: str) -> Bits:
    """Return the bits of a result, every NaN the same."""
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if out == "float32":
        return np.where(nan, np.uint32(0x7FFFFFFF), bits)
    return np.where(nan, np.uint16(0x7FFF), softfloat.to_bfloat16(bits))


def observed(x: torch.Tensor) -> Bits:
    """Return the bits of what came, every NaN the same."""
    kept = x[:KEPT, :KEPT].contiguous()
    if x.dtype == torch.float32:
        bits = kept.view(torch.int32).cpu().numpy().view(np.uint32)
        return np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FFFFFFF), bits)
    bits = kept.view(torch.int16).cpu().numpy().view(np.uint16)
    return np.where((bits & 0x7FFF) > 0x7F80, np.uint16(0x7FFF), bits)


def operand(rows: int, k: int, place: int) -> tuple[torch.Tensor, Bits]:
    """Return codes [rows, K] with one code a row that is not +0, and the bits of their values."""
    codes = np.zeros((rows, k), np.uint8)
    codes[:, place] = CODES[np.arange(rows) % len(CODES)]
    return torch.from_numpy(codes).cuda().view(torch.float8_e4m3fn), decode_table(E4M3)[codes[:, place]].view(np.uint32)


def of_rows(rows: int, turn: int) -> Bits:
    """Return one scale a row: every code meets every scale before long."""
    place = np.arange(rows)
    return SCALES[(place // len(CODES) + turn + 5 * (place % len(CODES))) % len(SCALES)]


def tensor(bits: Bits) -> torch.Tensor:
    return torch.from_numpy(bits.view(np.float32).copy()).cuda()


Call = tuple[torch.Tensor, Bits, Bits]
"""What came, and the scales of rows and of columns."""


def per_tensor(left: Any, right: Any, out: str, fast: bool) -> Iterator[Call]:
    for number, a in enumerate(SCALES):
        for b in SCALES[number % 2 :: 2]:
            one, other = np.array([a]), np.array([b])
            found = torch._scaled_mm(
                left, right.t(), tensor(one).reshape(()), tensor(other).reshape(()), out_dtype=OUT[out],
                use_fast_accum=fast,
            )  # fmt: skip
            yield found[: len(CODES), : len(CODES)], one, other


def per_row(left: Any, right: Any, out: str, fast: bool) -> Iterator[Call]:
    for turn in range(len(SCALES)):
        a, b = of_rows(len(left), turn), of_rows(len(right), 2 * turn)
        found = torch._scaled_mm(
            left, right.t(), tensor(a).reshape(-1, 1), tensor(b).reshape(1, -1), out_dtype=OUT[out], use_fast_accum=fast
        )
        yield found, a, b


def grouped(left: Any, right: Any, out: str, fast: bool) -> Iterator[Call]:
    rows = torch.tensor([len(left)], device="cuda", dtype=torch.int32)
    for turn in range(len(SCALES)):
        a, b = of_rows(len(left), turn), of_rows(len(right), 2 * turn)
        found = torch._scaled_grouped_mm(
            left, right[None].transpose(-2, -1), tensor(a), tensor(b)[None], offs=rows, out_dtype=OUT[out],
            use_fast_accum=fast,
        )  # fmt: skip
        yield found, a, b


def per_block(left: Any, right: Any, out: str, tall: tuple[int, int], place: int) -> Iterator[Call]:
    blocks = left.shape[1] // 128
    for turn in range(len(SCALES)):
        pair, seen = [], []
        for rows, height, step in zip((len(left), len(right)), tall, (1, 2), strict=True):
            scales = np.full((-(-rows // height), blocks), 0x3F800000, np.uint32)
            scales[:, place // 128] = of_rows(len(scales), turn * step)
            seen.append(np.repeat(scales[:, place // 128], height)[:rows])
            wide = tensor(scales)
            if height == 128:
                padded = torch.ones((len(scales), -(-blocks // 4) * 4), device="cuda")
                padded[:, :blocks] = wide
                pair.append(padded[:, :blocks])
            else:
                pair.append(wide.t().contiguous().t())
        found = torch._scaled_mm(left, right.t(), pair[0], pair[1].t(), out_dtype=OUT[out], use_fast_accum=False)
        yield found, seen[0], seen[1]


def modes(shape: tuple[int, int, int]) -> Iterator[tuple[str, str, Callable[..., Iterator[Call]], int]]:
    """Yield (label, dtype of results, calls, place of the only product along K)."""
    last = shape[2] - 1
    for out in OUT:
        for fast in (True, False):
            yield f"per tensor, fast={fast}", out, lambda a, b, o, f=fast: per_tensor(a, b, o, f), 0
            yield f"per row, fast={fast}", out, lambda a, b, o, f=fast: per_row(a, b, o, f), 0
            if out == "bfloat16":
                yield f"grouped, fast={fast}", out, lambda a, b, o, f=fast: grouped(a, b, o, f), 0
        for place in dict.fromkeys((0, last)):
            for tall in ((1, 1), (1, 128), (128, 1)):
                words = " by ".join("1x128" if one == 1 else "128x128" for one in tall)
                where = "first" if place == 0 and last > 127 else "last"
                yield f"{words}, {where} block", out, lambda a, b, o, t=tall, p=place: per_block(a, b, o, t, p), place


def compared(shape: tuple[int, int, int], out: str, calls: Callable[..., Iterator[Call]], place: int) -> dict[str, Any]:
    """Return what was found: results, how many differ from each rule, and examples."""
    m, n, k = shape
    (left, x), (right, y) = operand(m, k, place), operand(n, k, place)
    sums = softfloat.multiply(x[:KEPT, None], y[None, :KEPT])
    sums = np.where((sums & 0x7FFFFFFF) == 0, np.uint32(0), sums)
    counts: dict[str, int] = {}
    examples: list[dict[str, str]] = []
    total = zeros = subnormal = 0
    for found, a, b in calls(left, right, out):
        got = observed(found)
        tall, wide = got.shape
        sa, sb = np.broadcast_to(a, (m,))[:tall], np.broadcast_to(b, (n,))[:wide]
        both = np.broadcast_arrays(sums[:tall, :wide], sa[:, None], sb[None, :])
        for name, bits in rules(*both).items():
            counts[name] = counts.get(name, 0) + int((narrowed(bits, out) != got).sum())
        right_bits = narrowed(softfloat.multiply(both[0], softfloat.multiply(both[1], both[2])), out)
        top = 0x7FFFFFFF if out == "float32" else 0x7FFF
        least = 0x00800000 if out == "float32" else 0x0080
        total, zeros = total + got.size, zeros + int(((got & top) == 0).sum())
        subnormal += int((((got & top) > 0) & ((got & top) < least)).sum())
        for i, j in np.argwhere(got != right_bits)[:: max(1, int((got != right_bits).sum()) // 3)][:3]:
            if len(examples) < 60:
                examples.append({
                    "sum": hex(both[0][i, j]), "a": hex(both[1][i, j]), "b": hex(both[2][i, j]), "got": hex(got[i, j])
                })  # fmt: skip
    return {"results": total, "zeros": zeros, "subnormal": subnormal, "differ": counts, "examples": examples}


def main() -> None:
    """Ask every mode at every shape, print the rules that give every bit, and write all counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=80, help="no mode is asked after so many seconds")
    given, start, rows = parser.parse_args(), time.perf_counter(), []
    for shape in SHAPES:
        for label, out, calls, place in modes(shape):
            if time.perf_counter() > start + given.seconds:
                break
            try:
                found = compared(shape, out, calls, place)
            except Exception as error:
                print(f"{shape} {label} {out}: {str(error).splitlines()[0][:140]}", flush=True)
                continue
            least = min(found["differ"].values())
            fits = [name for name, count in found["differ"].items() if count == least]
            rows.append({"shape": shape, "mode": label, "out": out, **found})
            seconds = time.perf_counter() - start
            print(
                f"[{seconds:6.1f}] {shape} {label} {out}: {found['results']} results, {found['zeros']} zeros, "
                f"{found['subnormal']} subnormal; {least} differ from {fits}",
                flush=True,
            )
    given.out.mkdir(parents=True, exist_ok=True)
    temporary = given.out / "product_zeros.json.tmp"
    temporary.write_text(json.dumps({"calls": rows, "environment": environment()}, indent=1, default=str))
    temporary.rename(given.out / "product_zeros.json")


if __name__ == "__main__":
    main()
