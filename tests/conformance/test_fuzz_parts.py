"""The parts of campaigns: shards, budget, bounds, quarantine, merging, the command line."""

import json
import platform
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz_tools import Here, campaign, done, right_subject
from typer.testing import CliRunner

from refnum import conformance
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes import sampled_recipes
from refnum.conformance.cases.structure.build import form_of
from refnum.conformance.cases.structure.campaign import CALLS
from refnum.conformance.cases.structure.levels import case_of, from_json
from refnum.conformance.cases.structure.plan import structure_rows
from refnum.conformance.cli import app
from refnum.conformance.commands.fuzz import session
from refnum.conformance.commands.fuzz.budget import PROBING, Budget, _shares
from refnum.conformance.commands.fuzz.confidence import statement, upper_bound
from refnum.conformance.commands.fuzz.coordinator import Limits
from refnum.conformance.commands.fuzz.corpus import minimise
from refnum.conformance.commands.fuzz.database import Database, create
from refnum.conformance.commands.fuzz.errors import ConflictError, UnlikeCampaignError
from refnum.conformance.commands.fuzz.executors import local
from refnum.conformance.commands.fuzz.findings import SLOW, Desk
from refnum.conformance.commands.fuzz.merge import merge
from refnum.conformance.commands.fuzz.quarantine import TRIES, Action, after_loss, after_mismatch
from refnum.conformance.commands.fuzz.session import duration
from refnum.conformance.commands.fuzz.shards import STRUCTURE, Address, key_of, recipes_of, strata
from refnum.conformance.commands.fuzz.spec import Spec, Target, make_spec
from refnum.conformance.commands.fuzz.status import Watcher
from refnum.conformance.commands.fuzz.worker_process import DIED, GONE, HUNG, KILLED, Event
from refnum.errors import ArgumentError, FileError

MOST_STRUCTURAL = 1 << 21
"""Elements that no structural case of a small campaign has: rows and columns are drawn by themselves."""


def spec_of(*targets, **more):
    options = {"seed": 1, "cases": 6, "elements": 2048, "timeout": 1.0, "round": 20, "model": "m", **more}
    return Spec(subjects=("s",), records=(), targets=tuple(targets), **options)


def target(name, **params):
    operation = OPERATIONS[name]
    return Target("s", name, "HOPPER", {**operation.defaults(), **params}, "cpu")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_recipe_of_a_shard_is_legal_small_enough_and_the_same_again(name):
    spec = spec_of(target(name), cases=20)
    for stratum in strata(target(name))[:3]:
        address = Address(1, spec.targets[0].name, stratum, 3)
        recipes = recipes_of(spec, spec.targets[0], address)
        assert recipes == recipes_of(spec, spec.targets[0], address)
        for recipe in recipes:
            case = case_of(recipe)
            if stratum == STRUCTURE:
                assert from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
                assert case.elements <= MOST_STRUCTURAL
            else:
                rows, width = recipe.shape
                assert rows * width <= spec.elements + 2 * width
            run_golden(case)


def test_addresses_give_other_cases_and_subjects_share_them():
    one = target("quantize_mxfp4")
    keys = {key_of(one, Address(s, one.name, t, n)) for s in (0, 1) for t in strata(one) for n in range(5)}
    assert len(keys) == 2 * 5 * len(strata(one))
    assert key_of(one, Address(0, "a", "mixed", 0)) == key_of(replace(one, subject="b"), Address(0, "b", "mixed", 0))


@pytest.mark.parametrize("name", ["quantize_mxfp4", "permute_pad", "decode_e4m3"])
def test_a_shard_of_structure_draws_other_levels_than_a_check_and_every_kind_of_call(name):
    one = target(name)
    spec = spec_of(one, cases=25)
    rows = [
        recipe.row for number in range(8) for recipe in recipes_of(spec, one, Address(1, one.name, STRUCTURE, number))
    ]
    assert {row["calls"] for row in rows} == set(CALLS)
    asked = {plain_row(row) for row in structure_rows(*one.key, "full")}
    assert sum(plain_row(row) not in asked for row in rows) > 190
    forms = [form_of(row) for row in rows]
    assert sum(len(form) > 2 for form in forms) > 40 and any("out" in form for form in forms)


def plain_row(row):
    return tuple(sorted((name, level) for name, level in row.items() if name != "calls"))


