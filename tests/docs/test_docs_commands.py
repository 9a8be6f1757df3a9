"""Every console block marked as runnable is run, and prints what the page shows."""

import shutil
from pathlib import Path

import pytest
from console_blocks import Block, agrees, blocks, run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
COMMANDS = [(page, block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(p, b, id=f"{p.name}:{b.line} {b.command[:40]}", marks=[pytest.mark.slow] if b.slow else [])
        for p, b in COMMANDS
    ],
)
def test_command_prints_what_the_page_shows(page, block):
    if block.needs and shutil.which(block.needs) is None:
        pytest.skip(f"{block.needs} is not installed")
    status, output, errors = run(block)
    assert status == block.exit, output + errors
    assert agrees(block.expected, output), f"{page.name} shows\n{block.expected}\nit prints\n{output}"


def test_commands_are_found():
    assert COMMANDS, "no page has a runnable command"


def test_a_wrong_promise_is_noticed():
    assert not agrees("pass\n", "mismatch\n")
    assert agrees("a ... c\n", "a b c\n")


def test_blocks_are_read():
    text = "<!-- runnable: exit 3 -->\n```console\n$ first \\\n  more\nout\n$ second\n```\n"
    assert blocks(text) == [
        Block(3, "first   more", "out\n", 3, False),
        Block(3, "second", "", 3, False),
    ]
    text = "<!-- runnable: needs tool, slow -->\n```console\n$ tool\n```\n"
    assert blocks(text) == [Block(3, "tool", "", 0, True, "tool")]
