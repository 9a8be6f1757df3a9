"""What is judged: one literal table of operations, and the call of the golden model.

An operation is one entry of `OPERATIONS`; its golden function is `refnum`'s of that very name. What differs from
operation to operation is a field of its entry, or stands in the module of its family (see `families`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

import refnum
from refnum import estimators, hadamard, nvfp4, oscillation, tetrajet, updates
from refnum.arrays import contiguous
from refnum.errors import ArgumentError
from refnum.nvfp4_scales import VARIANTS

from . import layouts as storage
from .case import Case
from .entry import (
    _ALONE,
    FLOAT_INPUTS,
    FLOAT_OUTPUTS,
    MX_ELEMENTS,
    NVFP4,
    POWERS_OF_2,
    POWERS_OF_4,
    TILE,
    Blocks,
    Operation,
    Output,
)

_MXFP4 = (Output("packed", "packed", "E2M1", "row32"), Output("scales", "scales", "E8M0"))
_FP8_ROWS = (Output("codes", "codes", "E4M3", "row128"), Output("scales", "scales", "E8M0"))
_FP8_COLUMNS = (Output("codes", "codes", "E4M3", "column128"), Output("scales", "scales", "E8M0"))
_FP8_BOTH = (
    *_FP8_ROWS,
    Output("column_codes", "codes", "E4M3", "column128"),
    Output("column_scales", "scales", "E8M0"),
)
_NVFP4_CODES = (Output("packed", "packed", "E2M1"), Output("scales", "codes", "E4M3"), Output("tensor_amax", "values"))
_VALUES = (Output("values", "values"),)
_FLAGS = (Output("flags", "flags"),)
_TILES = ([1, 128], [128, 128])
_SQUARES = ([1, 16], [16, 16])
_ROTATED = ("bfloat16", "float32")
_BOTH = (storage.IN, storage.OUT)
_MX_ELEMENT = Blocks("@element", 32)
_NVFP4 = "model-on-cupy-nvfp4"
_ROTATION = "model-on-cupy-rotation"
_TETRAJET = "model-on-cupy-tetrajet"
_TWO_SCALES = Blocks("E2M1", 128)
_MXFP4_DOWN = (Output("packed", "packed", "E2M1", "down32"), Output("scales", "scales", "E8M0"))
_DOWN = {("axis", 0): _MXFP4_DOWN}
_METHODS = "model-on-cupy-methods"
_OSCILLATION = "model-on-cupy-oscillation"
_LOGARITHMIC = "model-on-cupy-logarithmic"
_RADIX4 = {"n0": (-5,), "phase": ("even", "odd")}
_ESTIMATORS = "model-on-cupy-estimators"
_FUSED = "model-on-cupy-fused"
_INTEGER = "model-on-cupy-integer"
_INT4_TENSOR, _INT4_GROUPS, _E2M1_ALONE = Blocks("INT4", 1), Blocks("INT4", 32), Blocks("E2M1", 1)

_STEP = ("gradient", "weight", "m", "v", "factors")
_STEPPED = (Output("weight", "values"), Output("m", "values"), Output("v", "values"))

_TABLE = (
    Operation("quantize_mxfp4", "N5", "blocks", ("x",), _MXFP4, {"input": FLOAT_INPUTS}, profiled=True,
              optional=("rbits",), layouts=(storage.OUT,), keyed=True, quantises=True),
    Operation("dequantize_mxfp4", "N5", "blocks", ("packed", "scales"), _VALUES, {"dtype": FLOAT_OUTPUTS},
              layouts=(storage.IN,)),
    Operation("quantize_mx", "N5", "blocks", ("x",),
              (Output("codes", "codes", "@element", "row32"), Output("scales", "scales", "E8M0")),
              {"element": MX_ELEMENTS, "input": FLOAT_INPUTS}, profiled=True, optional=("rbits",), keyed=True,
              quantises=True, rounds_to=_MX_ELEMENT),
    Operation("dequantize_mx", "N5", "blocks", ("codes", "scales"), _VALUES,
              {"element": MX_ELEMENTS, "dtype": FLOAT_OUTPUTS}, reads=_MX_ELEMENT),
    Operation("quantize_fp8_tiles", "N6", "tiles", ("x",),
              (Output("codes", "codes", "E4M3", "tile"), Output("scales", "scales", "E8M0")),
              {"tile": _TILES, "input": FLOAT_INPUTS}, profiled=True, layouts=(storage.OUT,), quantises=True,
              rounds_to=TILE),
    Operation("dequantize_fp8_tiles", "N6", "tiles", ("codes", "scales"), _VALUES,
              {"tile": _TILES, "dtype": FLOAT_OUTPUTS}, layouts=(storage.IN,), reads=TILE),
    Operation("quantize_nvfp4", "N21", "nvfp4", ("x",),
              _NVFP4_CODES,
              {"variant": tuple(VARIANTS), "tile": _SQUARES, "input": FLOAT_INPUTS}, optional=("tensor_amax", "rbits"),
              layouts=(storage.OUT,), stored_as=nvfp4.LAYOUTS, reads=NVFP4, rounds_to=NVFP4, dear=4, proof=_NVFP4),
    Operation("dequantize_nvfp4", "N21", "nvfp4", ("packed", "scales", "tensor_amax"), _VALUES,
              {"order": nvfp4.ORDERS, "tile": _SQUARES, "dtype": FLOAT_OUTPUTS},
              kinds={"scales": "codes"}, layouts=(storage.IN,), stored_as=nvfp4.LAYOUTS, reads=NVFP4, rounds_to=NVFP4,
              proof=_NVFP4),
    Operation("hadamard16", "N22", "hadamard", ("x",), _VALUES,
              {"axis": hadamard.AXES, "order": hadamard.ORDERS, "dtype": _ROTATED, "input": _ROTATED},
              reads=NVFP4, rounds_to=NVFP4, dear=16, proof=_ROTATION),
    Operation("hadamard_quantize_nvfp4", "N22", "hadamard", ("x",), _NVFP4_CODES,
              {"axis": hadamard.AXES, "order": hadamard.ORDERS, "input": _ROTATED}, optional=("tensor_amax", "rbits"),
              layouts=(storage.OUT,), stored_as=nvfp4.LAYOUTS, reads=NVFP4, rounds_to=NVFP4, dear=16, proof=_ROTATION),
    Operation("quantize_tetrajet", "N24", "tetrajet", ("x",), _MXFP4,
              {"axis": (1, 0), "rule": tetrajet.RULES, "ties": tetrajet.TIES, "ratio": tetrajet.RATIOS,
               "input": FLOAT_OUTPUTS},
              read_under={"ratio": ("rule", "truncation_free")}, optional=("rbits",), other_outputs=_DOWN,
              proof=_TETRAJET),
    Operation("q_ema", "N24", "tetrajet", ("w", "ema"), _MXFP4,
              {"axis": (1, 0), "rule": tetrajet.RULES, "input": FLOAT_OUTPUTS}, other_outputs=_DOWN, proof=_TETRAJET),
    Operation("quantize_tetrajet_v2", "N24", "tetrajet_v2", ("x",),
              (Output("packed", "packed", "E2M1"), Output("scales", "codes", "E4M3"), Output("outer", "values")),
              {"seed": (None, 20251027), "input": FLOAT_INPUTS}, reads=NVFP4, rounds_to=_TWO_SCALES, unit=128, dear=4,
              proof=_METHODS),
    Operation("dequantize_tetrajet_v2", "N24", "tetrajet_v2", ("packed", "scales", "outer"), _VALUES,
              {"dtype": FLOAT_OUTPUTS}, kinds={"scales": "codes"}, reads=NVFP4, rounds_to=_TWO_SCALES, unit=128,
              proof=_METHODS),
    Operation("q_ramping", "N24", "oscillation", ("dist_w", "dist_q"), (Output("period", "index"),),
              {"alpha": ([16, 1],), "beta": (5,), "most": (oscillation.MOST_STEPS,), "input": ("float32",)},
              reads=_ALONE, rounds_to=_ALONE, dear=8, proof=_OSCILLATION),
    Operation("ramping_step", "N24", "oscillation", ("total", "count", "grad", "period"),
              (Output("total", "values"), Output("count", "index"), Output("due", "flags"), Output("mean", "values")),
              {"input": ("float32",)}, reads=_ALONE, rounds_to=_ALONE, dear=8, proof=_OSCILLATION),
    Operation("osci_reset", "N24", "oscillation", ("w", "packed", "scales", "outer"), _FLAGS,
              {"threshold": ([495, 1000],), "input": FLOAT_OUTPUTS}, kinds={"scales": "codes"}, reads=NVFP4,
              rounds_to=_TWO_SCALES, unit=128, dear=16, proof=_OSCILLATION),
    Operation("osci_reset_by_distance", "N24", "oscillation", ("dist_w", "dist_q"), _FLAGS,
              {"threshold": ([16, 1],), "input": ("float32",)}, reads=_ALONE, rounds_to=_ALONE, dear=8,
              proof=_OSCILLATION),
    Operation("out_control", "N24", "oscillation", ("norms",), _FLAGS, {"share": ([1, 10],), "input": ("float32",)},
              reads=_ALONE, rounds_to=_ALONE, any_axes=True, dear=8, proof=_OSCILLATION),
    Operation("luq", "N23", "logarithmic", ("x", "r_under", "r_log"),
              (Output("packed", "packed", "E3M0"), Output("alpha", "values")),
              {"divisor": (64, 128, 16), "step": ("real", "power_of_two"), "input": FLOAT_OUTPUTS},
              optional=("tensor_amax",), reads=POWERS_OF_2, rounds_to=POWERS_OF_2, unit=2, proof=_LOGARITHMIC),
    Operation("dequantize_luq", "N23", "logarithmic", ("packed", "alpha"), _VALUES, {"dtype": FLOAT_OUTPUTS},
              reads=POWERS_OF_2, rounds_to=POWERS_OF_2, unit=2, proof=_LOGARITHMIC),
    Operation("radix4", "N23", "logarithmic", ("x",), (Output("packed", "packed", "FP4_RADIX4"),),
              {**_RADIX4, "threshold": ("midpoint", "0.4", "log"), "input": FLOAT_OUTPUTS}, reads=POWERS_OF_4,
              rounds_to=POWERS_OF_2, unit=2, proof=_LOGARITHMIC),
    Operation("dequantize_radix4", "N23", "logarithmic", ("packed",), _VALUES, {**_RADIX4, "dtype": FLOAT_OUTPUTS},
              reads=POWERS_OF_4, rounds_to=POWERS_OF_2, unit=2, proof=_LOGARITHMIC),
    Operation("dge", "N25", "estimators", ("x",), _VALUES,
              {"target": ("bfloat16", "float32"), "compat": estimators.COMPATS, "k": (5,), "cap": (3,),
               "input": ("bfloat16", "float32")}, scalar=True, proof=_ESTIMATORS),
    Operation("occ", "N25", "estimators", ("x",),
              (Output("clamped", "values"), Output("residual", "values"), Output("thresholds", "values")),
              {"axis": estimators.AXES, "alpha": ([99, 100],), "input": ("bfloat16", "float32")}, reads=_ALONE,
              rounds_to=_ALONE, dear=8, proof=_ESTIMATORS),
    Operation("sawb", "N26", "integer", ("x",), (Output("codes", "codes", "INT4"), Output("scale", "values")),
              {"input": FLOAT_OUTPUTS}, reads=_INT4_TENSOR, rounds_to=_INT4_TENSOR, proof=_INTEGER),
    Operation("int4_affine", "N26", "integer", ("x",),
              (Output("codes", "bytes"), Output("scales", "values"), Output("zeros", "bytes")),
              {"group": (32,), "input": FLOAT_OUTPUTS}, reads=_INT4_GROUPS, rounds_to=_INT4_GROUPS, proof=_INTEGER),
    Operation("efficient_qat", "N26", "integer", ("x",),
              (Output("codes", "bytes"), Output("scales", "values"), Output("zeros", "values")),
              {"group": (32,), "input": FLOAT_OUTPUTS}, reads=_INT4_GROUPS, rounds_to=_INT4_GROUPS, proof=_INTEGER),
    Operation("int4_keep_two", "N26", "integer", ("x",),
              (Output("codes", "codes", "INT4"), Output("scales", "values"), Output("kept", "index")),
              {"group": (32,), "input": FLOAT_OUTPUTS}, reads=_INT4_GROUPS, rounds_to=_INT4_GROUPS, proof=_INTEGER),
    Operation("llm_qat", "N26", "integer", ("x",), (Output("codes", "index"), Output("values", "values")),
              {"bits": (4, 8), "symmetric": (True, False), "layerwise": (False, True), "input": FLOAT_OUTPUTS},
              reads=_INT4_TENSOR, rounds_to=_INT4_TENSOR, proof=_INTEGER),
    Operation("dequantize_int4", "N26", "integer", ("codes", "scales"), _VALUES, kinds={"scales": "values"},
              optional=("zeros",), reads=_INT4_GROUPS, rounds_to=_INT4_GROUPS, dear=2, proof=_METHODS),
    Operation("llm_fp4", "N26", "integer", ("x", "maxval"), (Output("codes", "bytes"), Output("values", "values")),
              {"exponent_bits": (2, 1), "input": FLOAT_OUTPUTS}, reads=_E2M1_ALONE, rounds_to=_E2M1_ALONE, dear=4,
              proof=_METHODS),
    Operation("adam_apply", "N27", "updates", _STEP, _STEPPED, {"input": ("float32",)}, reads=_ALONE, rounds_to=_ALONE,
              dear=4, proof=_METHODS),
    Operation("spam_apply", "N27", "updates", _STEP, _STEPPED,
              {"clip": (True, False), "reset": (False, True), "decay": (False, True), "input": ("float32",)},
              reads=_ALONE, rounds_to=_ALONE, dear=4, proof=_METHODS),
    Operation("stable_spam_apply", "N27", "updates", _STEP, _STEPPED,
              {"forget": updates.FORGETS, "input": ("float32",)}, reads=_ALONE, rounds_to=_ALONE, dear=4,
              proof=_METHODS),
    Operation("fp8_to_mxfp4", "N7", "recast", ("codes", "scales"), _MXFP4, profiled=True, layouts=_BOTH, quantises=True,
              reads=TILE),
    Operation("mxfp4_to_fp8", "N8", "recast", ("packed", "scales"), _FP8_ROWS, {"scale": ("max", "amax")},
              layouts=_BOTH, rounds_to=TILE),
    Operation("mxfp4_to_fp8_columns", "N9", "columns", ("packed", "scales"), _FP8_COLUMNS, {"scale": ("max", "amax")},
              rounds_to=TILE, ragged=True),
    Operation("mxfp4_to_fp8_rows_columns", "N9", "columns", ("packed", "scales"), _FP8_BOTH, {"scale": ("max", "amax")},
              rounds_to=TILE, ragged=True, proof=_FUSED),
    Operation("mxfp4_columns", "N9", "columns", ("packed", "scales"),
              (Output("packed", "packed", "E2M1", "column32"), Output("scales", "scales", "E8M0")),
              {"scale": ("amax", "max")}, ragged=True, even_rows=True),
    Operation("fp8_columns", "N10", "columns", ("codes", "scales"), _FP8_COLUMNS, {"underflow": ("rne", "te")},
              reads=TILE, rounds_to=TILE, ragged=True),
    Operation("swiglu_quantize", "N11", "swiglu", ("gate", "up"), _FP8_ROWS, {"to": ("fp8", "mxfp4")}, profiled=True,
              optional=("prob",), quantises=True, other_outputs={("to", "mxfp4"): _MXFP4}, rounds_to=TILE),
    Operation("swiglu_backward", "N11", "swiglu", ("grad", "gate", "up"),
              (Output("dgate", "values"), Output("dup", "values"), Output("dprob", "values", needs="prob")),
              optional=("prob",), rounds_to=TILE, wide_first=True),
    Operation("pack_payload", "N12", "payload", ("packed", "scales"), (Output("payload", "bytes"),), moves_only=True),
    Operation("unpack_payload", "N12", "payload", ("payload",),
              (Output("packed", "bytes"), Output("scales", "bytes")), moves_only=True),
    Operation("quantize_payload", "N12", "payload", ("x",), (Output("payload", "bytes"),), {"input": FLOAT_INPUTS},
              profiled=True, joins="quantize_mxfp4", proof=_FUSED),
    Operation("fp8_to_payload", "N12", "payload", ("codes", "scales"), (Output("payload", "bytes"),), profiled=True,
              reads=TILE, joins="fp8_to_mxfp4", proof=_FUSED),
    Operation("permute_pad", "N12", "payload", ("payload", "row_map"),
              (Output("rows", "bytes"), Output("offsets", "index")), {"align": (32, 16, 128)}, ragged=True, routed=True,
              moves_only=True),
    Operation("permute_unpack", "N12", "payload", ("payload", "row_map"),
              (Output("packed", "bytes"), Output("scales", "bytes"), Output("offsets", "index")),
              {"align": (32, 16, 128)}, ragged=True, routed=True, moves_only=True, proof=_FUSED),
    Operation("unpermute", "N12", "payload", ("rows", "row_map"), _VALUES, {"align": (32, 16, 128)},
              optional=("weights",), nullable=("weights",), rounds_to=TILE, ragged=True, routed=True, wide_first=True),
    Operation("encode_e2m1", "N2", "casts", ("x",), (Output("codes", "codes", "E2M1"),), {"input": FLOAT_INPUTS},
              scalar=True),
    Operation("encode_e4m3", "N2", "casts", ("x",), (Output("codes", "codes", "E4M3"),),
              {"overflow": ("saturate", "nan"), "input": FLOAT_INPUTS}, rounds_to=TILE, scalar=True),
    Operation("encode_e8m0", "N1", "casts", ("x",), (Output("codes", "codes", "E8M0"),),
              {"rounding": ("up", "down", "nearest"), "saturate": (False, True), "input": FLOAT_INPUTS}, scalar=True),
    Operation("decode_e2m1", "N1", "casts", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}, scalar=True),
    Operation("decode_e4m3", "N1", "casts", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}, reads=TILE, scalar=True),
    Operation("decode_e8m0", "N1", "casts", ("codes",), _VALUES, {"dtype": FLOAT_OUTPUTS}, reads=Blocks("E8M0", 128),
              scalar=True),
    Operation("matmul_fp8", "N19", "product", ("a", "b"), _VALUES,
              {"order": ("promote128", "chain", "split2"), "out": FLOAT_OUTPUTS, "a_format": ("E4M3", "E5M2"),
               "b_format": ("E4M3", "E5M2")},
              optional=("a_scales", "b_scales"), reads=Blocks("@a_format", 128), rounds_to=TILE, bounded=True, dear=16,
              grouped=True, proof="model-on-cupy-product"),
    Operation("matmul_bf16", "N19", "product", ("a", "b"), _VALUES,
              {"order": ("chain", "promote128", "split2"), "out": FLOAT_OUTPUTS}, kinds={"a": "values", "b": "values"},
              reads=Blocks("BF16", 128), rounds_to=TILE, bounded=True, dear=16, grouped=True,
              proof="model-on-cupy-product"),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}


def outputs_of(case: Case, operation: Operation | None = None) -> tuple[Output, ...]:
    """Return the outputs a case has: `swiglu_quantize(to="mxfp4")` gives packed codes, no `prob` no `dprob`.

    operation: the case's, where it is not in `OPERATIONS`.
    """
    operation = operation or OPERATIONS[case.operation]
    others = (outputs for (name, value), outputs in operation.other_outputs.items() if case.params.get(name) == value)
    outputs = next(others, operation.outputs)
    return tuple(output for output in outputs if not output.needs or output.needs in case.inputs)


def near(name: str, cutoff: float = 0.6, names: Iterable[str] = ()) -> str:
    """Return in words the operation whose name is most like a name that is none, or an empty string.

    cutoff: how much alike they must be, as in `difflib`. names: of operations; by default all.
    """
    found = get_close_matches(name, list(names) or list(OPERATIONS), 1, cutoff)
    return f" ({found[0]} is similar)" if found else ""


def select(patterns: list[str] | None) -> list[Operation]:
    """Return the operations whose name matches any of the shell patterns; None or empty means all.

    Raises:
        ArgumentError: a pattern matches nothing.
    """
    if not patterns:
        return list(_TABLE)
    for pattern in patterns:
        if not any(fnmatchcase(operation.name, pattern) for operation in _TABLE):
            raise ArgumentError(
                f"No operation is named {pattern!r}{near(pattern)}; choose from {', '.join(OPERATIONS)}."
            )
    return [operation for operation in _TABLE if any(fnmatchcase(operation.name, p) for p in patterns)]


def arguments_of(case: Case) -> dict[str, Any]:
    """Return the keywords of a call except the profile: inputs as stored, None for nullable ones, and parameters."""
    keywords = {**case.arguments(), **storage.stored_inputs(case)}
    return {**dict.fromkeys(OPERATIONS[case.operation].nullable), **keywords}


def call_golden(case: Case, profile: refnum.Profile | None = None) -> tuple[np.ndarray, ...]:
    """Call the golden model on a case.

    Args:
        case: a case of a judged operation.
        profile: one to use in place of the case's own; a diagnosis tries other choices.

    Returns:
        The outputs as the model returns them, in the order of `outputs_of(case)`, scales in their layout; truth values
        as bytes.
    """
    operation = OPERATIONS[case.operation]
    function = getattr(refnum, operation.name)
    arguments = arguments_of(case)
    if operation.profiled:
        arguments["profile"] = profile or refnum.get_profile(case.profile)
    result = function(**arguments)
    result = result if isinstance(result, tuple) else (result,)
    return tuple(without_bools(array) for array in result if array is not None)


def without_bools(array: np.ndarray) -> np.ndarray:
    """Return truth values as bytes, any other array as it is."""
    return array.view(np.uint8) if array.dtype == bool else array


def run_golden(case: Case, profile: refnum.Profile | None = None) -> dict[str, np.ndarray]:
    """Call the golden model on a case, as `call_golden`.

    Returns:
        Name -> output as unsigned integers of its own width: scales as bytes whatever the layout, floats as bits.
    """
    plain = storage.without_layouts(case)
    arrays = call_golden(plain, profile)
    if profile is None:
        remember_like(case, arrays)
    return {output.name: as_bits(array) for output, array in zip(outputs_of(plain), arrays, strict=True)}


_latest: list[tuple[weakref.ref[Case], tuple[tuple[tuple[int, ...], np.dtype], ...]]] = []
"""The latest case of `run_golden`, and shape and dtype of each of its outputs, scales as bytes."""


def remember_like(case: Case, arrays: Iterable[np.ndarray]) -> None:
    """Note the shapes and dtypes of a case's outputs, scales as bytes, for the next `plain_like`."""
    _latest[:] = [(weakref.ref(case), tuple((array.shape, array.dtype) for array in arrays))]


def plain_like(case: Case) -> tuple[np.ndarray, ...]:
    """Return arrays of the shapes and dtypes of a case's outputs, scales as bytes, with anything in them."""
    if not (_latest and _latest[0][0]() is case):
        return call_golden(storage.without_layouts(case))
    return tuple(np.empty(shape, dtype) for shape, dtype in _latest[0][1])


def golden_like(case: Case) -> tuple[np.ndarray, ...]:
    """Return arrays of the shapes and dtypes of a case's outputs, scales in their layout, with anything in them."""
    if storage.OUT not in case.params:
        return plain_like(case)
    like = {output.name: array for output, array in zip(outputs_of(case), plain_like(case), strict=True)}
    return tuple({**like, "scales": storage.stored_scales(case, like["scales"])}.values())


def as_bits(array: np.ndarray) -> np.ndarray:
    """View an array of any library as unsigned integers of its own width; an array that is not contiguous is copied."""
    array = contiguous(array).reshape(array.shape)  # NumPy's gives an array without axes one
    return array if array.dtype.kind == "u" else array.view(f"u{array.dtype.itemsize}")
