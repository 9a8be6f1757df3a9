"""NVFP4 and rotations on one GPU: every bit of the NVFP4 kernels against the model, and all speeds beside a copy.

    python benchmarks/nvfp4.py --out FILE.json [--tune] [--no-bits] [--only WORD]

The bits: corners of every variant that the kernels have, tensors of 4096 x 7168 and ragged ones, both layouts of
scales; of rotations groups of all spans, with zeros, subnormal numbers, infinities and NaN. The speed: at 32768 x
7168, bytes read and written a second against those of a copy of as many bytes; with --tune under other cuts of the
launch too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from device_time import copy_rate, device, equal, seconds

import refnum
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, arguments_of
from refnum.gpu import ops
from refnum.gpu.device import plans
from refnum.gpu.interface.nvfp4 import VARIANTS
from refnum.gpu.ops import hadamard, nvfp4
from refnum.gpu.ops.rowwise import Grid

M, K = 32768, 7168
CUTS: dict[str, list[Any]] = {
    kernel: [Grid(threads, unroll, part, stream)
             for threads in (128, 256, 512) for unroll in unrolls for stream in streams]
    for kernel, part, unrolls, streams in (
        ("quantize_nvfp4", 32, (1, 2, 4), (0, 1)), ("dequantize_nvfp4", 8, (1, 2), (1,)),
    )
}  # fmt: skip
CUTS |= {
    kernel: [hadamard.Cut(threads, unroll, resident) for threads, unroll in cuts for resident in (768, 1024)]
    for kernel, cuts in (
        ("hadamard16", ((128, 4), (256, 2), (256, 4), (256, 8))), ("hadamard16 down", ((128, 4), (256, 4))),
        ("hadamard_quantize_nvfp4", ((128, 16), (256, 8), (256, 16), (256, 32))),
        ("hadamard_quantize_nvfp4 down", ((128, 4), (128, 8), (256, 4))),
    )
}  # fmt: skip


def same(name: str, arguments: dict[str, Any]) -> bool:
    """Whether a kernel's results are the model's, all on the device."""
    given = {key: device(x) for key, x in arguments.items()}
    want, got = getattr(refnum, name)(**given), getattr(ops, name)(**given)
    return equal(want, got)


def bits(report: dict[str, Any]) -> None:
    """Corners and tensors."""
    calls = [(name, {**arguments_of(case)}, case.label) for name in ("quantize_nvfp4", "dequantize_nvfp4")
             for params in OPERATIONS[name].variants()
             for case in corner_cases(name, "HOPPER", params)]  # fmt: skip
    rng = np.random.default_rng(3)
    for dtype in (np.uint16, np.float32, np.float16):
        for shape in ((4096, 7168), (1000, 7184), (33, 112)):
            x = rng.standard_normal(shape).astype(np.float32) * np.exp2(rng.integers(-6, 7, (shape[0], 1))).astype("f4")
            x = (x.view(np.uint32) >> 16).astype(np.uint16) if dtype is np.uint16 else x.astype(dtype)
            for variant in VARIANTS:
                for layout in ("bytes", "swizzled"):
                    for amax in (None, np.array([11.7], np.float32)):
                        given = {"x": x, "variant": variant, "tensor_amax": amax, "layout_out": layout}
                        calls.append(("quantize_nvfp4", given, f"{np.dtype(dtype)} {shape}"))
    for shape in ((4096, 3584), (999, 3592)):
        packed = rng.integers(0, 256, shape, dtype=np.uint8)
        scales = rng.integers(0, 256, (shape[0], shape[1] // 8), dtype=np.uint8)
        for order in ("te", "product", "four_over_six"):
            for dtype in ("float32", "bfloat16"):
                for layout in ("bytes", "swizzled"):
                    stored = refnum.layouts.scales_to_layout(scales, layout)
                    given = {"packed": packed, "scales": stored, "tensor_amax": np.array([3.3], np.float32),
                             "order": order, "dtype": dtype, "layout_in": layout}  # fmt: skip
                    calls.append(("dequantize_nvfp4", given, f"{shape}"))
    compare(report, calls)


def compare(report: dict[str, Any], calls: list[tuple[str, dict[str, Any], str]]) -> None:
    """Compare calls with the model, and add to the report how many, and which differ."""
    wrong = [(name, label, str(given.get("variant", given.get("order")))) for name, given, label in calls
             if not same(name, given)]  # fmt: skip
    report["calls"] = report.get("calls", 0) + len(calls)
    report.setdefault("wrong", []).extend(wrong)
    print(f"{len(calls)} calls compared, {len(wrong)} wrong", wrong[:5])


def spread(rng: np.random.Generator, shape: tuple[int, int], binades: int) -> np.ndarray:
    """bfloat16 bits whose exponents lie so far apart, some of them zeros; without bound the range's ends and beyond."""
    signs, digits = rng.integers(0, 2, shape) << 15, rng.integers(0, 128, shape) * (rng.random(shape) < 0.7)
    if binades > 254:
        fields = np.where(rng.random(shape) < 0.5, rng.integers(244, 255, shape), rng.integers(0, 9, shape))
        fields = np.where(rng.random(shape) < 0.003, 255, fields)
    else:
        fields = rng.integers(0, 250 - binades, (shape[0], 1)) + rng.integers(0, binades + 1, shape)
    bits = signs | fields << 7 | digits.astype(np.int64)
    return np.where(rng.random(shape) < 0.02, signs, bits).astype(np.uint16)


