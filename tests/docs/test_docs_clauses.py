"""Clauses: complete, in order, on their own page; whatever the code cites exists."""

import ast
import re
from pathlib import Path

import pytest

from refnum.conformance.cases.operation import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "docs" / "specification"
NUMBERS = [f"N{i}" for i in range(29)]
HEAD = re.compile(r"^:::\{clause\} (N\d+)\.(\d+)(?: (\S.*))?$", re.MULTILINE)
CITED = re.compile(r"\bN(?:[12][0-9]|[0-9])(?:\.[0-9]+)?\b(?!\()")


def clauses_of(number):
    return HEAD.findall((SPECIFICATION / f"{number}.md").read_text(encoding="utf-8"))


ALL = {*NUMBERS, *(f"{n}.{part}" for n in NUMBERS for page, part, _ in clauses_of(n) if page == n)}


@pytest.mark.parametrize("number", NUMBERS)
def test_clauses_of_a_page_are_its_own_and_in_order(number):
    found = clauses_of(number)
    assert found, f"{number} has no clause"
    assert [page for page, _, _ in found] == [number] * len(found)
    assert [int(part) for _, part, _ in found] == list(range(1, len(found) + 1))
    assert all(title for _, _, title in found), "every clause has a title"


def test_every_clause_page_is_in_the_contents():
    index = (SPECIFICATION / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(N\d+)$", index, re.MULTILINE)
    assert listed == NUMBERS
    assert sorted(p.stem for p in SPECIFICATION.glob("N*.md")) == sorted(NUMBERS)


def test_operations_cite_clauses_that_exist():
    assert {operation.clause for operation in OPERATIONS.values()} <= ALL


def _docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node):
            yield getattr(node, "name", path.stem), ast.get_docstring(node)


@pytest.mark.parametrize("room", ["refnum", "conformance", "gpu", "training"])
def test_docstrings_cite_clauses_that_exist(room):
    cited = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        for name, text in _docstrings(path):
            for number in CITED.findall(text):
                cited.setdefault(number, f"{path.relative_to(ROOT)}: {name}")
    unknown = {number: where for number, where in cited.items() if number not in ALL}
    assert not unknown, unknown
    assert room == "gpu" or cited, "the check found nothing to check"


def test_pages_cite_clauses_that_exist():
    for page in (ROOT / "docs").rglob("*.md"):
        if "_build" not in page.parts:
            unknown = set(CITED.findall(page.read_text(encoding="utf-8"))) - ALL
            assert not unknown, (page, unknown)


def test_model_modules_name_their_clause():
    """The model's rooms say which clause they implement, so that a clause leads to code."""
    cited = set()
    for path in [path for room in ("refnum", "training") for path in (ROOT / room).rglob("*.py")]:
        for _, text in _docstrings(path):
            cited |= {number.partition(".")[0] for number in CITED.findall(text)}
    missing = set(NUMBERS) - cited - {"N16", "N18"}
    assert not missing, f"no docstring of refnum names {sorted(missing)}"
