"""Tables in a narrow terminal: they fit, no word of a cell is lost, and what is left out is said."""

from io import StringIO

import pytest

from refnum.conformance.reports import terminal

COLUMNS = ("subject", "operation", "profile", "outcome", "level", "variants", "cases", "elements", "proved", "seconds")
ROWS = [
    ["my_quantizer", "quantize_fp8_tiles", "HOPPER", terminal.outcome_text("pass"), "L0", "1 pass 5 unsupported",
     "25,713,098", "181,024,152", "25,713,066", "1.1"],
    ["other", "pack_payload", "HOPPER", terminal.outcome_text("mismatch"), "none", "1", "25", "1,152", "-", "0.1"],
]  # fmt: skip
LEAST = ("seconds", "proved", "cases", "elements")


def printed(rows=ROWS, columns=COLUMNS, least=LEAST, width=80, tty=True):
    out = terminal.Shown(file=StringIO(), width=width, force_terminal=tty, highlight=False, color_system=None)
    terminal.table(out, "Verdicts", columns, rows, least)
    return out.file.getvalue().splitlines()


@pytest.fixture(params=["terminal", "pipe"])
def narrow(request, monkeypatch):
    """Print for 80 columns, to a terminal, or to a pipe that is told so."""
    monkeypatch.setenv("COLUMNS", "80")
    tty = request.param == "terminal"
    return lambda *words: printed(*words, width=80 if tty else terminal.PLAIN_WIDTH, tty=tty)


def test_the_table_of_verdicts_fits_in_80_columns(narrow):
    lines = narrow()
    assert max(map(len, lines)) <= 80 and lines[0].strip() == "Verdicts"
    words = " ".join(lines).split()
    assert {"my_quantizer", "quantize_fp8_tiles", "mismatch", "unsupported"} <= set(words)
    assert lines[-1] == "left out at 80 columns: seconds, proved, cases, elements"


def test_without_a_width_a_pipe_gets_every_column(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed(tty=False)
    assert lines[1].split() == list(COLUMNS) and len(lines) == 4 and "left out" not in lines[-1]
    assert len(lines[2]) > 80


def test_a_wide_terminal_leaves_nothing_out():
    assert all(name in printed(width=160)[1] for name in COLUMNS)


def test_a_cell_that_is_too_wide_is_folded_and_not_cut(narrow):
    lines = narrow([["a" * 70, "b" * 70]], ("one", "two"), ())
    assert max(map(len, lines)) <= 80
    text = "".join(lines)
    assert text.count("a") == 70 and text.count("b") == 70
