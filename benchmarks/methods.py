"""Kernels of LUQ, radix 4, TetraJet and Q-EMA on one GPU: every bit against the model, and speed beside a copy.

    python benchmarks/methods.py --out FILE.json [--tune] [--no-bits]

The bits: corners of every variant, and tensors of 4096 x 7168 and ragged ones, all of them compared. The speed: at
32768 x 7168, bytes read and written a second against those of a copy; with --tune under other cuts of the launch too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
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
from refnum.gpu.ops import tunings

M, K = 32768, 7168
NAMES = ("luq", "dequantize_luq", "radix4", "dequantize_radix4", "quantize_tetrajet", "q_ema")


def same(name: str, arguments: dict[str, Any], large: bool) -> bool:
    """Whether a kernel's results are the model's; those of large tensors are made on the device."""
    given = {key: device(x) for key, x in arguments.items()}
    got = getattr(ops, name)(**given)
    want = getattr(refnum, name)(**(given if large else arguments))
    if not large:
        want = tuple(map(device, want)) if isinstance(want, tuple) else device(want)
    return equal(want, got)


def tensors() -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls on large tensors and on ragged ones."""
    rng = np.random.default_rng(3)
    for dtype in (np.uint16, np.float32, np.float16):
        for m, k in ((4096, 7168), (999, 7200), (33, 96)):
            x = rng.standard_normal((m, k)).astype(np.float32) * np.exp2(rng.integers(-6, 7, (m, 1))).astype("f4")
            x = (x.view(np.uint32) >> 16).astype(np.uint16) if dtype is np.uint16 else x.astype(dtype)
            words = {name: rng.integers(0, 1 << bits, (m, k), dtype=np.uint32)
                     for name, bits in (("r_under", 24), ("r_log", 23))}  # fmt: skip
            rbits = rng.integers(0, 256, (m, k), dtype=np.uint8)
            yield "luq", {"x": x, **words}
            yield "luq", {"x": x, **words, "tensor_amax": np.array([3.3], np.float32), "step": "power_of_two"}
            yield "radix4", {"x": x, "n0": -5, "threshold": "0.4"}
            for axis in (1, 0):
                for more in ({}, {"ties": "away", "rule": "microscaling"}, {"ratio": "float32", "rbits": rbits},
                             {"philox": (5 << 40 | 3, 1, 2, 64), "rule": "exact"}):  # fmt: skip
                    yield "quantize_tetrajet", {"x": x, "axis": axis, **more}
                for ema in (np.roll(x, 1, 1), x, rng.standard_normal((m, k)).astype(np.float32)):
                    yield "q_ema", {"w": x, "ema": ema, "axis": axis}
    packed = rng.integers(0, 256, (4095, 3583), dtype=np.uint8)
    for dtype in ("float32", "bfloat16"):
        yield "dequantize_luq", {"packed": packed, "alpha": np.array([0.3], np.float32), "dtype": dtype}
        yield "dequantize_radix4", {"packed": packed, "n0": -7, "phase": "odd", "dtype": dtype}


def bits(report: dict[str, Any]) -> None:
    """Corners and tensors."""
    calls = [(name, {**arguments_of(case)}, case.label) for name in NAMES for params in OPERATIONS[name].variants()
             for case in corner_cases(name, "HOPPER", params)]  # fmt: skip
    calls += [(name, given, "tensors") for name, given in tensors()]
    told = {name: str([value for value in given.values() if isinstance(value, str)]) for name, given, _ in calls}
    wrong = [(name, label, told[name]) for name, given, label in calls if not same(name, given, label == "tensors")]
    report |= {"calls": len(calls), "wrong": wrong}
    print(f"{len(calls)} calls compared, {len(wrong)} wrong", wrong[:5])


def outputs(call: Callable[..., Any]) -> Any:
    """The results of a call, for `out`."""
    found = call()
    return found if isinstance(found, tuple) else (found,)


Timed = tuple[str, str, Callable[..., Any], float]
"""Label, kernel file, call, and bytes that are read and written an element."""


