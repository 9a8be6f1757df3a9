"""Coverpoints of what is done about oscillating weights (N24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles

from ..case import Case
from ..draw.bits import float_bits, input_format
from .point import Counts, Golden, Group

_KINDS = ("NaN", "infinite", "zero", "negative zero", "subnormal", "negative")


def _kinds(case: Case, *names: str) -> dict[str, np.ndarray]:
    """Where numbers of each kind are given."""
    found: dict[str, np.ndarray] = {}
    for name in names:
        array = case.inputs[name]
        fmt, bits = input_format("bfloat16" if array.itemsize == 2 else "float32"), float_bits(array)
        size, inf = bits & (fmt.sign_mask - 1), fmt.inf_code or 0
        hits = (size > inf, size == inf, bits == 0, bits == fmt.sign_mask,
                (size > 0) & (size < 1 << fmt.mantissa_bits), (bits > fmt.sign_mask) & (size <= inf))  # fmt: skip
        found |= {f"{kind} {name}": hit for kind, hit in zip(_KINDS, hits, strict=True)}
    return found


def _given(*names: str) -> dict[str, str]:
    return {f"{kind} {name}": "given" for name in names for kind in _KINDS}


def _counts(hits: Mapping[str, np.ndarray]) -> Counts:
    return {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}


def _period_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return _given("dist_w", "dist_q") | {"a period of 1": "a quotient below 1", "a period above 1": "",
                                         "the largest period": "the bound is applied", "no rows": "M is 0"}  # fmt: skip


def _periods(case: Case, golden: Golden) -> Counts:
    period = golden["period"]
    return _counts({**_kinds(case, "dist_w", "dist_q"), "a period of 1": period == 1,
                    "a period above 1": period > 1, "the largest period": period == case.params["most"],
                    "no rows": np.array([not len(period)])})  # fmt: skip


def _step_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return _given("total", "grad") | {
        "due": "the mean is given", "not due": "the mean is 0", "due at a later multiple": "count is above period",
        "beyond its period": "count is above period, and no multiple", "a count that float32 rounds": "and is due",
        "some gradient is not finite": "no sum changes", "no rows": "M is 0",
    }  # fmt: skip


def _step(case: Case, golden: Golden) -> Counts:
    count, period, due = case.inputs["count"].astype(np.int64) + 1, case.inputs["period"], golden["due"] > 0
    wide = np.asarray(count, np.float32).astype(np.int64) != count
    finite = np.isfinite(case.inputs["grad"])
    return _counts({**_kinds(case, "total", "grad"), "due": due, "not due": ~due,
                    "due at a later multiple": due & (count > period), "beyond its period": ~due & (count > period),
                    "a count that float32 rounds": due & wide, "some gradient is not finite": ~finite,
                    "no rows": np.array([not len(due)])})  # fmt: skip


def _moved_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return _given("dist_w", "dist_q") | {"reset": "", "left alone": "", "no rows": "M is 0"}


def _moved(case: Case, golden: Golden) -> Counts:
    flags = golden["flags"] > 0
    return _counts({**_kinds(case, "dist_w", "dist_q"), "reset": flags, "left alone": ~flags,
                    "no rows": np.array([not len(flags)])})  # fmt: skip


def _reset_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    codes = {f"code {code:X} {what}": "" for code in range(16) for what in ("reset", "left alone")}
    return _given("w") | codes | {"NaN scale": "", "scale 0": "", "negative scale": "", "NaN outer scale": "",
                                  "infinite outer scale": "", "no rows": "M is 0"}  # fmt: skip


def _reset(case: Case, golden: Golden) -> Counts:
    flags, codes = golden["flags"] > 0, unpack_nibbles(case.inputs["packed"])
    scales, outer = case.inputs["scales"], case.inputs["outer"].view(np.uint32) & np.uint32(0x7FFFFFFF)
    hits = {"NaN scale": scales & 0x7F == 0x7F, "scale 0": scales & 0x7F == 0, "negative scale": scales > 0x80,
            "NaN outer scale": outer > np.uint32(0x7F800000), "infinite outer scale": outer == np.uint32(0x7F800000),
            "no rows": np.array([not len(flags)])}  # fmt: skip
    both = (np.bincount(codes[flags if what == "reset" else ~flags], minlength=16) for what in ("reset", "left alone"))
    found = dict(zip(("reset", "left alone"), both, strict=True))
    told = {f"code {c:X} {what}": int(n) for what, counts in found.items() for c, n in enumerate(counts)}
    return _counts({**_kinds(case, "w"), **hits}) | told


def _chosen_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return _given("norms") | {
        "kept": "", "left": "", "none of a row kept": "", "all of a row kept": "", "the last kept equals one left": "",
        "a zero kept equals one left": "", "a NaN kept beside one left": "", "a negative one kept": "",
        "all of a row but a rest kept": "K is no multiple of 128", "no rows": "M is 0",
    }  # fmt: skip


def _chosen(case: Case, golden: Golden) -> Counts:
    flags, norms = golden["flags"] > 0, case.inputs["norms"]
    nan = np.isnan(norms)
    order = np.where(nan, 2e300, np.clip(np.where(nan, np.float32(0), norms).astype(np.float64), -1e300, 1e300))
    last = np.where(flags, order, np.inf).min(axis=-1, initial=np.inf)
    first = np.where(flags, -np.inf, order).max(axis=-1, initial=-np.inf)
    kept, k = np.asarray(np.count_nonzero(flags, axis=-1)), flags.shape[-1]
    some, every = kept > 0, kept == k
    end = (last == first) & some & ~every
    return _counts({**_kinds(case, "norms"), "kept": flags, "left": ~flags, "none of a row kept": ~some,
                    "all of a row kept": every & some, "the last kept equals one left": end,
                    "a zero kept equals one left": end & (last == 0), "a negative one kept": flags & (norms < 0),
                    "a NaN kept beside one left": end & (last > 1e300),
                    "all of a row but a rest kept": some & ~every & (kept == k - k % 128),
                    "no rows": np.array([not len(flags)])})  # fmt: skip


q_ramping = (Group("period", _period_names, _periods),)
ramping_step = (Group("step", _step_names, _step),)
osci_reset = (Group("reset", _reset_names, _reset),)
osci_reset_by_distance = (Group("reset", _moved_names, _moved),)
out_control = (Group("chosen", _chosen_names, _chosen),)
