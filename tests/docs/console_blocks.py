"""Console blocks marked `<!-- runnable -->`: what they run, and the output they promise.

The mark may say more: `runnable: exit 1` (status of the last command), `runnable: needs TOOL`, `, slow`, and
`, any numbers`: the page shows one run's counts and seconds, another run may have others.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from warm_commands import WARM

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"<!-- runnable(?:: exit (?P<exit>\d+))?(?:: needs (?P<needs>\w+))?(?P<slow>, slow)?"
    r"(?P<loose>, any numbers)? -->\s*"
    r"```console\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


class Step(NamedTuple):
    """A command line and its output, with `...` for anything."""

    command: str
    expected: str


class Block(NamedTuple):
    """The steps of one block, which run in order, and the exit status of the last."""

    line: int
    steps: tuple[Step, ...]
    exit: int = 0
    slow: bool = False
    needs: str = ""
    loose: bool = False


def blocks(text):
    """Return the marked console blocks of a page."""
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        steps = []
        for part in re.split(r"^\$ ", match["body"], flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            while command.endswith("\\"):
                more, _, expected = expected.partition("\n")
                command = command[:-1] + more.lstrip()
            steps.append(Step(command, expected))
        flags = bool(match["slow"]), match["needs"] or "", bool(match["loose"])
        found.append(Block(line, tuple(steps), int(match["exit"] or 0), *flags))
    return found


_checked = {}
"""What checks of the examples printed, by their options: several pages show parts of one run."""


def run(command):
    """Run a command from the root of the repository. Return (exit status, output, errors).

    A check of an example is run once, whatever the order of its options; one of what a page has built, each time.
    """
    match = re.fullmatch(r"refnum check((?: --\w+ [\w/.:]+)+)", command)
    if match is None or "build/" in command:
        return _run(command)
    options = frozenset(match[1].split(" --"))
    if options not in _checked:
        _checked[options] = _run(command)
    return _checked[options]


def _run(command):
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    environment.pop("COLUMNS", None)  # pages show tables whole
    if command.startswith("refnum ") and not set(command) & set("|&;<>$*'\"\\"):
        done = WARM.run(command.split()[1:], ROOT, 900, environment)
        return done.returncode, done.stdout, done.stderr
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout, done.stderr


def agrees(expected, output, loose=False):
    """Whether the output is the promised one; `...` stands for anything, runs of blanks are equal.

    loose: numbers that stand alone are equal, too.
    """
    if loose:
        expected, output = (re.sub(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)", "0", text) for text in (expected, output))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, output, flags)
