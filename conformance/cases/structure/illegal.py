"""Calls that an operation must refuse, one wrong thing each: a typed error of the golden model is what is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from refnum.formats import get_format

from ..case import FORM, Case
from ..crop import WHOLE
from ..draw.products import scale_kinds
from ..entry import WORDS
from ..layouts import IN, OUT
from ..operation import OPERATIONS, outputs_of
from . import byte_order
from .build import build
from .covering import Row
from .factors import ANY_AXES, CASTS, GROUPED, RAGGED, ROUTED
from .plan import base_row

Change = tuple[str, dict[str, np.ndarray], dict[str, Any]]
"""What is wrong, and the inputs and parameters that are."""
WRAPPED = 1 << 32
"""A number that is nothing in 32 bits."""
WRONG_PARAMS: dict[str, tuple[Any, ...]] = {
    "scale": ("mean",), "underflow": ("nearest",), "to": ("fp4",), "tile": ([1, 64], [64, 64], [128, 1], [16, 1]),
    "dtype": ("float16",), "overflow": ("wrap",), "rounding": ("even",), "saturate": ("yes",),
    "align": (0, -32, 1.5, 32.0, "32", True, WRAPPED + 32), "tokens": (-1, 40.0, WRAPPED + 40), OUT: ("packed",),
    "element": ("E4M2",), "scale_byte": (-1, 256 + 127, 127.0, "127", True),
    "group": (0, -32, 48, 32.0, "32", True, WRAPPED + 32), "bits": (1, 9, 4.0, "4", True), "symmetric": (1, "no"),
    "layerwise": (0, "no"),
    "order": ("tree", "promote33", "split999"), "out": ("float16",), "a_format": ("E2M1",), "b_format": ("E8M0",),
    "divisor": (32, 64.0, True), "step": ("exact",), "n0": (-64, 58, 0.5), "phase": ("both",),
    "threshold": ("0.5", 0.4),
    "variant": ("NVIDIA", "te"), "axis": (2, -2, 1, -1, 1.0, True, "row", "K"),
    "signs": (-1, 1 << 16, 1.0), "rule": ("ceil",), "ties": ("zero",),
    "ratio": ("float16",), "target": ("float16",), "compat": ("torch",), "k": (0, 17, 2.5, "5", True),
    "cap": (0, -3, 0.1, "3"),
    "seed": (-1, 1 << 32, 1.0, "1"), "exponent_bits": (0, 3, 2.0, True),
    "clip": (1, "yes"), "reset": (0,), "decay": ("no",), "forget": ("now", None),
    "alpha": ([1, 3], [3, 2], [1, 2, 3], 0.99), "beta": (-1, 2.5, "5"), "most": (0, 1 << 31, 9.0),
    "alpha of q_ramping": ([0, 3], [1, 2, 3], [16, 0], "16"),
    "threshold of osci_reset": ([0, 3], [1, 2, 3], [16, 0], "16"),
    "threshold of osci_reset_by_distance": ([-1, 3], [16], [16, 0], None),
    "share": ([3, 2], [-1, 10], [1, 2, 3], [1, 0], "0.1", 1.5),
}  # fmt: skip
"""Parameter, or one of an operation whose parameter of that name has others -> values that it does not have."""
STEP = ("gradient", "weight", "m", "v", "dist_w", "dist_q", "total", "count", "period")
MOMENTS = ("weight", "m", "v", "dist_q", "count", "period")
"""Arrays of a step, whose shape is any, and those that have that of the first one."""
EXPERTS: Row = {"experts": 4, "rows of an expert": 33, "rows before it": 3, "empty experts": "middle", "columns": 160,
                "columns of the product": 5, "splits": "list"}  # fmt: skip
"""The levels of a legal product of experts beside its scales."""
SEQUENCES = ("splits of", "splits as", "splits in", "splits beyond")
"""Illegal splits that are no list of whole numbers."""
OUT_WRONG = ("one row short", "one row long", "another dtype", "a wider dtype", "read-only")
OUTS_WRONG = ("one array short", "one array more")
"""Arrays that cannot be `out`, and numbers of them."""


READABLE = "byte orders"
"""The stream of `readable_cases`, beside that of illegal ones."""


def no_input(operation: str, array: np.ndarray) -> np.ndarray:
    """Return what an operation refuses as its first input: of three axes; of float64 where any shape is right."""
    return np.zeros((2, 2, 2), np.float64 if operation in ANY_AXES else array.dtype)


def illegal_cases(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the illegal cases of a variant, always the same and in the same order; `legal_beside` is right for each."""
    legal = legal_beside(operation, profile, params)
    for label, inputs, more in _changes(legal):
        yield legal.with_inputs(inputs, more, label=f"illegal: {label}")
    for label, more in byte_order.refused(legal):
        yield legal.with_inputs({}, more, label=f"illegal: {label}")
    if operation in GROUPED:
        grouped = legal_beside(operation, profile, params, experts=True)
        for label, inputs, more in _experts(grouped):
            yield grouped.with_inputs(inputs, more, label=f"illegal: {label}")
    many = len(outputs_of(legal)) > 1
    for level in (*OUT_WRONG, *(OUTS_WRONG if many else ())) if "out" not in OPERATIONS[operation].params else ():
        yield legal.with_inputs({}, {FORM: {"out": level}}, label=f"illegal: out with {level}")


