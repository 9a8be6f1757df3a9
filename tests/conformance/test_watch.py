"""Long work shows how far it is: a bar on a terminal, lines elsewhere; results stay on standard output."""

from io import StringIO

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports import terminal
from refnum.conformance.reports.terminal import watch as room
from refnum.conformance.reports.terminal.watch import watched
from refnum.conformance.vectors import vectors_folder


def shown(tty, monkeypatch, every=10.0):
    monkeypatch.setattr(room, "EVERY", every)
    err = terminal.Shown(file=StringIO(), force_terminal=tty, width=80, highlight=False)
    with watched(err) as watch:
        watch.enter("lint")
        watch.enter("second oracle", 3)
        for _ in range(2):
            watch.step()
    return err.file.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch):
    text = shown(True, monkeypatch)
    assert "second oracle" in text and "2/3" in text and "\x1b[" in text


@pytest.mark.parametrize(("every", "steps"), [(10.0, []), (0.0, ["second oracle: 1 of 3", "second oracle: 2 of 3"])])
def test_a_pipe_gets_a_line_a_stage_and_one_now_and_then(monkeypatch, every, steps):
    assert shown(False, monkeypatch, every).splitlines() == ["lint", "second oracle", *steps]


def test_verifying_vectors_says_on_standard_error_how_far_it_is(monkeypatch):
    from refnum.conformance.vectors import verify as judged

    monkeypatch.setattr(room, "EVERY", 0.0)
    monkeypatch.setattr(judged, "lint", lambda folder: 5)
    monkeypatch.setattr(judged, "require_manifest", lambda folder: None)
    few = list(judged.load_vectors("encode_e2m1", "HOPPER", vectors_folder()))[:5]
    monkeypatch.setattr(judged, "load_vectors", lambda folder: iter(few))
    result = CliRunner().invoke(app, ["vectors", "verify", "--no-rebuild"])
    assert result.exit_code == 0 and result.stdout.startswith("verified: 5 vectors")
    assert result.stderr.splitlines()[:3] == ["schema and lint", "second oracle", "second oracle: 1 of 5"]
    assert "second oracle: 5 of 5" in result.stderr
