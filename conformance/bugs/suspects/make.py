"""Makers of wrong rules: the golden model with one thing changed, as a function of (case, golden outputs).

A wrong rule returns the outputs that it gives, or None where it does not apply. Wrong rules serve diagnosis and
the controls, never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import float32_bits, pack_nibbles, unpack_nibbles

from ...cases.case import Case
from ...cases.geometry import spread
from ...cases.operation import OPERATIONS, as_bits, outputs_of, run_golden

Bits = Mapping[str, np.ndarray]
Wrong = Callable[[Case, Bits], "Bits | None"]


def coded(case: Case) -> Any:
    """Return the output that holds element codes, or None."""
    return next((output for output in outputs_of(case) if output.kind in ("codes", "packed")), None)


def on_codes(change: Callable[[Case, np.ndarray, Bits], np.ndarray | None]) -> Wrong:
    """Make a wrong rule that changes the (unpacked) codes of an output and leaves its scales alone."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = coded(case)
        if output is None:
            return None
        codes = unpack_nibbles(golden[output.name]) if output.kind == "packed" else golden[output.name]
        changed = change(case, codes, golden)
        if changed is None:
            return None
        return {**golden, output.name: pack_nibbles(changed) if output.kind == "packed" else changed}

    return wrong


def on_floats(rule: Wrong) -> Wrong:
    """Make a wrong rule of one that reads golden `values` as floating-point numbers, not as their bits."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        values = [output.name for output in outputs_of(case) if output.kind == "values"]
        floats = {1: np.uint8, 2: ml_dtypes.bfloat16, 4: np.float32}
        return rule(case, {**golden, **{name: golden[name].view(floats[golden[name].itemsize]) for name in values}})

    return wrong


def under_profile(**changes: Any) -> Wrong:
    """Make a wrong rule that is the golden model under a profile with some fields changed."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        if not OPERATIONS[case.operation].profiled:
            return None
        own = refnum.get_profile(case.profile)
        return run_golden(case, own.replace(name=f"{own.name}/wrong", **changes))

    return wrong


def with_param(name: str, value: Any) -> Wrong:
    """Make a wrong rule that is the golden model with another value of a parameter."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        if name not in case.params or case.params[name] == value:
            return None
        return run_golden(case.with_inputs(params={name: value}))

    return wrong


def on_elements(change: Callable[[np.ndarray, np.ndarray], np.ndarray], **profile: Any) -> Wrong:
    """Make a wrong rule for MX quantisers: golden scales, elements rounded from changed float32 bits.

    change: (float32 bits, scale byte of every element) -> float32 bits.
    """

    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = coded(case)
        if "x" not in case.inputs or output is None or not output.block:
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        wide = spread(output.block, case, golden["scales"], bits.shape)
        own = refnum.get_profile(case.profile)
        own = own.replace(name=f"{own.name}/wrong", **profile)
        exponent = wide.astype(np.int32) - 127
        fmt = refnum.get_format(output.format(case.params))
        codes = refnum.encode(fmt, change(bits, wide).astype(np.uint32).view(np.float32), exponent, own)
        codes = np.where(wide == 255, np.uint8(0), codes)
        return {**golden, output.name: pack_nibbles(codes) if output.kind == "packed" else codes}

    return wrong


def scaled_by(mode: str, rule: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    """Make a wrong rule for MX quantisers of floats: the scale byte of each finite block follows `rule`.

    mode: the scale rule that it is a faulty form of; under another one it is no suspect. rule: amax of
    the blocks, positive finite float32 -> scale exponents. Elements are rounded right at the wrong scale.
    """

    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = coded(case)
        if output.block != "row32" or refnum.get_profile(case.profile).scale_rule != mode:
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        amax = (bits & 0x7FFFFFFF).reshape(bits.shape[0], -1, 32).max(axis=2)
        ordinary = (amax > 0) & (amax < 0x7F800000)
        with np.errstate(all="ignore"):
            exponent = rule(np.where(ordinary, amax, 0x3F800000).astype(np.uint32).view(np.float32))
        byte = np.clip(np.nan_to_num(exponent, neginf=-127) + 127, 0, 254).astype(np.uint8)
        changed = {**golden, "scales": np.where(ordinary, byte, golden["scales"])}
        return on_elements(lambda bits, wide: bits)(case, changed)

    return wrong


def nan_as(code: int) -> Wrong:
    """Make a wrong rule for scalar encoders: every NaN input gives this code."""

    def change(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray:
        nan = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) > 0x7F800000
        return np.where(nan, np.uint8(code), codes)

    return on_codes(change)


def on_scale_bytes(change: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    """Make a wrong rule that is the golden model on changed input scale bytes."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        return run_golden(case.with_inputs({"scales": change(case.inputs["scales"])}))

    return wrong


def encode_with(**changes: Any) -> Wrong:
    """Make a wrong rule for the scalar encoders: the codec under another profile."""

    def wrong(case: Case, golden: Bits) -> Bits | None:
        fmt = refnum.get_format(outputs_of(case)[0].format(case.params))
        fields = {"overflow": case.params.get("overflow", "saturate"), **changes}
        return {
            "codes": as_bits(
                refnum.encode(fmt, case.inputs["x"], profile=refnum.HOPPER.replace(name="HOPPER/wrong", **fields))
            )
        }

    return wrong
