"""The accuracy benchmark measures against exact sums, and its tables and picture show what it found."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import refnum

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

accuracy = pytest.importorskip("product_accuracy")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    monkeypatch.setattr(accuracy, "machine", lambda: (np, refnum.matmul_fp8, "NumPy model"))


def test_a_run_gives_every_row_and_its_page_shows_them(tmp_path, capsys):
    page = pytest.importorskip("product_accuracy_page")
    accuracy.main(["--out", str(tmp_path), "--rows", "4", "--most", "256", "--data", "normal", "--data", "MXFP4"])
    found = json.loads((tmp_path / "product_accuracy.json").read_text())
    assert found["schema"] == accuracy.SCHEMA and len(found["errors"]) == 2 * 2 * 8
    exact = [row for row in found["errors"] if row["order"] == "exact"]
    assert exact and all(row["largest"] == 0 < row["with_quantising"] for row in exact)
    normal = {(r["layout"], r["order"]): r["norm"] for r in found["errors"] if r["data"] == "normal" and r["k"] == 256}
    assert normal["per tensor", "chain"] > normal["per tensor", "promote128"] > normal["BF16", "chain"] > 0
    capsys.readouterr()
    page.main([str(tmp_path / "product_accuracy.json"), "--plot", str(tmp_path / "plot.png")])
    assert capsys.readouterr().out.count("\n| MXFP4") == 5 + 5
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(x.name for x in tmp_path.iterdir()) == ["plot.png", "product_accuracy.json"]


def test_errors_are_those_of_the_clauses_example():
    codes = np.full((1, 1024), 0x08, np.uint8)
    codes[0, 0] = 0x78
    values = [refnum.decode_e4m3(codes)] * 2
    exact = accuracy.exact_product(*values)
    assert exact[0, 0] == 65536.249755859375
    found = accuracy.errors(refnum.matmul_fp8(codes, codes, order="chain"), exact, exact, exact)
    lost = 1023 / 4096
    assert found["largest"] == found["largest_of_rms"] == found["norm"] == lost / exact[0, 0] == -found["shift"]
    assert found["above_claimed"] == 0


def test_an_exact_product_that_is_not_exact_is_refused():
    values = [np.full((2, 128), 1.125, np.float32)] * 2
    exact = accuracy.exact_product(*values)
    accuracy.check_integers(*values, exact)
    with pytest.raises(ArithmeticError, match="not exact at K = 128"):
        accuracy.check_integers(*values, exact + 2.0**-18)


@pytest.mark.parametrize(("largest", "code", "scale"), [(448, 0x7E, 1), (449, 0x76, 2), (1, 0x78, 2**-8)])
def test_the_scale_of_a_tensor_is_the_smallest_that_saturates_nothing(largest, code, scale):
    codes, found = accuracy.per_tensor(np.array([[largest, 0]], np.float32))
    assert (codes[0, 0], found) == (code, scale)


def test_a_sequence_rounds_each_addition():
    a, b = np.array([[2**24, 1, 1]], np.float32), np.ones((1, 3), np.float32)
    assert accuracy.sequential(a, b)[0, 0] == 2**24


def test_bits_of_a_sum_count_from_the_smallest_product():
    values = np.array([[0.5, 1.75]], np.float32)
    terms = accuracy.exact_product(values, values)
    assert accuracy.exact_bits(values, values, terms) == np.log2(3.3125 * 2**8)


@pytest.mark.parametrize("words", [["--most", "64"], ["--most", "131072"], ["--rows", "0"]])
def test_other_sizes_are_refused(tmp_path, words):
    with pytest.raises(SystemExit):
        accuracy.main(["--out", str(tmp_path), *words])
