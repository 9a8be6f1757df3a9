"""The page of convergence is made from data: losses, deviations with what they show, and what the witness costs."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def training_page():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("training_page")
    sys.path.remove(str(ROOT / "benchmarks"))


def run(level, steps=300):
    return {"losses": [level] * steps, "valid": {"99": 2 * level, str(steps - 1): level}, "seconds": 1.0,
            "tokens": 65536 * steps, "witness": {"conversions": 2, "products": 3, "mismatches": 0}}  # fmt: skip


def test_a_page_says_what_the_intervals_show(training_page, tmp_path, monkeypatch):
    levels = {"bf16": (1.0, 1.0), "fp8": (1.001, 1.0012), "mxfp4": (1.004, 1.012), "vectors": (1.1, 1.1)}
    runs = {f"{policy}-{seed}": run(level[seed] * (1 + seed)) for policy, level in levels.items() for seed in (0, 1)}
    words = ["benchmarks/convergence.py", "/tmp/x", "--steps", "9", "--model", "medium", "--batch", "128", "--results"]
    machine = {"date": "2026-01-02", "command": [*words, "/tmp/y"], "versions": {"torch": "9.8"}, "variables": {},
               "gpus": [{"name": "NVIDIA H200", "driver_version": "1.2"}]}  # fmt: skip
    path = tmp_path / "convergence.json"
    path.write_text(json.dumps(machine | {"runs": runs, "text": {"train": 10_000_000, "valid": 1}}))
    judged = {"conversions": 5, "products": 6, "layer steps": 1, "elements": 7000, "mismatches": 0}
    one = {"ms with": [10.1], "ms without": [10.0], "steps of a block": 9, "pairs": [0.0123, 0.001], "judged": judged,
           "its own count, s": 0.000909}  # fmt: skip
    kernels = [{"kernel": "Optimizer.step#AdamW.step", "calls": 1, "us": 500.0},
               {"kernel": "void at::native::copy<8, at::x>", "calls": 2, "us": 250.0}]  # fmt: skip
    told = {"ms": 12.3, "witness": one, "profile": {"busy_us": 1500.0, "kernels": 3, "by kernel": kernels}}
    (tmp_path / "witness.json").write_text(json.dumps({"model": "medium", "batch": 128, "fused": True, "mxfp4": told}))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "made"), str(path), str(tmp_path / "witness.json")])
    training_page.main()
    text = (tmp_path / "made.md").read_text()
    assert "/tmp" not in text and "driver 1.2" in text and "19.7 million tokens each" in text and "1.97 epochs" in text
    assert "| 1 | 2.0000 | 2.0024 | 2.0240 | 2.2000 | 2.0000 |" in text
    assert "`fp8`: the loss of training stays within +0.29%" in text and "`mxfp4`: +0.61% lies within" in text
    assert "| `medium` | `mxfp4` | 1 | 9 | 10.00 | +1.23% ± 0.10% | 1.00% | 5 | 6 | 7,000 | 0 |" in text
    assert "| `medium` | `mxfp4` | one kernel | 12.3 | 1.0 | 3 | `copy` 0.25 |" in text
    assert "| `bf16` | 4 | 6 | 0 | 0 |" in text
    made = json.loads((tmp_path / "made.json").read_text())
    assert len(made["runs"]["bf16-0"]["losses"]) == 30 and made["steps of runs by turns"]["witness"]
    assert (tmp_path / "made.svg").exists()


def test_a_loss_that_is_surely_above_is_said_to_be(training_page):
    assert "is above +0.61%" in training_page._verdict(("mxfp4", {"allowed": 0.0061, "mean": 0.02, "half": 0.01}))
