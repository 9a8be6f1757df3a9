"""Rotated NVFP4 on one GPU: bits of each candidate against the model on the device, and times beside today's kernel and a copy.

    PYTHONPATH=. python scratch_rot.py --out FILE.json [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import cupy
import numpy as np
from device_time import copy_rate, device, equal, seconds
from nvfp4 import spread

import refnum
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.ops import hadamard
from refnum.gpu.ops.rowwise import layout_defines

KERNEL = "hadamard_quantize_nvfp4"
M, K = 32768, 7168


class Try(NamedTuple):
    threads: int
    unroll: int
    resident: int
    more: tuple[str, ...] = ()

    @property
    def defines(self):
        return (f"THREADS={self.threads}", f"UNROLL={self.unroll}", f"RESIDENT={self.resident}", *self.more)


ROWS = {
    "lanes": Try(256, 32, 768),
    "lanes 16": Try(256, 16, 768),
    "lanes 128": Try(128, 32, 768),
    "4 stages": Try(256, 32, 768, ("STAGES=4",)),
    "1024": Try(256, 32, 1024),
}
DOWN = {
    "lanes": Try(128, 8, 768),
    "lanes 4": Try(128, 4, 768),
    "4 squares": Try(128, 4, 640, ("SQUARES=4",)),
    "lanes 1 square": Try(128, 8, 896, ("SQUARES=1",)),
    "1024": Try(128, 4, 1024),
}


def compile_one(defines):
    started = time.time()
    build.compiled("hadamard16" if "UNROLL=2" in defines else KERNEL, build.architecture((9, 0)), defines=defines)
    return time.time() - started


def place(rows, down):
    hadamard.TUNING[KERNEL], hadamard.TUNING[KERNEL + " down"] = rows, down
    plans.forget()


def normal(rng, shape):
    return (rng.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def calls(quick):
    rng = np.random.default_rng(4)
    for shape in ((256, 7168), (330, 1040), (33, 112), (530, 16)):
        for binades in (0, 5, 11, 12, 13, 14, 15, 16, 17, 18, 19, 24, 25, 26, 60, 240, 255):
            for axis in (-1, 0):
                given = {"x": spread(rng, shape, binades), "signs": int(rng.integers(0, 1 << 16)), "axis": axis,
                         "order": "sequential" if binades in (14, 17) else "exact"}
                for amax in (None, 11.7):
                    yield {**given, "tensor_amax": amax, "layout_out": "swizzled" if binades == 13 else "bytes"}
    wild = rng.uniform(1, 8, 4 if quick else 24).astype(np.float32)
    x = normal(rng, (512, 7168))
    for axis in (-1, 0):
        for variant in ("TE", "TE_2_8", "TORCHAO"):
            for amax in (None, 2688, 42, 40, 147, 12, 9, 7, 5.25, 3, 1.75, 1e-30, 1e30, *wild):
                yield {"x": x, "axis": axis, "variant": variant, "tensor_amax": amax}
        zeros = x * (rng.random(x.shape) < 0.5).astype(np.uint16)
        outliers = x + (rng.random((1, x.shape[1])) < 0.01).astype(np.uint16) * np.uint16(7 << 7)
        for data in (zeros, outliers, (x + (rng.integers(0, 8, (512, 1)) << 7)).astype(np.uint16)):
            for order in ("exact", "sequential"):
                yield {"x": data, "axis": axis, "tensor_amax": 300.0, "order": order}


def same(given):
    amax = given["tensor_amax"]
    given = {**given, "x": device(given["x"]), "tensor_amax": None if amax is None else cupy.asarray(np.array([amax], np.float32))}
    want, got = refnum.hadamard_quantize_nvfp4(**given), ops.hadamard_quantize_nvfp4(**given)
    return want, got, equal(want, got)


def bits(report, quick):
    """The candidates of the longest loops and of the shortest, against the model's results, made once."""
    place(ROWS["lanes"], DOWN["lanes"])
    wrong, count, started = [], 0, time.time()
    others = [(ROWS["4 stages"], DOWN["4 squares"])]
    all_calls = list(calls(quick))
    for number in np.random.default_rng(0).permutation(len(all_calls)).tolist():
        if time.time() - started > 60:
            print(f"bits: {count} of {len(all_calls)} calls made in 60 s", flush=True)
            break
        given = all_calls[number]
        want, _, fine = same(given)
        label = str({key: value for key, value in given.items() if key != "x"}) + str(given["x"].shape)
        count += 1
        if not fine:
            wrong.append(["lanes", number, label])
        if number % 8 == 0:
            for rows, down in others:
                place(rows, down)
                count += 1
                amax = given["tensor_amax"]
                more = {**given, "x": device(given["x"]),
                        "tensor_amax": None if amax is None else cupy.asarray(np.array([amax], np.float32))}
                if not equal(want, ops.hadamard_quantize_nvfp4(**more)):
                    wrong.append([str(rows), number, label])
            place(ROWS["lanes"], DOWN["lanes"])
    report |= {"calls": count, "wrong": wrong}
    print(f"{count} calls compared in {time.time() - started:.0f} s, {len(wrong)} wrong", wrong[:6], flush=True)


