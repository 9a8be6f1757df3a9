"""Every Python example on every page gives the output that the page shows."""

from pathlib import Path

import pytest
from refnum_examples import examples, run_examples

ROOT = Path(__file__).resolve().parents[2]
COPIES = ("specification.md",)
"""Files that are made of other pages, which `test_docs_specification` compares."""
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts and p.name not in COPIES)
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
WITH_EXAMPLES = [p for p in PAGES if examples(p.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_examples_of_page(page):
    if ">>> import torch\n" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    count, report = run_examples(page.name, page.read_text(encoding="utf-8"))
    assert count > 0
    assert not report, report


def test_no_example_shows_a_forgotten_error():
    for page in WITH_EXAMPLES:
        for _, body in examples(page.read_text(encoding="utf-8")):
            assert "AttributeError" not in body and "NameError" not in body, page


def test_the_check_can_fail():
    count, report = run_examples("page", "```python\n>>> 1 + 1\n3\n```\n")
    assert count == 1 and "Got" in report


def test_blocks_of_a_page_share_names():
    source = "```python\n>>> a = 2\n```\ntext\n```python\n>>> a\n2\n```\n"
    assert run_examples("page", source) == (2, "")
