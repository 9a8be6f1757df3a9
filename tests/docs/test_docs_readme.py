"""The README says what the code is: its table of operations, its commands and its folders."""

import re
from pathlib import Path

import readme_table

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_table_of_operations_is_the_code_s():
    assert readme_table.updated(TEXT) == TEXT, "run `python docs/_ext/readme_table.py`"


def test_table_is_rewritten_between_its_markers_only():
    new = readme_table.updated(TEXT)
    old = new.replace(readme_table.table(), "| nothing |")
    assert old != new and readme_table.updated(old) == new


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"^\$ make (\w+)", TEXT, re.MULTILINE))
    assert {"check", "test"} <= named <= targets


def test_layout_lists_every_room():
    listed = set(re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE))
    packages = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert packages | {"docs", "vectors", "tests", "benchmarks"} == listed


def test_nothing_names_the_machine_it_was_written_on():
    pages = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
    for page in pages:
        assert not re.search(r"/(work|root|home)/", page.read_text(encoding="utf-8")), page
