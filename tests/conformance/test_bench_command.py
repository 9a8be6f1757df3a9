"""`refnum bench` from its options to its files, on a stand-in device."""

import pytest
from bench_tools import SHAPE, Host, subject
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.bench import command, document, inputs


class Whole(Host):
    """What the command asks of `clock.Clock` beside that."""

    def facts(self):
        return {"name": "Stand-in H1", "cuda_runtime": 13020, "cuda_driver": 13000}

    def copy_again(self, nbytes, repeat):
        return self.RATE


def asked(tmp_path, monkeypatch, *options):
    monkeypatch.setattr(command, "Clock", Whole)
    monkeypatch.setattr(command, "_subject", lambda name: subject())
    arguments = ["bench", "--operation", "*ack payload", "--operation", "FP32 -> E4M3 codes", "--peer", "none"]
    shapes = [word for name in (SHAPE.name, "64x128", SHAPE.name) for word in ("--shape", name)]
    given = [*arguments, *shapes, "--repeat", "2", "--results", str(tmp_path), *options]
    return CliRunner().invoke(app, given)


def test_the_command_writes_figures_page_and_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    result = asked(tmp_path, monkeypatch)
    assert result.exit_code == 0, result.output
    (figures,) = tmp_path.glob("*-h1-bench.json")
    found = document.read(figures)
    assert [(r["shape"], r["line"], r["status"]) for r in found["records"]] == [
        (SHAPE.name, "pack payload", "timed"), (SHAPE.name, "unpack payload", "timed"),
        (SHAPE.name, "FP32 -> E4M3 codes", "timed"), ("64x128", "pack payload", "timed"),
        ("64x128", "unpack payload", "timed"),
    ]  # fmt: skip
    assert len(found["calls"]) == 3
    page = figures.with_suffix(".md").read_text()
    assert "CUDA runtime 13.2 on a driver for CUDA 13.0. A copy of 512 MiB runs at 0.00 TB/s" in page
    assert "## 64 x 128" in page


def test_what_ends_a_run_early_leaves_the_figures_of_the_shapes_before(tmp_path, monkeypatch):
    make = inputs.make

    def is_ended(xp, line, shape, seed=0):
        if shape.name == "64x128" and line.operation == "unpack_payload":
            raise KeyboardInterrupt
        return make(xp, line, shape, seed)

    monkeypatch.setattr(inputs, "make", is_ended)
    assert asked(tmp_path, monkeypatch).exit_code != 0
    (figures,) = tmp_path.iterdir()
    assert {r["shape"] for r in document.read(figures)["records"]} == {SHAPE.name}
