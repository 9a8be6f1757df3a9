"""The benchmark of the golden model runs, compares what it times, and writes what it says."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

contenders = pytest.importorskip("contenders")
golden = pytest.importorskip("golden")


def test_every_row_runs_and_every_comparable_contender_gives_the_models_bytes(tmp_path, capsys):
    out, page = tmp_path / "bench.json", tmp_path / "bench.md"
    size = ["--rows", "128", "--columns", "256", "--rounds", "1"]
    assert golden.main([*size, "--json", "--out", str(out), "--markdown", str(page)]) == 0
    made = json.loads(out.read_text())
    assert made == json.loads(capsys.readouterr().out)
    assert made["schema"] == "refnum.bench-golden/1" and len(made["results"]) == 14
    for result in made["results"]:
        assert next(entry["library"] for entry in result["contenders"]) == "refnum"
        for entry in result["contenders"]:
            assert entry["elements_per_second"] > 0 and entry["elements_per_cpu_second"] > 0
            assert entry["same_bytes"] in (None, True), (result["operation"], entry)
    assert sorted(tmp_path.iterdir()) == [out, page]
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + sum(len(result["contenders"]) for result in made["results"])
    golden.show(made, golden.Console(width=200))
    assert "float32 -> MXFP4, rceil" in capsys.readouterr().out
    named = set(made["versions"]) | set(made["absent"])
    assert set(contenders.LIBRARIES) <= named


def test_a_wrong_byte_is_seen():
    ours = (np.arange(6, dtype=np.uint8).reshape(3, 2),)
    assert golden.same((ours[0][:2].copy(),), ours)
    wrong = ours[0].copy()
    wrong[2, 1] ^= 1
    assert not golden.same((wrong,), ours)
    assert not golden.same((wrong[:, :1],), ours)


@pytest.mark.parametrize("arguments", [["--columns", "100"], ["--rows", "0"], ["--rounds", "0"], ["--only", "no such"]])
def test_a_wrong_argument_is_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        golden.main(["--rows", "128", "--columns", "128", "--rounds", "1", *arguments])
    assert stop.value.code == 2
    assert capsys.readouterr().err
