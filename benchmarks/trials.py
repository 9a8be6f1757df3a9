"""Kernels on trial on one GPU: every byte beside the model and the released kernels, the time in turn beside a copy.

    python benchmarks/trials.py --out FILE.json [--only WORD] [--seconds N]

A trial is a folder of benchmarks/trials, whose files take the place of those of gpu/kernels, under one or more cuts of
the launch. The bits: calls in a drawn order for so many seconds, each of every trial, results poisoned before; and the
tensors that are timed, beside the released kernels. The time: at 32768 x 7168, released and trials in turn, median of
all turns, in per cent of a copy of the same turn.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from device_time import device, equal
from nvfp4 import spread

import refnum
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, arguments_of
from refnum.errors import RefnumError
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import driver, plans
from refnum.gpu.ops import hadamard, rowwise, tetrajet
from refnum.gpu.ops.rowwise import layout_defines

M, K = 32768, 7168
TRIALS = Path(__file__).parent / "trials"
ROTATED = "hadamard_quantize_nvfp4"
TURNS, CALLS = 7, 6


class Cut(NamedTuple):
    """The cut of a launch, and any macros."""

    threads: int
    unroll: int
    macros: tuple[str, ...] = ()

    @property
    def defines(self) -> tuple[str, ...]:
        """All macros."""
        return (f"THREADS={self.threads}", *((f"UNROLL={self.unroll}",) if self.unroll else ()), *self.macros)


class Trial(NamedTuple):
    """A folder of trials and a cut of a kernel file's launches; no folder: the released kernels."""

    folder: str
    cut: Any

    def __str__(self) -> str:
        return f"{self.folder or 'released'} {' '.join(self.cut.defines)}"


def _rotated(folder: str, threads: int, unroll: int, resident: int, *more: str) -> Trial:
    return Trial(folder, Cut(threads, unroll, (f"RESIDENT={resident}", *more)))


def _down(folder: str, *cuts: tuple[int, int]) -> list[Trial]:
    return [Trial(folder, Cut(threads, 0, (f"CTAS={ctas}",))) for threads, ctas in cuts]


CANDIDATES: dict[str, list[Trial]] = {
    ROTATED: [
        _rotated("", 256, 29, 768), _rotated("lanes", 256, 32, 768), _rotated("lanes", 256, 29, 768),
        _rotated("lanes", 256, 22, 1024), _rotated("lanes", 128, 29, 768), _rotated("lanes", 256, 29, 768, "STAGES=4"),
    ],
    f"{ROTATED} down": [
        _rotated("lanes", 128, 8, 768), _rotated("lanes", 128, 8, 640, "SQUARES=3"),
        _rotated("lanes", 128, 8, 896, "SQUARES=1"), _rotated("lanes", 256, 4, 1024, "SQUARES=1"),
        _rotated("lanes", 256, 4, 768, "SQUARES=1"),
    ],
    "hadamard16": [_rotated("lanes", 256, 2, 768)],
    "hadamard16 down": [_rotated("lanes", 256, 4, 1024)],
    "quantize_tetrajet_down": _down("tetrajet", (128, 4), (128, 5), (128, 6), (256, 2)),
    "quantize_tetrajet_down_stochastic": _down("tetrajet", (128, 4), (128, 5), (128, 6), (256, 2)),
    "q_ema": [Trial("tetrajet", rowwise.TUNING["q_ema"])],
    "q_ema_down": _down("tetrajet", (128, 3), (128, 4), (128, 5)),
}  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {
    name: hadamard.TUNING if name[0] == "h" else tetrajet.DOWN if name.find("_down") > 0 else rowwise.TUNING
    for name in CANDIDATES
}
RELEASED: dict[str, Trial] = {name: Trial("", table[name]) for name, table in TABLES.items()}


@dataclass
class Line:
    """A call that is timed: label, place of its cut, bytes an element, the call with `out`, and its results."""

    label: str
    slot: str
    size: float
    call: Callable[..., Any]
    out: tuple[Any, ...] = ()
    times: dict[Trial, list[float]] = field(default_factory=dict)


