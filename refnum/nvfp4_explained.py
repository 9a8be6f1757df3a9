"""Explain one element of NVFP4: every float32 operation of its scale and of itself, in order (clause N21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import float32_bits, unpack_nibbles
from .codec import value
from .division import divide
from .formats import E2M1, E4M3, FP32
from .nvfp4 import NVFP4_BLOCK, dequantize_nvfp4, quantize_nvfp4
from .nvfp4_scales import get_variant
from .softfloat import INF, multiply
from .steps import Step, code_step, fields, show

_MAGNITUDE = np.uint32(0x7FFFFFFF)


def _float(bits: int) -> str:
    return f"0x{bits:08X} = {show(value(FP32, bits), bool(bits >> 31))}"


def quantize_steps(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int, int]:
    """Return the steps of one element of `quantize_nvfp4`, its code and the E4M3 code of its block's scale."""
    names = ("x", "variant", "tensor_amax", "tile", "rbits", "philox")
    given = {name: arguments[name] for name in names if name in arguments}
    packed, scales, amax = quantize_nvfp4(**given)
    variant, tall = get_variant(given.get("variant", "TE")), int(given.get("tile", (1, NVFP4_BLOCK))[0])
    code = int(unpack_nibbles(packed)[row, column])
    place = row // tall, column // NVFP4_BLOCK
    scale, own = int(scales[place]), int(float32_bits(given["x"])[row, column])
    first, left = place[0] * tall, place[1] * NVFP4_BLOCK
    members = float32_bits(given["x"])[first : first + tall, left : left + NVFP4_BLOCK] & _MAGNITUDE
    block = np.where(members > INF, np.uint32(0), members).max().reshape(1)
    found = variant.steps(block, amax.view(np.uint32))
    chosen = next(one for one in reversed(found) if int(one.codes[0]) == scale)
    steps = [
        Step("element", f"bits {_float(own)}", "N0"),
        Step("tensor amax", _float(int(amax.view(np.uint32)[0])), "N21.2"),
        Step("amax", f"{_float(int(block[0]))}, of a block of {members.size}", "N21.2"),
        Step("scale byte", f"{variant.name}: {fields(E4M3, scale)}, value {show(value(E4M3, scale))}", "N21.3"),
    ]
    if len(found) > 1:
        both = " or ".join(fields(E4M3, int(one.codes[0])) for one in found)
        steps.append(Step("choice", f"{both}: the one with less error ({variant.error})", "N21.5"))
    factor, x = chosen.factor[:1], np.array([own], np.uint32)
    scaled = int((divide if chosen.divides else multiply)(x, factor)[0])
    sign = "/" if chosen.divides else "*"
    steps.append(Step("quotient", f"fl(x {sign} {_float(int(factor[0]))}) = {_float(scaled)}", "N21.4"))
    random = "rbits" in given or "philox" in given
    how = "by random bits" if random else "to nearest, ties to even, at most 6"
    if scaled & 0x7FFFFFFF > 0x7F800000:
        how = "NaN, which has the code 7"
    steps += [Step("rounding", how, "N21.6" if random else "N21.4"), code_step(E2M1, code)]
    return steps, code, scale


def dequantize_steps(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int, int]:
    """Return the steps of one element of `dequantize_nvfp4`, its bits and the E4M3 code of its block's scale."""
    names = ("packed", "scales", "tensor_amax", "order", "tile", "dtype", "layout_in")
    given = {name: arguments[name] for name in names if name in arguments}
    result = dequantize_nvfp4(**given)[row, column]
    code = int(unpack_nibbles(given["packed"])[row, column])
    tall, order = int(given.get("tile", (1, NVFP4_BLOCK))[0]), given.get("order", "te")
    plain = given["scales"].ndim == 2
    scale = int(given["scales"][row // tall, column // NVFP4_BLOCK]) if plain else -1
    bits = int(np.asarray(result).view(f"u{result.dtype.itemsize}"))
    parts = {"te": "fl(fl(s * t) * fl(1/2688))", "product": "fl(s * fl(t / 2688))"}
    steps = [
        Step("element", f"E2M1 code {fields(E2M1, code)}, value {show(value(E2M1, code), bool(code & 8))}", "N1"),
        Step("tensor amax", _float(int(np.asarray(given["tensor_amax"]).view(np.uint32)[0])), "N21.2"),
    ]
    if plain:
        steps.append(Step("scale byte", f"{fields(E4M3, scale)}, value {show(value(E4M3, scale))}", "N21.1"))
    number = f"fl(code * S), S = {parts.get(order, 'fl(fl(s * t) * fl(1/1536))')}"
    text = f"{number}: bits 0x{bits:0{2 * result.dtype.itemsize}X} of {result.dtype.name}"
    return [*steps, Step("value", text, "N21.7")], bits, scale
