"""The page of `refnum check --data`: one line a tensor, whatever the number of operations."""

import io

import numpy as np
from rich.console import Console
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.reports.terminal import data as show_data


def row(tensor, variant, outcome="pass", level="L0", **statistics):
    return {
        "tensor": tensor, "note": "", "subject": "host", "variant": variant, "outcome": outcome, "words": "",
        "level": level, "compared": 10, "failing": 0, "classes": {}, "statistics": statistics, "failures": [],
    }  # fmt: skip


NUMBERS = {"elements": 64, "underflowed": 16, "saturated": 1, "error_free": False}


def page(rows):
    out = io.StringIO()
    show_data.tensors(Console(file=out, width=200, color_system=None), {"data": rows})
    return out.getvalue()


def test_one_line_a_tensor_and_the_histograms():
    mxfp4 = {**NUMBERS, "sqnr_db": 18.26, "scales": {"120": 3, "124": 1}, "distances": {"0": 3, "4": 1}}
    fp8 = {**NUMBERS, "underflowed": 0, "sqnr_db": None}
    text = page([
        row("w", "quantize_mxfp4[HOPPER, input=float32]", **mxfp4),
        row("w", "quantize_fp8_tiles[HOPPER, tile=1x128]", **fp8),
        row("v", "quantize_mxfp4[HOPPER, input=float32]", outcome="mismatch", level=None),
    ])  # fmt: skip
    line = next(line for line in text.splitlines() if line.startswith("w "))
    assert line.split() == [
        "w",
        "host",
        "pass",
        "L0",
        "2",
        "20",
        "18.3",
        "25",
        "%",
        "1.6",
        "%",
        "120..124",
        "4",
        "-",
        "0",
    ]
    assert "mismatch none" in next(line for line in text.splitlines() if line.startswith("v "))
    assert "  120           3  " + "#" * 40 in text and "    4           1  " + "#" * 13 in text


def test_the_command_says_that_it_judged_data(tmp_path):
    np.save(tmp_path / "x.npy", np.linspace(-3, 3, 128, dtype=np.float32).reshape(2, 64))
    result = CliRunner().invoke(app, ["check", "--data", str(tmp_path / "x.npy"), "--subject", "model"])
    assert result.exit_code == 0, result.output
    assert "verified on this data (1 tensor, " in result.output and "at level" not in result.output