class Bench:
    """The folders of kernels with trials in them, and a driver for each."""

    def __init__(self, root: Path) -> None:
        self.folders = {"": build.KERNELS}
        for trial in {trial.folder for trials in CANDIDATES.values() for trial in trials if trial.folder}:
            self.folders[trial] = Path(shutil.copytree(build.KERNELS, root / trial))
            shutil.copytree(TRIALS / trial, root / trial, dirs_exist_ok=True)
        self.drivers: dict[str, driver.Driver] = {}

    def use(self, slot: str, trial: Trial) -> None:
        """Launch by a trial from now on."""
        driver.start_with(lambda: self.drivers[trial.folder])
        for name, table in TABLES.items():
            table[name] = trial.cut if name == slot else RELEASED[name].cut
        plans.forget()

    def compile(self, slots: list[str]) -> None:
        """Compile all, many files at a time, in processes that begin before CUDA does; then start the drivers."""
        started = time.time()
        jobs = {(slot.partition(" ")[0], trial.cut.defines, self.folders[trial.folder])
                for slot in slots for trial in (RELEASED[slot], *CANDIDATES[slot])}  # fmt: skip
        jobs |= {(kernel, (*defines, *layout_defines(("bytes", "swizzled"))), folder)
                 for kernel, defines, folder in jobs if kernel == ROTATED}  # fmt: skip
        with ProcessPoolExecutor(16) as pool:
            waiting = [pool.submit(build.compiled, kernel, defines=defines, kernels=folder)
                       for kernel, defines, folder in jobs]  # fmt: skip
        for (kernel, defines, _), job in zip(jobs, waiting, strict=True):
            if job.exception():
                print("does not compile:", kernel, defines, job.exception(), flush=True)
        print(f"{len(jobs)} compilations in {time.time() - started:.0f} s", flush=True)
        self.drivers = {name: driver.Driver(folder) for name, folder in self.folders.items()}