def test_layouts_and_keys_are_targets_of_their_own_and_a_third_of_the_shards_is_of_structure(tmp_path):
    path = tmp_path / "full.py"
    path.write_text(
        "import refnum\n\n\ndef quantize_mxfp4(x, profile, rbits=None, philox=None, layout_out='bytes'):\n"
        "    return refnum.quantize_mxfp4(x, profile, rbits=rbits, philox=philox, layout_out=layout_out)\n"
    )
    spec = make_spec([str(path)], profiles=["HOPPER", "STOCHASTIC"])
    special = [one for one in spec.targets if {"layout_out", "random"} & set(one.params)]
    assert {one.params.get("layout_out") for one in special} >= {"packed_ue8m0", "swizzled"}
    assert any(one.params.get("random") == "keyed" for one in special)
    assert all(strata(one) == (STRUCTURE,) for one in special)
    ordinary = target("quantize_mxfp4")
    budget = Budget(spec_of(ordinary))
    planned = [address for number in range(6) for address in budget.plan(number)]
    assert len(planned) == 44 and 10 <= sum(address.stratum == STRUCTURE for address in planned) <= 16


def result(points=(), failing=0, fault=None, cases=6):
    return {"failing": failing, "fault": fault, "cases": cases, "points": dict.fromkeys(points)}


def test_the_budget_follows_what_is_missing():
    full, poor = target("decode_e4m3"), target("quantize_mxfp4")
    budget = Budget(spec_of(full, poor))
    wanted = budget.interests[full.name].wanted
    for number in range(PROBING):
        budget.fold(
            [(a.target, a.stratum, result(wanted if a.target == full.name else ())) for a in budget.plan(number)]
        )
    planned = budget.plan(PROBING)
    assert sum(a.target == poor.name for a in planned) > sum(a.target == full.name for a in planned)
    assert len(planned) == 20 and len(set(planned)) == 20


def test_the_first_rounds_are_short_and_a_hang_ends_a_target():
    only, other = target("decode_e4m3"), target("quantize_mxfp4")
    budget = Budget(spec_of(only, other))
    assert [len(budget.plan(number)) for number in range(PROBING)] == [2] * PROBING
    budget.fold([(only.name, "mixed", result(fault={"number": 0, "outcome": "timeout"}))])
    planned = budget.plan(PROBING)
    assert len(planned) == 20 and {address.target for address in planned} == {other.name}


def test_a_hang_that_is_not_seen_again_is_no_finding_until_it_comes_again(tmp_path):
    _, db = campaign(tmp_path / "camp", right_subject(tmp_path), 10)
    desk = Desk(db, {each.name: each for each in db.spec.targets}, tmp_path / "camp")
    name, event = db.spec.targets[0].name, Event("lost", "w", "cpu", why=HUNG)
    calm = Event("done", "w", "cpu", result={"shown": 0, "of": 1, "outcome": "pass", "words": ""})
    for finding, kept in ((SLOW, 0), ("", 1)):
        entry = {"number": 0, "kind": "fault", "level": 0, "finding": finding, "words": "no answer"}
        shard = 1 + kept
        (task,) = desk.report(shard, name, entry, event)
        assert not desk.confirmed(task, calm)
        assert len(Watcher(db).findings()) == kept and not desk.report(shard, name, entry, event)
        assert desk.row(task["find"])["outcome"] == "flaky"


def test_a_target_that_failed_enough_is_left_alone_and_the_campaign_ends():
    only = target("decode_e4m3")
    budget = Budget(spec_of(only))
    budget.fold([(only.name, "mixed", result(failing=1))] * 2)
    assert budget.plan(0)
    budget.fold([(only.name, "mixed", result(fault={"number": 0}))])
    assert not budget.plan(1)


def test_shares_are_whole_and_proportional():
    assert _shares([1, 1, 1], 10) == [4, 3, 3] and _shares([3, 1], 8) == [6, 2] and sum(_shares([5, 7, 11], 97)) == 97


def test_the_bound_is_exact():
    assert upper_bound(0) == upper_bound(5, 5) == 1.0
    assert upper_bound(59) == pytest.approx(1 - 0.05 ** (1 / 59), rel=1e-12)
    assert upper_bound(10, 1) == pytest.approx(0.394163, abs=1e-6)  # tables of Clopper and Pearson
    assert upper_bound(10**9) == pytest.approx(2.9957e-9, rel=1e-4)
    assert upper_bound(3 * 10**7, 10**6) == pytest.approx(upper_bound(3 * 10**7 + 30, 10**6 + 1), rel=1e-5)
    assert 0.1 < upper_bound(10**9, 10**8) < 0.10002 and upper_bound(2**63, 2**62) == pytest.approx(0.5)
    assert "none failed" in statement(1000, 0) and "not a proof" in statement(1000, 0)


