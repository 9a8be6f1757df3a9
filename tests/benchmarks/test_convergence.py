"""Deviations of losses: seed by seed, over the steps that all runs have, with curves of several calls together."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def convergence():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("convergence")
    sys.path.remove(str(ROOT / "benchmarks"))


def run(level, steps=100, valid=()):
    losses = [level + 1.0 / (step + 1) for step in range(steps)]
    return {"losses": losses, "valid": dict(valid), "seconds": 1.0, "tokens": steps, "witness": {}}


def test_what_seeds_share_does_not_widen_the_interval(convergence):
    """Losses differ by a tenth between seeds and by a thousandth between policies: pairs see the thousandth."""
    runs = {f"{policy}-{seed}": run((1 + seed / 10) * (1 + by)) for seed in range(5)
            for policy, by in (("bf16", 0.0), ("fp8", 0.001), ("mxfp4", 0.002 + seed * 1e-5))}  # fmt: skip
    for one in runs.values():
        one["losses"] = one["losses"][:1] * 50 + [one["losses"][0] - 1.0] * 50
    told = convergence.report(runs)
    assert told["policies"]["fp8"]["steps"] == 100 and told["policies"]["fp8"]["steps of the mean"] == 10
    assert told["policies"]["fp8"]["mean"] == pytest.approx(0.001) and told["policies"]["fp8"]["half"] == pytest.approx(
        0.0, abs=1e-12
    )
    assert told["policies"]["mxfp4"]["mean"] == pytest.approx(0.00202)
    deviations = [0.002 + seed * 1e-5 for seed in range(5)]
    spread = math.sqrt(sum((one - 0.00202) ** 2 for one in deviations) / 4)
    assert told["policies"]["mxfp4"]["half"] == pytest.approx(2.776 * spread / math.sqrt(5), rel=1e-6)


def test_policies_are_compared_over_the_steps_that_both_have(convergence):
    runs = {f"{policy}-0": run(2.0, steps, [("9", 1.0), (str(steps - 1), 9.0)])
            for policy, steps in (("bf16", 80), ("fp8", 50), ("mxfp4", 100))}  # fmt: skip
    told = convergence.report(runs | {"bf16-1": run(1.0)})  # a seed without its pairs is left out
    assert told["seeds"] == [0] and [one["steps"] for one in told["policies"].values()] == [50, 80]
    assert told["policies"]["fp8"]["valid"]["step"] == 9
    assert (
        told["policies"]["fp8"]["mean"]
        == told["policies"]["mxfp4"]["mean"]
        == told["policies"]["mxfp4"]["valid"]["mean"]
        == 0.0
    )
    assert "3 seeds" not in " ".join(convergence.lines_of(told)) and "1 seeds" in convergence.lines_of(told)[-1]


def test_a_policy_whose_run_ended_early_does_not_cut_the_others(convergence):
    runs = {f"{policy}-{seed}": run(2.0, 100) for seed in range(2) for policy in ("bf16", "fp8", "mxfp4")}
    told = convergence.report(runs | {"fp8-1": run(2.0, 9)})
    assert told["seeds"] == [0, 1] and list(told["policies"]) == ["mxfp4"] and told["policies"]["mxfp4"]["steps"] == 100
    assert told["left out"] == ["fp8"] and any(line.startswith("fp8: left out") for line in convergence.lines_of(told))


def test_nothing_to_compare_is_said(convergence):
    assert convergence.report({"bf16-0": run(1.0)})["seeds"] == []
    assert len(convergence.lines_of(convergence.report({"bf16-0": run(1.0)}))) == 1


def test_jobs_go_to_the_gpu_that_has_fewest(convergence, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert convergence.gpus() == ["2", "5"]
    assert [convergence.least_used(["2", "5"], used) for used in ([], ["2"], ["2", "5", "5"])] == ["2", "5", "2"]


def test_calls_are_put_together(convergence, tmp_path, monkeypatch, capsys):
    for seed in (0, 1):
        runs = {f"{policy}-{seed}": run(1.0 + seed) for policy in convergence.POLICIES}
        (tmp_path / f"{seed}.json").write_text(json.dumps(convergence.report(runs)))
    words = ["x", str(tmp_path / "runs"), "--seeds", "0", "--results", str(tmp_path / "all"), "--add"]
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path / "0.json"), str(tmp_path / "1.json")])
    convergence.main()
    told = json.loads((tmp_path / "all" / "convergence.json").read_text())
    assert told["seeds"] == [0, 1] and len(told["runs"]) == 6
    assert (tmp_path / "all" / "convergence.svg").exists() and "2 seeds at 100 steps" in capsys.readouterr().out


def test_a_result_names_the_machine_and_the_command(convergence, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    runs = {f"{policy}-0": run(2.0) for policy in convergence.POLICIES}
    (tmp_path / "before.json").write_text(json.dumps({"runs": runs}))
    words = ["convergence.py", str(tmp_path / "runs"), "--seeds", "0", "--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", [*words, "--add", str(tmp_path / "before.json")])
    convergence.main()
    made = json.loads((tmp_path / "results" / "convergence.json").read_text())
    assert made["command"][0] == "convergence.py" and made["versions"]["torch"] and "gpus" in made and made["date"]
    assert made["seeds"] == [0] and not (tmp_path / "runs").exists()


def test_a_claim_holds_or_fails_where_its_whole_interval_says_so(convergence):
    better, worse = "nvfp4", "nvfp4-no-rotation"
    for gain, answer in ((0.99, "yes"), (1.01, "no"), (None, "not decided")):
        runs = {}
        for seed in range(5):
            level = 1.0 + seed
            other = level * (gain * (1 + seed * 1e-4) if gain else (0.99, 1.01, 0.99, 1.02, 0.99)[seed])
            runs |= {f"bf16-{seed}": run(level), f"{worse}-{seed}": run(level), f"{better}-{seed}": run(other)}
        told = convergence.report(runs)
        assert [one["answer"] for one in told["claims"].values()] == [answer]
        assert list(told["policies"]) == [worse, better] and told["policies"][worse]["mean"] == 0.0
        assert convergence.lines_of(told)[-1].startswith(answer)


def test_seeds_and_policies_run_together_in_one_process(convergence, tmp_path, monkeypatch):
    started = []

    class Done:
        returncode = 0

        def poll(self):
            return 0

    def start(folder, job, gpu, given):
        started.append(job)
        return Done()

    monkeypatch.setattr(convergence, "_start", start)
    monkeypatch.setattr(convergence, "gpus", lambda: [""])
    monkeypatch.setattr(convergence, "write_corpus", lambda folder, megabytes: None)
    words = ["--policies", "bf16,fp8", "mxfp4", "--seeds", "3", "--together", "2", "--limit", "9"]
    monkeypatch.setattr(sys, "argv", ["convergence.py", str(tmp_path / "runs"), *words])
    convergence.main()
    pairs = ["bf16-0", "fp8-0", "bf16-1", "fp8-1"], ["mxfp4-0", "mxfp4-1"]
    assert started == [*pairs, ["bf16-2", "fp8-2"], ["mxfp4-2"]]


def test_flips_are_a_claim_of_their_own(convergence):
    runs = {f"{policy}-{seed}": run(2.0) | {"flips": [flips * (1 + seed / 10)] * 100} for seed in range(3)
            for policy, flips in (("bf16", 1.0), ("tetrajet", 0.04), ("tetrajet-ema", 0.01))}  # fmt: skip
    told = convergence.report(runs)
    assert [(words.split()[1], one["answer"]) for words, one in told["claims"].items()] == [
        ("helps", "not decided"), ("lowers", "yes")
    ]  # fmt: skip
    assert told["flips"]["tetrajet"][0] == pytest.approx(0.04)


class Told:
    """A pace that was measured: six runs that have made 600 of their steps."""

    rate, done, names = 10.0, 600, ["bf16-0", "fp8-0", "mxfp4-0", "bf16-1", "fp8-1", "mxfp4-1"]


@pytest.mark.parametrize(
    ("left", "found"),
    [(1000, (1000, 1)), (616, (1000, 0)), (600, (855, 0)), (3000, (1000, 3)), (30, (7, 0)), (10, (1, 0))],
)
def test_steps_are_fitted_to_the_time_and_seeds_fill_it(left, found, convergence):
    from pace import fitted

    assert fitted(Told, 1000, left, 3, 3) == found


def test_a_further_seed_counts_once_all_its_runs_have_ended(convergence, tmp_path):
    for name, steps in (("bf16-5", 4), ("fp8-5", 3)):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": step, "loss": 1.0}) for step in range(steps)]
        (tmp_path / name / convergence.NAME).write_text("\n".join(lines) + "\n")
    jobs = [["bf16-5"], ["fp8-5"]]
    assert convergence.ended_of(tmp_path, jobs, 4) == []
    assert convergence.ended_of(tmp_path, jobs, 3) == ["bf16-5", "fp8-5"]
