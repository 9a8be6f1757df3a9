"""Every row of the house's tables has each of its parts, and a part that lacks is told by the file to write.

A row is an operation, an element format or a peer. The parts are found in the sources of a checkout, without importing
them, so that `test_contributing.py` can ask the same of a copy. `PARTS` is what `CONTRIBUTING.md` lists.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import refnum
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.primitives import VECTOR_OPERATIONS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import clause_coverage  # noqa: E402  (the path comes first)

TABLES = ("conformance/cases/operation.py", "conformance/cases/primitives.py")
PEERS = "conformance/subjects/peers"


@dataclass(frozen=True)
class Row:
    """One operation as the table states it. judged: whether subjects are judged on it; the others have vectors."""

    name: str
    clause: str
    family: str
    facts: dict[str, Any]
    judged: bool


@functools.lru_cache(maxsize=512)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _text(root: Path, file: str) -> str:
    path = root / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def bound(root: Path, file: str) -> set[str]:
    """Return the names that a module binds at its top: functions, assignments, imports."""
    found: set[str] = set()
    for node in _tree(_text(root, file)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        else:
            found |= {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return found


def rows(root: Path) -> Iterator[Row]:
    """Yield the operations of both tables, in order."""
    for table in TABLES:
        for node in ast.walk(_tree(_text(root, table))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Operation":
                name, clause, family = (str(ast.literal_eval(part)) for part in node.args[:3])
                facts = {
                    word.arg: word.value.value
                    for word in node.keywords
                    if word.arg and isinstance(word.value, ast.Constant)
                }
                yield Row(name, clause, family, facts, table == TABLES[0])


def _names(root: Path, file: str, row: Row) -> bool:
    return row.name in bound(root, file)


def _mentions(root: Path, file: str, row: Row) -> bool:
    return row.name in _words(_text(root, file))


@functools.lru_cache(maxsize=512)
def _words(text: str) -> frozenset[str]:
    return frozenset("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def _has_vectors(root: Path, folder: str, row: Row) -> bool:
    return any((root / folder).glob("*.json"))


def _is_tested(root: Path, file: str, row: Row) -> bool:
    return any(_mentions(root, f"tests/refnum/{path.name}", row) for path in (root / "tests/refnum").glob("test_*.py"))


def _is_proved(root: Path, file: str, row: Row) -> bool:
    proof = row.facts.get("proof", "model-on-cupy")
    return f'"{proof}"' in _text(root, file)


def _is_explained(root: Path, file: str, row: Row) -> bool:
    files = (path for pattern in ("*_explained.py", "*_steps.py") for path in (root / "refnum").glob(pattern))
    return any(f'"{row.name}"' in _text(root, one) for one in (file, *(f"refnum/{path.name}" for path in files)))


def _everywhere(row: Row) -> bool:
    return True


def _judged(row: Row) -> bool:
    return row.judged


def _written(row: Row) -> bool:
    """Whether the operation's clause is one that was written a second time from the text."""
    return row.clause not in clause_coverage.UNWRITTEN


def _has_steps(row: Row) -> bool:
    return row.judged and not row.facts.get("moves_only")


def _computes(row: Row) -> bool:
    return row.judged and not row.facts.get("moves_only") and not row.facts.get("routed")


@dataclass(frozen=True)
class Part:
    """One part of an operation: what it is, the file that holds it, how it is found, and which rows need it."""

    what: str
    file: str
    found: Callable[[Path, str, Row], bool]
    needed: Callable[[Row], bool] = _everywhere


PARTS = (
    Part("its clause", "docs/specification/{clause}.md", _mentions),
    Part("its page", "docs/specification/operations/{name}.md", _mentions),
    Part("its place in the specification, by `make specification`,", "docs/specification.md", _mentions),
    Part("a line of the contents", "docs/specification/operations/index.md", _mentions),
    Part("its name in the schema", "vectors/schema/common.schema.json", _mentions),
    Part("its golden function", "refnum/{family}.py", _names, _judged),
    Part("its public name", "refnum/__init__.pyi", _names, _judged),
    Part("how it is explained", "refnum/explanation.py", _is_explained, _has_steps),
    Part("its second answer", "conformance/vectors/oracle/{family}.py", _names),
    Part("its vectors' questions", "conformance/vectors/cases/{family}.py", _names),
    Part("its vectors, by `refnum vectors build`,", "vectors/{name}", _has_vectors),
    Part("its corners", "conformance/cases/corners/{family}.py", _names, _judged),
    Part("its domains", "conformance/cases/domains/{family}.py", _names, _computes),
    Part("its coverpoints", "conformance/cases/coverpoints/{family}.py", _names, _judged),
    Part("the proof of the model on CuPy", "conformance/commands/prove/catalogue.py", _is_proved, _judged),
    Part("a test of the model", "tests/refnum/test_{family}.py", _is_tested, _judged),
    Part("the operation from the text alone", "tests/clean_room/operations.hpp", _mentions, _written),
)


