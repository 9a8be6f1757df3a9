"""What the tests of commands share: a right and a wrong kernel in files, and the command line in this process."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner
from warm_commands import WARM

from refnum.conformance.cli import app
from refnum.conformance.subjects.loading import discover

RIGHT = """
import refnum

def quantize_mxfp4(x, profile):
    return refnum.quantize_mxfp4(x, profile)
"""
WRONG = """
import refnum

def quantize_mxfp4(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))
"""


def refnum(*words):
    """Run a command line and return what came of it."""
    return CliRunner().invoke(app, [str(word) for word in words])


def alone(folder, patch):
    """Go to a folder with both kernels, where no subject is installed."""
    patch.chdir(folder)
    patch.setattr(discover, "installed", lambda: ([], []))
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)


def failed_run(folder):
    """Return a finished run of the wrong kernel, which leaves a report and a replay file in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        alone(folder, patch)
        words = "check -s wrong.py -o quantize_mxfp4 -p HOPPER --level smoke --report r.json"
        return refnum(*words.split())


def apart(module, *words, folder, timeout=120.0, **settings):
    """Run a module in a process of its own in a folder: (status, output, error output)."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def command(*words, folder, timeout=120.0, **settings):
    """Run a command line of `refnum` in a process of its own in a folder: (status, output, error output)."""
    path = os.pathsep.join(path for path in sys.path if path)
    return WARM.run(list(map(str, words)), folder, timeout, {**os.environ, "PYTHONPATH": path, **settings})
