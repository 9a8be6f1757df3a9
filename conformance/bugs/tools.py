"""The kit of wrong rules: the golden model with one thing changed, and requantisation at given scales.

A wrong rule is a function (case, golden outputs) -> the outputs that it gives, or None where it does not apply; golden
`values` come as floating-point numbers. Wrong rules serve the vectors, diagnosis and the controls, never a verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import BLOCK, float32_bits, pack_nibbles, unpack_nibbles
from refnum.codec import encode_bits
from refnum.formats import FORMATS, Format
from refnum.profiles import Profile

from ..cases.case import Case
from ..cases.entry import Operation, Output
from ..cases.geometry import block_shape, spread
from ..cases.layouts import without_layouts
from ..cases.operation import call_golden, outputs_of
from ..cases.primitives import VECTOR_OPERATIONS, answer

Outputs = dict[str, np.ndarray]
Rule = Callable[[Case, Outputs], "Outputs | None"]
MAGNITUDE = np.uint32(0x7FFFFFFF)
INF = np.uint32(0x7F800000)


def row(case: Case) -> Operation:
    """Return the row of a case's operation."""
    return VECTOR_OPERATIONS[case.operation]


def edited(case: Case, **inputs: np.ndarray) -> Case:
    """Return the case with some inputs replaced."""
    return dataclasses.replace(case, inputs={**case.inputs, **inputs})


def changed(case: Case, **inputs: Any) -> Outputs:
    """The golden answer to other inputs or parameters."""
    params = {k: v for k, v in inputs.items() if k not in case.inputs}
    arrays = {k: v for k, v in inputs.items() if k in case.inputs}
    edit = dataclasses.replace(case, inputs={**case.inputs, **arrays}, params={**case.params, **params})
    return answer(without_layouts(edit))


def under(case: Case, **fields: Any) -> Outputs | None:
    """The golden answer under a changed profile."""
    if not row(case).profiled:
        return encode_under(case, **fields) if row(case).scalar and element_format(case).kind != "scale" else None
    plain = without_layouts(case)
    result = call_golden(plain, refnum.get_profile(case.profile).replace(name="wrong", **fields))
    return dict(zip((output.name for output in outputs_of(plain)), result, strict=True))


def encode_under(case: Case, **fields: Any) -> Outputs:
    """Return the scalar encoder's codes under a changed profile."""
    chosen = {k: v for k, v in case.params.items() if k in ("rounding", "ties", "overflow", "negative_zero")}
    profile = refnum.HOPPER.replace(name="wrong", **{**chosen, **fields})
    return {"codes": refnum.encode(element_format(case), case.inputs["x"], profile=profile)}


def with_bits(case: Case, edit: Callable[[np.ndarray], np.ndarray]) -> Outputs:
    """The golden answer when the float32 bits of x (widened) go through `edit` first."""
    bits = edit(float32_bits(case.inputs["x"]).copy())
    return changed(case, x=np.ascontiguousarray(bits.astype(np.uint32)).view(np.float32), input="float32")


def to_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Round float32 bits to bfloat16, to nearest even; NaN and Inf stay."""
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where((bits & MAGNITUDE) >= INF, bits, rounded).astype(np.uint32)


def element_format(case: Case) -> Format:
    """Return the format of the codes that a case's operation gives."""
    return FORMATS[outputs_of(case, row(case))[0].format(case.params)]


def quantiser_block(case: Case) -> int | None:
    """Elements a scale covers, or None for what is not a row-wise quantiser of floats."""
    block = outputs_of(case, row(case))[0].block
    if "x" not in case.inputs or not block:
        return None
    tall, wide = block_shape(block, case)
    return wide if tall == 1 else None


def blocks_of(case: Case) -> np.ndarray:
    """float32 bits of x as [M, blocks, block], a short last tile filled up with zeros."""
    bits = float32_bits(case.inputs["x"])
    size = quantiser_block(case) or 32
    missing = -bits.shape[1] % size
    return np.pad(bits, ((0, 0), (0, missing))).reshape(bits.shape[0], -1, size)


def amax_of(case: Case) -> np.ndarray:
    """Return the magnitude bits of every block's maximum."""
    return (blocks_of(case) & MAGNITUDE).max(axis=-1)


def requantise(
    case: Case, golden: Outputs, byte: np.ndarray, exponent: np.ndarray | None = None, profile: Profile | None = None
) -> Outputs:
    """Encode at other scale bytes (or at other exponents); blocks that the golden model calls special stay."""
    blocks, fmt = blocks_of(case), element_format(case)
    profile = profile or refnum.get_profile(case.profile)
    amax = amax_of(case)
    special = (amax >= INF) | (amax == 0)
    byte = np.where(special, golden["scales"], byte).astype(np.uint8)
    exponent = (
        byte.astype(np.int32) - 127 if exponent is None else np.where(special, byte.astype(np.int32) - 127, exponent)
    )
    codes = encode_bits(fmt, blocks, exponent[..., None].astype(np.int32), profile).reshape(blocks.shape[0], -1)
    codes = codes[:, : case.inputs["x"].shape[1]]
    right = codes_of(golden)
    codes = np.where(np.repeat(special, blocks.shape[-1], axis=1)[:, : codes.shape[1]], right, codes)
    return with_codes(golden, codes, byte)


