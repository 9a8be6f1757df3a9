"""Kernels with another nibble order or scale layout: their arrays are turned into ours and back around each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from refnum import layouts
from refnum.arguments import require_choice

from ...cases.operation import OPERATIONS
from ..arrays import to_library, to_numpy

OURS = ("low_first", "bytes")


def in_layouts(
    function: Callable[..., Any], operation: str, nibbles: str, scales: str, library: str
) -> Callable[..., Any]:
    """Return the function as seen through our layouts; itself when its layouts are ours.

    nibbles: a name of `layouts.NIBBLE_ORDERS`; scales: of `layouts.LAYOUTS`. Raises ArgumentError for others.
    """
    require_choice("nibbles", nibbles, layouts.NIBBLE_ORDERS)
    require_choice("scales", scales, layouts.LAYOUTS)
    if (nibbles, scales) == OURS:
        return function

    @functools.wraps(function)
    def seen(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind_partial(*arguments, **keywords).arguments
        for name in ("packed", "scales"):
            if name in given:
                given[name] = to_library(_theirs(name, to_numpy(given[name]), nibbles, scales), library)
        given = {**given.pop(rest, {}), **given} if (rest := _rest(signature)) else given
        return _back(function(**given), operation, nibbles, scales, library)

    signature = inspect.signature(function)
    seen.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p for p in signature.parameters.values() if p.name != "out"]
    )
    return seen


def _rest(signature: inspect.Signature) -> str:
    return next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")


def _theirs(name: str, array: np.ndarray, nibbles: str, scales: str) -> np.ndarray:
    if name == "packed":
        return layouts.codes_to_packed(layouts.codes_from_packed(array), nibbles)
    return layouts.scales_to_layout(array, scales)


def _back(result: Any, operation: str, nibbles: str, scales: str, library: str) -> tuple[Any, ...]:
    parts = list(result) if isinstance(result, tuple | list) else [result]
    kinds = [output.kind for output in OPERATIONS[operation].outputs]
    found = dict(zip(kinds, parts, strict=False))
    if "packed" in found:
        packed = to_numpy(found["packed"])
        parts[kinds.index("packed")] = to_library(
            layouts.codes_to_packed(layouts.codes_from_packed(packed, nibbles)), library
        )
    if "scales" in found and scales != "bytes":
        rows, columns = _scale_shape(OPERATIONS[operation].output("codes") is None, found)
        turned = layouts.scales_from_layout(to_numpy(found["scales"]), scales, rows, columns)
        parts[kinds.index("scales")] = to_library(turned, library)
    return tuple(parts)


def _scale_shape(packed: bool, found: dict[str, Any]) -> tuple[int, int]:
    """Rows and columns of a row-wise result's scales, from its codes: a block of 32 or a tile of 1x128."""
    rows, wide = found["packed" if packed else "codes"].shape
    return int(rows), int(wide) * 2 // 32 if packed else -(-int(wide) // 128)
