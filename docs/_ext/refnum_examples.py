"""Every Python example is run when its page is read; a wrong output is a warning, so `-W` fails the build.

An example is a fenced block of language `python` with `>>>` prompts. The blocks of a page share their names.
"""

from __future__ import annotations

import doctest
import io
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})python[^\n]*\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


def examples(source: str) -> list[tuple[int, str]]:
    """Return (line number, text) of every fenced Python block with prompts, in order."""
    found = []
    for match in FENCE.finditer(source):
        if ">>>" in match["body"]:
            found.append((source.count("\n", 0, match.start("body")), match["body"]))
    return found


def run_examples(name: str, source: str) -> tuple[int, str]:
    """Run a page's examples in one namespace. Return (number of statements run, report of the failures)."""
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    names: dict[str, Any] = {}
    report = io.StringIO()
    count = 0
    for line, body in examples(source):
        test = parser.get_doctest(body, names, name, name, line)
        result = runner.run(test, out=report.write, clear_globs=False)
        names = test.globs
        count += result.attempted
    return count, report.getvalue()


def _on_read(app: Sphinx, docname: str, content: list[str]) -> None:
    if not app.config.refnum_run_examples:
        return
    _, report = run_examples(docname, content[0])
    if report:
        logger.warning("an example gives another output than the page says:\n%s", report, location=docname)


def setup(app: Sphinx) -> dict[str, Any]:
    """Run the examples on `source-read`, unless `refnum_run_examples` is 0, as for a test beside one that runs them."""
    app.add_config_value("refnum_run_examples", True, "env", bool)
    app.connect("source-read", _on_read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
