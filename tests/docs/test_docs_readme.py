"""The README is short, and names commands and folders that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 120
    table = TEXT.partition("$ refnum check --subject host")[2].partition("```")[0]
    assert all(len(line) <= 80 for line in table.splitlines() if line.startswith(("subject", "host")))


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"^\$ make (\w+)", TEXT, re.MULTILINE))
    assert {"check", "test"} <= named <= targets


def test_layout_lists_every_folder():
    listed = set(re.findall(r"`(\w+)/`", TEXT.partition("## Folders")[2]))
    packages = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert packages | {"docs", "vectors", "tests", "benchmarks"} == listed


def test_nothing_names_the_machine_it_was_written_on():
    pages = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
    for page in pages:
        assert not re.search(r"/(work|root|home)/", page.read_text(encoding="utf-8")), page
