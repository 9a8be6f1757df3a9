"""Campaigns: rounds of new cases, honest words, and no time lost on what has already failed."""

import itertools

import pytest

import refnum
from conformance import report as reports
from conformance.campaign import campaign
from conformance.operation import select
from conformance.plan import CAMPAIGN, Plan
from conformance.subject import Subject


def fuzzed(*functions, seconds=0.0, ticks=None, **more):
    subjects = [Subject(f.__name__, {"mxfp4_to_fp8": f}) for f in functions]
    plan = Plan(subjects, select(["mxfp4_to_fp8"]), None, CAMPAIGN, save=False, **{"examples": 3, "shown": 1, **more})
    clock = iter(ticks or itertools.count())
    document = reports.Report(reports.header(CAMPAIGN, plan.seed, [], [], []))
    return campaign(plan, document, seconds, clock=lambda: float(next(clock)))


def right(packed, scales, scale):
    return refnum.mxfp4_to_fp8(packed, scales, scale)


def signless(packed, scales, scale):
    codes, out = refnum.mxfp4_to_fp8(packed, scales, scale)
    return codes & 0x7F, out


def test_a_campaign_of_no_time_makes_one_round_of_every_variant():
    document = fuzzed(right)
    assert [row["sampled"] for row in document.results] == [3, 3] and document.status == "complete"
    reports.check(document.document(), "this report")
    assert "not a proof" in document.document()["footer"]["verdict"] and document.exit_status() == 0
    assert "fewer than 0.5 of such cases" in document.document()["footer"]["verdict"]


def test_rounds_go_on_until_time_is_up_with_new_cases_each():
    seen = []

    def watching(packed, scales, scale):
        seen.append(packed.tobytes() + scales.tobytes())
        return right(packed, scales, scale)

    document = fuzzed(watching, seconds=3, examples=8)
    assert {row["sampled"] for row in document.results} == {24}
    assert len(set(seen)) > 8 * 2


def test_a_variant_that_has_failed_is_left_alone():
    calls = []

    def only_amax_wrong(packed, scales, scale):
        calls.append(scale)
        return (signless if scale == "amax" else right)(packed, scales, scale)

    document = fuzzed(only_amax_wrong, seconds=4, examples=20, shown=0)
    sampled = {row["params"]["scale"]: row["sampled"] for row in document.results}
    assert sampled["max"] == 80 and sampled["amax"] < 80
    assert {row["params"]["scale"]: row["outcome"] for row in document.results} == {"max": "pass", "amax": "mismatch"}
    assert document.exit_status() == 1


def test_a_campaign_ends_when_everything_has_failed():
    document = fuzzed(signless, seconds=1e9, examples=20)
    assert {row["outcome"] for row in document.results} == {"mismatch"} and document.status == "complete"
    assert document.results[0]["failures"][0]["bug_classes"]


def test_ctrl_c_keeps_what_was_found():
    calls = []

    def impatient(packed, scales, scale):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return right(packed, scales, scale)

    document = fuzzed(impatient, seconds=100)
    final = document.document()
    reports.check(final, "this report")
    assert final["footer"]["status"] == "partial" and sum(row["sampled"] for row in final["results"]) == 8


@pytest.mark.parametrize("seed", [0, 5])
def test_a_campaign_is_repeated_by_its_seed(seed):
    def record(into):
        def watching(packed, scales, scale):
            into.append(packed.tobytes())
            return right(packed, scales, scale)

        return watching

    one, two, other = [], [], []
    fuzzed(record(one), seed=seed, examples=6)
    fuzzed(record(two), seed=seed, examples=6)
    fuzzed(record(other), seed=seed + 1, examples=6)
    assert one == two and one != other


def test_the_verb(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from conformance.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(
        "import refnum\ndef mxfp4_to_fp8(packed, scales, scale):\n"
        "    return refnum.mxfp4_to_fp8(packed, scales, scale)\n"
    )
    result = CliRunner().invoke(app, ["fuzz", "-s", "k.py", "--minutes", "0", "--examples", "2", "--report", "r.json"])
    assert result.exit_code == 0 and "sampled cases, which is not a proof" in result.stdout
    assert reports.load(tmp_path / "r.json")["header"]["level"] == "campaign"
