"""Console blocks marked `<!-- runnable -->`: what they run, and the output they promise."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"<!-- runnable(?:: exit (?P<exit>\d+))?(?:: needs (?P<needs>\w+))?(?P<slow>, slow)? -->\s*"
    r"```console\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A command line, its exit status and its output with `...` for anything."""

    line: int
    command: str
    expected: str
    exit: int
    slow: bool
    needs: str = ""


def blocks(text):
    """Return every command of the marked console blocks of a page."""
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        parts = re.split(r"^\$ ", match["body"], flags=re.MULTILINE)[1:]
        for part in parts:
            command, _, expected = part.partition("\n")
            while command.endswith("\\"):
                more, _, expected = expected.partition("\n")
                command = command[:-1] + more
            found.append(
                Block(line, command, expected, int(match["exit"] or 0), bool(match["slow"]), match["needs"] or "")
            )
    return found


def run(block):
    """Run a command from the root of the repository. Return (exit status, output without trailing blanks)."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        block.command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    output = "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
    return done.returncode, output, done.stderr


def agrees(expected, output):
    """Whether the output is the promised one; `...` stands for anything, runs of blanks are equal."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, output, flags)
