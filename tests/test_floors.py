"""The house stands on its floors: imports run down only, and this file says which floor every room is on.

A room is a folder or a file at the top of a package. A room imports itself and rooms on lower floors. The checks take
the root of a checkout, so that the tests at the end can plant one offence of each kind in a copy.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {"refnum": (), "gpu": ("refnum",), "conformance": ("refnum",), "training": ("refnum", "gpu")}
"""Package -> the packages that it may import."""

FLOORS = {
    "conformance": (
        {"cases"},
        {"bugs", "reports", "subjects"},
        {"verdicts", "vectors"},
        {"mismatches"},
        {"commands"},
        {"cli", "api"},
        {""},
        {"plugin"},
    ),
    "gpu": (
        {"checks", "cache", "operations", "silu"},
        {"interface"},
        {"device"},
        {"ops"},
        {"torch"},
        {"host"},
        {"emulate"},
        {"mutation"},
        {"subjects", ""},
    ),
}
"""Package -> its floors from the ground up, each a set of rooms; the empty name is the package's own `__init__`."""

MODEL_ONLY = {"gpu": {"refnum": ("errors", "profiles", "formats", "layouts", "arguments", "arrays", "softfloat", "")}}
"""Package -> package -> the modules of it that may be imported; kernels share no arithmetic with the model."""

BY_NAME = {
    "conformance/__init__.py": "the Python interface, when it is first used",
    "conformance/cases/families.py": "an operation's parts, in the modules of its family",
    "conformance/cases/recipes/sampled.py": "Hypothesis, when a case is sampled",
    "conformance/cli.py": "the table of commands",
    "conformance/commands/check/command.py": "the harness, once options are sound; the judge of layers",
    "conformance/commands/bench/contenders/__init__.py": "contenders of a bench by their names in a table",
    "conformance/subjects/controls/__init__.py": "every control of the folder",
    "conformance/subjects/loading/discover.py": "the peers, when they are asked for",
    "conformance/subjects/peers/__init__.py": "peers by their names in a table",
    "conformance/subjects/peers/foreign.py": "a peer's own library",
    "conformance/subjects/peers/torch_formulas.py": "formulas in torch, when one is called",
    "training/judge.py": "the module of a subject, by its name",
    "gpu/__init__.py": "the launchers, when they are first used",
    "gpu/device/arrays.py": "CuPy, where it is installed",
    "gpu/mutation/kernels.py": "CuPy, before a process forks",
    "refnum/__init__.py": "public names, when they are first used",
}
"""File that imports modules by a computed name -> which ones."""

LAZY = {"conformance/cli.py"}
"""Files with a table of modules that are imported when a command is chosen."""


@dataclass(frozen=True)
class Import:
    """One import of a module of ours: the importing file and line, the module, and whether a function does it."""

    file: str
    line: int
    module: str
    in_function: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@functools.lru_cache(maxsize=2048)
def _read(text: str) -> tuple[list[tuple[ast.Import | ast.ImportFrom, bool]], list[int]]:
    """Return the imports of a file, each with whether a function does it, and lines of computed names."""
    tree = ast.parse(text)
    named = (
        (node, node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) for node in ast.walk(tree)
    )
    computed = [node.lineno for node, name in named if name in ("import_module", "__import__")]
    return list(_imports(tree, False)), computed


