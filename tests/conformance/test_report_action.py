"""action.yml: its inputs reach the shell as variables only, and its steps do what a run on GitHub would do."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
WORKFLOW = yaml.safe_load((ROOT / "docs/guides/examples/kernels.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SCRIPTS = [step for step in STEPS.values() if "run" in step]
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")


def test_every_input_and_output_is_used_and_described():
    text = (ROOT / "action.yml").read_text()
    for name, entry in ACTION["inputs"].items():
        assert (
            f"inputs.{name}" in text and entry["description"] and ("default" in entry) != entry.get("required", False)
        )
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    for entry in ACTION["outputs"].values():
        step, name = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", entry["value"]).groups()
        script = next(one["run"] for one in SCRIPTS if one.get("id") == step)
        assert f'"{name}=' in script


def test_steps_are_composite_and_no_script_holds_an_expression():
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        if "run" in step:
            assert step["shell"] == "bash" and "${{" not in step["run"]  # a title of a pull request is no script
            used = set(re.findall(r"\$\{?([A-Z_]+)", step["run"])) - {"GITHUB_ACTION_PATH"}
            assert used - {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"} <= set(step["env"]), step["name"]
        else:
            assert re.fullmatch(r"[\w-]+/[\w./-]+@v\d+", step["uses"])


def test_the_workflow_gives_the_action_inputs_that_it_has():
    job = WORKFLOW["jobs"]["conformance"]
    step = next(step for step in job["steps"] if "refnum@" in step.get("uses", ""))
    assert set(step["with"]) <= set(ACTION["inputs"]) and "subject" in step["with"]
    assert WORKFLOW["permissions"]["security-events"] == "write"
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML 1.1 reads the key `on` as true


@needs_bash
@pytest.mark.parametrize("step", SCRIPTS, ids=lambda step: step["name"])
def test_every_script_parses(step):
    done = subprocess.run([BASH, "-n"], input=step["run"], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


class Runner:
    """Runs the scripts of the action in order as GitHub does: bash -e -o pipefail, files for outputs and summary."""

    def __init__(self, folder, **inputs):
        self.folder = folder
        self.inputs = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
        self.inputs |= {"python": sys.executable, **inputs}
        self.outputs = {}
        self.github, self.strategy = {"job": "conformance"}, {"job-index": "0"}

    def value(self, text):
        def meaning(match):
            kind, *rest = match[1].split(".")
            if kind == "steps":
                return self.outputs.get((rest[0], rest[2]), "")
            return {"inputs": self.inputs, "github": self.github, "strategy": self.strategy}[kind][rest[0]]

        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", meaning, text)

    def run(self, name):
        step = STEPS[name]
        output, summary = self.folder / "output", self.folder / "summary"
        output.write_text("")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_ACTION_PATH": str(ROOT),
            **{key: self.value(text) for key, text in step["env"].items()},
        }
        command = [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        for line in output.read_text().splitlines():
            key, _, text = line.partition("=")
            self.outputs[step["id"], key] = text
        return done


TIES_UP = """
import refnum

def fp8_to_mxfp4(codes, scales, profile):
    return refnum.fp8_to_mxfp4(codes, scales, profile.replace(name="wrong", ties="away"))
"""


@needs_bash
def test_a_wrong_kernel_makes_a_red_run_with_every_report(tmp_path):
    (tmp_path / "my kernel.py").write_text(TIES_UP)
    runner = Runner(tmp_path, subject="my kernel.py:fp8_to_mxfp4\n", profile="HOPPER\nOCP", level="smoke")
    judged = runner.run("Judge")
    assert judged.returncode == 0 and "E2M1_TIES_UP" in judged.stdout, judged.stderr
    assert runner.outputs["check", "status"] == "1"
    assert runner.run("Write the reports").returncode == 0 and runner.outputs["reports", "made"] == "true"
    folder = tmp_path / "refnum-report"
    assert sorted(path.name for path in folder.iterdir()) == ["junit.xml", "report.html", "report.json", "report.sarif"]
    profiles = {row["profile"] for row in json.loads((folder / "report.json").read_text())["results"]}
    assert profiles == {"HOPPER", "OCP"}
    result = json.loads((folder / "report.sarif").read_text())["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my kernel.py"
    assert (tmp_path / "summary").read_text().startswith("## refnum: WRONG")
    assert runner.run("Verdict").returncode == 1


def test_nothing_but_the_verdict_makes_a_run_red():
    """Code scanning may be off or not allowed, and a report that cannot be made must not hide the others."""
    assert STEPS["Send the mismatches to code scanning"]["continue-on-error"] is True
    for name in ("Keep the reports", "Send the mismatches to code scanning"):
        assert STEPS[name]["if"].startswith("always() && ")
    assert STEPS["Verdict"]["if"] == "always()" and ACTION["runs"]["steps"][-1] is STEPS["Verdict"]


def test_the_replay_files_are_kept():
    """actions/upload-artifact leaves out what lies in a folder with a dot unless it is told."""
    given = STEPS["Keep the reports"]["with"]
    assert given["path"].split() == ["${{", "inputs.report", "}}", ".refnum/cases"] and given["include-hidden-files"]


OTHER_PYTHON = """#!/bin/bash
case "$*" in *"report html"*) exit 1;; *" report "*) echo text;; esac
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo text > "$2"; shift; done
"""


@needs_bash
def test_the_artifact_has_a_legal_name_of_its_own_and_one_lost_report_takes_no_other(tmp_path):
    python = tmp_path / "python"
    python.write_text(OTHER_PYTHON)
    python.chmod(0o755)
    names = set()
    for folder, job, index in (("out/refnum: a", "x", "0"), ("out", "x", "0"), ("out", "x", "1"), ("out", "y", "0")):
        runner = Runner(tmp_path, python=str(python), report=folder)
        runner.github, runner.strategy = {"job": job}, {"job-index": index}
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "report.json").write_text("{}")
        assert runner.run("Write the reports").returncode == 1  # the page is missing: said, but later
        assert runner.outputs["reports", "made"] == "true"
        assert {path.name for path in (tmp_path / folder).iterdir()} >= {"junit.xml", "report.sarif"}
        names.add(runner.value(STEPS["Keep the reports"]["with"]["name"]))
    assert len(names) == 4 and all(re.fullmatch(r"[\w.-]+", name) for name in names), names
    assert {runner.value(STEPS["Send the mismatches to code scanning"]["with"]["category"])} <= names


@needs_bash
def test_bad_input_is_red_and_writes_no_report(tmp_path):
    runner = Runner(tmp_path, subject="absent.py; touch pwned")
    assert runner.run("Judge").returncode == 0 and runner.outputs["check", "status"] == "2"
    assert runner.run("Write the reports").returncode == 0 and ("reports", "made") not in runner.outputs
    assert "no report" in (tmp_path / "summary").read_text() and not (tmp_path / "pwned").exists()
    assert runner.run("Verdict").returncode == 2
