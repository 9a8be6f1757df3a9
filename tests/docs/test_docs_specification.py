"""The specification as one file and as a PDF: complete, equal to its pages, cited by its digest, every part held."""

import inspect
import re
from pathlib import Path

import clause_coverage
import operation_facts
import pytest
import specification

from refnum.conformance.cases.primitives import VECTOR_OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
TEXT = specification.TARGET.read_text(encoding="utf-8")
CITATION = specification.CITATION.read_text(encoding="utf-8")
PARTS = re.findall(r"^### (N\d+\.\d+) ", TEXT, re.MULTILINE)


def test_the_file_is_what_the_pages_say():
    assert specification.build() == TEXT, "run `python docs/_ext/specification.py`"


def test_the_citation_names_its_digest():
    assert specification.cited(CITATION, TEXT) == CITATION, "run `python docs/_ext/specification.py`"
    assert specification.cited(CITATION, TEXT + " ") != CITATION


def test_it_has_every_part_once_and_in_order():
    pages = "\n".join((specification.PAGES / f"{name}.md").read_text() for name in specification.clause_pages())
    assert re.findall(r"^:::\{clause\} (N\d+\.\d+)", pages, re.MULTILINE) == PARTS
    assert len(set(PARTS)) == len(PARTS) > 100


def test_it_has_every_operation():
    assert set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) >= set(VECTOR_OPERATIONS)


def test_nothing_is_left_to_expand():
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r":::|\{doc\}|\{clause\}|\{refnum|toctree", prose)
    assert prose.count("\n| --- |") + prose.count("\n|---|") > 100


def test_every_link_has_its_anchor():
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', TEXT))
    targets = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert targets and targets <= anchors, targets - anchors


def test_the_newest_revision_is_the_first_line_of_its_table():
    index = (specification.PAGES / "index.md").read_text(encoding="utf-8")
    found = specification._REVISION.findall(index)
    assert found == sorted(found, key=lambda line: int(line[0]), reverse=True) and len(found) >= 2
    assert [date for _, date in found] == sorted((date for _, date in found), reverse=True)
    number, date = specification.revision()
    assert f"Revision {number}, {date}" in TEXT.partition("<a id=")[0]


@pytest.mark.parametrize("name", VECTOR_OPERATIONS)
def test_n0_12_has_the_defaults_of_the_code(name):
    row = next(row for row in operation_facts.defaults().rows if row[0] == f"@{name}")
    for parameter in inspect.signature(operation_facts.golden_function(name)).parameters.values():
        cell = row[1] if parameter.default is inspect.Parameter.empty else row[2]
        assert f"`{parameter.name}`" in cell


def test_every_part_is_held_by_vectors_or_says_by_what():
    measured = clause_coverage.readings()
    held = {reading.part for reading in measured}
    elsewhere = set(clause_coverage.ELSEWHERE)
    without = (*clause_coverage.JUDGING, *clause_coverage.UNWRITTEN)
    measurable = {part for part in PARTS if part.partition(".")[0] not in without}
    assert held.isdisjoint(elsewhere)
    assert held | elsewhere == measurable
    empty = [reading.name for reading in measured if not reading.vectors]
    assert not empty, f"no vector sees these wrong readings: {empty}"


def test_what_holds_a_part_elsewhere_exists():
    for why, path in clause_coverage.ELSEWHERE.values():
        assert why and (ROOT / path).is_file(), path


def test_the_pdf_is_made_of_the_text():
    pdf = pytest.importorskip("specification_pdf", reason="needs typst", exc_type=ImportError)
    source = pdf.typeset(TEXT)
    assert source.count("#heading(level: 2)") > len(PARTS) and specification.digest(TEXT)[:32] in source
    assert all(f"<{part}>" in source for part in PARTS)
    whole = pdf.pdf(TEXT)
    assert whole.startswith(b"%PDF-") and len(whole) > 200_000
    small = '# Title\n\n<a id="N1.1"></a>\n\n## N1.1 Head\n\nN1.1 says 2^(s-127), `code` and **more**.\n'
    assert '#link(<N1.1>)[N1.1]#" says 2";#super[#"s-127";]' in pdf.typeset(small)
    assert pdf.pdf(small) == pdf.pdf(small)
