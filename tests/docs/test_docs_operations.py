"""One page an operation, with its fact box, its example and its place in the contents."""

import re
from pathlib import Path

import operation_facts
import pytest
from refnum_examples import examples

from refnum.conformance.cases.primitives import VECTOR_OPERATIONS as OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "specification" / "operations"


def test_pages_and_operations_are_the_same_set():
    assert {p.stem for p in FOLDER.glob("*.md")} - {"index"} == set(OPERATIONS)


def test_contents_list_every_page_once():
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert sorted(listed) == sorted(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_page_has_its_parts(name):
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert f":::{{refnum-table}} operation {name}\n" in text
    for heading in ("## Definition", "## Worked example", "## Edge cases"):
        assert heading in text
    assert examples(text), "the worked example is executed"
    assert re.search(rf"\b{OPERATIONS[name].clause}\b", text), "the page cites the operation's clause"


@pytest.mark.parametrize("name", OPERATIONS)
def test_fact_box_leads_somewhere(name):
    rows = dict(operation_facts.facts(name).rows)
    golden = operation_facts.GENERIC[name].__name__ if name in operation_facts.GENERIC else name
    assert f".{golden}` in `" in rows["golden function"]
    file = re.search(r" in `([^`]+)`", rows["golden function"])[1]
    assert re.search(rf"^def {golden}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert rows["call"].startswith(f"`{golden}(")
    for row in ("kernel", "vectors", "tests"):
        for path in re.findall(r"`([^`]+)`", rows[row]):
            assert (ROOT / path).exists(), path
    assert rows["tests"] != "none yet", "a test names every operation"


def test_word_search_takes_whole_names_only(tmp_path, monkeypatch):
    monkeypatch.setattr(operation_facts, "ROOT", tmp_path)
    operation_facts._texts.cache_clear()
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("quantize_mxfp4_rows()")
    (tmp_path / "room" / "b.py").write_text("refnum.quantize_mxfp4()")
    assert operation_facts.mentions("quantize_mxfp4", "room", (".py",)) == ["room/b.py"]
    operation_facts._texts.cache_clear()
