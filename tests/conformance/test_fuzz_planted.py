"""Planted kernels: each found, named rightly, made small and replayed, and the campaign ends by itself."""

import json
from pathlib import Path

import pytest
from cli_tools import command
from fuzz_tools import PLANTED, campaign

from refnum.conformance.commands.fuzz.corpus import minimise
from refnum.conformance.commands.fuzz.database import FILE, Database
from refnum.conformance.commands.fuzz.export import export
from refnum.conformance.commands.fuzz.status import Watcher, bug_of, exit_status
from refnum.conformance.mismatches import replay
from refnum.conformance.vectors.load import read_document


def run(tmp_path, names, limit=None, workers=2, **more):
    source = tmp_path / "planted.py"
    text = Path(PLANTED).read_text()
    source.write_text(f"{text}\nCHOSEN = [s for s in subjects() if s['name'] in {names!r}]\n")
    end, db = campaign(
        tmp_path / "camp", f"{source}:CHOSEN", limit, workers=workers, cases=10, timeout=0.4, round_shards=4, **more
    )
    return end, db, Watcher(db).findings(), f"{source}:CHOSEN"


def replayed(finding, subject, folder):
    return command("replay", finding["replay"], "--subject", subject, folder=folder)


def test_a_kernel_that_kills_its_process(tmp_path):
    end, _, findings, subject = run(tmp_path, ["faulty"], elements=1024)
    assert end == "nothing left"
    assert {(f["outcome"], f["state"]) for f in findings} <= {("fault", "done"), ("fault", "confirmed")}
    first = min((one for one in findings if one["record"]), key=lambda one: len(one["record"]["case"]))
    assert "SIGSEGV" in first["words"] and first["record"]["case"] == "x [9, 32]; 288 elements"
    small = replay.load(Path(first["replay"])).case
    assert small.inputs["x"].shape == (9, 32) and "negative zero" in first["record"]["points"]
    again = replayed(first, subject, tmp_path)
    assert again.returncode == 1 and "its process ended with SIGSEGV" in again.stdout


@pytest.mark.slow
def test_a_kernel_that_hangs(tmp_path):
    end, _, findings, _ = run(tmp_path, ["hanging"], elements=256)
    assert end == "nothing left" and {f["outcome"] for f in findings} == {"timeout"}
    first = findings[0]
    assert first["record"]["case"] == "packed [1, 16], scales [1, 1]; 16 elements"
    assert first["record"]["points"][0] in ("NaN result", "scale byte 255 read")
    assert first["record"]["finding"] == "kernel-hung"


def test_a_kernel_that_is_wrong_on_one_coverpoint_only(tmp_path):
    end, db, findings, subject = run(tmp_path, ["one_point"], workers=0, elements=4096)  # it harms no process
    assert end == "nothing left" and {f["outcome"] for f in findings} == {"mismatch"}
    small = [f for f in findings if f["record"]]
    assert small and all(f["record"]["points"][0] == "tie -2.5" for f in small)
    assert all(f["record"]["case"] == "x [1, 32]; 32 elements" for f in small)
    again = replayed(small[0], subject, tmp_path)
    assert "2.5" in again.stdout and again.returncode == 1
    made, kept = minimise(tmp_path / "camp")
    assert made == len(findings) - len(small) and kept
    corpus = json.loads((tmp_path / "camp" / "corpus.json").read_text())["cases"]
    hit = [row[0] for row in db.rows("SELECT point FROM corpus")]
    assert sorted(point for entry in corpus for point in entry["points"]) == sorted(hit)
    count, left = export(Database(tmp_path / "camp" / FILE, readonly=True), tmp_path / "vectors")
    document = read_document(tmp_path / "vectors" / "quantize_mxfp4" / "HOPPER.json")
    assert count == document["count"] > 0 and not left


@pytest.mark.slow
def test_a_kernel_that_is_wrong_one_time_in_a_million(tmp_path):
    end, db, findings, _ = run(tmp_path, ["one_in_a_million"], elements=1 << 16)
    assert end == "nothing left" and {f["outcome"] for f in findings} == {"mismatch"}
    compared, failing = db.rows("SELECT compared, failing FROM targets")[0]
    assert 1 <= failing < compared / 100_000
    case = replay.load(Path(findings[0]["replay"])).case
    bits = case.inputs["x"].view("uint32").astype("uint64")
    assert ((bits * 2654435761 + 0x9E3779B9) % 2**32 < 4295).any() and case.elements == 32


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [("raising", "fault"), ("flaky", "flaky")])
def test_a_kernel_that_gives_up_or_is_wrong_once(tmp_path, name, outcome):
    _, db, findings, _ = run(tmp_path, [name], 60, elements=2048)
    assert {f["outcome"] for f in findings} == {outcome} and {bug_of(f) for f in findings} == {outcome}
    assert Watcher(db).summary()["exit"] == 1


def test_nothing_compared_is_no_pass():
    from collections import Counter

    assert exit_status(Counter(), []) == 3 and exit_status(Counter(compared=5), []) == 0
