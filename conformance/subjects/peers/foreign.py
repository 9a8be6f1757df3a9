"""Find the code of peers that are not on PyPI, or whose packages pull in more than the one function that is judged.

A module is looked for where Python looks, then in the folders of `$REFNUM_PEERS` (checkouts side by side; the variable
takes several folders like PATH). Where a package cannot be imported by itself, `excerpt` runs single definitions of
one of its files, as they are written there. Nothing is downloaded, nothing is copied into this project.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refnum.errors import UnsupportedError

VARIABLE = "REFNUM_PEERS"


def folders() -> list[Path]:
    """Return the folders of `$REFNUM_PEERS` that exist."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name and Path(name).is_dir()]


def _package_folder(module: str) -> Path | None:
    """Return the folder of an importable package without importing it; None when Python does not find it."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    places = list((spec and spec.submodule_search_locations) or ())
    return Path(places[0]) if places else None


def source(relative: str, checkouts: Sequence[str] = ("",)) -> Path:
    """Return a file: `package/a/b.py` of an installed package, or under `$REFNUM_PEERS/<checkout>`.

    checkouts: names of the folders in which a clone of the project has the package.
    Raises UnsupportedError naming what was looked for.
    """
    package, _, inner = relative.partition("/")
    installed = _package_folder(package)
    for candidate in [installed / inner] if installed else []:
        if candidate.is_file():
            return candidate
    for folder in folders():
        for checkout in checkouts:
            if (folder / checkout / relative).is_file():
                return folder / checkout / relative
    raise UnsupportedError(f"{relative} is neither installed nor in a folder of ${VARIABLE}")


def load(module: str, checkouts: Sequence[str] = ("",)) -> Any:
    """Import a module, from a checkout where it is not installed; UnsupportedError gives the reason when it fails."""
    relative = module.replace(".", "/")
    if _package_folder(module) is None or not _exists(module):
        for folder in folders():
            for checkout in checkouts:
                base = folder / checkout
                if (base / f"{relative}.py").is_file() or (base / relative / "__init__.py").is_file():
                    sys.path.insert(0, str(base))
                    break
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except Exception as error:  # a foreign import may fail in any way
        raise UnsupportedError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # its parent package runs code of its own
        return False


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def excerpt(path: Path, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Run some top-level definitions of a file and return them by name; `given` are the names they refer to.

    Raises UnsupportedError when the file no longer defines one of them.
    """
    kept = [node for node in _tree(path).body if set(_defines(node)) & set(names)]
    missing = set(names) - {name for node in kept for name in _defines(node)}
    if missing:
        raise UnsupportedError(f"{path.name} no longer defines {', '.join(sorted(missing))}")
    for node in kept:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            node.returns = None
    scope = dict(given)
    exec(compile(ast.Module(kept, []), str(path), "exec"), scope)
    return {name: scope[name] for name in names}


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def loop(path: Path, function: str, over: str, given: Sequence[str]) -> Any:
    """Return the code of a function's loop over a name, without its assignments to names that the caller gives.

    Raises UnsupportedError when the file no longer has the loop.
    """
    for node in (one for one in ast.walk(_tree(path)) if isinstance(one, ast.FunctionDef) and one.name == function):
        for each in (one for one in ast.walk(node) if isinstance(one, ast.For) and over in _names(one.target)):
            kept = _Without(given).visit(copy.deepcopy(each))
            return compile(ast.fix_missing_locations(ast.Module([kept], [])), str(path), "exec")
    raise UnsupportedError(f"{path.name} no longer has a loop over {over} in {function}")


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


class _Without(ast.NodeTransformer):
    def __init__(self, given: Sequence[str]) -> None:
        self.given = set(given)

    def _kept(self, node: Any) -> Any:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [one for one in targets if not isinstance(one, ast.Subscript)]
        return ast.Pass() if names and set().union(*map(_names, names)) <= self.given else node

    visit_Assign = visit_AugAssign = visit_AnnAssign = _kept


def version(distribution: str, absent: str = "checkout") -> str:
    """Return an installed distribution's version, or `absent`."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return absent


def torch_here(device: str = "cpu") -> str:
    """Return why torch cannot be used on a device here, or an empty string."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; install refnum[torch]"
    import torch

    return "" if device == "cpu" or torch.cuda.is_available() else "this torch sees no GPU"
