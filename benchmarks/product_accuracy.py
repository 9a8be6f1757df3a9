"""What the orders of an FP8 product cost in accuracy: errors of chain and promote128 against exact sums, over K.

    python benchmarks/product_accuracy.py --out DIR [--rows 1024] [--most 65536]

Each product [rows, K] @ [rows, K].T is computed to the bit as Hopper's tensor cores give it (clause N19): with the
kernel on a GPU if there is one, else with the NumPy model. It is compared with the exact product of the same operands,
and with the product of the data before they were quantised.

Why the exact products are exact. E4M3 values are multiples of 2^-9 of magnitude 448 at most, so their products are
multiples of 2^-18 and below 2^18, and any partial sum of 65,536 of them is an integer below 2^52 in units of 2^-18: a
float64 holds it, whatever the order of the sums. Some results of each product are summed in integers beside that. With
scales the same holds if the sum of magnitudes is below 2^53 in units of the smallest product (`exact_bits` up to 53);
otherwise a float64 sum is off by at most K * 2^-53 of the sum of magnitudes, 2^-37 for K = 65,536.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from refnum import softfloat

SCHEMA = "refnum.product-accuracy/1"
LEAST, MOST = 128, 65536
CLAIMED = 0.02
"""Largest relative error at K = 4096 that the report of DeepSeek-V3 gives (arXiv:2412.19437, section 3.3.2)."""
CHECKED = 8
"""Rows and columns of each product that are summed in integers too."""
BF16_ROWS, BF16_MOST = 64, 16384
"""The model of BF16 products takes many small passes on a GPU: fewer results, and K up to this."""

Draw = Callable[[Any, tuple[int, int]], Any]


def normal(rng: Any, shape: tuple[int, int]) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def uniform(rng: Any, shape: tuple[int, int]) -> Any:
    """Numbers of [0, 1): no sum cancels."""
    return rng.random(shape, dtype=np.float32)


def swiglu(rng: Any, shape: tuple[int, int]) -> Any:
    """silu(g) * u of normal g and u."""
    gate = normal(rng, shape)
    return gate / (np.float32(1) + np.exp(-gate)) * normal(rng, shape)


def heavy(rng: Any, shape: tuple[int, int]) -> Any:
    """Student's t with 3 degrees of freedom."""
    squares = sum(normal(rng, shape) ** 2 for _ in range(3))
    return normal(rng, shape) / np.sqrt(squares / np.float32(3))


def as_drawn(x: Any) -> Any:
    return x


def through_mxfp4(x: Any) -> Any:
    """Data as an FP4 recipe sees them."""
    return refnum.dequantize_mxfp4(*refnum.quantize_mxfp4(x))


# name -> how a and b are drawn, what both go through before FP8
DATA: dict[str, tuple[Draw, Draw, Callable[[Any], Any]]] = {
    "normal": (normal, normal, as_drawn),
    "uniform": (uniform, uniform, as_drawn),
    "SwiGLU": (swiglu, normal, as_drawn),
    "heavy tails": (heavy, heavy, as_drawn),
    "MXFP4": (normal, normal, through_mxfp4),
    "MXFP4 of heavy tails": (heavy, heavy, through_mxfp4),
}


def per_tensor(x: Any) -> tuple[Any, float]:
    """Return E4M3 codes and their scale, the smallest power of two that saturates nothing."""
    mantissa, exponent = math.frexp(float(abs(x).max()))
    scale = 2.0 ** (exponent - (9 if mantissa <= 0.875 else 8))
    return refnum.encode_e4m3(x * np.float32(1 / scale)), scale


def sequential(a: Any, b: Any) -> Any:
    """Return the float32 sums of a @ b.T, one product after the other, each addition rounded to nearest even."""
    left, right = (x.T.copy() for x in (a, b))
    total = left[0][:, None] * right[0]
    for x, y in zip(left[1:], right[1:], strict=True):
        total += x[:, None] * y
    return total


def exact_product(a: Any, b: Any) -> Any:
    """Return a @ b.T in float64; the module says how exact it is."""
    return a.astype(np.float64) @ b.astype(np.float64).T


def check_integers(a: Any, b: Any, exact: Any) -> None:
    """Raise ArithmeticError where an exact product of E4M3 values is not the integer sum."""
    left, right = ((x[:CHECKED] * np.float32(512)).astype(np.int64) for x in (a, b))
    sums = (left[:, None, :] * right[None, :, :]).sum(axis=2)
    if bool((sums != (exact[:CHECKED, :CHECKED] * 2.0**18).astype(np.int64)).any()):
        raise ArithmeticError(f"a float64 product of E4M3 values is not exact at K = {a.shape[1]}")


def exact_bits(a: Any, b: Any, terms: Any, significand: int = 4) -> float:
    """Return the bits that any partial sum needs at most: 53 or fewer, and a float64 sum is exact."""
    units = [2.0 ** (math.frexp(float(abs(x)[x != 0].min()))[1] - significand) for x in (a, b)]
    return math.log2(float(terms.max()) / math.prod(units))


