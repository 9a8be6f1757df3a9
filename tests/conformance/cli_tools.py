"""What the tests of commands share: a right and a wrong kernel in files, and the command line in this process."""

import pytest
from typer.testing import CliRunner

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
