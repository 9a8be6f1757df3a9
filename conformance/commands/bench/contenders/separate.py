"""The BF16 round trip in separate kernels: dequantise, transpose where the way is by columns, quantise.

Two kinds. `separate` takes the subject's own dequantiser and quantiser, so that what is compared is the fusion alone;
`separate, compiled` takes torch.compile of each step. The transpose is torch.compile's in both. Where experts end
within tiles, it also spaces them out to whole tiles, and a last step takes their codes together again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from refnum.arrays import Array, contiguous

from ....cases import layouts
from ....cases.case import Case
from ....subjects.peers.formulas import spaced
from ....subjects.subject import Subject, arguments_for
from ..contender import Contender, Prepared, as_tuple, from_torch, to_torch
from ..lines import Line
from ..shapes import ALIGN
from . import compiled

_ROWS, _COLUMNS = False, True
# operation -> (dequantiser of its input, ways of its outputs, quantiser of each)
_ROUTES: dict[str, tuple[str, tuple[bool, ...], str]] = {
    "fp8_to_mxfp4": ("dequantize_fp8_tiles", (_ROWS,), "quantize_mxfp4"),
    "mxfp4_to_fp8": ("dequantize_mxfp4", (_ROWS,), "quantize_fp8_tiles"),
    "mxfp4_to_fp8_columns": ("dequantize_mxfp4", (_COLUMNS,), "quantize_fp8_tiles"),
    "mxfp4_to_fp8_rows_columns": ("dequantize_mxfp4", (_ROWS, _COLUMNS), "quantize_fp8_tiles"),
    "mxfp4_columns": ("dequantize_mxfp4", (_COLUMNS,), "quantize_mxfp4"),
    "fp8_columns": ("dequantize_fp8_tiles", (_COLUMNS,), "quantize_fp8_tiles"),
}
# step -> (names of its arrays, its parameters)
_STEPS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "dequantize_mxfp4": (("packed", "scales"), {"dtype": "bfloat16"}),
    "dequantize_fp8_tiles": (("codes", "scales"), {"tile": [1, 128], "dtype": "bfloat16"}),
    "quantize_mxfp4": (("x",), {"input": "bfloat16"}),
    "quantize_fp8_tiles": (("x",), {"tile": [1, 128], "input": "bfloat16"}),
}
Run = Callable[[str, Sequence[Any]], tuple[Any, ...]]


@functools.cache
def _transpose() -> Any:
    return compiled.compile_(lambda x: x.t().contiguous())


@functools.cache
def _transpose_spaced() -> Any:
    return compiled.compile_(lambda x, rows: spaced(x, rows).t().contiguous())


@functools.cache
def _together() -> Any:
    return compiled.compile_(lambda codes, keep: codes.index_select(1, keep))


def _offers(line: Line) -> str:
    if line.operation == "mxfp4_columns" and line.unit % ALIGN:
        return f"it takes experts of multiples of {ALIGN} rows"
    if line.operation not in _ROUTES:
        return "no way by BF16"
    return "timed on scale bytes" if {layouts.IN, layouts.OUT} & set(line.params) else ""


def _chain(case: Case, run: Run, arrays: Sequence[Any], torch_: Callable[..., Any]) -> Callable[[], tuple[Any, ...]]:
    """Return a call of all steps, the results in the layout of the quantiser.

    run: (step, arrays) -> results. torch_: calls a function of torch tensors on arrays of the library of `run`.
    """
    first, ways, last = _ROUTES[case.operation]
    places = [to_torch(x) for x in compiled.stacks(case).values()]

    def column_wise(values: Any) -> tuple[Any, ...]:
        if not places:
            return run(last, (torch_(_transpose(), values),))
        codes, scales = run(last, (torch_(_transpose_spaced(), values, places[0]),))
        return torch_(_together(), codes, places[1]), scales

    def call() -> tuple[Any, ...]:
        (values,) = run(first, arrays)
        return tuple(x for by_columns in ways for x in (column_wise(values) if by_columns else run(last, (values,))))

    return call


def _canonical(case: Case, arrays: Sequence[Array]) -> list[Array]:
    """Turn the scales of a way by columns to the golden layout; codes have it already."""
    found: list[Array] = []
    for place, by_columns in enumerate(_ROUTES[case.operation][1]):
        codes, scales = arrays[2 * place : 2 * place + 2]
        found += [codes, contiguous(scales.T) if by_columns else scales]
    return found


def _run_compiled(operation: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    names, params = _STEPS[operation]
    name, extra = compiled.formula(operation, params)
    return as_tuple(compiled.function(name)(**dict(zip(names, arrays, strict=True)), **extra))


def _prepare_compiled(line: Line, case: Case) -> Prepared:
    tensors = [to_torch(x) for x in case.inputs.values()]
    like = next(iter(case.inputs.values()))
    call = _chain(case, _run_compiled, tensors, lambda function, *given: function(*given))
    return Prepared(call, tensors, lambda found: _canonical(case, [from_torch(x, like) for x in found]))


def _own(subject: Subject) -> Contender:
    on_torch = subject.arrays.startswith("torch")

    def run(operation: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
        names, params = _STEPS[operation]
        step = Case(operation, "HOPPER", params, dict(zip(names, arrays, strict=True)))
        return as_tuple(subject.operations[operation](**arguments_for(subject, step, step.inputs)))

    def prepare(line: Line, case: Case) -> Prepared:
        like = next(iter(case.inputs.values()))
        arrays = [to_torch(x) if on_torch else x for x in case.inputs.values()]

        def torch_(function: Callable[..., Any], x: Any, *tensors: Any) -> Any:
            return function(x, *tensors) if on_torch else from_torch(function(to_torch(x), *tensors), like)

        def canonical(found: Any) -> list[Array]:
            return _canonical(case, [from_torch(x, like) for x in found] if on_torch else found)

        return Prepared(_chain(case, run, arrays, torch_), arrays, canonical)

    def offers(line: Line) -> str:
        reason = _offers(line)
        steps = [] if reason else _ROUTES[line.operation][::2]
        missing = [step for step in steps if step not in subject.operations]
        return f"{subject.name} has no {missing[0]}" if missing else reason

    return Contender("separate", offers, prepare, compiled.describe, f"{subject.name}'s kernels, by BF16")


def contenders(subject: Subject) -> list[Contender]:
    """Return both kinds."""
    note = "torch.compile of each step, by BF16"
    return [_own(subject), Contender("separate, compiled", _offers, _prepare_compiled, compiled.describe, note)]
