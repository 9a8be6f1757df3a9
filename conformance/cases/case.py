"""One case: an operation, a profile, its parameters and the literal inputs. A case is data; it runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# Parameters that describe the inputs of a case and are not keywords of the golden function.
FORM = "form"
"""How a call is made, where not plainly: factor of form -> level, see `structure.factors` and `calls.forms`."""
DESCRIPTIVE = frozenset({"input", "random", FORM})


@dataclass(frozen=True, eq=False)
class Case:
    """Literal inputs of one call.

    operation: a name in `operation.OPERATIONS`. profile: a profile name (N14).
    params: the keywords of the golden function as JSON values (`tile` is a list, `splits` a list of rows an
    expert, `tokens` a count, `philox` a list of the key's numbers), plus two that are not passed on: `input`, the dtype
    name of the floating-point input, `random`, how random bits come when not as `rbits`, and `form`.
    inputs: arrays by the names of the golden signature; bfloat16 arrays have dtype `ml_dtypes.bfloat16`.
    recipe: what the inputs were expanded from, or None. label: what the case is there to hit.
    domain: the enumerable domain that the case is a part of, or None.
    """

    operation: str
    profile: str
    params: Mapping[str, Any]
    inputs: Mapping[str, np.ndarray]
    recipe: Any = None
    label: str = ""
    domain: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the keywords to call with: inputs (the same arrays, not copies) and parameters; no profile."""
        kept = {name: value for name, value in self.params.items() if name not in DESCRIPTIVE}
        for name in {"tile", "philox"} & set(kept):
            kept[name] = tuple(kept[name])
        return {**self.inputs, **kept}

    def with_inputs(
        self,
        inputs: Mapping[str, np.ndarray] | None = None,
        params: Mapping[str, Any] | None = None,
        label: str | None = None,
    ) -> Case:
        """Return a case that differs in the named inputs and parameters; it no longer has a recipe."""
        return replace(
            self,
            inputs={**self.inputs, **(inputs or {})},
            params={**self.params, **(params or {})},
            recipe=None,
            label=self.label if label is None else label,
        )

    @property
    def elements(self) -> int:
        """Elements in the largest input."""
        return max((array.size for array in self.inputs.values()), default=0)

    def digest(self) -> str:
        """Return SHA-256 (hex) of all that decides the result: not of the recipe, the label or the domain."""
        state = hashlib.sha256()
        head = [self.operation, self.profile, plain(self.params)]
        state.update(json.dumps(head, sort_keys=True, separators=(",", ":")).encode())
        for name in sorted(self.inputs):
            array = np.ascontiguousarray(self.inputs[name])
            state.update(f"|{name}|{array.dtype.name}|{array.shape}|".encode())
            state.update(array.view(np.uint8).tobytes() if array.size else b"")
        return state.hexdigest()

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in self.inputs.items())
        return f"{variant(self.operation, self.profile, self.params)} {shapes}"


_PLAIN = frozenset((int, str, float, bool, type(None)))


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters as JSON values in a fixed order."""

    def value(item: Any) -> Any:
        if isinstance(item, tuple | list | np.ndarray):
            return [part if type(part) in _PLAIN else value(part) for part in item]
        return item.item() if isinstance(item, np.generic) else item

    return {name: value(params[name]) for name in sorted(params)}


def variant(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    """Return the name of what is judged, e.g. `mxfp4_to_fp8[HOPPER, scale=max]`, without its data parameters."""
    shown = []
    for name, item in plain(params).items():
        if name not in ("splits", "tokens", "philox", FORM):
            shown.append(f"{name}=" + ("x".join(map(str, item)) if isinstance(item, list) else str(item)))
    return f"{operation}[{', '.join([profile, *shown])}]"
