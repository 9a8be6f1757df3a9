"""What has vectors: the judged operations, and beside them the scalar, layout and random-bit primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import refnum
from refnum import layouts, philox

from .case import Case
from .entry import Blocks, Operation, Output
from .operation import OPERATIONS, call_golden, outputs_of

DECODED = tuple(name for name, fmt in refnum.FORMATS.items() if fmt.bits <= 8)
ENCODED = (*(name for name in DECODED if refnum.FORMATS[name].kind != "scale"), "BF16", "FP16")


def _encode_element(x: np.ndarray, element: str, rbits: np.ndarray | None = None, **choices: Any) -> np.ndarray:
    return refnum.encode(element, x, profile=refnum.HOPPER.replace(name="vector", **choices), rbits=rbits)


def _decode_element(codes: np.ndarray, element: str) -> np.ndarray:
    return refnum.decode(element, codes)


def _philox4x32(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    words = philox.philox4x32([counter[:, i] for i in range(4)], [int(k) for k in key])
    return np.stack(words, axis=1)


def _random_bits(keys: np.ndarray, bits: int, count: int) -> np.ndarray:
    names = ("seed", "stream", "step", "offset")
    drawn = [philox.random_bits(count, bits, **dict(zip(names, key, strict=True))) for key in keys.tolist()]
    return np.stack(drawn)


def _scales_from_layout(stored: np.ndarray, layout: str, rows: int, columns: int) -> np.ndarray:
    return layouts.scales_from_layout(stored, layout, rows, columns)


_ELEMENT = Blocks("@element", 32)
_TABLE: tuple[tuple[Operation, Callable[..., Any]], ...] = (
    (Operation("encode_element", "N2", "casts", ("x",), (Output("codes", "codes", "@element"),),
               {"element": ENCODED, "rounding": ("nearest", "toward_zero", "stochastic"),
                "ties": ("even", "away", "up", "down", "zero"), "overflow": ("saturate", "nan"),
                "negative_zero": ("keep", "drop"), "random_bits": (8, 1, 4, 12, 16, 24)},
               optional=("rbits",), rounds_to=_ELEMENT, scalar=True), _encode_element),
    (Operation("decode_element", "N1", "casts", ("codes",), (Output("values", "values"),), {"element": DECODED},
               reads=_ELEMENT, scalar=True), _decode_element),
    (Operation("scales_to_gemm_float32", "N6", "layouts", ("scales",), (Output("values", "values"),)),
     layouts.scales_to_gemm_float32),
    (Operation("scales_to_packed_ue8m0", "N6", "layouts", ("scales",), (Output("words", "bytes"),)),
     layouts.scales_to_packed_ue8m0),
    (Operation("scales_to_swizzled", "N6", "layouts", ("scales",), (Output("bytes", "bytes"),)),
     layouts.scales_to_swizzled),
    (Operation("scales_from_layout", "N6", "layouts", ("stored",), (Output("scales", "scales", "E8M0"),),
               {"layout": layouts.LAYOUTS}), _scales_from_layout),
    (Operation("codes_to_packed", "N0", "layouts", ("codes",), (Output("packed", "bytes"),),
               {"order": layouts.NIBBLE_ORDERS}), layouts.codes_to_packed),
    (Operation("philox4x32", "N13", "philox", ("counter", "key"), (Output("words", "index"),)), _philox4x32),
    (Operation("random_bits", "N13", "philox", ("keys",), (Output("rbits", "index"),),
               {"bits": (8, 1, 5, 12, 16, 20, 24, 32)}), _random_bits),
)  # fmt: skip

_CALLS = {operation.name: call for operation, call in _TABLE}
VECTOR_OPERATIONS: dict[str, Operation] = {**OPERATIONS, **{operation.name: operation for operation, _ in _TABLE}}


def answer(case: Case) -> dict[str, np.ndarray]:
    """Return the golden outputs of a case by name, in their own dtypes."""
    if case.operation in _CALLS:
        result = _CALLS[case.operation](**case.arguments())
        outputs = VECTOR_OPERATIONS[case.operation].outputs
        arrays = result if isinstance(result, tuple) else (result,)
    else:
        arrays, outputs = call_golden(case), outputs_of(case)
    return {output.name: np.ascontiguousarray(a) for output, a in zip(outputs, arrays, strict=True)}


def make_case(
    operation: str, profile: str, params: Mapping[str, Any], inputs: Mapping[str, np.ndarray], label: str = ""
) -> Case:
    """Return the Case of a vector; `input` is filled in from the floating-point input's dtype."""
    full = dict(params)
    if "input" in VECTOR_OPERATIONS[operation].params:
        full["input"] = inputs[VECTOR_OPERATIONS[operation].inputs[0]].dtype.name
    return Case(operation, profile, full, inputs, label=label)
