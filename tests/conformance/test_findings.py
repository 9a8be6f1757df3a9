"""The table of findings: every name that is used stands in it, and every one in it can be reproduced."""

import ast
import json
import re
from pathlib import Path

import pytest

from refnum.conformance.cases.findings import FINDINGS, NAMED_BY_CALLS, Finding, Shown, found_by
from refnum.conformance.subjects.controls import controls
from refnum.conformance.subjects.isolation import parent
from refnum.conformance.verdicts import reproduce
from refnum.conformance.verdicts.elsewhere import MOVED

ROOM = Path(__file__).parents[2] / "conformance"
MAKERS = {"Called", "Judged", "Failure", "Elsewhere", "Problem", "_breach", "replace"}
NAME = re.compile(r"[a-z]+(-[a-z]+)+")


def named():
    """Yield (place, finding) of every literal finding in a call that makes one."""
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "finding")]
                for value in given:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str) and NAME.fullmatch(value.value):
                        yield f"{path.relative_to(ROOM)}:{value.lineno}", value.value


def test_every_finding_that_is_made_stands_in_the_table():
    found = list(named())
    assert len(found) >= 10
    assert [(place, name) for place, name in found if name not in set(Finding)] == []
    assert {control.finding for control in controls()} <= {"", *Finding}
    assert {storage.finding for storage in MOVED} <= found_by(Shown.BYTES)


def test_every_finding_of_the_table_is_reproduced_by_its_calls():
    moved = {storage.finding for storage in MOVED}
    assert set(reproduce._IN_TURN) | moved == found_by(Shown.BYTES)
    later = found_by(Shown.LATER_CALL, Shown.LATER_BYTES) - {Finding.NOT_THREAD_SAFE}
    assert later <= set(reproduce._SECOND) <= {*later, Finding.NOT_THREAD_SAFE}
    for finding in Finding:
        plain = reproduce.again(finding) is reproduce._plain
        assert plain == (finding.shown in (Shown.RESULT, Shown.QUESTION, Shown.END)) or finding == "not-thread-safe"


@pytest.mark.parametrize("finding", Finding)
def test_what_crosses_processes_is_what_a_call_names(finding):
    one = {"outcome": "mismatch", "words": "w", "finding": str(finding), "results": 0}
    (called,) = parent._calls({"calls": [one]}, [])
    assert called.finding == (finding if finding in NAMED_BY_CALLS else "input-mutated")
    assert json.dumps(finding) == f'"{finding.value}"' and finding.words and "." not in finding.words[-1]
    assert (finding in FINDINGS) == (finding.shown is Shown.RESULT)