def test_what_follows_a_loss():
    def lost(why, number=0):
        return Event("lost", why=why, number=number)

    assert after_loss(lost(HUNG), 1) == after_loss(lost(DIED), 1) == Action.CONFIRM
    assert [after_loss(lost(KILLED), n) for n in (1, TRIES)] == [Action.RETRY, Action.CONFIRM]
    assert [after_loss(lost(GONE, None), n) for n in (1, 2 * TRIES)] == [Action.RETRY, Action.GIVE_UP]


def test_a_broken_card_is_told_from_a_broken_kernel():
    def seen(shown, golden=True):
        return {"shown": shown, "of": 3, "golden": golden, "words": ""}

    assert after_mismatch(seen(3), "A", "B", False).outcome == "mismatch"
    assert after_mismatch(seen(0), "A", "B", False).again
    assert after_mismatch(seen(2), "A", "A", True).outcome == "broken-card"
    assert after_mismatch(seen(0), "A", "A", True).outcome == "flaky"
    assert after_mismatch(seen(0), "A", "A", False).outcome == "flaky"
    assert after_mismatch(seen(0, golden=False), "A", "B", False).outcome == "golden"


def test_merging_counts_each_shard_once_and_refuses_what_differs(tmp_path):
    subject = right_subject(tmp_path)
    _, one = campaign(tmp_path / "one", subject, 60)
    _, two = campaign(tmp_path / "two", subject, 30)
    campaign(tmp_path / "other", subject, 30, seed=7)
    merged = merge(tmp_path / "all", [tmp_path / "one", tmp_path / "two", tmp_path / "other"])
    assert done(tmp_path / "all") == done(tmp_path / "one") | done(tmp_path / "other")
    assert merge(tmp_path / "same", [tmp_path / "two", tmp_path / "one"]).digest() == one.digest()
    assert merged.rows("SELECT sum(cases) FROM targets")[0][0] == 90
    campaign(tmp_path / "unlike", subject, 30, elements=1024)
    with pytest.raises(UnlikeCampaignError):
        merge(tmp_path / "no", [tmp_path / "one", tmp_path / "unlike"])
    with two.transaction():
        two.raw.execute("UPDATE shards SET digest = 'x' WHERE id = 1")
    with pytest.raises(ConflictError, match="has the result"):
        merge(tmp_path / "conflict", [tmp_path / "one", tmp_path / "two"])


def test_rounds_do_not_depend_on_the_number_of_workers(tmp_path):
    subject = right_subject(tmp_path)
    digests = {campaign(tmp_path / "processes", subject, 90, workers=2, round_shards=16)[1].digest()}
    for places in (1, 3, 40):  # at 40 a whole round is under way and ends in another order than it began
        room, spec = (
            tmp_path / str(places),
            make_spec([subject], cases=5, elements=4096, round_shards=16, isolate=False),
        )
        digests.add(campaign(room, subject, 90, executor=Here(spec, places), round_shards=16)[1].digest())
    assert len(digests) == 1


def test_a_process_that_is_old_is_replaced_between_two_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "RECYCLE", 0.0)
    _, db = campaign(tmp_path / "camp", right_subject(tmp_path), 15, workers=1)
    done_by = [row["shards"] for row in db.rows("SELECT shards FROM workers WHERE words LIKE 'replaced%'")]
    assert len(done_by) >= 2 and set(done_by) == {1} and not db.rows("SELECT * FROM findings")


