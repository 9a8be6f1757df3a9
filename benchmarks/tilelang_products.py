"""FP8 products of TileLang kernels: the order of each by `refnum infer`'s probes, and a subject of `refnum check`.

    python benchmarks/tilelang_products.py --out DIR
    refnum check -o matmul_fp8 -s benchmarks/tilelang_products.py:tilelang_product --no-isolate

A kernel multiplies blocks of `wide` terms of K with `T.gemm`; a promoted one adds the accumulator to a float32 sum
after so many blocks. Sides are padded with zeros to multiples of 128.
"""

import argparse
import dataclasses
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tilelang
import tilelang.language as T
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum.conformance import implements
from refnum.conformance.commands.infer.orders import infer_order
from refnum.errors import ShapeError

FP8, F32 = "float8_e4m3fn", "float32"
SIDE, THREADS, UNIT = 64, 128, 128
SHAPES = ((64, 64, 1024), (256, 256, 7168), (16, 128, 16384))
KINDS = {
    "chain, blocks of 64": (64, 0),
    "chain, blocks of 128": (128, 0),
    "promoted after 1 block of 128": (128, 1),
    "promoted after 2 blocks of 64": (64, 2),
    "promoted after 1 block of 64": (64, 1),
    "promoted after 2 blocks of 128": (128, 2),
}
"""What is asked -> terms of a block, and blocks after which the accumulator is added to the sum; 0 is never."""


def chain(wide: int) -> Any:
    """Return a function of one accumulator through all of K."""
    m, n, k = (T.dynamic(name) for name in "mnk")

    @T.prim_func
    def product(a: T.Tensor((m, k), FP8), b: T.Tensor((n, k), FP8), c: T.Tensor((m, n), F32)):
        with T.Kernel(T.ceildiv(n, SIDE), T.ceildiv(m, SIDE), threads=THREADS) as (column, row):
            left = T.alloc_shared((SIDE, wide), FP8)
            right = T.alloc_shared((SIDE, wide), FP8)
            run = T.alloc_fragment((SIDE, SIDE), F32)
            T.clear(run)
            for block in T.Pipelined(T.ceildiv(k, wide), num_stages=2):
                T.copy(a[row * SIDE, block * wide], left)
                T.copy(b[column * SIDE, block * wide], right)
                T.gemm(left, right, run, transpose_B=True)
            T.copy(run, c[row * SIDE, column * SIDE])

    return product


def promoted(wide: int, blocks: int) -> Any:
    """Return a function that adds the accumulator to a sum after so many blocks."""
    m, n, k = (T.dynamic(name) for name in "mnk")

    @T.prim_func
    def product(a: T.Tensor((m, k), FP8), b: T.Tensor((n, k), FP8), c: T.Tensor((m, n), F32)):
        with T.Kernel(T.ceildiv(n, SIDE), T.ceildiv(m, SIDE), threads=THREADS) as (column, row):
            left = T.alloc_shared((SIDE, wide), FP8)
            right = T.alloc_shared((SIDE, wide), FP8)
            run = T.alloc_fragment((SIDE, SIDE), F32)
            total = T.alloc_fragment((SIDE, SIDE), F32)
            T.clear(run)
            T.clear(total)
            for block in T.Pipelined(T.ceildiv(k, wide), num_stages=2):
                T.copy(a[row * SIDE, block * wide], left)
                T.copy(b[column * SIDE, block * wide], right)
                T.gemm(left, right, run, transpose_B=True)
                if (block + 1) % blocks == 0:
                    for i, j in T.Parallel(SIDE, SIDE):
                        total[i, j] += run[i, j]
                    T.clear(run)
            T.copy(total, c[row * SIDE, column * SIDE])

    return product


@functools.cache
def kernel(wide: int, blocks: int) -> Any:
    """Return the compiled kernel of codes [m, k] and [n, k] into c [m, n], all multiples of 128."""
    return tilelang.compile(promoted(wide, blocks) if blocks else chain(wide))


def padded(x: torch.Tensor) -> torch.Tensor:
    """Return codes with zeros up to multiples of 128; K up to 256, for runs of two blocks."""
    rows, columns = (-(-max(size, 1) // unit) * unit for size, unit in zip(x.shape, (UNIT, 2 * UNIT), strict=True))
    out = torch.zeros((rows, columns), dtype=torch.uint8, device=x.device)
    out[: x.shape[0], : x.shape[1]] = x
    return out.view(torch.float8_e4m3fn)


def multiplied(a: torch.Tensor, b: torch.Tensor, wide: int, blocks: int) -> torch.Tensor:
    """Return the product of codes [M, K] and [N, K]."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"operands of shapes {tuple(a.shape)} and {tuple(b.shape)}; allowed are [M, K] and [N, K]")
    left, right = padded(a), padded(b)
    out = torch.empty((left.shape[0], right.shape[0]), dtype=torch.float32, device=a.device)
    kernel(wide, blocks)(left, right, out)
    return out[: a.shape[0], : b.shape[0]].contiguous()


@implements(
    "matmul_fp8",
    name="TileLang",
    arrays="torch-cuda",
    supports=lambda operation, profile, params: (
        ""
        if params["order"] in ("chain", "promote128")
        and params["out"] == "float32"
        and params["a_format"] == params["b_format"] == "E4M3"
        else "this kernel is of E4M3 and float32, a chain or promoted after 128 terms"
    ),
    outside=lambda case: "this kernel has no scales" if {"a_scales", "b_scales"} & {*case.inputs} else "",
)
def tilelang_product(
    a: torch.Tensor, b: torch.Tensor, a_scales: Any = None, b_scales: Any = None, order: str = "promote128",
    out: str = "float32", a_format: str = "E4M3", b_format: str = "E4M3",
) -> torch.Tensor:  # fmt: skip
    """Return the product of a kernel of blocks of 128."""
    return multiplied(a, b, UNIT, int(order == "promote128"))


def on_arrays(a: np.ndarray, b: np.ndarray, wide: int, blocks: int) -> np.ndarray:
    """Return the product of arrays on the host."""
    return multiplied(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), wide, blocks).cpu().numpy()


def main() -> None:
    """Print and write the order of every kernel at every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given, rows = parser.parse_args(), []
    given.out.mkdir(parents=True, exist_ok=True)
    for label, (wide, blocks) in KINDS.items():
        for shape in SHAPES:
            start = time.perf_counter()
            try:
                found = infer_order(label, functools.partial(on_arrays, wide=wide, blocks=blocks), shape)
            except Exception as error:
                print(f"{label} {shape}: {str(error).splitlines()[0][:200]}", flush=True)
                continue
            nearest = min(found.ruled_out, key=lambda one: one.differing)
            seconds = time.perf_counter() - start
            rows.append({**dataclasses.asdict(found), "ruled_out": len(found.ruled_out), "seconds": seconds})
            said = f"{found.fits}" if found.exact else f"none; nearest {nearest.order}, {nearest.differing} differ"
            print(f"{label} {shape}: {said} {found.tree} ({seconds:.1f} s)", flush=True)
    versions = {"tilelang": tilelang.__version__, "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    temporary = given.out / "tilelang_products.json.tmp"
    temporary.write_text(json.dumps({"calls": rows, "environment": versions}, indent=1))
    temporary.rename(given.out / "tilelang_products.json")


if __name__ == "__main__":
    main()
