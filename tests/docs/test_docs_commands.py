"""Every console block marked as runnable is run, and prints what the page shows."""

import shutil
from pathlib import Path

import pytest
from console_blocks import Block, Step, agrees, blocks, run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCKS = [(page, block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("page", "block"),
    [pytest.param(p, b, id=f"{p.name}:{b.line}", marks=[pytest.mark.slow] if b.slow else []) for p, b in BLOCKS],
)
def test_commands_print_what_the_page_shows(page, block):
    if block.needs and shutil.which(block.needs) is None:
        pytest.skip(f"{block.needs} is not installed")
    for number, step in enumerate(block.steps, 1):
        status, output, errors = run(step.command)
        assert status == (block.exit if number == len(block.steps) else 0), output + errors
        assert agrees(step.expected, output, block.loose), f"{page.name} shows\n{step.expected}\nit prints\n{output}"


def test_commands_are_found():
    assert {page.name for page, _ in BLOCKS} >= {"README.md", "judge-your-kernel.md", "use-the-vectors.md"}


def test_a_wrong_promise_is_noticed():
    assert not agrees("pass\n", "mismatch\n")
    assert agrees("a ... c\n", "a b c\n")
    assert agrees("pass L0 1,234 0.5\n", "pass L0 7 12.0\n", loose=True)
    assert not agrees("pass L0 1\n", "pass L1 1\n", loose=True) and not agrees("1\n", "2\n")


def test_blocks_are_read():
    text = "<!-- runnable: exit 3 -->\n```console\n$ first \\\n  more\nout\n$ second\n```\n"
    assert blocks(text) == [Block(3, (Step("first more", "out\n"), Step("second", "")), 3)]
    text = "<!-- runnable: needs tool, slow -->\n```console\n$ tool\n```\n"
    assert blocks(text) == [Block(3, (Step("tool", ""),), 0, True, "tool")]
    text = "<!-- runnable, slow, any numbers -->\n```console\n$ tool\n```\n"
    assert blocks(text) == [Block(3, (Step("tool", ""),), 0, True, "", True)]
