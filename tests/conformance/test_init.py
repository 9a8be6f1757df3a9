"""What `refnum init` writes is a repository that passes, and it overwrites nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cli import app
from refnum.conformance.commands import init
from refnum.conformance.commands.init import WRITTEN, write
from refnum.conformance.subjects.loading.discover import from_file
from refnum.errors import ArgumentError, FileError, ProfileError

pytest_plugins = ["pytester"]


@pytest.mark.usefixtures("harness")
def test_what_is_written_passes_and_a_wrong_kernel_in_it_fails(pytester):
    """In this process, whose harness is verified: `test_plugin` starts the plugin in others."""
    done = CliRunner().invoke(app, ["init", str(pytester.path), "--profile", "OCP"])
    assert done.exit_code == 0 and "kernels_under_test.py" in done.stdout
    words = ["-p", "no:refnum", "-p", "refnum.conformance.plugin", "--refnum-level=smoke", "-q", str(pytester.path)]
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=1)
    path = pytester.path / "kernels_under_test.py"
    path.write_text(path.read_text().replace('profile="OCP")  #', 'profile="OCP+ties=away")  #'))
    wrong = pytester.runpytest_inprocess(*words)
    wrong.assert_outcomes(failed=1)
    assert "E2M1_TIES_UP" in wrong.stdout.str()


def test_where_the_plugin_is_missing_the_written_test_fails(tmp_path):
    write(tmp_path, "decode_e2m1", "OCP")
    words = [sys.executable, "-m", "pytest", "-p", "no:refnum", "-p", "no:cacheprovider", "-q"]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=settings)
    assert done.returncode == 1 and "fixture 'judge' not found" in done.stdout, done.stdout


class Installed:
    """A distribution as `importlib.metadata` gives it. url: the text of direct_url.json (PEP 610), or None."""

    version = "1.2"

    def __init__(self, url):
        self.url = url

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.url


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        (None, "refnum==1.2"),
        ({"url": "file:///home/me/refnum", "dir_info": {"editable": True}}, ""),
        ({"url": "file:///home/me/refnum-1.2.whl", "archive_info": {}}, ""),
        ({"url": "https://a.org/refnum-1.2.whl", "archive_info": {}}, "refnum @ https://a.org/refnum-1.2.whl"),
        (
            {
                "url": "https://a.org/b/refnum",
                "vcs_info": {"vcs": "git", "commit_id": "ab12", "requested_revision": "v1"},
            },
            "refnum @ git+https://a.org/b/refnum@ab12",
        ),
    ],
)
def test_the_workflow_installs_refnum_from_where_it_came(tmp_path, monkeypatch, url, wanted):
    """What has no place that CI could reach is asked for by one sentence, and is never a name that does not exist."""
    found = Installed(url if url is None else json.dumps(url))
    monkeypatch.setattr(init.metadata, "distribution", lambda name: found)
    done = CliRunner().invoke(app, ["init", str(tmp_path), "-o", "decode_e2m1"])
    assert done.exit_code == 0 and ("REFNUM" in done.stdout) == (not wanted)
    text = (tmp_path / ".github/workflows/conformance.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["env"]["REFNUM"] == f"${{{{ vars.REFNUM || '{wanted}' }}}}" and "OWNER" not in text
    step = next(step for step in workflow["jobs"]["conformance"]["steps"] if step.get("name") == "Install refnum")
    (tmp_path / "python").write_text('#!/bin/bash\nprintf "%s\\n" "$@" > said\n')
    (tmp_path / "python").chmod(0o755)
    for given in ("", wanted or "x @ https://b.org/x"):
        settings = {"PATH": str(tmp_path), "REFNUM": given}
        did = subprocess.run(
            [shutil.which("bash"), "-e", "-c", step["run"]], cwd=tmp_path, env=settings, capture_output=True, text=True
        )
        assert (did.returncode == 0) == bool(given) == ("repository variable REFNUM" not in did.stderr)
        assert (tmp_path / "said").exists() == bool(given)
    assert (tmp_path / "said").read_text().split("\n")[:5] == ["-m", "pip", "install", given, "pytest"]


def test_what_pip_installs_can_be_said(tmp_path):
    done = CliRunner().invoke(
        app, ["init", str(tmp_path), "-o", "decode_e2m1", "--install", "refnum @ git+https://a.org/b@v1"]
    )
    assert done.exit_code == 0 and "REFNUM" not in done.stdout
    text = (tmp_path / ".github/workflows/conformance.yml").read_text()
    assert "vars.REFNUM || 'refnum @ git+https://a.org/b@v1'" in text
    with pytest.raises(ArgumentError, match="quote"):
        write(tmp_path / "b", "decode_e2m1", "OCP", "a'b")
    assert not (tmp_path / "b").exists()


def test_the_workflow_keeps_the_replay_files():
    """actions/upload-artifact leaves out what lies in a folder with a dot unless it is told."""
    text = (Path(init.__file__).parent / "templates/conformance.yml.txt").read_text()
    assert ".refnum/cases" in text and "include-hidden-files: true" in text


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "test_conformance.py").write_text("mine")
    with pytest.raises(FileError, match=r"Nothing was written, as these exist: .*test_conformance\.py"):
        write(tmp_path, "quantize_mxfp4", "OCP")
    assert [path.name for path in tmp_path.iterdir()] == ["test_conformance.py"]
    assert (tmp_path / "test_conformance.py").read_text() == "mine"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_subject_that_is_called_as_its_golden_twin(tmp_path, name):
    from refnum.conformance.cases.levels import Outcome
    from refnum.conformance.commands.check.control_cases import control_cases
    from refnum.conformance.subjects.calls.call import call

    write(tmp_path, name, "TE")
    (subject,) = from_file(str(tmp_path / "kernels_under_test.py"))
    operation = OPERATIONS[name]
    assert list(subject.operations) == [name]
    assert subject.profiles == (("TE",) if operation.profiled else None)
    for params in operation.variants():
        (case,) = control_cases(name, "TE" if operation.profiled else "HOPPER", params)
        assert subject.refuses(name, case.profile, params) == ""
        called = call(subject, case)
        assert called.outcome is Outcome.PASS, (params, called.words)


def test_the_workflow_is_yaml_and_names_what_was_written(tmp_path):
    write(tmp_path, "fp8_to_mxfp4", "HOPPER")
    workflow = yaml.safe_load((tmp_path / ".github/workflows/conformance.yml").read_text())
    lines = " ".join(step.get("run", "") for step in workflow["jobs"]["conformance"]["steps"])
    for name in WRITTEN:
        assert name in lines or name.startswith(".github")


def test_the_commands_of_the_workflow_write_the_summary_and_the_sarif_file(tmp_path):
    """Each `run` line that needs no network, as a runner does: with bash, and a file for the page of the run."""
    write(tmp_path, "pack_payload", "HOPPER")
    kernel = tmp_path / "kernels_under_test.py"
    kernel.write_text(kernel.read_text().replace("return refnum.pack_payload(", "return ~refnum.pack_payload("))
    steps = yaml.safe_load((tmp_path / ".github/workflows/conformance.yml").read_text())["jobs"]["conformance"]["steps"]
    lines = [step["run"] for step in steps if "refnum check" in step.get("run", "") or "report" in step.get("run", "")]
    assert len(lines) == 2
    scripts = Path(sys.executable).parent
    settings = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "page.md"}
    codes = [subprocess.run(["bash", "-e", "-c", line], cwd=tmp_path, env=settings).returncode for line in lines]
    assert codes == [1, 0]
    assert "pack_payload" in (tmp_path / "page.md").read_text() and "mismatch" in (tmp_path / "page.md").read_text()
    found = json.loads((tmp_path / "conformance.sarif").read_text())["runs"][0]["results"]
    assert found and found[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(kernel.name)
    uploads = [step["with"] for step in steps if "upload-sarif" in step.get("uses", "")]
    assert [step["sarif_file"] for step in uploads] == ["conformance.sarif"]


@pytest.mark.parametrize(
    ("operation", "profile", "error"), [("no", "OCP", ArgumentError), ("encode_e2m1", "no", ProfileError)]
)
def test_unknown_names_are_refused(tmp_path, operation, profile, error):
    with pytest.raises(error):
        write(tmp_path, operation, profile)
    assert not list(tmp_path.iterdir())
