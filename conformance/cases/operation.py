"""What is judged: one literal table of operations, and the call of the golden model.

An operation is one entry of `OPERATIONS`; its golden function is `refnum`'s of that very name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

import refnum
from refnum.arrays import contiguous
from refnum.errors import ArgumentError

from . import layouts as storage
from .case import FORM, Case

DATA_PARAMS = frozenset({"splits", "tokens", "philox"})
"""Keywords that belong to a case's data, not to a variant: rows of each expert, rows of an unpermuted output, a key."""

MX_ELEMENTS = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "MXINT8")
FLOAT_INPUTS = ("float32", "bfloat16", "float16")
FLOAT_OUTPUTS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Output:
    """One output array.

    kind: `codes` (one element code a byte), `packed` (two E2M1 codes a byte, even element low), `scales` (E8M0
    bytes), `values` (floating point, compared as bits), `bytes` (opaque) or `index` (row offsets).
    element: the format of the codes, or the name of the parameter that holds it (`@element`).
    block: the geometry by which `scales` covers `codes`, see `geometry.spread`; empty when there is none.
    """

    name: str
    kind: str
    element: str = ""
    block: str = ""

    def format(self, params: Mapping[str, Any]) -> str:
        """Return the element format's name under these parameters (empty for kinds without one)."""
        return str(params[self.element[1:]]) if self.element.startswith("@") else self.element


@dataclass(frozen=True)
class Operation:
    """One operation that is judged.

    clause: the specification's item. inputs: names of the golden signature's array arguments, in order.
    params: for each parameter its choices, the default first; `input` is the dtype of the floating-point input.
    profiled: whether the operation takes a profile. optional: array inputs that a case may lack.
    nullable: those optional inputs that are passed as None when a case lacks them.
    layouts: the keywords for scale layouts that it has beside its parameters (N6.5), see `calling.storage`.
    keyed: whether its random bits may come by a Philox key (N13.5).
    quantises: whether results are reported by input class (N17).
    """

    name: str
    clause: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    params: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    profiled: bool = False
    optional: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    keyed: bool = False
    quantises: bool = False

    def variants(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the parameters' choices, all defaults first."""
        for choice in itertools.product(*self.params.values()):
            yield dict(zip(self.params, choice, strict=True))

    def defaults(self) -> dict[str, Any]:
        """Return the default of every parameter."""
        return {name: choices[0] for name, choices in self.params.items()}

    @property
    def known(self) -> frozenset[str]:
        """Names of all parameters that a case of it may have."""
        return frozenset({*self.params, *self.layouts, *(("random",) if self.keyed else ()), *DATA_PARAMS, FORM})

    def undefined(self, profile: str) -> str:
        """Return why the operation has no meaning under a profile (N2.6), or an empty string when it has one."""
        if not self.profiled or "rbits" in self.optional or refnum.get_profile(profile).rounding != "stochastic":
            return ""
        return f"{self.name} takes no random bits, so it is not defined under {profile}, which rounds stochastically"

    def output(self, kind: str) -> Output | None:
        """Return the first output of a kind, or None."""
        return next((output for output in self.outputs if output.kind == kind), None)


_MXFP4 = (Output("packed", "packed", "E2M1", "row32"), Output("scales", "scales", "E8M0"))
_FP8_ROWS = (Output("codes", "codes", "E4M3", "row128"), Output("scales", "scales", "E8M0"))
_FP8_COLUMNS = (Output("codes", "codes", "E4M3", "column128"), Output("scales", "scales", "E8M0"))
_FP8_BOTH = (
    *_FP8_ROWS,
    Output("column_codes", "codes", "E4M3", "column128"),
    Output("column_scales", "scales", "E8M0"),
)
_VALUES = (Output("values", "values"),)
_TILES = ([1, 128], [128, 128])
_BOTH = (storage.IN, storage.OUT)

_TABLE = (
    Operation("quantize_mxfp4", "N5", ("x",), _MXFP4, {"input": FLOAT_INPUTS}, profiled=True, optional=("rbits",),
              layouts=(storage.OUT,), keyed=True, quantises=True),
    Operation("dequantize_mxfp4", "N5", ("packed", "scales"), _VALUES, {"dtype": FLOAT_OUTPUTS}, layouts=(storage.IN,)),
    Operation("quantize_mx", "N5", ("x",),
              (Output("codes", "codes", "@element", "row32"), Output("scales", "scales", "E8M0")),
              {"element": MX_ELEMENTS, "input": FLOAT_INPUTS}, profiled=True, optional=("rbits",), keyed=True,
              quantises=True),
    Operation("dequantize_mx", "N5", ("codes", "scales"), _VALUES, {"element": MX_ELEMENTS, "dtype": FLOAT_OUTPUTS}),
    Operation("quantize_fp8_tiles", "N6", ("x",),
              (Output("codes", "codes", "E4M3", "tile"), Output("scales", "scales", "E8M0")),
              {"tile": _TILES, "input": FLOAT_INPUTS}, profiled=True, layouts=(storage.OUT,), quantises=True),
    Operation("dequantize_fp8_tiles", "N6", ("codes", "scales"), _VALUES, {"tile": _TILES, "dtype": FLOAT_OUTPUTS},
              layouts=(storage.IN,)),
    Operation("fp8_to_mxfp4", "N7", ("codes", "scales"), _MXFP4, profiled=True, layouts=_BOTH, quantises=True),
    Operation("mxfp4_to_fp8", "N8", ("packed", "scales"), _FP8_ROWS, {"scale": ("max", "amax")}, layouts=_BOTH),
    Operation("mxfp4_to_fp8_columns", "N9", ("packed", "scales"), _FP8_COLUMNS, {"scale": ("max", "amax")}),
    Operation("mxfp4_to_fp8_rows_columns", "N9", ("packed", "scales"), _FP8_BOTH, {"scale": ("max", "amax")}),
    Operation("mxfp4_columns", "N9", ("packed", "scales"),
              (Output("packed", "packed", "E2M1", "column32"), Output("scales", "scales", "E8M0")),
              {"scale": ("amax", "max")}),
    Operation("fp8_columns", "N10", ("codes", "scales"), _FP8_COLUMNS, {"underflow": ("rne", "te")}),
    Operation("swiglu_quantize", "N11", ("gate", "up"), _FP8_ROWS, {"to": ("fp8", "mxfp4")}, profiled=True,
              optional=("prob",), quantises=True),
    Operation("swiglu_backward", "N11", ("grad", "gate", "up"),
              (Output("dgate", "values"), Output("dup", "values"), Output("dprob", "values")), optional=("prob",)),
    Operation("pack_payload", "N12", ("packed", "scales"), (Output("payload", "bytes"),)),
    Operation("unpack_payload", "N12", ("payload",), (Output("packed", "bytes"), Output("scales", "bytes"))),
    Operation("quantize_payload", "N12", ("x",), (Output("payload", "bytes"),), {"input": FLOAT_INPUTS}, profiled=True),
    Operation("fp8_to_payload", "N12", ("codes", "scales"), (Output("payload", "bytes"),), profiled=True),
    Operation("permute_pad", "N12", ("payload", "row_map"), (Output("rows", "bytes"), Output("offsets", "index")),
              {"align": (32, 16, 128)}),
    Operation("permute_unpack", "N12", ("payload", "row_map"),
              (Output("packed", "bytes"), Output("scales", "bytes"), Output("offsets", "index")),
              {"align": (32, 16, 128)}),
    Operation("unpermute", "N12", ("rows", "row_map"), _VALUES, {"align": (32, 16, 128)}, optional=("weights",),
              nullable=("weights",)),
    Operation("encode_e2m1", "N2", ("x",), (Output("codes", "codes", "E2M1"),), {"input": FLOAT_INPUTS}),
    Operation("encode_e4m3", "N2", ("x",), (Output("codes", "codes", "E4M3"),),
              {"overflow": ("saturate", "nan"), "input": FLOAT_INPUTS}),
    Operation("encode_e8m0", "N1", ("x",), (Output("codes", "codes", "E8M0"),),
              {"rounding": ("up", "down", "nearest"), "saturate": (False, True), "input": FLOAT_INPUTS}),
    Operation("decode_e2m1", "N1", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}),
    Operation("decode_e4m3", "N1", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}),
    Operation("decode_e8m0", "N1", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}