@pytest.mark.parametrize(("text", "seconds"), [("8h", 28800), ("1h30m", 5400), ("90", 90), ("2.5m", 150)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "8x", "8h!", "-3s"])
def test_no_durations(text):
    with pytest.raises(ArgumentError):
        duration(text)


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject, run = right_subject(tmp_path), CliRunner()
    words = ["fuzz", "run", "camp", "--subjects", subject, "--cases", "50", "--shard", "5", "--elements", "2048"]
    first = run.invoke(app, [*words, "--workers", "1"])
    assert first.exit_code == 0 and "none failed" in first.stdout and "digest" in first.stdout
    assert "already" in run.invoke(app, words).stderr
    assert run.invoke(app, ["fuzz", "resume", "camp", "--cases", "80", "--workers", "1", "--trust"]).exit_code == 0
    shown = run.invoke(app, ["fuzz", "status", "camp", "--json"])
    summary = json.loads(shown.stdout)
    assert summary["totals"]["cases"] == 80 and summary["end"] == "complete" and summary["exit"] == 0
    who = summary["workers"][0]["identity"]
    assert who["device"].startswith("cpu of") and who["model"] == summary["model"] and "git" in who
    assert run.invoke(app, ["fuzz", "minimise", "camp", "--subject", subject]).exit_code == 0
    assert "0 vectors" in run.invoke(app, ["fuzz", "export", "camp", "--out", "v"]).stdout
    assert run.invoke(app, ["fuzz", "merge", "both", "camp"]).exit_code == 0
    assert "no campaign" in run.invoke(app, ["fuzz", "status", "nowhere"]).stderr


def test_launches_are_on_the_disk_before_a_worker_sees_them(tmp_path):
    subject = right_subject(tmp_path)

    seen = []

    class Watching:
        """An executor that looks into the database when it is given a task, and then loses it."""

        def free(self, device):
            return 1

        def submit(self, task, **_):
            db = Database(tmp_path / "camp" / "campaign.sqlite", readonly=True)
            seen.append(db.rows("SELECT state FROM shards WHERE id = ?", (task["shard"],))[0][0])
            db.close()
            raise KeyboardInterrupt

        def poll(self, seconds):
            return []

        def health(self):
            return {"up": 1, "starting": 0}

        def close(self):
            pass

    def submit(self, task, *_):
        Watching.submit(self, task)

    executor = type("E", (Watching,), {"submit": submit})()
    with pytest.raises(KeyboardInterrupt):
        campaign(tmp_path / "camp", subject, 50, executor=executor)
    assert seen == ["launched"]


def test_seeds_out_of_range_and_subjects_that_are_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="seed"):
        make_spec([right_subject(tmp_path)], seed=1 << 64)
    with pytest.raises(ArgumentError, match="No subject can be judged"):
        make_spec([right_subject(tmp_path)], ["encode_e8m0"])
    assert all(a < b for a, b in pairwise([Address(0, "a", "m", 0), Address(0, "a", "m", 1), Address(1, "a", "m", 0)]))


def test_a_corpus_is_judged_first_by_the_next_campaign(tmp_path):
    subject = right_subject(tmp_path)
    campaign(tmp_path / "one", subject, 60)
    _, kept = minimise(tmp_path / "one")
    path = tmp_path / "one" / "corpus.json"
    _, db = campaign(tmp_path / "two", subject, 200, seed=5, corpus=path)
    rows = db.rows("SELECT target, result FROM shards WHERE stratum = 'corpus' AND round = 0 AND state = 'done'")
    assert sum(json.loads(row["result"])["cases"] for row in rows) == kept == len(db.spec.corpus) > 1
    for entry in json.loads(path.read_text())["cases"]:
        hit = [json.loads(row["result"])["points"] for row in rows if row["target"].endswith(entry["target"])]
        assert set(entry["points"]) <= {point for points in hit for point in points}
    assert Spec.from_json(db.spec.to_json()) == db.spec
    path.write_text(path.read_text().replace('"seed"', '"sead"'))
    with pytest.raises(FileError):
        make_spec([subject], corpus=path)


def test_what_the_devices_say_at_the_end_is_kept(tmp_path, monkeypatch):
    host = platform.node()
    monkeypatch.setattr(session, "smi", lambda: [{"uuid": f"cpu of {host}", "ecc": "1"}])
    create(tmp_path / "camp", make_spec([right_subject(tmp_path)], cases=5, elements=1024)).close()
    summary = session.work(tmp_path / "camp", Limits(cases=10), workers=1, quiet=True)
    (worker,) = summary["workers"]
    assert worker["identity"]["card_at_end"]["ecc"] == "1" and worker["left"] and "ended" in worker["words"]


def test_the_schema_of_a_corpus_has_every_field_of_a_recipe():
    recipe = next(recipe for recipe in sampled_recipes("swiglu_backward", "HOPPER", {}, 0, 40) if recipe.wide).to_json()
    schema = json.loads((Path(conformance.__file__).parent / "reports" / "schema" / "corpus.schema.json").read_text())
    fields = schema["properties"]["cases"]["items"]["properties"]["recipe"]
    assert recipe["wide"] is True
    assert set(fields["required"]) <= set(recipe) <= set(fields["properties"])
