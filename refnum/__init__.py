"""refnum: the bit-exact reference for FP4 training numerics on Hopper GPUs.

Every operation takes and gives NumPy arrays, or CuPy arrays: the same lines run on both. Torch tensors, on the host or
a CUDA device, give torch tensors on the same device; lists, numbers and arrays of any other library that has DLPack or
`__array__` give NumPy arrays. Codes and scales are uint8, and are taken in the float8, float4 and E8M0 dtypes of torch
and ml_dtypes too; bfloat16 is taken by its bits. A profile is given by its name. See the specification in
`docs/specification` for what each clause (N0 to N19) means.
"""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Return name -> module for the imports of `__init__.pyi`; the name of a submodule maps to an empty string."""
    body = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = (node for node in body if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_PUBLIC = _public_names()
__all__ = sorted(_PUBLIC)


class _Package(ModuleType):
    """This package: what a submodule of array functions holds goes behind doors as soon as Python has loaded it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("layouts", "philox") and isinstance(value, ModuleType):
            importlib.import_module(".interchange", __name__).door_module(value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line and the pytest plugin start quickly."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_PUBLIC[name] or name}", __name__)
    found = getattr(module, name) if _PUBLIC[name] else module
    if callable(found) and not isinstance(found, type):
        found = importlib.import_module(".interchange", __name__).door(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