def timed() -> Iterator[Timed]:
    """Yield the calls that are timed."""
    rng = cupy.random.default_rng(1)
    wide = rng.standard_normal((M, K), dtype=np.float32)
    x, half = (wide.view(np.uint32) >> 16).astype(np.uint16), wide.astype(np.float16)
    under, log = (rng.integers(0, 1 << n, (M, K), dtype=np.uint32) for n in (24, 23))
    amax, alpha = (cupy.asarray(np.array([number], np.float32)) for number in (4.7, 0.3))
    yield "BF16 -> LUQ", "luq", lambda **o: ops.luq(x, under, log, 64, amax, **o), 10.5
    yield "FP32 -> LUQ", "luq", lambda **o: ops.luq(wide, under, log, 64, amax, **o), 12.5
    yield "BF16 -> LUQ, maximum found", "luq", lambda **o: ops.luq(x, under, log, **o), 12.5
    packed = ops.luq(x, under, log, 64, amax)[0]
    for name, values, size in (("BF16", "bfloat16", 2.5), ("FP32", "float32", 4.5)):
        yield f"LUQ -> {name}", "dequantize_luq", lambda v=values, **o: ops.dequantize_luq(packed, alpha, v, **o), size
        yield (f"radix 4 -> {name}", "dequantize_radix4",
               lambda v=values, **o: ops.dequantize_radix4(packed, -5, dtype=v, **o), size)  # fmt: skip
    rbits = rng.integers(0, 256, (M, K), dtype=np.uint8)
    ema, other = x ^ (rbits & 3), wide * np.float32(1.01)
    for name, given, size in (("BF16", x, 2.5), ("FP16", half, 2.5), ("FP32", wide, 4.5)):
        yield f"{name} -> radix 4", "radix4", lambda g=given, **o: ops.radix4(g, -5, **o), size
        for words, axis, file in (("", 1, "quantize_tetrajet"), (", columns", 0, "quantize_tetrajet_down")):
            size_of = size + 1 / 32
            call = lambda g=given, a=axis, **o: ops.quantize_tetrajet(g, a, **o)  # noqa: E731
            yield f"{name} -> TetraJet{words}", file, call, size_of
            drawn, keyed = {"rbits": rbits}, {"philox": (1, 2, 3)}
            for how, more, extra in (("bits given", drawn, 1), ("by key", keyed, 0)):
                yield (f"{name} -> TetraJet{words}, {how}", f"{file}_stochastic",
                       lambda c=call, m=more, **o: c(**m, **o), size_of + extra)  # fmt: skip
    for name, w, average, size in (("BF16", x, ema, 4.5), ("BF16, FP32", x, wide, 6.5), ("FP32", wide, other, 8.5)):
        for words, axis, file in (("", 1, "q_ema"), (", columns", 0, "q_ema_down")):
            yield (f"{name} -> Q-EMA{words}", file, lambda w=w, e=average, a=axis, **o: ops.q_ema(w, e, a, **o),
                   size + 1 / 32)  # fmt: skip


def speeds(report: dict[str, Any], tune: bool) -> None:
    """Share of a copy's bytes a second."""
    copy = copy_rate(M * K * 2)
    report |= {"copy": copy, "speeds": []}
    for label, file, call, size in timed():
        slots, found = [(table, key, table[key]) for table, key in tunings._slots(file)], []
        for cut in (None, *(tunings.CUTS[file] if tune else [])):
            for table, key, shipped in slots:
                table[key] = cut or shipped
            plans.forget()
            out = outputs(call)
            given = out if len(out) > 1 else out[0]
            took = seconds(lambda call=call, given=given: call(out=given))
            found.append((M * K * size / took / copy, took, " ".join(cut.defines) if cut else "shipped"))
            report["speeds"].append([label, found[-1][2], took, found[-1][0]])
        for table, key, shipped in slots:
            table[key] = shipped
        plans.forget()
        best = max(found)
        share, took, _ = found[0]
        print(f"{label:38s} {took * 1e6:8.1f} us  {share:6.1%} of a copy  best {best[0]:6.1%} {best[2]}", flush=True)


def main() -> None:
    """Run both and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--no-bits", action="store_true")
    chosen = parser.parse_args()
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    if not chosen.no_bits:
        bits(report)
        chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    speeds(report, chosen.tune)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
