"""refnum: the bit-exact reference for FP4 training numerics on Hopper GPUs.

Every operation takes and gives NumPy arrays, or CuPy arrays: the same lines run on both. Codes and scales are
uint8; see the specification in `docs/specification` for what each clause (N0 to N19) means.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Return name -> module for the imports of `__init__.pyi`; the name of a submodule maps to an empty string."""
    body = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = (node for node in body if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_PUBLIC = _public_names()
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line and the pytest plugin start quickly."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_PUBLIC[name] or name}", __name__)
    found = getattr(module, name) if _PUBLIC[name] else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
