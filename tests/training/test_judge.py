"""`refnum check -o moe_layer` passes our layer, and sees the bugs that layers of public projects had."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.errors import RefnumError
from refnum.training import judge

FILE = str(Path(__file__).with_name("planted_layers.py"))
CASES = {case.name: case for case in judge.CASES}
BUGS = {
    "scales_of_another_rank": ("even", "mismatch", "scale bytes are not: scales took another way"),
    "scales_that_differ_by_rank": ("ranks of other magnitude", "mismatch", "scale bytes are not"),
    "bytes_not_moved": ("even", "mismatch", "rows were not moved"),
    "out_in_float32": ("even", "malformed", "out is float32"),
    "not_finished": ("even", "fault", "no kernel for this"),
    "names_of_its_own": ("even", "malformed", "unknown are hidden"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_wrong_layer_is_seen(name):
    case, outcome, why = BUGS[name]
    (found,) = judge.judge(f"{FILE}:{name}", cases=[CASES[case]])
    assert (found.outcome, why in found.why) == (outcome, True), found


def test_a_bug_of_empty_experts_is_seen_by_their_case_alone():
    """Nothing else tells it: the case says what it is there to find."""
    found = judge.judge(f"{FILE}:experts_without_rows", cases=[CASES["even"], CASES["an expert without a token"]])
    assert [one.outcome for one in found] == ["pass", "mismatch"]


def test_judging_goes_on_after_a_case_that_ends_the_ranks():
    cases = [CASES["a rank without a token"], CASES["even"]]
    found = judge.judge(f"{FILE}:a_rank_without_tokens_leaves", seconds=3.0, cases=cases)
    assert [one.outcome for one in found] == ["timeout", "pass"] and "waited up to" in found[0].why


def test_the_command_judges_our_layer(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "judge", lambda name, place: judge_some(name, place))
    done = CliRunner().invoke(app, ["check", "-o", "moe_layer", "--report", str(tmp_path / "layer.json")])
    assert done.exit_code == 0, done.output
    assert "2 cases, 0 failed" in done.output
    verdicts = json.loads((tmp_path / "layer.json").read_text())["subjects"][judge.OURS]
    assert [one["outcome"] for one in verdicts] == ["pass", "pass"] and all(one["elements"] > 1e5 for one in verdicts)


def test_the_command_ends_with_1_where_a_case_fails(monkeypatch):
    monkeypatch.setattr(judge, "judge", lambda name, place: judge_some(name, place))
    done = CliRunner().invoke(app, ["check", "-o", "moe_layer", "--subject", f"{FILE}:experts_without_rows"])
    assert done.exit_code == 1
    assert "the case is there to find splits that leave out a zero" in done.output


_judge = judge.judge


def judge_some(name, place):
    return _judge(name, place, cases=[CASES["even"], CASES["an expert without a token"]])


def test_a_layer_that_returns_its_output_alone_is_judged_by_it():
    (found,) = judge.judge(f"{FILE}:only_out", cases=[CASES["a rank whose experts have no token"]])
    assert found.outcome == "pass" and found.elements == (20 + 12) * judge.HIDDEN


@pytest.mark.parametrize("words", ["layer", "nowhere.py:layer", f"{FILE}:missing", "no.such.module:layer"])
def test_a_subject_that_is_not_there_is_told(words):
    with pytest.raises(RefnumError):
        judge.load_subject(words)
    assert CliRunner().invoke(app, ["check", "-o", "moe_layer", "--subject", words]).exit_code == 2
