"""Command lines of `refnum` in processes that fork from one that has imported them and judged the controls already.

A process of its own starts for more than a second before it does what a test asks of it. A fork of a warm one is as
much a process: its arguments, folder, environment and files are its own, and what it does to itself it does to nobody
else. That the command line starts cold is what the tests of the pages' commands run.
"""

import atexit
import contextlib
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from pathlib import Path

MODULE = "refnum.conformance.cli"


class Warm:
    """A warm process, and what it is asked."""

    process = None

    def start(self):
        """Start it; it ends with this process, which also holds its standard input."""
        path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, **path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        atexit.register(self.close)

    def run(self, words, folder, timeout, environment):
        """Run a command line, as `subprocess.run` does: (status, output, error output)."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        with tempfile.TemporaryDirectory() as name:
            files = [str(Path(name) / stream) for stream in ("output", "errors")]
            asked = {"words": words, "folder": os.path.abspath(folder), "environment": environment, "files": files}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                self.close()
                raise subprocess.TimeoutExpired(words, timeout)
            status = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(words, status, *(Path(file).read_text() for file in files))

    def close(self):
        """End it with all that it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()


WARM = Warm()
"""The one of this process: to import all commands and to judge the controls takes seconds."""


def serve():
    """Fork for every line of standard input and tell how the fork ended; return in the fork, to run its command."""
    with open(0, "rb", buffering=0, closefd=False) as lines:
        while line := lines.readline():
            asked = json.loads(line)
            if not (child := os.fork()):
                return asked
            os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return None


def become(asked):
    """Make this process one that was started for a command line."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, path in enumerate((os.devnull, *asked["files"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.path[0] = os.getcwd()
    sys.argv[1:] = asked["words"]
    del sys.modules[MODULE]


if __name__ == "__main__":
    import importlib

    from refnum.conformance.commands.check import controls

    for place, _ in importlib.import_module(MODULE).COMMANDS.values():
        if not place.startswith("refnum."):  # those of other packages need torch
            importlib.import_module(f"refnum.conformance.commands.{place.partition(':')[0]}")
    controls.verify()
    if asked := serve():
        become(asked)
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