def errors(out: Any, exact: Any, terms: Any, truth: Any) -> dict[str, float]:
    """Return the error measures of a product beside the exact one, and beside the data before quantising."""
    out = out.astype(np.float64)
    error, size = abs(out - exact), abs(exact)
    relative = error[size > 0] / size[size > 0]
    found = {
        "largest": relative.max(), "p99": np.percentile(relative, 99), "median": np.percentile(relative, 50),
        "above_claimed": (relative > CLAIMED).mean(),
        "norm": np.sqrt((error**2).sum() / (size**2).sum()),
        "largest_of_rms": error.max() / np.sqrt((size**2).mean()),
        "largest_of_terms": (error / terms).max(),
        "shift": (abs(out) - size).sum() / size.sum(),
        "with_quantising": np.sqrt(((out - truth) ** 2).sum() / (truth**2).sum()),
    }  # fmt: skip
    return {name: float(value) for name, value in found.items()}


def fp8_rows(a: Any, b: Any, truth: Any, multiply: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each layout of scales and order."""
    (a_codes, a_scale), (b_codes, b_scale) = per_tensor(a), per_tensor(b)
    values = [refnum.decode_e4m3(x) for x in (a_codes, b_codes)]
    check_integers(*values, exact_product(*values))
    outs = {order: multiply(a_codes, b_codes, order=order) for order in ("chain", "promote128")}
    yield from _compared("per tensor", values, outs, truth / (a_scale * b_scale))  # powers of two change no error
    (a_codes, a_scales), (b_codes, b_scales) = (refnum.quantize_fp8_tiles(x) for x in (a, b))
    values = [refnum.dequantize_fp8_tiles(*x) for x in ((a_codes, a_scales), (b_codes, b_scales))]
    yield from _compared("1x128", values, {"promote128": multiply(a_codes, b_codes, a_scales, b_scales)}, truth)


def _compared(layout: str, values: list[Any], outs: dict[str, Any], truth: Any) -> Iterator[dict[str, Any]]:
    exact, terms = exact_product(*values), exact_product(*map(abs, values))
    bits = exact_bits(*values, terms)
    for order, out in {**outs, "float32, in sequence": sequential(*values), "exact": exact}.items():
        row = {"layout": layout, "order": order, "results": int(out.size), "exact_bits": bits}
        yield row | errors(out, exact, terms, truth)


def bf16_row(a: Any, b: Any, truth: Any) -> dict[str, Any]:
    """Return the row of the BF16 product: the same data, rounded to BF16, in a chain."""
    bits = [softfloat.to_bfloat16(x[:BF16_ROWS].view(np.uint32)) for x in (a, b)]
    values = [(x.astype(np.uint32) << np.uint32(16)).view(np.float32) for x in bits]
    out, exact, terms = refnum.matmul_bf16(*bits), exact_product(*values), exact_product(*map(abs, values))
    row = {"layout": "BF16", "order": "chain", "results": int(out.size), "exact_bits": exact_bits(*values, terms, 8)}
    return row | errors(out, exact, terms, truth[:BF16_ROWS, :BF16_ROWS])


def rows_of(name: str, rng: Any, rows: int, most: int, multiply: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one kind of data, K doubled from 128 on; the data of a smaller K begin those of a greater."""
    draw_a, draw_b, prepare = DATA[name]
    drawn = draw_a(rng, (rows, most)), draw_b(rng, (rows, most))
    k = LEAST
    while k <= most:
        first = [x[:, :k].copy() for x in drawn]
        truth, (a, b) = exact_product(*first), map(prepare, first)
        for row in fp8_rows(a, b, truth, multiply):
            yield {"data": name, "k": k} | row
        if k <= BF16_MOST:
            yield {"data": name, "k": k} | bf16_row(a, b, truth)
        k *= 2


def machine() -> tuple[Any, Callable[..., Any], str]:
    """Return NumPy or CuPy, the FP8 product that runs there, and what it is."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, or none that finds a GPU
        return np, refnum.matmul_fp8, "NumPy model"
    from refnum.gpu import matmul_fp8

    return cupy, matmul_fp8, cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def main(words: list[str] | None = None) -> None:
    """Write product_accuracy.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1024, help="rows of a and of b")
    parser.add_argument("--most", type=int, default=MOST, help="greatest K, at most 65536")
    parser.add_argument("--data", choices=list(DATA), action="append", help="kinds of data, all by default")
    given = parser.parse_args(words)
    if not LEAST <= given.most <= MOST or given.rows < 1:
        parser.error(f"--most {given.most} --rows {given.rows}; allowed are {LEAST} to {MOST} and at least one row")
    xp, multiply, device = machine()
    start, found = time.perf_counter(), []
    for seed, name in enumerate(DATA):
        if name in (given.data or DATA):
            found += rows_of(name, xp.random.default_rng(seed), given.rows, given.most, multiply)
            print(f"[{time.perf_counter() - start:6.1f}] {name}: {len(found)} rows", flush=True)
    document = {
        "schema": SCHEMA, "device": device, "date": time.strftime("%Y-%m-%d", time.gmtime()), "rows": given.rows,
        "versions": {"python": platform.python_version(), "numpy": np.__version__, xp.__name__: xp.__version__},
        "seconds": round(time.perf_counter() - start, 1), "errors": found,
    }  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    temporary = given.out / ".product_accuracy.json.part"
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(temporary, given.out / "product_accuracy.json")


if __name__ == "__main__":
    main()