def quantised_product(case: Case, golden: Outputs, y: np.ndarray) -> Outputs:
    """Return what `swiglu_quantize` gives for another product."""
    quantise = refnum.quantize_fp8_tiles if case.params["to"] == "fp8" else refnum.quantize_mxfp4
    return dict(zip(golden, quantise(y, profile=case.profile), strict=True))


def codes_of(outputs: Outputs) -> np.ndarray:
    """Codes one a byte, from `packed` or `codes`."""
    return unpack_nibbles(outputs["packed"]) if "packed" in outputs else outputs["codes"]


def with_codes(outputs: Outputs, codes: np.ndarray, scales: np.ndarray | None = None) -> Outputs:
    """Return the outputs with other codes (one a byte), packed where they were, and other scales."""
    codes = codes.astype(np.uint8)
    new = {"packed": pack_nibbles(codes)} if "packed" in outputs else {"codes": codes}
    return {**outputs, **new, **({} if scales is None else {"scales": scales.astype(np.uint8)})}


def rescaled(case: Case, golden: Outputs, rule: Callable[..., Any], clamp: bool = True) -> Outputs | None:
    """Requantise at the exponent k = rule(exponent, fraction, fmt) of each block's maximum."""
    if quantiser_block(case) is None or refnum.get_profile(case.profile).rounding == "stochastic":
        return None
    value = amax_of(case)
    lead = np.where(value == 0, 1, value).astype(np.float64)  # only for the bit length of subnormals
    subnormal = value < 0x800000
    shift = np.where(subnormal, 23 - np.floor(np.log2(lead)).astype(np.int64), 0)
    normal = (value.astype(np.int64) << shift) & 0xFFFFFFFF
    exponent = np.where(subnormal, 1, value >> 23).astype(np.int64) - 127 - shift
    k = np.asarray(rule(exponent, normal & 0x7FFFFF, element_format(case)))
    byte = np.clip(k + 127, 0, 254) if clamp else (k + 127) & 255
    return requantise(case, golden, byte)


def coded(case: Case) -> Output | None:
    """Return the output that holds element codes, or None."""
    return next((output for output in outputs_of(case, row(case)) if output.kind in ("codes", "packed")), None)


def on_codes(change: Callable[[Case, np.ndarray, Outputs], np.ndarray | None]) -> Rule:
    """Make a wrong rule that changes the (unpacked) codes of an output and leaves its scales alone."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        codes = change(case, codes_of(golden), golden) if coded(case) else None
        return None if codes is None else with_codes(golden, codes)

    return wrong


def on_floats(rule: Rule) -> Rule:
    """Make a rule that takes golden `values` as unsigned integers of one that takes them as floating-point numbers."""
    floats = {1: np.uint8, 2: ml_dtypes.bfloat16, 4: np.float32}

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        values = [output.name for output in outputs_of(case, row(case)) if output.kind == "values"]
        return rule(case, {**golden, **{name: golden[name].view(floats[golden[name].itemsize]) for name in values}})

    return wrong


def under_profile(**fields: Any) -> Rule:
    """Make a wrong rule that is the golden model under a profile with some fields changed."""
    return lambda case, golden: under(case, **fields)


def with_param(name: str, value: Any) -> Rule:
    """Make a wrong rule that is the golden model with another value of a parameter."""
    return lambda case, golden: None if case.params.get(name, value) == value else changed(case, **{name: value})


def on_scale_bytes(change: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Make a wrong rule that is the golden model on changed input scale bytes."""
    return lambda case, golden: changed(case, scales=change(case.inputs["scales"]))


def on_elements(change: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Make a wrong rule for quantisers: golden scales, elements rounded from changed float32 bits."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        output = coded(case)
        if "x" not in case.inputs or output is None or not output.block:
            return None
        bits = change(float32_bits(np.ascontiguousarray(case.inputs["x"]))).astype(np.uint32)
        byte = spread(output.block, case, golden["scales"], bits.shape)
        profile = refnum.get_profile(case.profile)
        codes = refnum.encode(element_format(case), bits.view(np.float32), byte.astype(np.int32) - 127, profile)
        return with_codes(golden, np.where(byte == 255, np.uint8(0), codes))

    return wrong


def scaled_by(mode: str, rule: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Make a wrong rule for MX quantisers of floats: the scale byte of each finite block follows `rule`.

    mode: the scale rule that it is a faulty form of; under another one it is no suspect. rule: amax of
    the blocks, positive finite float32 -> scale exponents. Elements are rounded right at the wrong scale.
    """

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if quantiser_block(case) != BLOCK or refnum.get_profile(case.profile).scale_rule != mode:
            return None
        amax = amax_of(case)
        ordinary = (amax > 0) & (amax < INF)
        exponent = rule(np.where(ordinary, amax, np.uint32(0x3F800000)).astype(np.uint32).view(np.float32))
        byte = np.clip(np.nan_to_num(exponent, neginf=-127) + 127, 0, 254).astype(np.uint8)
        changed_scales = {**golden, "scales": np.where(ordinary, byte, golden["scales"])}
        return on_elements(lambda bits: bits)(case, changed_scales)

    return wrong
