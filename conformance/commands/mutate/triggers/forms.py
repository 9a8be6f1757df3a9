"""Conditions over the form of a call: arguments, dtypes, storage and `out`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from ....cases.entry import Operation
from .call import Call, address, named, storage
from .condition import Condition, Facts, residue
from .sizes import RAGGED, Maker

FORMED: list[Maker] = []


def formed(maker: Maker) -> Maker:
    """Register a maker of conditions."""
    FORMED.append(maker)
    return maker


@formed
def argument(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An argument at one of its values that is no default."""
    choices = [(name, value) for name, values in facts.parameters.items() for value in values[1:]]
    if not choices:
        return None
    name, value = dice.choice(choices)
    return Condition("argument", f"{name} = {value}", lambda call: _is(call, name, value),
                     lambda _: {f"param:{name}": value})  # fmt: skip


def _is(call: Call, name: str, value: Any) -> bool:
    if name == "input":
        return call.main.dtype.name == value
    return bool(named(call.arguments.get(name)) == named(value))


@formed
def layout_and_rest(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A scale layout together with a remainder of rows, or of columns of scales."""
    if not operation.layouts:
        return None
    name, layout = dice.choice(operation.layouts), dice.choice(operation.stored_as[1:])
    by, modulus = dice.choice((("rows", 4), ("rows", 32), ("rows", 128), ("columns", 128), ("columns", 512)))
    unit = getattr(facts, by)
    rest = residue(dice, modulus // unit) * unit

    def wants(dice: Random) -> dict[str, Any]:
        return {f"param:{name}": layout, by: rest + modulus * dice.randint(0 if rest else 1, 2)}

    def holds(call: Call) -> bool:
        count = getattr(call, by)
        return bool(call.arguments.get(name) == layout and count and count % modulus == rest)

    return Condition("layout x residue", f"{name} = {layout}, {by} % {modulus} == {rest}", holds, wants)


@formed
def dtype_form(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """The dtype of one input: bfloat16 as uint16 bits, wide values, a map of other integers."""
    forms = [(name, form) for name in operation.inputs for form in other_forms(name, operation)]
    if not forms:
        return None
    name, form = dice.choice(forms)

    def holds(call: Call) -> bool:
        array = call.array(name)
        return array is not None and array.dtype.name == form

    return Condition("dtype form", f"{name} is {form}", holds, lambda _: {f"form:{name}": form})


def other_forms(name: str, operation: Operation) -> tuple[str, ...]:
    """Return the dtypes that an input may have instead of its usual one."""
    if name == "row_map":
        return "int64", "int16"
    if name in ("gate", "up") or (name == "x" and "bfloat16" in operation.params.get("input", ())):
        return ("uint16",)
    return ("float32", "uint16") if name in ("grad", "rows") else ()


@formed
def optional_input(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An optional input that is given, or is not."""
    names = [name for name in operation.optional if name != "rbits"]
    if not names:
        return None
    name, given = dice.choice(names), dice.random() < 0.5
    return Condition("optional input", f"{name} is {'given' if given else 'None'}",
                     lambda call: (call.arguments.get(name) is not None) == given,
                     lambda _: {f"given:{name}": given})  # fmt: skip


@formed
def random_bits(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """Random bits: their dtype, or one word of a Philox key."""
    if not operation.keyed:
        return None
    kind = dice.choice(("uint8", "uint16", "uint32", "uint64", "offset", "high seed", "stream", "step", "three"))
    if kind.startswith("uint"):

        def given(call: Call) -> bool:
            array = call.array("rbits")
            return array is not None and array.dtype.name == kind

        return Condition("random bits", f"rbits is {kind}", given, lambda _: {"rbits": kind})  # fmt: skip
    tests: dict[str, Callable[[tuple[int, ...]], bool]] = {
        "offset": lambda key: len(key) > 3 and key[3] > 0,
        "high seed": lambda key: key[0] >= 1 << 32,
        "stream": lambda key: key[1] > 0,
        "step": lambda key: key[2] > 0,
        "three": lambda key: len(key) == 3,
    }

    def holds(call: Call) -> bool:
        key = call.arguments.get("philox")
        return key is not None and tests[kind](tuple(key))

    words = {"offset": "an offset", "high seed": "a seed of more than 32 bits", "stream": "a stream above 0",
             "step": "a step above 0", "three": "no offset given"}[kind]  # fmt: skip
    return Condition("random bits", f"a Philox key with {words}", holds, lambda _: {"rbits": kind})


SPLIT_FORMS: dict[str, Callable[[Any], bool]] = {
    "None": lambda splits: splits is None,
    "a list": lambda splits: isinstance(splits, list),
    "a tuple": lambda splits: isinstance(splits, tuple),
    "an int32 array": lambda splits: isinstance(splits, np.ndarray) and splits.dtype == np.int32,
    "an int64 array": lambda splits: isinstance(splits, np.ndarray) and splits.dtype == np.int64,
}


@formed
def splits_form(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """What splits are given as."""
    if RAGGED not in facts.parameters:
        return None
    form = dice.choice([name for name in SPLIT_FORMS if name != "None" or "row_map" not in operation.inputs])
    return Condition("form of splits", f"splits is {form}", lambda call: SPLIT_FORMS[form](call.arguments["splits"]),
                     lambda _: {"splits form": form})  # fmt: skip


@formed
def strides(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """How one input lies in memory."""
    name = dice.choice((*operation.inputs, *(name for name in operation.optional if name != "rbits")))
    kinds = ("row gap", "element gap", "transposed", "negative", "broadcast")
    kind = dice.choice(("element gap", "negative") if name in ("row_map", "prob", "weights") else kinds)

    def holds(call: Call) -> bool:
        array = call.array(name)
        return array is not None and storage(array) == kind

    return Condition("strides", f"{name} has strides: {kind}", holds,
                     lambda _: {f"storage:{name}": kind, **given(operation, name)})  # fmt: skip


def given(operation: Operation, name: str) -> dict[str, Any]:
    """Return what a call wants that must have an input."""
    return {f"given:{name}": True} if name in operation.optional else {}


@formed
def input_address(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """The address of one input: no multiple of a number of bytes."""
    name, modulus = dice.choice(operation.inputs), 1 << dice.randint(3, 7)
    if dice.random() < 0.6:
        words, test = f"{name} lies at no multiple of {modulus} bytes", lambda place: place % modulus > 0
    else:
        words, test = f"{name} lies {modulus // 2} bytes behind a multiple of {modulus}", (
            lambda place: place % modulus == modulus // 2)  # fmt: skip

    def holds(call: Call) -> bool:
        array = call.array(name)
        return array is not None and array.size > 0 and test(address(array))

    return Condition("address of an input", words, holds,
                     lambda _: {f"address:{name}": (modulus, modulus // 2), **given(operation, name)})  # fmt: skip


@formed
def out_form(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """What `out` is, for an operation that can be given one."""
    if "out" in operation.params:
        return None
    kind = dice.choice(("given", "padded", "odd"))
    tests: dict[str, Callable[[Call], bool]] = {
        "given": lambda call: bool(call.outs),
        "padded": lambda call: any(not out.flags.c_contiguous for out in call.outs),
        "odd": lambda call: any(out.size and address(out) % 16 for out in call.outs),
    }
    words = {"given": "out is given", "padded": "out has padded rows", "odd": "out lies at no multiple of 16 bytes"}
    return Condition("out", words[kind], tests[kind], lambda _: {"out": kind})


def makers() -> Iterator[Maker]:
    """Yield the makers of conditions over forms."""
    yield from FORMED
