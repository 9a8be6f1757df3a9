"""The page of the survey is made from data: each policy, each claim with its answer, what did not run, and why."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def survey_page():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("survey_page")
    sys.path.remove(str(ROOT / "benchmarks"))


def run(level, flips=None, steps=300):
    found = {"losses": [level + 1.0 / (step + 1) for step in range(steps)], "valid": {}, "seconds": 1.0, "tokens": 100,
             "witness": {"conversions": 2, "mismatches": 1}}  # fmt: skip
    return found if flips is None else found | {"flips": [flips] * steps}


@pytest.fixture
def document(tmp_path):
    levels = {"bf16": (1.0, None), "tetrajet": (1.02, 0.04), "tetrajet-ema": (1.03, 0.01), "vectors": (1.01, None)}
    runs = {f"{policy}-{seed}": run(level * (1 + seed / 10), flips and flips * (1 + seed / 10))
            for policy, (level, flips) in levels.items() for seed in range(3)}  # fmt: skip
    words = ["benchmarks/convergence.py", "/tmp/x", "--model", "survey", "--batch", "16", "--results", "/tmp/y"]
    gpu = {"name": "NVIDIA H200", "driver_version": "1.2"}
    path = tmp_path / "convergence.json"
    machine = {"date": "2026-01-02", "command": words, "versions": {"torch": "9.8"}, "gpus": [gpu], "variables": {}}
    path.write_text(json.dumps(machine | {"runs": runs}))
    return path


def test_a_page_answers_every_claim(survey_page, document, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["survey_page.py", str(tmp_path / "made"), str(document)])
    survey_page.main()
    text = (tmp_path / "made.md").read_text()
    assert "NVIDIA H200, driver 1.2" in text and "torch 9.8" in text and "/tmp" not in text
    answers = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in text.splitlines() if "2502.20853" in line
    }
    assert list(answers.values()) == ["no", "yes"] and "Q-EMA lowers the flip rate" in list(answers)[1]
    assert text.count("| not run |") == len(survey_page.CLAIMS) + len(survey_page.FLIPS) - 2
    assert "| `tetrajet-ema` | 300 | " in text and "4.400%" in text and "| `vectors` | 6 | 0 | 0 | 3 |" in text
    assert "Knowledge distillation" in text and "coreset selection" in text
    told = json.loads((tmp_path / "made.json").read_text())[0]
    assert len(told["runs"]["bf16-0"]["losses"]) == 30 and told["claims"] and "variables" not in told
    assert (tmp_path / "made.svg").read_text().startswith("<?xml")


def test_a_short_call_answers_nothing(survey_page):
    runs = {f"{policy}-{seed}": run(level * (1 + seed / 10), None, 199) for seed in range(3)
            for policy, level in (("bf16", 1.0), ("luq", 1.01), ("luq-nearest", 1.02))}  # fmt: skip
    text = survey_page.claims([survey_page.report(runs)])
    assert "| too short | `luq` against `luq-nearest` | -" in text and "| yes |" not in text