def poisoned(results: Any) -> tuple[Any, ...]:
    """Arrays like these, filled with 0xA5."""
    found = tuple(cupy.empty(x.shape, x.dtype) for x in (results if isinstance(results, tuple) else (results,)))
    for x in found:
        x.view(np.uint8).fill(0xA5)
    return found


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return (rng.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def rotations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield calls: place of the cut, operation, arguments."""
    rng = np.random.default_rng(4)
    calls: list[dict[str, Any]] = []
    for shape in ((256, 7168), (512, 1040), (330, 1040), (33, 112), (530, 16)):
        for binades in (0, 5, 11, 12, 13, 14, 15, 16, 17, 18, 19, 24, 25, 26, 60, 240, 255):
            order = "sequential" if binades in (14, 17) else "exact"
            for amax in (None, 11.7):
                calls.append({"x": spread(rng, shape, binades), "signs": int(rng.integers(0, 1 << 16)), "order": order,
                              "tensor_amax": amax, "layout_out": "swizzled" if binades == 13 else "bytes"})  # fmt: skip
    x = _normal(rng, (1024, 7168))
    for variant in ("TE", "TE_2_8", "TORCHAO"):
        maxima = (None, 2688, 42, 40, 147, 12, 9, 7, 5.25, 3, 1.75, 1e-30, 1e30, *rng.uniform(1, 8, 16).tolist())
        calls += [{"x": x, "variant": variant, "tensor_amax": amax} for amax in maxima]
    zeros = x * (rng.random(x.shape) < 0.5).astype(np.uint16)
    outliers = x + (rng.random((1, x.shape[1])) < 0.01).astype(np.uint16) * np.uint16(7 << 7)
    wide = (x + (rng.integers(0, 8, (x.shape[0], 1)) << 7)).astype(np.uint16)
    calls += [{"x": x, "tensor_amax": 300.0, "order": order}
              for x in (zeros, outliers, wide) for order in ("exact", "sequential")]  # fmt: skip
    for given in calls:
        amax = given["tensor_amax"]
        given["tensor_amax"] = None if amax is None else np.array([amax], np.float32)
        for axis, down in ((-1, ""), (0, " down")):
            yield ROTATED + down, ROTATED, {**given, "axis": axis}
            if given["tensor_amax"] is None:
                only: dict[str, Any] = {key: given[key] for key in ("x", "signs", "order") if key in given}
                yield f"hadamard16{down}", "hadamard16", {**only, "axis": axis}


def columns() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The same of TetraJet and Q-EMA down columns: corners, sums of powers near every boundary, ragged tensors."""
    for name, slot in (("quantize_tetrajet", "quantize_tetrajet_down"), ("q_ema", "q_ema_down")):
        for params in OPERATIONS[name].variants():
            for case in corner_cases(name, "HOPPER", params):
                given = {**arguments_of(case)}
                if name == "q_ema" and given.get("axis", 1) == 1:
                    yield name, name, given
                elif given.get("axis") == 0:
                    random = given.get("rbits") is not None or given.get("philox") is not None
                    yield slot + "_stochastic" * random, name, given
    rng = np.random.default_rng(3)
    rules: tuple[dict[str, str], ...] = ({}, {"ratio": "float32"}, {"rule": "exact"}, {"rule": "microscaling"})
    for dtype in (np.uint16, np.float16, np.float32):
        for m, k in ((2048, 7168), (999, 7200), (64, 96), (32, 65536)):
            wide = rng.standard_normal((m, k)).astype(np.float32) * np.exp2(rng.integers(-12, 12, (1, k))).astype("f4")
            x = (wide.view(np.uint32) >> 16).astype(np.uint16) if dtype is np.uint16 else wide.astype(dtype)
            if k == 65536 and dtype is not np.float32:  # every number below a maximum, in columns of one scale
                x = np.broadcast_to(rng.permutation(1 << 16).astype(np.uint16), (m, k)).copy()
                most = rng.choice(np.array([0x3F80, 0x3FC0, 0x3FC1, 0x3FFF] if dtype is np.uint16 else
                                           [0x3C00, 0x3E00, 0x3E05, 0x3E07, 0x3FFF]), k).astype(np.uint16)  # fmt: skip
                x[1:] = np.where(x[1:] & 0x7FFF > most, x[1:] & 0x83FF, x[1:])
                for row in range(1, m):
                    x[row] = np.roll(x[row], row)
                x[0] = most
                x = x.view(dtype)
            near = (x.view(np.uint16 if dtype is not np.float32 else np.uint32) + 1).view(dtype)
            averages = near, np.roll(x, 1, 1), rng.standard_normal((m, k), dtype=np.float32)
            rbits = rng.integers(0, 256, (m, k), np.uint8)
            for more in rules:
                yield "quantize_tetrajet_down", "quantize_tetrajet", {"x": x, "axis": 0, **more}
                for drawn in ({"philox": (5 << 40 | 3, 1, 2, 64)}, {"rbits": rbits}):
                    yield "quantize_tetrajet_down_stochastic", "quantize_tetrajet", {"x": x, "axis": 0, **more, **drawn}
                for ema in averages:
                    yield "q_ema_down", "q_ema", {"w": x, "ema": ema, "axis": 0, **more}
                    yield "q_ema", "q_ema", {"w": x, "ema": ema, "axis": 1, **more}
            yield "quantize_tetrajet_down", "quantize_tetrajet", {"x": x, "axis": 0, "ties": "away"}


def bits(bench: Bench, slots: list[str], limit: float) -> dict[str, Any]:
    """Compare all trials with the model, for so many seconds."""
    calls = [call for call in (*rotations(), *columns()) if call[0] in slots]
    order, started = np.random.default_rng(0).permutation(len(calls)).tolist(), time.time()
    compared: dict[str, int] = {}
    wrong: list[str] = []
    for number in order:
        if time.time() - started > limit:
            break
        slot, name, given = calls[number]
        there = {key: device(x) for key, x in given.items()}
        small = max(x.size for x in given.values() if isinstance(x, np.ndarray)) < 1 << 16
        want = getattr(refnum, name)(**(given if small else there))
        want = tuple(map(device, want)) if isinstance(want, tuple) else device(want)
        for trial in CANDIDATES[slot]:
            bench.use(slot, trial)
            out = poisoned(want)
            try:
                getattr(ops, name)(**there, out=out if isinstance(want, tuple) else out[0])
                cupy.cuda.runtime.deviceSynchronize()
                fine = equal(want, out)
            except RefnumError as error:
                fine = False
                print(slot, trial, str(error)[:200], flush=True)
            compared[str(trial)] = compared.get(str(trial), 0) + 1
            if not fine:
                told = {key: x if isinstance(x, str | int | tuple) else getattr(x, "shape", None)
                        for key, x in given.items()}  # fmt: skip
                wrong.append(f"{slot} | {trial} | {told}")
    done = sum(compared.values())
    print(f"{done} comparisons in {time.time() - started:.0f} s of {len(calls)} calls, {len(wrong)} wrong")
    print("\n".join(wrong[:12]), flush=True)
    return {"compared": compared, "wrong": wrong}


def lines() -> Iterator[Line]:
    """Yield the calls that are timed."""
    rng = cupy.random.default_rng(1)
    wide = rng.standard_normal((M, K), dtype=np.float32)
    x, half = (wide.view(np.uint32) >> 16).astype(np.uint16), wide.astype(np.float16)
    powers = cupy.exp2(rng.integers(0, 8, (M, 1)).astype(np.float32) - 4)
    mixed = ((wide * powers).view(np.uint32) >> 16).astype(np.uint16)
    plain, ties = (cupy.asarray(np.array([most], np.float32)) for most in (40, 42))
    for words, axis, slot in (("rows", -1, ROTATED), ("columns", 0, f"{ROTATED} down")):
        for more, data, amax in (("", x, plain), (", ties", x, ties), (", found", x, None),
                                 (", rows of other powers", mixed, plain)):  # fmt: skip
            given = {"axis": axis, "tensor_amax": amax}
            yield Line(f"rotated NVFP4, {words}{more}", slot, 2.5625 if amax is not None else 4.5625,
                       lambda d=data, g=given, **o: ops.hadamard_quantize_nvfp4(d, **g, **o))  # fmt: skip
    for words, axis, down in (("rows", -1, ""), ("columns", 0, " down")):
        yield Line(f"rotated BF16, {words}", f"hadamard16{down}", 4, lambda a=axis, **o: ops.hadamard16(x, axis=a, **o))
    rbits = rng.integers(0, 256, (M, K), dtype=np.uint8)
    for kind, given, size in (("BF16", x, 2.53125), ("FP16", half, 2.53125), ("FP32", wide, 4.53125)):
        for words, how, extra in (
            ("", {}, 0),
            (", by key", {"philox": (1, 2, 3)}, 0),
            (", bits given", {"rbits": rbits}, 1),
        ):
            yield Line(f"{kind} -> TetraJet, columns{words}", f"quantize_tetrajet_down{'_stochastic' * bool(how)}",
                       size + extra, lambda g=given, h=how, **o: ops.quantize_tetrajet(g, 0, **h, **o))  # fmt: skip
    ema = x ^ (rbits & 3)
    for kind, w, average, size in (("BF16", x, ema, 4.53125), ("BF16, FP32", x, wide, 6.53125),
                                   ("FP32", wide, wide * np.float32(1.01), 8.53125)):  # fmt: skip
        for words, axis, slot in (("columns", 0, "q_ema_down"), ("rows", 1, "q_ema")):
            yield Line(f"{kind} -> Q-EMA, {words}", slot, size,
                       lambda w=w, e=average, a=axis, **o: ops.q_ema(w, e, a, **o))  # fmt: skip


def _took(call: Callable[[], Any]) -> list[float]:
    call()
    found = []
    for _ in range(CALLS):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return found


def speeds(bench: Bench, only: str) -> dict[str, Any]:
    """Time released kernels and trials in turn, after comparing their results on the same tensors."""
    source, target = cupy.empty(M * K * 2, np.uint8), cupy.empty(M * K * 2, np.uint8)
    copy = functools.partial(cupy.cuda.runtime.memcpyAsync, target.data.ptr, source.data.ptr, source.nbytes, 3,
                             cupy.cuda.get_current_stream().ptr)  # fmt: skip
    report: dict[str, Any] = {"speeds": [], "wrong": []}
    for line in lines():
        if only not in line.slot and only not in line.label:
            continue
        bench.use(line.slot, RELEASED[line.slot])
        want = line.call()
        trials, copies = [RELEASED[line.slot]], []
        given = line.call()
        for trial in CANDIDATES[line.slot]:
            bench.use(line.slot, trial)
            out = poisoned(want)
            try:
                line.call(out=out if isinstance(want, tuple) else out[0])
                cupy.cuda.runtime.deviceSynchronize()
            except RefnumError as error:
                print(line.label, trial, str(error)[:200], flush=True)
                continue
            if not equal(want, out):
                report["wrong"].append([line.label, str(trial)])
                print("WRONG", line.label, trial, flush=True)
            trials.append(trial)
        for _ in range(TURNS):
            copies += _took(copy)
            for trial in trials:
                bench.use(line.slot, trial)
                line.times.setdefault(trial, []).extend(_took(functools.partial(line.call, out=given)))
        rate = 2 * source.nbytes / float(np.median(copies))
        shares = {trial: M * K * line.size / float(np.median(found)) / rate for trial, found in line.times.items()}
        best = max(shares, key=lambda trial: shares[trial])
        print(f"{line.label}: copy {rate / 1e12:.2f} TB/s", flush=True)
        for trial, share in shares.items():
            took = float(np.median(line.times[trial]))
            mark = " best" if trial == best else ""
            print(f"    {share:6.1%} {took * 1e6:7.1f} us  {trial}{mark}", flush=True)
            report["speeds"].append([line.label, str(trial), took, share, rate])
    return report


def main() -> None:
    """Compile, compare, time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="Lines and kernels with this word.")
    parser.add_argument("--seconds", type=float, default=45, help="For the bits.")
    chosen = parser.parse_args()
    started = time.time()
    slots = [slot for slot in CANDIDATES if chosen.only in slot]
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(Path(root))
        bench.compile(slots)
        report = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()}
        report |= speeds(bench, chosen.only)
        chosen.out.write_text(json.dumps(report, indent=1) + "\n")
        report["bits"] = bits(bench, slots, chosen.seconds)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    wrong = len(report["wrong"]) + len(report["bits"]["wrong"])
    print(f"{report['device']}: {time.time() - started:.0f} s, {wrong} wrong")


if __name__ == "__main__":
    main()