def sources(root: Path) -> dict[str, Path]:
    """Return module -> file for all packages, `refnum.gpu.ops` for `gpu/ops/__init__.py`."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if package == "refnum" and parts[1] in {*PACKAGES, "vectors"}:
                continue  # a link to another package
            name = ".".join(parts[: -1 if parts[-1] == "__init__" else None])
            found[name if package == "refnum" else f"refnum.{name}"] = path
    return found


def imports(root: Path) -> Iterator[Import]:
    """Yield every import of a module of ours, wherever in a file it stands."""
    modules = sources(root)
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        file = path.relative_to(root).as_posix()
        for node, inside in _read(path.read_text(encoding="utf-8"))[0]:
            for module in _named(node, package, modules):
                yield Import(file, node.lineno, module, inside)


def _imports(node: ast.AST, inside: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside
        yield from _imports(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def _named(node: ast.Import | ast.ImportFrom, package: str, modules: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in modules]
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, *([node.module] if node.module else [])])
    found = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
    return [module for module in found if module in modules]


def room_of(module: str) -> tuple[str, str]:
    """Return (package, room) of a module."""
    parts = module.split(".")
    if len(parts) > 1 and parts[1] in PACKAGES:
        return parts[1], parts[2] if len(parts) > 2 else ""
    return "refnum", parts[1] if len(parts) > 1 else ""


def _floor(package: str, room: str) -> int:
    return next((number for number, rooms in enumerate(FLOORS[package]) if room in rooms), -1)


def homeless(root: Path) -> list[str]:
    """Return the rooms that no floor names, and the rooms of the table that do not exist."""
    there = {room_of(module) for module in sources(root)}
    told = {(package, room) for package, floors in FLOORS.items() for rooms in floors for room in rooms}
    return sorted(f"{package}/{room}" for package, room in {one for one in there if one[0] in FLOORS} ^ told)


def upward(root: Path) -> list[str]:
    """Return the imports of a room on the same floor or above, of a package that may not be imported, or between files
    in a circle.
    """
    modules = {path.relative_to(root).as_posix(): name for name, path in sources(root).items()}
    wrong = []
    for one in imports(root):
        (package, room), (other, target) = room_of(modules[one.file]), room_of(one.module)
        if package != other:
            allowed = MODEL_ONLY.get(package, {}).get(other)
            if other not in PACKAGES[package] or (allowed is not None and target not in allowed):
                wrong.append(f"{one}: {package} may not")
        elif package in FLOORS and room != target and _floor(package, room) <= _floor(package, target):
            wrong.append(f"{one}: it is no lower floor")
    return wrong


def circles(root: Path) -> list[str]:
    """Return the files that import each other in a circle, by their imports at the top of a file."""
    modules = {path.relative_to(root).as_posix(): name for name, path in sources(root).items()}
    graph: dict[str, set[str]] = {name: set() for name in modules.values()}
    for one in imports(root):
        if not one.in_function and one.module != modules[one.file]:
            graph[modules[one.file]].add(one.module)
    while ends := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in ends:
            del graph[name]
    return sorted(graph)


def hidden(root: Path) -> list[str]:
    """Return imports of ours inside functions, and imports by a computed name, that no table has."""
    wrong = [f"{one}: inside a function" for one in imports(root) if one.in_function and one.file not in LAZY]
    for path in sources(root).values():
        file = path.relative_to(root).as_posix()
        if file not in BY_NAME:
            found = _read(path.read_text(encoding="utf-8"))[1]
            wrong += [f"{file}:{line} imports by a computed name" for line in found]
    return wrong


CHECKS = (homeless, upward, circles, hidden)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_house_stands(check):
    assert check(ROOT) == []


def test_every_entry_of_the_tables_is_used():
    for file in {*BY_NAME, *LAZY}:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "import_module" in text or "__import__" in text, file


def test_there_are_few_rooms():
    rooms = {package: {room for rooms in floors for room in rooms} for package, floors in FLOORS.items()}
    folders = {package: [room for room in names if (ROOT / package / room).is_dir() and room] for package, names in
               rooms.items()}  # fmt: skip
    assert {package: len(names) <= 8 for package, names in folders.items()} == {"conformance": True, "gpu": True}


PLANTED = {
    "an import of a higher floor": (upward, "conformance/cases/case.py", "from ..verdicts import compare\n"),
    "an import of the same floor": (upward, "conformance/bugs/decoding.py", "from ..subjects import subject\n"),
    "the harness imports our kernels": (upward, "conformance/cases/case.py", "import refnum.gpu.ops\n"),
    "our kernels import the training layer": (upward, "gpu/checks.py", "import refnum.training\n"),
    "our kernels import the harness": (upward, "gpu/checks.py", "from refnum.conformance.cases import case\n"),
    "a kernel's launcher imports the model": (upward, "gpu/checks.py", "from refnum import blocks\n"),
    "two files import each other": (circles, "refnum/formats.py", "from . import codec\n"),
    "an import inside a function": (hidden, "gpu/checks.py", "\ndef late():\n    from . import silu\n"),
    "an import by a computed name": (hidden, "gpu/checks.py", "import importlib\nimportlib.import_module('x' + 'y')\n"),
    "a room that no floor has": (homeless, "conformance/attic/__init__.py", ""),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the house."""
    root = tmp_path_factory.mktemp("floors")
    for path in sources(ROOT).values():
        copy = root / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return root


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_offence_is_found(name, copied):
    check, file, text = PLANTED[name]
    before, path = check(copied), copied / file
    path.parent.mkdir(exist_ok=True)
    old = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text((old or "") + text, encoding="utf-8")
    try:
        assert len(check(copied)) > len(before)
    finally:
        if old is None:
            path.unlink()
            path.parent.rmdir()
        else:
            path.write_text(old, encoding="utf-8")