def outputs_of(case: Case) -> tuple[Output, ...]:
    """Return the outputs a case has: `swiglu_quantize(to="mxfp4")` gives packed codes, no `prob` no `dprob`."""
    if case.operation == "swiglu_quantize" and case.params.get("to") == "mxfp4":
        return _MXFP4
    outputs = OPERATIONS[case.operation].outputs
    if case.operation == "swiglu_backward" and "prob" not in case.inputs:
        return outputs[:2]
    return outputs


def select(patterns: list[str] | None) -> list[Operation]:
    """Return the operations whose name matches any of the shell patterns; None or empty means all.

    Raises ArgumentError for a pattern that matches nothing: a name that selects nothing is a mistake.
    """
    if not patterns:
        return list(_TABLE)
    for pattern in patterns:
        if not any(fnmatchcase(operation.name, pattern) for operation in _TABLE):
            raise ArgumentError(f"No operation is named {pattern!r}; choose from {', '.join(OPERATIONS)}.")
    return [operation for operation in _TABLE if any(fnmatchcase(operation.name, p) for p in patterns)]


def arguments_of(case: Case) -> dict[str, Any]:
    """Return the keywords of a call, the profile apart: inputs as stored, None for nullable ones, and parameters."""
    keywords = {**case.arguments(), **storage.stored_inputs(case)}
    return {**dict.fromkeys(OPERATIONS[case.operation].nullable), **keywords}


def call_golden(case: Case, profile: refnum.Profile | None = None) -> tuple[np.ndarray, ...]:
    """Return the golden model's outputs as it returns them, in the order of `outputs_of(case)`, scales in their layout.

    profile: one to use in place of the case's own (diagnosis asks what another choice would give).
    """

    operation = OPERATIONS[case.operation]
    function = getattr(refnum, operation.name)
    arguments = arguments_of(case)
    if operation.profiled:
        arguments["profile"] = profile or refnum.get_profile(case.profile)
    result = function(**arguments)
    result = result if isinstance(result, tuple) else (result,)
    return tuple(array for array in result if array is not None)


def run_golden(case: Case, profile: refnum.Profile | None = None) -> dict[str, np.ndarray]:
    """Return the golden outputs by name as unsigned integers; scales as bytes whatever the layout, floats as bits."""
    plain = storage.without_layouts(case)
    arrays = call_golden(plain, profile)
    return {output.name: as_bits(array) for output, array in zip(outputs_of(plain), arrays, strict=True)}


def as_bits(array: np.ndarray) -> np.ndarray:
    """View an array as unsigned integers of its own width (a contiguous copy where the layout asks for one).

    Any library's array; the result stays in it.
    """
    array = contiguous(array).reshape(array.shape)  # NumPy's gives an array without axes one
    return array if array.dtype.kind == "u" else array.view(f"u{array.dtype.itemsize}")
