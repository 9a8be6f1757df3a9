"""Files from strangers: nothing that a file names runs unless a person names it."""

import json

import pytest
from fuzz_tools import right_subject
from typer.testing import CliRunner

from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cli import app
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.fuzz.database import create
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.mismatches import replay
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure

OPERATION = "quantize_mxfp4"


def refnum(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def replay_file(folder, name, kind="gpu", finding=""):
    """Write a replay file whose subject is called `name`; its id is right, as a stranger would make it."""
    (case,) = control_cases(OPERATION, "HOPPER", OPERATIONS[OPERATION].defaults())
    golden = run_golden(case)
    subject = Subject("placeholder", {}, kind=kind)
    body = replay.document(case, golden, golden, subject, Failure(case, NO_LEVEL, "", finding))
    body["subject"]["name"] = name
    return replay.save({**body, "id": replay.identity(body)}, folder)


@pytest.fixture
def trap(tmp_path):
    """A program and a Python file that leave a mark when they run; yields (their words, the mark)."""
    mark = tmp_path / "ran"
    script, module = tmp_path / "trap.sh", tmp_path / "trap.py"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    module.write_text(f"open({str(mark)!r}, 'w').close()\ndef {OPERATION}(x, profile): return x\n")
    return {"exec": f"exec:{script}", "file": str(module)}, mark


@pytest.mark.parametrize("finding", ["", "process-died"])
@pytest.mark.parametrize("kind", ["gpu", "user"])
@pytest.mark.parametrize("which", ["exec", "file"])
def test_a_replay_file_runs_nothing_that_it_names(tmp_path, trap, which, kind, finding):
    words, mark = trap
    path = replay_file(tmp_path, words[which], kind, finding)
    result = refnum("replay", path)
    assert result.exit_code == 0 and not mark.exists()
    assert "was not called" in result.stdout and "--subject" in result.stdout and words[which] in result.stdout
    assert refnum("shrink", path).exit_code == 2 and not mark.exists()


def test_a_trusted_replay_file_calls_what_it_names(tmp_path, trap):
    words, mark = trap
    refnum("replay", replay_file(tmp_path, words["file"]), "--trust")
    assert mark.exists()


def test_an_installed_subject_is_called_when_it_is_named(tmp_path):
    path = replay_file(tmp_path, "model", "model")
    assert "model was not called" in refnum("replay", path).stdout
    assert "model gives every expected byte" in refnum("replay", path, "--trust").stdout
    assert "model gives every expected byte" in refnum("replay", path, "--subject", "model").stdout


def test_the_printed_command_names_the_subject(tmp_path):
    assert replay.command(tmp_path / "a.json", Subject("gpu", {}, kind="gpu")).endswith("a.json --subject gpu")


@pytest.fixture
def campaign(tmp_path, trap):
    """A campaign whose list of subjects was given a trap by a stranger."""
    words, mark = trap
    spec = make_spec([right_subject(tmp_path)], cases=2, elements=256)
    data = {**json.loads(spec.to_json()), "subjects": [words["file"]]}
    create(tmp_path / "camp", type(spec).from_json(json.dumps(data))).close()
    return tmp_path / "camp", words["file"], mark


@pytest.mark.parametrize("verb", [("resume", "--cases", "2", "--workers", "1"), ("minimise",)])
def test_a_campaign_runs_no_file_that_nobody_named(campaign, verb):
    folder, name, mark = campaign
    result = refnum("fuzz", verb[0], folder, *verb[1:])
    assert result.exit_code == 2 and not mark.exists()
    assert name in result.stderr and "--trust" in result.stderr and result.stderr.count("\n") == 1
    other = refnum("fuzz", verb[0], folder, *verb[1:], "--subject", "other.py")
    assert other.exit_code == 2 and not mark.exists()


def test_reading_a_campaign_runs_nothing(campaign, tmp_path):
    folder, _, mark = campaign
    for words in (("status", folder), ("merge", tmp_path / "both", folder), ("export", folder, "--out", tmp_path)):
        assert "Traceback" not in refnum("fuzz", *words).output and not mark.exists()


def test_a_named_file_of_a_campaign_may_run(tmp_path):
    subject = right_subject(tmp_path)
    create(tmp_path / "camp", make_spec([subject], cases=2, elements=256)).close()
    for words in (("--subject", subject), ("--trust",)):
        assert refnum("fuzz", "minimise", tmp_path / "camp", *words).exit_code == 0