def speeds(report):
    amax, ties = (cupy.asarray(np.array([most], np.float32)) for most in (40, 42))
    rng = cupy.random.default_rng(1)
    x = (rng.standard_normal((M, K), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    powers = rng.integers(-4, 4, (M, 1)).astype(np.float32)
    bench = ((rng.standard_normal((M, K), dtype=np.float32) * cupy.exp2(powers)).view(np.uint32) >> 16).astype(np.uint16)
    zeros = x * (rng.random((M, K), dtype=np.float32) < 0.5).astype(np.uint16)
    outliers = x + (rng.random((1, K), dtype=np.float32) < 0.01).astype(np.uint16) * np.uint16(7 << 7)
    big = cupy.asarray(np.array([700], np.float32))
    out = tuple(cupy.empty_like(part) for part in ops.quantize_nvfp4(x, "TE", amax))
    down = (out[0].reshape(K, -1), out[1].reshape(K, -1), out[2])
    copy = copy_rate(M * K * 2)
    report |= {"copy": copy, "speeds": []}
    lines = {
        "plain": {"x": x, "tensor_amax": amax}, "TORCHAO": {"x": x, "tensor_amax": amax, "variant": "TORCHAO"},
        "ties": {"x": x, "tensor_amax": ties}, "half zeros": {"x": zeros, "tensor_amax": amax},
        "outliers": {"x": outliers, "tensor_amax": big}, "found": {"x": x, "tensor_amax": None},
        "bench": {"x": bench, "tensor_amax": amax}, "bench found": {"x": bench, "tensor_amax": None},
    }
    for way, table in (("rows", ROWS), ("columns", DOWN)):
        for word, given in lines.items():
            for label, cut in table.items():
                if not word.startswith(("plain", "bench")) and label != "lanes":
                    continue
                place(cut if way == "rows" else ROWS["lanes"], cut if way == "columns" else DOWN["lanes"])
                axis, results = (-1, out) if way == "rows" else (0, down)
                try:
                    took = seconds(lambda g=given, a=axis, r=results: ops.hadamard_quantize_nvfp4(axis=a, out=r, **g))
                except Exception as error:  # a cut that the device does not take
                    print(way, word, label, str(error)[:150], flush=True)
                    continue
                share = M * K * (4.5625 if "found" in word else 2.5625) / took / copy
                report["speeds"].append([way, word, label, cut.defines, took, share])
                print(f"{way:8s} {word:12s} {label:20s} {took * 1e6:8.1f} us {share:6.1%}", flush=True)
    place(ROWS["lanes"], DOWN["lanes"])
    for axis in (-1, 0):
        for word, data in (("plain", x), ("bench", bench)):
            values = cupy.empty_like(data)
            took = seconds(lambda d=data, a=axis, v=values: ops.hadamard16(d, axis=a, out=v))
            report["speeds"].append(["hadamard16", axis, word, took, M * K * 4 / took / copy])
            print(f"hadamard16 axis {axis} {word} {took * 1e6:.1f} us {M * K * 4 / took / copy:.1%}", flush=True)
    took = seconds(lambda: ops.quantize_nvfp4(x, "TE", amax, out=out))
    print(f"quantize_nvfp4 {took * 1e6:.1f} us {M * K * 2.5625 / took / copy:.1%}; ", end="")
    copy_rate(M * K * 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    report = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    started = time.time()
    all_defines = {cut.defines for cut in (*ROWS.values(), *DOWN.values())}
    all_defines |= {(*cut.defines, *layout_defines(("bytes", "swizzled")))
                    for cut in (ROWS["lanes"], ROWS["4 stages"], DOWN["lanes"], DOWN["4 squares"])}
    all_defines.add(hadamard.TUNING["hadamard16"].defines)
    with ProcessPoolExecutor(12) as pool:
        list(pool.map(compile_one, sorted(all_defines)))
    print(f"compiled {len(all_defines)} in {time.time() - started:.0f} s", report["device"], flush=True)
    bits(report, chosen.quick)
    chosen.out.write_text(json.dumps(report, indent=1, default=str) + "\n")
    speeds(report)
    chosen.out.write_text(json.dumps(report, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
