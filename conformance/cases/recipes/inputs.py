"""Expansion of a recipe to its case by Philox, with equal bits on CPU and GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import refnum
from refnum.arrays import TILE, pack_nibbles
from refnum.formats import E2M1, FP32, get_format

from ..case import Case
from ..draw import CODED, VALUES, Draw
from ..draw.bits import as_float, float_bits
from ..draw.coded import Layout
from ..draw.factors import factors, positive
from ..draw.products import COLUMNS, scale_kinds, scales_of_kind, terms_for
from ..draw.values import Target, from_integer
from ..operation import OPERATIONS
from .distributions import layout_of, target_of
from .random_bits import by_key, with_random_bits
from .recipe import Recipe

Array = Any
TOPS = np.array([0x40C00000, 0x40A00000, 0x3FE00000, 0x3DCCCCCD, 0x40490FDB, 0x45800001, 0x39FFFFFF, 0x3F800000],
                np.uint32).view(np.float32)  # fmt: skip
"""Largest numbers of LLM-FP4 that are drawn: for each the model looks for the beginnings of the binades once."""


def expand(recipe: Recipe, like: Array = None) -> Case:
    """Return the case of a recipe: the same bits on every machine (N13).

    like: an array of the library and device wanted; None means NumPy. On a device bfloat16 inputs are uint16.
    """
    inputs, operation = _inputs(recipe, like), OPERATIONS[recipe.operation]
    if recipe.edits:
        first = operation.inputs[0]
        bits = layout_of(recipe.operation, recipe.params).element.bits if operation.main == "codes" else None
        inputs[first] = edited(inputs[first], recipe.edits, bits)
    params = dict(recipe.params)
    if operation.routed and operation.main == "values":
        params["tokens"] = recipe.shape[0]
    return by_key(Case(recipe.operation, recipe.profile, params, inputs, recipe, str(recipe)), recipe.seed)


def edited(array: Array, edits: tuple[tuple[int, int, int], ...], width: int | None = None) -> Array:
    """Return a copy with the bits of some elements replaced; an empty array stays as it is.

    width: bits of an element, where the array's items are wider than a code (one E2M1 code a byte).
    """
    if not array.size:
        return array
    bits = float_bits(array).copy()
    mask = (1 << (width or 8 * bits.dtype.itemsize)) - 1
    for row, column, value in edits:
        bits[row % bits.shape[0], column % bits.shape[1]] = np.uint64(value & mask).astype(bits.dtype)
    return bits.view(array.dtype)


def _inputs(recipe: Recipe, like: Array) -> dict[str, Array]:
    """Return the arrays of a recipe's inputs by name, before its edits."""
    operation = OPERATIONS[recipe.operation]
    names = operation.inputs
    if operation.routed:
        return _routed(recipe, like)
    if names == ("a", "b"):
        return _factors(recipe, like)
    if operation.main == "values":
        return _values(recipe, names, like)
    codes, scales = _coded(recipe, like)
    if OPERATIONS[recipe.operation].kind("scales") == "values":
        return {"codes": codes, **_float_scales(recipe, scales.shape, like)}
    if names == ("codes",):
        return {"codes": codes}
    if names == ("codes", "scales"):
        return {"codes": codes, "scales": scales}
    packed = pack_nibbles(codes)
    if names == ("packed",):
        return {"packed": packed}
    if names == ("packed", "alpha"):
        return {"packed": packed, "alpha": _one_number(Draw(recipe.seed, 1, like))}
    if names == ("packed", "scales", "outer"):
        scales, outer = as_e4m3(scales), _numbers(Draw(recipe.seed, 1, like), codes.shape[0], codes.shape[1] // TILE)
        return {"packed": packed, "scales": scales, "outer": outer}
    if "tensor_amax" in names:
        return {"packed": packed, "scales": as_e4m3(scales), "tensor_amax": _one_number(Draw(recipe.seed, 1, like))}
    if names == ("payload",):
        return {"payload": np.concatenate([packed, scales], axis=1)}
    return {"packed": packed, "scales": scales}


def _float_scales(recipe: Recipe, shape: tuple[int, int], like: Array) -> dict[str, Array]:
    """Return float32 scales and, where they are drawn, zero points: whole bytes, or float32 of half of the seeds."""
    draw = Draw(recipe.seed, 1, like)
    scales = _numbers(draw, *shape)
    if not recipe.optional:
        return {"scales": scales}
    zeros = draw.below(16, *shape).astype(np.uint8)
    return {"scales": scales, "zeros": _numbers(draw, *shape) if recipe.seed & 1 else zeros}


def _values(recipe: Recipe, names: tuple[str, ...], like: Array) -> dict[str, Array]:
    """Return the floating-point inputs: one distribution, a Philox stream each."""
    target = target_of(recipe.operation, recipe.params)
    make = VALUES[recipe.distribution].make
    inputs = {}
    if "maxval" in names:
        names = tuple(name for name in names if name != "maxval")
        inputs["maxval"] = np.asarray(TOPS[recipe.seed % len(TOPS), None], like=like)
    if "factors" in names:
        names = tuple(name for name in names if name != "factors")
        inputs["factors"] = np.asarray(factors(recipe.operation, recipe.seed), like=like)
    for stream, name in enumerate(name for name in names if OPERATIONS[recipe.operation].kind(name) == "values"):
        aim = replace(target, input=FP32) if recipe.wide and not stream else target
        bits = make(Draw(recipe.seed, stream, like), aim, recipe.shape, **recipe.parameters)
        inputs[name] = as_float(bits, aim.input)
    if "norms" in inputs and recipe.seed % 2:  # many are equal
        inputs["norms"] = as_float(inputs["norms"].view(np.uint32) & np.uint32(0xFFF00000), FP32)
    if "v" in inputs and recipe.seed % 4:
        inputs["v"] = positive(inputs["v"])
    if recipe.optional and "prob" in OPERATIONS[recipe.operation].optional:
        draw = Draw(recipe.seed, len(names), like)
        inputs["prob"] = as_float(_fractions(draw, recipe.shape[0]), FP32)
    if recipe.optional and "tensor_amax" in OPERATIONS[recipe.operation].optional:
        inputs["tensor_amax"] = _one_number(Draw(recipe.seed, len(names), like))
    if "period" in names:
        draw = Draw(recipe.seed, len(names), like)
        inputs["count"] = draw.below(32, *recipe.shape).astype(np.int32)
        inputs["period"] = draw.below(8, *recipe.shape).astype(np.int32) + np.int32(1)
        inputs = {name: inputs[name] for name in names}
    if names[0] == "w" and "packed" in names:
        inputs |= zip(names[1:], refnum.quantize_tetrajet_v2(inputs["w"]), strict=True)
    return with_random_bits(recipe.operation, recipe.profile, inputs, recipe.seed, like)


def as_e4m3(scales: Array) -> Array:
    """Scale bytes as E4M3 codes: byte 127, about which they are drawn, becomes the code of 1."""
    return (scales.astype(np.uint32) + np.uint32(256 + 0x38 - 127)).astype(np.uint8)


def _one_number(draw: Draw) -> Array:
    """Return a positive float32 [1] between 2**-12 and 2**13."""
    return _numbers(draw, 1)


def _numbers(draw: Draw, *shape: int) -> Array:
    """Return positive float32 between 2**-12 and 2**13."""
    words, fields = draw.words(*shape), draw.between(115, 139, *shape).astype(np.uint32)
    return as_float((words & np.uint32(0x7FFFFF)) | (fields << np.uint32(23)), FP32)


def _fractions(draw: Draw, count: int) -> Array:
    """Return routing probabilities: k / 2**24 with k uniform below 2**24; one in sixteen is 0."""
    number = draw.below(1 << 24, count).astype(np.int32)
    number = np.where(draw.chance(16, count), np.int32(0), number)
    return from_integer(Target(FP32, E2M1, 32), number, -24)


def _coded(recipe: Recipe, like: Array) -> tuple[Array, Array]:
    layout = layout_of(recipe.operation, recipe.params)
    return CODED[recipe.distribution].make(Draw(recipe.seed, 0, like), layout, recipe.shape, **recipe.parameters)


def _factors(recipe: Recipe, like: Array) -> dict[str, Array]:
    """Return both operands of a product of 1 to 16 columns, a Philox stream each, and scales of a kind that fits."""
    order, seed = str(recipe.params["order"]), recipe.seed
    rows, k = recipe.shape[0], terms_for(order, recipe.shape[1])
    if OPERATIONS[recipe.operation].main == "values":
        target, make = target_of(recipe.operation, recipe.params), VALUES[recipe.distribution].make
        shapes = {"a": (rows, k), "b": (COLUMNS[seed % 5], k)}
        return {
            name: as_float(make(Draw(seed, stream, like), target, shape, **recipe.parameters), target.input)
            for stream, (name, shape) in enumerate(shapes.items())
        }
    sides = {"a": (rows, str(recipe.params["a_format"])), "b": (COLUMNS[seed % 5], str(recipe.params["b_format"]))}
    inputs: dict[str, Array] = {}
    for stream, (name, (side, element)) in enumerate(sides.items()):
        draw, layout = Draw(seed, stream, like), Layout(get_format(element), 1, TILE)
        codes, scales = CODED[recipe.distribution].make(draw, layout, (side, k), **recipe.parameters)
        inputs[name] = codes
        kind = scale_kinds(order)[(seed // 5 + 3 * stream) % len(scale_kinds(order))]
        if kind:
            inputs[f"{name}_scales"] = scales_of_kind(np.minimum(scales, np.uint8(254)), kind)
    return inputs


def _routed(recipe: Recipe, like: Array) -> dict[str, Array]:
    """The gathers and `unpermute`: shape is (tokens, K), splits count the rows routed to each expert.

    The padding rows of `unpermute` are filled like the others: they must not be read.
    """
    tokens, columns = recipe.shape
    splits = recipe.params["splits"]
    routed = sum(splits)
    draw = Draw(recipe.seed, 1, like)
    row_map = draw.below(max(tokens, 1), routed).astype(np.int32)
    if OPERATIONS[recipe.operation].main != "values":
        codes, scales = _coded(recipe, like)
        return {"payload": np.concatenate([pack_nibbles(codes), scales], axis=1), "row_map": row_map}
    align = recipe.params.get("align", 32)
    target = target_of(recipe.operation, recipe.params)
    target = replace(target, input=FP32) if recipe.wide else target
    shape = (sum(-(-count // align) * align for count in splits), columns)
    bits = VALUES[recipe.distribution].make(Draw(recipe.seed, 0, like), target, shape, **recipe.parameters)
    inputs = {"rows": as_float(bits, target.input), "row_map": row_map}
    if recipe.optional:
        inputs["weights"] = as_float(_fractions(draw, routed), FP32)
    return inputs