def missing_of_operations(root: Path) -> list[str]:
    """Return one sentence for each part that an operation lacks."""
    lacking = []
    for row in rows(root):
        for part in PARTS:
            file = part.file.format(name=row.name, clause=row.clause, family=row.family)
            if part.needed(row) and not part.found(root, file, row):
                lacking.append(f"{row.name} lacks {part.what}: write {file}")
    listed = {row.name for row in rows(root)}
    pages = {page.stem for page in (root / "docs/specification/operations").glob("*.md")} - {"index"}
    lacking += [f"{page} is no operation: write {TABLES[0]}" for page in sorted(pages - listed)]
    return lacking


def formats(root: Path) -> list[str]:
    """Return the names of the table of formats, in order."""
    calls = (node for node in ast.walk(_tree(_text(root, "refnum/formats.py"))) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Format")
    return [call.args[0].value for call in named if call.args and isinstance(call.args[0], ast.Constant)]


def missing_of_formats(root: Path) -> list[str]:
    """Return one sentence for each part that a format of at most eight bits lacks."""
    lacking = []
    for name in formats(root):
        wide = name in ("BF16", "FP16", "FP32")
        if name not in bound(root, "refnum/__init__.pyi"):
            lacking.append(f"{name} lacks its public name: write refnum/__init__.pyi")
        if not wide and f'"{name}"' not in _text(root, "refnum/oracle/tables.py"):
            lacking.append(f"{name} lacks its second value table: write refnum/oracle/tables.py")
        if not wide and name not in _words(_text(root, "docs/specification/N1.md")):
            lacking.append(f"{name} lacks its clause: write docs/specification/N1.md")
        if name not in (*_words(_text(root, "vectors/schema/vectors.schema.json")), "FP32"):
            lacking.append(f"{name} lacks its name in the schema: write vectors/schema/vectors.schema.json")
        if not wide and f'"element":"{name}"' not in _text(root, "vectors/decode_element/HOPPER.json").replace(" ", ""):
            lacking.append(f"{name} lacks its vectors: write vectors by `refnum vectors build`")
    named = set(formats(root))
    tables = (node for node in ast.walk(_tree(_text(root, "refnum/oracle/tables.py"))) if isinstance(node, ast.Dict))
    keys = {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    return lacking + [f"{name} is no format: write refnum/formats.py" for name in sorted(keys - named)]


def missing_of_peers(root: Path) -> list[str]:
    """Return one sentence for each peer without its file, its row or its list of differences."""
    table = _tree(_text(root, f"{PEERS}/__init__.py"))
    tables = [node.value for node in table.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)]
    listed = {key.value for one in tables for key in one.keys if isinstance(key, ast.Constant)}
    lacking = [
        f"{name} lacks {part}: write {PEERS}/{name}.py"
        for name in sorted(listed)
        for part in ("subjects", "DIFFERENCES")
        if part not in bound(root, f"{PEERS}/{name}.py")
    ]
    files = {path.stem for path in (root / PEERS).glob("*.py")} - {"__init__"}
    peers = {name for name in files if {"subjects", "DIFFERENCES"} <= bound(root, f"{PEERS}/{name}.py")}
    return lacking + [f"{name} is in no table: write {PEERS}/__init__.py" for name in sorted(peers - listed)]


def missing(root: Path) -> list[str]:
    """Return one sentence for each part that a row of any table lacks."""
    return [*missing_of_operations(root), *missing_of_formats(root), *missing_of_peers(root)]


@pytest.mark.parametrize(
    "check", [missing_of_operations, missing_of_formats, missing_of_peers], ids=lambda c: c.__name__
)
def test_every_row_has_each_part(check):
    assert check(ROOT) == []


def test_the_tables_are_read():
    """The rows, formats and peers above are read from the sources; here they are those that the package has."""
    assert [row.name for row in rows(ROOT)] == list(VECTOR_OPERATIONS)
    assert [row.name for row in rows(ROOT) if row.judged] == list(OPERATIONS)
    assert {row.name: row.family for row in rows(ROOT)} == {n: o.family for n, o in VECTOR_OPERATIONS.items()}
    assert set(formats(ROOT)) == set(refnum.FORMATS)
