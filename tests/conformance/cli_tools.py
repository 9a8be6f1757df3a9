"""What the tests of commands share: a right and a wrong kernel in files, and the command line in this process."""

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.check.controls import verify
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


def apart(work, folder, timeout=120.0, **settings):
    """Run some work in a fork of this process, in a folder, and return (status, output, error output).

    A command of `refnum` starts in a moment so: its modules are imported, and the controls are judged, already.
    """
    verify()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with warnings.catch_warnings():  # of JAX, which other tests load and the work does not
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            child = os.fork()
        if not child:
            _ended(work, folder, settings, output.fileno(), errors.fileno())
        end = time.monotonic() + timeout
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.005)
        output.seek(0)
        errors.seek(0)
        return SimpleNamespace(
            returncode=os.waitstatus_to_exitcode(found[1]), stdout=output.read(), stderr=errors.read()
        )


def _ended(work, folder, settings, output, errors):
    """Do the work as a process of its own does, and end without what this one was to do at its end."""
    status = 99
    try:
        faulthandler.disable()  # pytest's: it writes to where the tests write
        os.setsid()
        os.chdir(folder)
        os.environ.update(settings)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, way) for number, way in ((0, "r"), (1, "w"), (2, "w")))
        status = work()
    except SystemExit as ending:
        status = ending.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(status or 0))


def command(*words, folder, **more):
    """Run a command line of `refnum` as a process of its own in a folder: (status, output, error output)."""
    return apart(lambda: app([str(word) for word in words]), folder, **more)
