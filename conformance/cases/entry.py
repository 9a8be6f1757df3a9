"""An entry of the table of operations: inputs, outputs, parameters, and what the harness must know of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import refnum

from . import layouts as storage
from .case import FORM

DATA_PARAMS = frozenset({"splits", "tokens", "philox", "scale_byte", "signs"})
"""Keywords that belong to a case's data, not to a variant: rows of each expert, rows of an output, a key, a scale,
a mask of signs."""
UNNAMED_PARAMS = frozenset({"ratio", "variant"})
"""Keywords of golden functions that are data of a case where an operation has no such parameter."""

OPERANDS: dict[str, str] = {
    "x": "values", "gate": "values", "up": "values", "grad": "values", "rows": "values", "prob": "values",
    "weights": "values", "rbits": "bits", "codes": "codes", "packed": "packed", "scales": "scales", "payload": "bytes",
    "a": "codes", "b": "codes", "a_scales": "scales", "b_scales": "scales", "row_map": "index", "stored": "scales",
    "counter": "index", "key": "index", "keys": "index", "tensor_amax": "values", "w": "values",
    "ema": "values", "alpha": "values", "r_under": "bits", "r_log": "bits", 
    "outer": "values", "maxval": "values", "zeros": "bytes", "gradient": "values", "weight": "values", "m": "values",
    "v": "values", "factors": "values", "dist_w": "values", "dist_q": "values", "total": "values", "count": "index",
    "period": "index", "norms": "values",
}  # fmt: skip
"""Name of an array argument -> its kind, as the kinds of `Output`; `bits` are random bits."""

WORDS: dict[str, int] = {"r_under": 24, "r_log": 23}
"""Random words that are inputs by themselves, not the bits of a profile's rounding -> their bits (N23.3)."""

OPAQUE = frozenset({"bytes", "index", "flags"})
"""Kinds of outputs whose items are no numbers of a format: they are equal or not."""

STEADY = frozenset({"maxval"})
"""Inputs of which most numbers are refused, so that a call with other data keeps them."""

MX_ELEMENTS = tuple(refnum.MX_ELEMENTS)
FLOAT_INPUTS = ("float32", "bfloat16", "float16")
FLOAT_OUTPUTS = ("float32", "bfloat16")


def is_random(name: str) -> bool:
    """Whether an array argument holds random bits."""
    return OPERANDS.get(name) == "bits"


def is_kept(name: str, array: Any) -> bool:
    """Whether a call with other data keeps an input: indices, random bits, and `STEADY` ones."""
    return array.dtype.kind == "i" or is_random(name) or name in STEADY


@dataclass(frozen=True)
class Output:
    """One output array.

    kind: `codes` (one element code a byte), `packed` (two E2M1 codes a byte, even element low), `scales` (E8M0
    bytes), `values` (floating point, compared as bits), `bytes` (opaque), `index` (row offsets, counts)
    or `flags` (truth values, a byte of 0 or 1 each).
    element: the format of the codes, or the name of the parameter that holds it (`@element`).
    block: the geometry by which `scales` covers `codes`, see `geometry.spread`; empty when there is none.
    needs: the optional input without which the output is not given.
    """

    name: str
    kind: str
    element: str = ""
    block: str = ""
    needs: str = ""

    def format(self, params: Mapping[str, Any]) -> str:
        """Return the element format's name under these parameters (empty for kinds without one)."""
        return _named(self.element, params)


def _named(element: str, params: Mapping[str, Any]) -> str:
    return str(params[element[1:]]) if element.startswith("@") else element


@dataclass(frozen=True)
class Blocks:
    """Elements that share a scale byte: their format, or `@` and the parameter that holds it, and how many they are."""

    element: str
    width: int

    def format(self, params: Mapping[str, Any]) -> refnum.Format:
        """Return the element format under these parameters."""
        return refnum.get_format(_named(self.element, params))


_ALONE = Blocks("BF16", 1)
MX, TILE, NVFP4 = Blocks("E2M1", 32), Blocks("E4M3", 128), Blocks("E2M1", 16)
POWERS_OF_2, POWERS_OF_4 = Blocks("E3M0", 32), Blocks("FP4_RADIX4", 32)


