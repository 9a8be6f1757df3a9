"""What each operation's inputs are made of: which distribution fills what, in which layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import refnum
from refnum import philox
from refnum.formats import BF16, E2M1, E4M3, FP32, get_format

from ..bits import as_float, input_format
from ..case import Case
from ..operation import OPERATIONS
from ..patterns import CODED, VALUES, Distribution, Draw
from ..patterns.coded import Layout
from ..patterns.values import Target, from_integer

if TYPE_CHECKING:
    from .recipe import Recipe

Array = Any

TILED = {"quantize_fp8_tiles", "encode_e4m3", "swiglu_quantize", "swiglu_backward"}
"""Operations whose values are rounded to E4M3 in blocks of 128; the others round to their element in 32."""

FLOATING = frozenset({"x", "gate", "grad", "rows"})
"""First inputs that are floating point; the others are codes."""

OFFSETS = (0, 32, (1 << 32) - 32, ((1 << 33) - 1) * 32)
"""Offsets of keyed random bits: a key's first element, and where its counter carries; beside them `last_offset`."""

RANDOM_STREAM = 1 << 16
"""Philox stream of the random bits of stochastic rounding, far from the streams of the inputs."""


def distributions_for(operation: str) -> dict[str, Distribution]:
    """Return the distributions that fill an operation's main input, simplest first."""
    inputs = OPERATIONS[operation].inputs
    return VALUES if inputs[0] in FLOATING else CODED


def target_of(operation: str, params: Any) -> Target:
    """Return what the values of an operation are drawn for."""
    fmt = input_format(params["input"]) if "input" in params else BF16
    if operation in TILED:
        return Target(fmt, E4M3, 128)
    return Target(fmt, get_format(params.get("element", "E2M1")), 32)


def layout_of(operation: str, params: Any) -> Layout:
    """Return the layout of an operation's codes and scales."""
    if operation == "decode_e4m3":
        return Layout(E4M3, 1, 128)
    if operation == "decode_e8m0":
        return Layout(refnum.E8M0, 1, 128)
    if "element" in params:
        return Layout(get_format(params["element"]), 1, 32)
    if OPERATIONS[operation].inputs[0] == "codes" and operation != "decode_e2m1":
        rows, columns = params.get("tile", (1, 128))
        return Layout(E4M3, rows, columns)
    return Layout(E2M1, 1, 32)


def make_inputs(recipe: Recipe, like: Array) -> dict[str, Array]:
    """Return the arrays of a recipe's inputs by name, before its edits."""
    names = OPERATIONS[recipe.operation].inputs
    if recipe.operation in ("permute_pad", "permute_unpack", "unpermute"):
        return _routed(recipe, like)
    if names[0] in FLOATING:
        return _values(recipe, names, like)
    draw = Draw(recipe.seed, 0, like)
    codes, scales = _coded(recipe, draw, layout_of(recipe.operation, recipe.params), recipe.shape)
    if names == ("codes",):
        return {"codes": codes}
    if names == ("codes", "scales"):
        return {"codes": codes, "scales": scales}
    packed = _pack(codes)
    if names == ("payload",):
        return {"payload": np.concatenate([packed, scales], axis=1)}
    return {"packed": packed, "scales": scales}


def _values(recipe: Recipe, names: tuple[str, ...], like: Array) -> dict[str, Array]:
    """Each floating-point input from its own Philox stream with the same distribution."""
    target = target_of(recipe.operation, recipe.params)
    make = VALUES[recipe.distribution].make
    inputs = {}
    for stream, name in enumerate(names):
        bits = make(Draw(recipe.seed, stream, like), target, recipe.shape, **recipe.parameters)
        inputs[name] = as_float(bits, target.input)
    if recipe.optional and "prob" in OPERATIONS[recipe.operation].optional:
        draw = Draw(recipe.seed, len(names), like)
        inputs["prob"] = as_float(_fractions(draw, recipe.shape[0]), FP32)
    return with_random_bits(recipe.operation, recipe.profile, inputs, recipe.seed, like)


def _fractions(draw: Draw, count: int) -> Array:
    """Routing probabilities: k / 2**24 with k uniform below 2**24, one in sixteen of them 0."""
    number = draw.below(1 << 24, count).astype(np.int32)
    number = np.where(draw.chance(16, count), np.int32(0), number)
    return from_integer(Target(FP32, E2M1, 32), number, -24)


def with_random_bits(
    operation: str, profile: str, inputs: dict[str, Array], seed: int, like: Array = None
) -> dict[str, Array]:
    """Add `rbits` where the profile rounds stochastically and the operation takes them."""
    chosen = refnum.get_profile(profile)
    if chosen.rounding == "stochastic" and "rbits" in OPERATIONS[operation].optional:
        shape = tuple(int(side) for side in inputs["x"].shape)
        inputs["rbits"] = philox.random_bits(shape, chosen.random_bits, seed=seed, stream=RANDOM_STREAM, like=like)
    return inputs


def by_key(case: Case, seed: int) -> Case:
    """Return a case whose variant asks for keyed random bits with a Philox key in place of `rbits` (N13.5).

    The keys differ in every word, and their offsets lie at both ends and at the carries of the counter.
    """
    if case.params.get("random") != "keyed":
        return case
    mixed = (seed + 1) * 0x9E3779B97F4A7C15
    offsets = (*OFFSETS, last_offset(refnum.get_profile(case.profile).random_bits))
    key = [mixed & (1 << 64) - 1, mixed >> 7 & (1 << 32) - 1, mixed >> 19 & (1 << 32) - 1, offsets[seed % len(offsets)]]
    inputs = {name: array for name, array in case.inputs.items() if name != "rbits"}
    return replace(case, inputs=inputs, params={**case.params, "philox": key})


def last_offset(bits: int) -> int:
    """Return the last power of two that keyed random bits of a width may begin at: bytes, halves or words (N13.5)."""
    return 1 << (61 if bits <= 8 else 60 if bits <= 16 else 59)


def _coded(recipe: Recipe, draw: Draw, layout: Layout, shape: tuple[int, int]) -> tuple[Array, Array]:
    return CODED[recipe.distribution].make(draw, layout, shape, **recipe.parameters)


def _pack(codes: Array) -> Array:
    return codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))


def _routed(recipe: Recipe, like: Array) -> dict[str, Array]:
    """The gathers and `unpermute`: shape is (tokens, K), splits count the rows routed to each expert.

    Rows of `unpermute` are bfloat16, the padding rows filled like the others: they must not be read.
    """
    tokens, columns = recipe.shape
    splits = recipe.params["splits"]
    routed = sum(splits)
    draw = Draw(recipe.seed, 1, like)
    row_map = draw.below(max(tokens, 1), routed).astype(np.int32)
    if recipe.operation != "unpermute":
        codes, scales = _coded(recipe, Draw(recipe.seed, 0, like), Layout(E2M1, 1, 32), (tokens, columns))
        return {"payload": np.concatenate([_pack(codes), scales], axis=1), "row_map": row_map}
    align = recipe.params.get("align", 32)
    target = Target(BF16, E4M3, 128)
    shape = (sum(-(-count // align) * align for count in splits), columns)
    bits = VALUES[recipe.distribution].make(Draw(recipe.seed, 0, like), target, shape, **recipe.parameters)
    inputs = {"rows": as_float(bits, BF16), "row_map": row_map}
    if recipe.optional:
        inputs["weights"] = as_float(_fractions(draw, routed), FP32)
    return inputs
