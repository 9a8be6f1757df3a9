"""Wrong rules of TetraJet (N24): other scale rules and ties, blocks along the other axis, averages misread."""

from __future__ import annotations

import numpy as np

import refnum
from refnum import tetrajet
from refnum.arrays import float32_bits, pack_nibbles, spread, unpack_nibbles
from refnum.codec import encode_bits
from refnum.formats import E2M1

from ..cases.case import Case
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

OUTPUTS = ("packed", "scales")


def _name(case: Case) -> str:
    return "w" if case.operation == "q_ema" else "x"


def other(name: str, value: str) -> Rule:
    """Return the rule of a kernel that has another value of a parameter: the rule or the ratio of the scale, ties."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        return changed(case, **{name: value}) if name in case.params else None

    return wrong


RULES = tuple(other("rule", rule) for rule in tetrajet.RULES)
RATIOS = tuple(other("ratio", ratio) for ratio in tetrajet.RATIOS)
TIES = tuple(other("ties", ties) for ties in tetrajet.TIES)


def zero_byte(byte: int) -> Rule:
    """Return the rule of a kernel that gives a block of zeros this byte."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        magnitude = float32_bits(np.ascontiguousarray(case.inputs[_name(case)])) & MAGNITUDE
        axis = int(case.params["axis"])
        some = np.where(magnitude == 0, np.uint32(0), np.uint32(0x3F800000))
        zero = tetrajet.block_bytes(some, axis, "exact", "float32") == tetrajet.ZERO_BYTE
        return {**golden, "scales": np.where(zero, np.uint8(byte), golden["scales"])}

    return wrong


def scale_of_other_axis(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are divided by the scales that blocks along the other axis have; the stored scales are right."""
    if "rbits" in case.inputs or case.operation == "q_ema":
        return None
    params = case.params
    bits, axis = float32_bits(np.ascontiguousarray(case.inputs["x"])), int(params["axis"])
    bytes_ = tetrajet.block_bytes(bits, 1 - axis, str(params["rule"]), str(params["ratio"]))
    each = spread(bytes_, 32, 1 - axis)[: bits.shape[0]]
    profile = refnum.HOPPER.replace(name="wrong", ties=str(params["ties"]))
    codes = encode_bits(E2M1, bits, each.astype(np.int32) - np.int32(127), profile)
    return {**golden, "packed": pack_nibbles(np.where(each == 255, np.uint8(0), codes))}


def bits_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """Random bits are given, and the elements are rounded to nearest."""
    if "rbits" not in case.inputs:
        return None
    inputs = {name: array for name, array in case.inputs.items() if name != "rbits"}
    return changed(Case(case.operation, case.profile, case.params, inputs))


def average_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """The weight is rounded to nearest, whatever its average is."""
    w, params = case.inputs["w"], case.params
    return dict(zip(OUTPUTS, refnum.quantize_tetrajet(w, params["axis"], params["rule"]), strict=True))


def average_quantised(case: Case, golden: Outputs) -> Outputs | None:
    """The average is rounded to nearest in the weight's place, under the weight's scale."""
    ema = float32_bits(np.ascontiguousarray(case.inputs["ema"]))
    each = spread(golden["scales"], 32, int(case.params["axis"]))[: ema.shape[0]]
    codes = encode_bits(E2M1, ema, each.astype(np.int32) - np.int32(127), refnum.HOPPER)
    return {**golden, "packed": pack_nibbles(np.where(each == 255, np.uint8(0), codes))}


def tie_stays(case: Case, golden: Outputs) -> Outputs | None:
    """An average in the middle of both neighbours chooses the lower one."""
    ema = float32_bits(np.ascontiguousarray(case.inputs["ema"]))
    magnitude = ema & MAGNITUDE
    lower = np.where((magnitude > 0) & (magnitude <= INF), magnitude - np.uint32(1), magnitude) | (ema & ~MAGNITUDE)
    return changed(case, ema=lower.view(np.float32))


def sign_of_average_lost(case: Case, golden: Outputs) -> Outputs | None:
    """An average of the other sign counts as if it had the weight's."""
    w, ema = (float32_bits(np.ascontiguousarray(case.inputs[name])) for name in ("w", "ema"))
    return changed(case, ema=((ema & MAGNITUDE) | (w & ~MAGNITUDE)).view(np.float32))


def zero_moves(case: Case, golden: Outputs) -> Outputs | None:
    """A weight of 0 follows its average too."""
    w, ema = (float32_bits(np.ascontiguousarray(case.inputs[name])) for name in ("w", "ema"))
    each = spread(golden["scales"], 32, int(case.params["axis"]))[: w.shape[0]]
    same = (w >> np.uint32(31)) == (ema >> np.uint32(31))
    nearest = encode_bits(
        E2M1, ema & MAGNITUDE, each.astype(np.int32) - np.int32(127), refnum.HOPPER.replace(name="wrong", ties="away")
    )
    up = ((w & MAGNITUDE) == 0) & same & (nearest > 0) & (each != 255) & ((ema & MAGNITUDE) <= INF)
    return {**golden, "packed": pack_nibbles((unpack_nibbles(golden["packed"]) + up).astype(np.uint8))}