@dataclass(frozen=True)
class Operation:
    """One operation that is judged.

    clause: the specification's item. family: the name of the modules that hold its parts, see `families.part_of`.
    inputs: names of the golden signature's array arguments, in order, each with its kind in `OPERANDS`.
    kinds: kinds of inputs, where they are not those of `OPERANDS`.
    params: for each parameter its choices, the default first; `input` is the dtype of the floating-point input.
    read_under: for a parameter that is read only under a value of another one, that parameter and value; elsewhere the
    variants have its default.
    profiled: whether the operation takes a profile. optional: array inputs that a case may lack.
    nullable: those optional inputs that are passed as None when a case lacks them.
    layouts: the keywords for scale layouts that it has beside its parameters (N6.5), see `cases.layouts`.
    stored_as: the layouts that these keywords take, `bytes` first.
    keyed: whether its random bits may come by a Philox key (N13.5).
    quantises: whether results are reported by input class (N17).
    other_outputs: (parameter, value) -> the outputs under that value, where they are not `outputs`.
    reads: how the codes of its inputs are blocked; rounds_to: what its results are rounded to, or its floating-point
    inputs are drawn for. A parameter `tile` overrides both widths.
    scalar: whether each result depends on one element alone, so that there are no blocks. any_axes: whether each row
    along the last axis is decided by itself, however many axes there are before it.
    unit: the number that columns are a multiple of, where they need be no whole blocks.
    ragged: whether rows belong to experts (`splits`), at whose borders blocks restart; even_rows: whether an expert has
    an even number of rows. grouped: whether it also takes `splits`, with another operand of each expert (N19.8).
    routed: whether `splits` count the rows that a map routes, not those of the inputs.
    wide_first: whether the first input is bfloat16 or float32 without a parameter that says which.
    moves_only: whether bytes are moved and no number is computed.
    joins: the operation whose codes and scales it gives, joined to payload rows (N12).
    bounded: whether `refnum.product_bounds` holds the results of every order, which makes level P1 (N16).
    dear: by what its drawn cases are smaller, for the golden model needs so much longer an element.
    proof: the proof of the model on CuPy that has it (N18.6), see `commands.prove.catalogue`.
    """

    name: str
    clause: str
    family: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    params: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    read_under: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    profiled: bool = False
    optional: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    stored_as: tuple[str, ...] = storage.LAYOUTS
    keyed: bool = False
    quantises: bool = False
    other_outputs: Mapping[tuple[str, Any], tuple[Output, ...]] = field(default_factory=dict)
    reads: Blocks = MX
    rounds_to: Blocks = MX
    scalar: bool = False
    any_axes: bool = False
    unit: int = 0
    ragged: bool = False
    grouped: bool = False
    even_rows: bool = False
    routed: bool = False
    wide_first: bool = False
    moves_only: bool = False
    joins: str = ""
    bounded: bool = False
    dear: int = 1
    proof: str = "model-on-cupy"

    def variants(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the parameters' choices that is a call of its own, all defaults first."""
        for choice in itertools.product(*self.params.values()):
            variant = dict(zip(self.params, choice, strict=True))
            read = (variant[name] == self.params[name][0] or variant[other] == value
                    for name, (other, value) in self.read_under.items())  # fmt: skip
            if all(read):
                yield variant

    def defaults(self) -> dict[str, Any]:
        """Return the default of every parameter."""
        return {name: choices[0] for name, choices in self.params.items()}

    @property
    def known(self) -> frozenset[str]:
        """Names of all parameters that a case of it may have."""
        named = {*self.params, *self.layouts, *(("random",) if self.keyed else ())}
        return DATA_PARAMS | UNNAMED_PARAMS | {*named, FORM}

    def undefined(self, profile: str) -> str:
        """Return why the operation has no meaning under a profile (N2.6), or an empty string when it has one."""
        if not self.profiled or "rbits" in self.optional or refnum.get_profile(profile).rounding != "stochastic":
            return ""
        return f"{self.name} takes no random bits, so it is not defined under {profile}, which rounds stochastically"

    @property
    def main(self) -> str:
        """Kind of the first input: `values`, `codes`, `packed`, `scales` or `bytes`."""
        return self.kind(self.inputs[0])

    def kind(self, name: str) -> str:
        """Return the kind of an array argument; empty for a name that no operation has."""
        return self.kinds.get(name, OPERANDS.get(name, ""))

    @property
    def tall(self) -> int:
        """Rows of an expert that share a scale byte of a column output; 0 without such an output."""
        blocks = (output.block for output in self.outputs if output.block.startswith("column"))
        return next((int(block.removeprefix("column")) for block in blocks), 0)

    @property
    def block(self) -> int:
        """Elements of a row after which every block and tile of the inputs and outputs is whole."""
        return self.unit or (1 if self.scalar else max(self.reads.width, self.rounds_to.width))

    def output(self, kind: str) -> Output | None:
        """Return the first output of a kind, or None."""
        return next((output for output in self.outputs if output.kind == kind), None)