def rotation_bits(report: dict[str, Any]) -> None:
    """Rotations of groups of all spans, along rows and down columns, of every cut that the speeds try."""
    rng = np.random.default_rng(4)
    calls: list[tuple[str, dict[str, Any], str]] = []
    for shape in ((256, 7168), (330, 1040), (33, 112), (530, 16)):
        for binades in (0, 5, 11, 12, 13, 17, 18, 19, 24, 25, 26, 60, 240, 255):
            for axis in (-1, 0):
                given = {"x": spread(rng, shape, binades), "signs": int(rng.integers(0, 1 << 16)), "axis": axis,
                         "order": "sequential" if binades == 17 else "exact"}  # fmt: skip
                label = f"{shape} axis {axis}, {binades} binades"
                calls.append(("hadamard16", given, label))
                for amax in (None, np.array([11.7], np.float32)):
                    more = {"tensor_amax": amax, "layout_out": "swizzled" if binades == 13 else "bytes"}
                    calls.append(("hadamard_quantize_nvfp4", {**given, **more}, label))
    normal = (rng.standard_normal((2048, 7168), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    calls += [(name, {"x": normal, "axis": axis}, "normal") for axis in (-1, 0)
              for name in ("hadamard16", "hadamard_quantize_nvfp4")]  # fmt: skip
    compare(report, calls)


def _kernel(label: str) -> tuple[str, dict[str, Any]]:
    """Return the kernel file of a line, with the word of its launches, and the table of its grids."""
    if label.startswith("rotated"):
        kernel = "hadamard16" if "BF16" in label else "hadamard_quantize_nvfp4"
        return kernel + " down" * ("columns" in label), hadamard.TUNING
    return "dequantize_nvfp4" if label.startswith("NVFP4") else "quantize_nvfp4", nvfp4.TUNING


def speeds(report: dict[str, Any], tune: bool, only: str) -> None:
    """Share of a copy's bytes a second, of the lines with a word."""
    amax, ties = (cupy.asarray(np.array([most], np.float32)) for most in (40, 42))
    x = (cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    packed, scales, _ = ops.quantize_nvfp4(x, "TE", amax)
    out = (cupy.empty_like(packed), cupy.empty_like(scales), cupy.empty_like(amax))
    down = (packed.reshape(K, -1), scales.reshape(K, -1), cupy.empty_like(amax))
    values, wide = cupy.empty_like(x), cupy.empty((M, K), np.float32)
    calls = {
        "BF16 -> NVFP4": (lambda: ops.quantize_nvfp4(x, "TE", amax, out=out), 2.5625),
        "BF16 -> NVFP4, TORCHAO": (lambda: ops.quantize_nvfp4(x, "TORCHAO", amax, out=out), 2.5625),
        "BF16 -> NVFP4, maximum found": (lambda: ops.quantize_nvfp4(x, out=out), 4.5625),
        "NVFP4 -> BF16": (lambda: ops.dequantize_nvfp4(packed, scales, amax, dtype="bfloat16", out=values), 2.5625),
        "NVFP4 -> FP32": (lambda: ops.dequantize_nvfp4(packed, scales, amax, out=wide), 4.5625),
        "rotated BF16": (lambda: ops.hadamard16(x, out=values), 4),
        "rotated BF16, columns": (lambda: ops.hadamard16(x, axis=0, out=values), 4),
        "rotated NVFP4": (lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=amax, out=out), 2.5625),
        "rotated NVFP4, columns": (
            lambda: ops.hadamard_quantize_nvfp4(x, axis=0, tensor_amax=amax, out=down),
            2.5625,
        ),
        "rotated NVFP4, maximum whose factors have ties": (
            lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=ties, out=out),
            2.5625,
        ),
        "rotated NVFP4, columns, maximum whose factors have ties": (
            lambda: ops.hadamard_quantize_nvfp4(x, axis=0, tensor_amax=ties, out=down),
            2.5625,
        ),
        "rotated NVFP4, maximum found": (lambda: ops.hadamard_quantize_nvfp4(x, out=out), 4.5625),
        "rotated NVFP4, columns, maximum found": (lambda: ops.hadamard_quantize_nvfp4(x, axis=0, out=down), 4.5625),
    }
    copy = copy_rate(M * K * 2)
    report["copy"] = copy
    report["speeds"] = []
    for label, (call, size) in calls.items():
        if only not in label:
            continue
        kernel, table = _kernel(label)
        for cut in (None, *(CUTS[kernel] if tune and "TORCHAO" not in label and "maximum" not in label else ())):
            shipped = dict(table)
            table.update({name: cut for name in shipped if cut and kernel in (name, name.partition(" ")[0])})
            plans.forget()
            took = seconds(call)
            table.update(shipped)
            plans.forget()
            share = M * K * size / took / copy
            report["speeds"].append([label, cut.defines if cut else "shipped", took, share])
            print(f"{label:30s} {took * 1e6:8.1f} us  {share:6.1%} of a copy  {' '.join(cut.defines) if cut else ''}")


def main() -> None:
    """Run both and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--no-bits", action="store_true", help="Time only.")
    parser.add_argument("--only", default="", help="The lines with this word; bits of rotations for `rotated`.")
    chosen = parser.parse_args()
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    if not chosen.no_bits and chosen.only != "rotated":
        bits(report)
    if not chosen.no_bits and chosen.only in ("", "rotated"):
        rotation_bits(report)
    speeds(report, chosen.tune, chosen.only)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
