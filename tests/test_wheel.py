"""The wheel puts one package into site-packages, and works in a repository that has packages of the same names."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).resolve().parents[1]
KERNEL = """
import refnum

def dequantize_mxfp4(packed, scales, dtype="float32"):
    return refnum.dequantize_mxfp4(packed, scales, dtype)
"""
THEIRS = ("gpu", "conformance", "vectors", "tests", "tools")
"""Packages that a user's repository has of its own."""
TEST = """
import pytest

import conformance, gpu, tests, tools, vectors
from kernel import dequantize_mxfp4

assert {module.WHOSE for module in (conformance, gpu, tests, tools, vectors)} == {"the user's"}

@pytest.mark.conforms("dequantize_mxfp4", level="smoke")
def test_kernel():
    return dequantize_mxfp4
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Return a fresh environment's Python with the wheel installed; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    target = next(folder.glob("lib/python*/site-packages"))
    interpreter = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for path in Path(np_folder()).iterdir():
        if "refnum" not in path.name:
            (dependencies / path.name).symlink_to(path)
    (target / "dependencies.pth").write_text(f"{dependencies}\n")
    return interpreter


def np_folder():
    """Return the site-packages folder of this environment."""
    import numpy

    return Path(numpy.__file__).parents[1]


@pytest.fixture
def repository(tmp_path):
    """Return the root of a repository with packages of its own by every name of ours."""
    for name in THEIRS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('WHOSE = "the user\'s"\n')
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "tests" / "test_kernel.py").write_text(TEST)
    return tmp_path


def run(python, folder, *words):
    """Run a command in a folder, with nothing of this checkout on the path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run([str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_it_is_one_package_at_the_top(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    assert {name.partition("/")[0] for name in names} == {"refnum", re.sub(r"-py3.*", ".dist-info", wheel.name)}
    parts = {"/".join(name.split("/")[:2]) for name in names}
    assert {
        f"refnum/{part}" for part in ("gpu", "conformance", "training", "vectors", "py.typed", "__init__.pyi")
    } <= parts
    assert any(name.endswith("kernels/quantize_mxfp4.cu") for name in names)
    assert {f"refnum/conformance/guides/{name}.md" for name in ("c-abi", "line-protocol")} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_the_installed_package_is_whole(python, tmp_path):
    code = (
        "import refnum, refnum.gpu, refnum.conformance.cli as cli, refnum.conformance.vectors.folder as folder\n"
        "from pathlib import Path\n"
        "assert 'site-packages' in refnum.__file__ and (folder.vectors_folder() / 'notes.json').is_file()\n"
        "for name in cli.COMMANDS:\n"
        "    try: cli.load(name)\n"
        "    except cli.typer.BadParameter as error: assert 'install refnum[training]' in str(error)"
    )
    assert run(python, tmp_path, python, "-c", code) == (0, "")


def test_pytest_and_the_plugin_run_in_a_repository_with_packages_of_the_same_names(python, repository):
    status, text = run(python, repository, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert status == 0 and "1 passed" in text, text


def test_guides_and_schemas_are_printed(python, tmp_path):
    status, text = run(python, tmp_path, python.parent / "refnum", "docs", "c-abi")
    assert status == 0 and "int dequantize" in text
    status, text = run(python, tmp_path, python.parent / "refnum", "docs", "line-protocol", "--schema")
    assert status == 0 and "refnum line protocol" in text


def test_the_command_runs_there(python, repository):
    status, text = run(
        python, repository, python.parent / "refnum", "check", "--level", "smoke", "-s", "kernel.py:dequantize_mxfp4"
    )
    assert status == 0 and "dequantize_mxfp4" in text and "pass" in text, text


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_action_s_command_runs_there(python, repository):
    yaml = pytest.importorskip("yaml")
    steps = {step["name"]: step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]}
    given = {"PYTHON": python, "SUBJECTS": "kernel.py:dequantize_mxfp4", "OPERATIONS": "", "PROFILES": "", "SEED": "0"}
    given |= {"LEVEL": "smoke", "REPORT": "report", "GITHUB_OUTPUT": repository / "output"}
    script = "\n".join(f"export {name}='{value}'" for name, value in given.items())
    status, text = run(python, repository, "bash", "-e", "-c", f"{script}\n{steps['Judge']['run']}")
    assert status == 0 and "status=0" in (repository / "output").read_text(), text