def readable_cases(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the cases of a variant that are refused or right: whole numbers in the other byte order."""
    for experts in (False, True) if operation in GROUPED else (False,):
        yield from byte_order.readable(legal_beside(operation, profile, params, experts))


def legal_beside(operation: str, profile: str, params: Mapping[str, Any], experts: bool = False) -> Case:
    """Return the legal case that the illegal ones differ from by one thing; experts: those of grouped products."""
    row = {**base_row(operation), **({"taken": "scattered"} if operation in ROUTED else {})}
    if experts:
        kind = "block" if "block" in scale_kinds(str(params["order"])) else "row"
        row = {**EXPERTS, "scales of a": kind, "scales of b": kind}
    fixed = {**params, "align": 32} if operation in ROUTED else params
    case = build(operation, profile, fixed, row, 7)
    return case.with_inputs({}, {}, label="the legal call beside illegal ones")


def _changes(legal: Case) -> Iterator[Change]:
    operation, inputs = legal.operation, legal.inputs
    for name in OPERATIONS[operation].inputs:
        yield from _shapes(legal, name, inputs[name])
        yield from _dtypes(operation, name, inputs[name])
    for name in ("prob", "weights", *WHOLE):
        if name in inputs:
            yield f"{name} one short", {name: inputs[name][:-1].copy()}, {}
            yield f"{name} one long", {name: np.append(inputs[name], inputs[name][:1])}, {}
            if name not in WHOLE:
                yield f"{name} of one number", {name: inputs[name][:1].copy()}, {}
            yield f"{name} of two axes", {name: inputs[name][:, None].copy()}, {}
            for dtype in ("float64", "float16", "int32"):
                yield f"{name} in {dtype}", {name: inputs[name].astype(dtype)}, {}
    if "maxval" in inputs:
        for wrong in (0.0, -6.0, np.nan, np.inf, 2.0**101):
            yield f"maxval {wrong}", {"maxval": np.array([wrong], np.float32)}, {}
    if "zeros" in inputs:
        yield "zeros with a column too few", {"zeros": inputs["zeros"][:, :-1].copy()}, {}
        yield "zeros of one axis", {"zeros": inputs["zeros"].reshape(-1).copy()}, {}
        yield "zeros in int32", {"zeros": inputs["zeros"].astype(np.int32)}, {}
    if "codes" in inputs:
        yield from _codes(legal)
    if "rbits" in inputs:
        yield from _random_bits(inputs["rbits"])
    for name in WORDS.keys() & inputs.keys():
        yield f"{name} beyond {WORDS[name]} bits", {name: inputs[name] | np.uint32(1 << WORDS[name])}, {}
        yield f"{name} with a column too few", {name: inputs[name][:, :-1].copy()}, {}
    if "philox" in legal.params:
        key = list(legal.params["philox"])
        yield "a Philox key of two numbers", {}, {"philox": key[:2]}
        yield "a Philox key with a negative step", {}, {"philox": [*key[:2], -1]}
        for place, name in enumerate(("seed", "stream", "step")):
            wide = key[place] + (WRAPPED if place else WRAPPED * WRAPPED)
            yield f"a Philox key whose {name} is too large", {}, {"philox": [*key[:place], wide, *key[place + 1 :]]}
        yield "a Philox key whose offset is amid a block", {}, {"philox": [*key[:3], 4]}
        yield "a Philox key whose offset is too large", {}, {"philox": [*key[:3], WRAPPED * WRAPPED]}
    layout = OUT in OPERATIONS[operation].layouts and not {IN, OUT} & set(legal.params)
    extra = ("tokens",) if operation == "unpermute" else (OUT,) if layout else ()
    extra = (*extra, "signs") if OPERATIONS[operation].family == "hadamard" else extra
    extra = (*extra, "scale_byte") if operation == "encode_e2m1" else extra
    for name in (*OPERATIONS[operation].params, *extra):
        right = OPERATIONS[operation].params.get(name, ())
        for value in WRONG_PARAMS.get(f"{name} of {operation}", WRONG_PARAMS.get(name, ())):
            if any(type(value) is type(one) and value == one for one in right):
                continue
            yield f"{name}={value}", {}, {name: value}
        word = str(legal.params.get(name, "")) if name != "input" and right and isinstance(right[0], str) else ""
        if word.swapcase() != word:
            yield f"{name} in other letters", {}, {name: word.swapcase()}
    if operation in RAGGED or operation in ROUTED:
        yield from _splits(legal)
    if operation in ROUTED:
        yield from _row_maps(legal)


def _codes(legal: Case) -> Iterator[Change]:
    """Codes that their format does not have."""
    bits = {"decode_e2m1": 4, "decode_e4m3": 8, "decode_e8m0": 8, "dequantize_int4": 4}.get(legal.operation, 8)
    if legal.operation == "dequantize_mx":
        bits = get_format(legal.params["element"]).bits
    if bits == 8 and not legal.operation.startswith("decode_"):
        return
    codes = legal.inputs["codes"].astype(np.uint8 if bits < 8 else np.uint16)
    for bit in range(bits, 8 * codes.itemsize):
        wrong = codes.copy()
        wrong.reshape(-1)[wrong.size // 2] |= 1 << bit
        yield f"a code beyond {bits} bits, by bit {bit}", {"codes": wrong}, {}


def _random_bits(rbits: np.ndarray) -> Iterator[Change]:
    yield "rbits of one row", {"rbits": rbits[:1].copy()}, {}
    yield "rbits with a column too few", {"rbits": rbits[:, :-1].copy()}, {}
    yield "rbits in int64", {"rbits": rbits.astype(np.int64)}, {}
    yield "rbits and a Philox key", {}, {"philox": [1, 2, 3]}


def _shapes(legal: Case, name: str, array: np.ndarray) -> Iterator[Change]:
    """Widths that are no whole blocks, one column or row too many or too few, too many axes."""
    operation = legal.operation
    if operation in ANY_AXES or name in ("row_map", *WHOLE):
        return
    yield f"{name} of three axes", {name: array[None].copy()}, {}
    yield f"{name} of one axis", {name: array.reshape(-1).copy()}, {}
    if name != OPERATIONS[operation].inputs[0] and array.ndim == 2 and array.shape[0] != array.shape[1]:
        yield f"{name} turned", {name: array.T.copy()}, {}
    if name in ("scales", "outer"):
        yield f"{name} with a column too many", {name: np.concatenate([array, array[:, :1]], axis=1)}, {}
        yield f"{name} with a column too few", {name: array[:, :-1].copy()}, {}
    if name in ("scales", "outer", "up", "grad", "rows", "ema", *MOMENTS):
        yield f"{name} with a row too many", {name: np.concatenate([array, array[:1]])}, {}
        yield f"{name} with a row too few", {name: array[:-1].copy()}, {}
    if name in ("scales", "outer", "up", "grad", "rows", "ema", *MOMENTS) and len(array) > 1:
        yield f"{name} of one row", {name: array[:1].copy()}, {}
    if name in ("scales", "outer", "up", "grad", "ema", *MOMENTS):
        yield f"{name} of one column", {name: array[:, :1].copy()}, {}
    if name in ("up", "grad", "ema"):
        yield f"{name} with a block too many", {name: np.concatenate([array, array[:, :32]], axis=1)}, {}
    turned = OPERATIONS[operation].family == "hadamard" and legal.params["axis"] == 0
    loose = operation in ("unpermute", "permute_pad", "swiglu_backward") or name in STEP or turned
    if name not in ("scales", "outer", "up", "grad", "ema") and not loose:
        for width in (33, 48, 17, 64, array.shape[1] - 1, array.shape[1] + 1):
            if _no_blocks(operation, name, width):
                yield f"{name} of {width} columns", {name: _wide(array, width)}, {}


def _no_blocks(operation: str, name: str, width: int) -> bool:
    """Whether an array of so many columns is no whole number of blocks."""
    return bool(width % _unit(operation, name))


def _unit(operation: str, name: str) -> int:
    """Columns of one block of an input."""
    block = OPERATIONS[operation].unit or min(32, OPERATIONS[operation].block)
    return {"packed": block // 2, "payload": 17}.get(name, block)


def _wide(array: np.ndarray, width: int) -> np.ndarray:
    times = -(-width // array.shape[1])
    return np.ascontiguousarray(np.concatenate([array] * times, axis=1)[:, :width])


def _dtypes(operation: str, name: str, array: np.ndarray) -> Iterator[Change]:
    """Dtypes that an input cannot have."""
    floating = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    if OPERATIONS[operation].kind(name) == "index":
        yield f"{name} of float32", {name: array.astype(np.float32)}, {}
        return
    if floating:
        yield f"{name} in float64", {name: array.astype(np.float64)}, {}
        yield f"{name} in int32", {name: array.astype(np.float32).view(np.int32)}, {}
        yield f"{name} in int16", {name: array.astype(np.float16).view(np.int16)}, {}
        if name in ("gate", "up"):
            yield f"{name} in float32", {name: array.astype(np.float32)}, {}
        return
    yield f"{name} in float32", {name: array.astype(np.float32)}, {}
    yield f"{name} in int8", {name: array.view(np.int8)}, {}
    if operation not in CASTS and name not in WORDS:
        yield f"{name} in uint16", {name: array.astype(np.uint16)}, {}
    yield f"{name} in int64", {name: array.astype(np.int64)}, {}


def _splits(legal: Case) -> Iterator[Change]:
    counts = list(legal.params.get("splits") or [legal.inputs[OPERATIONS[legal.operation].inputs[0]].shape[0]])
    yield (
        "splits that sum to less",
        {},
        {"splits": [*counts[:-1], max(counts[-1] - 2, 0)] if counts[-1] else counts[:-2]},
    )
    yield "splits that sum to more", {}, {"splits": [*counts, 2]}
    yield "a negative split", {}, {"splits": [counts[0] + 2, -2, *counts[1:]]}
    yield "splits beyond 32 bits", {}, {"splits": [WRAPPED + counts[0], *counts[1:]]}
    yield "splits of floats", {}, {"splits": [float(count) for count in counts]}
    yield "splits as a number", {}, {"splits": sum(counts)}
    yield "splits of two axes", {}, {"splits": [counts]}
    yield "splits of truth values", {}, {"splits": [*counts[:-1], bool(counts[-1])]}
    if legal.params.get("splits"):
        yield "splits in an array of floats", {}, {FORM: {"splits": "float64 array"}}
        yield "splits in an array of two axes", {}, {FORM: {"splits": "matrix"}}
    if legal.operation in ROUTED:
        yield "splits that are not given", {}, {"splits": None}
    if legal.operation == "mxfp4_columns":
        longest = counts.index(max(counts))
        odd = [count - (place == longest) for place, count in enumerate(counts)]
        yield "odd splits", {}, {"splits": [*odd, 1]}


def _experts(legal: Case) -> Iterator[Change]:
    """Splits, operands and scales that do not belong together in a product of experts (N19.8)."""
    counts, b = list(legal.params["splits"]), legal.inputs["b"]
    for words, last in (("less", -1), ("more", 1)):
        yield f"splits that sum to {words}", {}, {"splits": [*counts[:-1], counts[-1] + last]}
    empty = counts.index(0)
    yield "a negative split", {}, {"splits": [counts[0] + 2, *counts[1:empty], -2, *counts[empty + 1 :]]}
    yield from (change for change in _splits(legal) if change[0].startswith(SEQUENCES))
    yield "b of two axes with splits", {"b": b[0].copy()}, {}
    yield "b of four axes with splits", {"b": b[None].copy()}, {}
    yield "b of another K with splits", {"b": b[..., :-1].copy()}, {}
    yield "b of an expert too few", {"b": b[:-1].copy()}, {}
    yield "b of an expert too many", {"b": np.concatenate([b, b[:1]])}, {}
    yield "b of one expert for all", {"b": b[:1].copy()}, {}
    yield "a split too many", {}, {"splits": [*counts, 0]}
    if "b_scales" in legal.inputs:
        yield from _experts_scales(legal.inputs["a_scales"], legal.inputs["b_scales"])


def _experts_scales(a_scales: np.ndarray, b_scales: np.ndarray) -> Iterator[Change]:
    yield "b_scales of two axes with splits", {"b_scales": b_scales[0].copy()}, {}
    yield "b_scales of an expert too few", {"b_scales": b_scales[:-1].copy()}, {}
    yield "b_scales of an expert too many", {"b_scales": np.concatenate([b_scales, b_scales[:1]])}, {}
    yield "b_scales of one expert for all", {"b_scales": b_scales[:1].copy()}, {}
    yield "b_scales of a row too few with splits", {"b_scales": b_scales[:, :-1].copy()}, {}
    yield "b_scales of a row too many with splits", {"b_scales": np.concatenate([b_scales, b_scales[:, :1]], 1)}, {}
    yield "a_scales of a row too few with splits", {"a_scales": a_scales[:-1].copy()}, {}
    yield "a_scales of a row too many with splits", {"a_scales": np.concatenate([a_scales, a_scales[:1]])}, {}
    if a_scales.shape[1] > 1:
        yield "a_scales by squares with splits", {"a_scales": a_scales[::128].copy()}, {}
    yield "a_scales of three axes", {"a_scales": a_scales[None].copy()}, {}


def _row_maps(legal: Case) -> Iterator[Change]:
    taken = legal.inputs["row_map"]
    tokens = legal.params["tokens"] if legal.operation == "unpermute" else legal.inputs["payload"].shape[0]
    for value in (tokens, -1):
        wrong = taken.copy()
        wrong[taken.size // 2] = value
        yield f"a row index of {value} among {tokens}", {"row_map": wrong}, {}
    wide = taken.astype(np.int64)
    wide[taken.size // 2] += 1 << 32
    yield "a row index beyond 2^32 in int64", {"row_map": wide}, {}
    yield "a row index beyond 2^32 in uint64", {"row_map": wide.astype(np.uint64)}, {}
    unsigned = taken.astype(np.uint32)
    unsigned[taken.size // 2] = np.uint32(0xFFFFFFFF)
    yield "a row index of 2^32 - 1 in uint32", {"row_map": unsigned}, {}
    yield "row_map of two axes", {"row_map": taken[:, None].copy()}, {}
    yield "row_map one short", {"row_map": taken[:-1].copy()}, {}
    yield "row_map one long", {"row_map": np.append(taken, taken[:1])}, {}
