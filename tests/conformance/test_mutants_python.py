"""The golden model and the comparator, mutated: examples of the operators, and mutants told apart."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from refnum.conformance.commands.mutate.accepted import Reason
from refnum.conformance.commands.mutate.command import report
from refnum.conformance.commands.mutate.forked import call_forked
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.run import judge
from refnum.conformance.commands.mutate.verdict import KILLED, SURVIVED
from refnum.errors import UnsupportedError
from tools.mutation import __main__ as entry
from tools.mutation import python as room
from tools.mutation.coverage import Coverage, _recorded_here, record, statement
from tools.mutation.line_trace import ROOT, Recorder, module_of
from tools.mutation.python_operators import OPERATORS, PythonOperator, mutants_of
from tools.mutation.python_targets import TARGETS

FRESH = "REFNUM_TESTED_IN_A_FRESH_PROCESS"
TEXT = '''"""A constant 3 in words."""

def take(x: int = 5) -> int:
    """Return 4 at most."""
    if x < 0:
        raise ValueError(x - 1)
    return min(x + 2, 4)
'''


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.name)
def test_an_example_gives_its_mutants(operator: PythonOperator) -> None:
    text, wanted = operator.example
    assert tuple(m.applied(text) for m in mutants_of("x.py", text) if m.operator == operator.name) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = -(a + b)", ("x = (a + b)",)),
        ("x = not (a if b else c)", ("x = (a if b else c)",)),
        ("x = -(-a // b)", ("x = (-a // b)", "x = -(a // b)")),
        ("x = a and b and (c)", ("x = a or b and (c)", "x = a and b or (c)")),
        ("x = 0 < a <= (b)", ("x = 0 <= a <= (b)", "x = 0 < a < (b)")),
    ],
)
def test_signs_before_parentheses_and_every_one_of_several_conditions(text: str, wanted: tuple[str, ...]) -> None:
    made = [m.applied(text) for m in mutants_of("x.py", text) if m.operator in ("sign", "boolean", "comparison")]
    assert tuple(made) == wanted
    for each in made:
        compile(each, "x.py", "exec")


def test_words_and_checks_of_arguments_are_left_alone() -> None:
    lines = {mutant.line for mutant in mutants_of("x.py", TEXT)}
    assert lines == {3, 7}


@pytest.fixture(scope="module")
def model() -> room.Modules:
    """A model that is asked a few vectors alone."""
    from refnum.conformance.vectors.frozen import frozen_cases

    room._questions[:] = [
        (case.label, case.operation, case.profile, dict(case.params), dict(case.inputs), tuple(outputs.values()))
        for case, outputs in frozen_cases("encode_e2m1", "HOPPER", {"input": "float32"})
    ]
    assert room._questions
    yield room.Modules.open(TARGETS[0])
    room._questions.clear()


@pytest.fixture(scope="module")
def covered(model: room.Modules) -> room.Modules:
    """The model, with what runs which line, of those vectors and of one file of tests."""
    model.target = replace(model.target, tests=("tests/refnum/test_philox.py",))
    model.tested = True
    model.prepare((), 2)
    return model


class Everything(Coverage):
    """Everything is said to run every line."""

    def of(self, mutant: Mutant, text: str) -> tuple[Sequence[int], list[str]]:
        return range(self.asked), sorted(self.seconds)


def test_a_wrong_model_is_seen_by_a_vector(model: room.Modules) -> None:
    file, every = "refnum/rounding.py", range(room.model_questions())
    text = model.text(file)
    assert call_forked(lambda: room._asked(model.target, file, text, every), 60) == {}
    whole = replace(model, coverage=Everything(asked=len(every)))
    kills = [judge(whole, mutant) for mutant in mutants_of(file, text)[:12]]
    assert any(verdict.status == KILLED and verdict.case for verdict in kills)


def asked(model: room.Modules, file: str, text: str, broken: bool = False) -> dict[str, str]:
    """Ask a changed text the first questions; broken: where no one can import `refnum.scales`."""

    def work() -> Mapping[str, str]:
        if broken:
            sys.meta_path.insert(0, Missing())
        return room._asked(model.target, file, text, range(4))

    return dict(call_forked(work, 60))


class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "refnum.scales":
            raise ImportError("no scales here", name=name)


RAISES = "\ndef encode_bits(*args, **keywords):\n    {}\n"


@pytest.mark.parametrize("where", ["raise MemoryError('too large')", RAISES.format("raise MemoryError('too large')")])
def test_too_little_memory_is_no_kill(model: room.Modules, where: str) -> None:
    found = asked(model, CODEC, model.text(CODEC) + "\n" + where)
    assert found == {"status": SURVIVED, "how": "not judged: MemoryError: too large"}


@pytest.mark.parametrize("where", ["import no_such", RAISES.format("import no_such"), RAISES.format("eval('1 +')")])
def test_an_import_that_the_change_alone_breaks_is_a_kill(model: room.Modules, where: str) -> None:
    found = asked(model, CODEC, model.text(CODEC) + "\n" + where)
    assert found["status"] == KILLED and found["how"] == "other bytes" and "Error" in found["case"]


def test_an_import_that_breaks_without_the_change_too_is_no_kill(model: room.Modules) -> None:
    found = asked(model, CODEC, model.text(CODEC), broken=True)
    assert found == {"status": SURVIVED, "how": "not judged: ImportError: no scales here"}


def test_a_package_is_changed_and_its_modules_stay_what_they_are(model: room.Modules) -> None:
    def told() -> dict[str, str]:
        room.with_change(
            "refnum/__init__.py", (ROOT / "refnum/__init__.py").read_text() + "\n__version__ = 'changed'\n"
        )
        package, module = (importlib.import_module(name) for name in ("refnum", "refnum.errors"))
        return {"version": package.__version__, "module": str(module.ScaleError.__name__)}

    assert module_of("refnum/__init__.py") == "refnum"
    assert call_forked(told, 60) == {"version": "changed", "module": "ScaleError"}


def test_a_test_that_runs_out_of_memory_is_no_kill(tmp_path: Path) -> None:
    path = tmp_path / "test_large.py"
    path.write_text("def test_large():\n    raise MemoryError('too large')\n\n\ndef test_wrong():\n    assert 0\n")
    for name, status in (("test_large", SURVIVED), ("test_wrong", KILLED)):
        found = call_forked(lambda name=name: room._tested([f"{path}::{name}"]), 60)
        assert found["status"] == status, found


LIMITS = {
    "memory": ("    bytearray(1 << 40)", "by limit of memory: more than 4 GiB"),
    "CPU time": ("    while True:\n        pass", "by limit of CPU time: did not come back"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_mutant_beyond_a_limit_is_killed_and_the_report_says_by_which(
    model: room.Modules, limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unchanged text stays far below either."""
    monkeypatch.setattr(room.Modules, "SECONDS", 5)
    text, (body, how) = model.text(CODEC), LIMITS[limit]
    greedy = Mutant(CODEC, 1, "test", 1, len(text), len(text), "", RAISES.format(body.lstrip()))
    idle = replace(greedy, new="\n")
    whole = replace(model, coverage=Everything(asked=4))
    verdicts = [judge(whole, greedy), judge(whole, idle)]
    assert [verdict.status for verdict in verdicts] == [KILLED, SURVIVED]
    with pytest.raises(typer.Exit):
        report("model", verdicts, None)
    assert how in " ".join(capsys.readouterr().out.split())


def test_a_control_that_runs_out_of_memory_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(control: Any) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr("refnum.conformance.commands.check.controls.check_control", check)
    with pytest.raises(MemoryError):
        room.ask_comparator(0)


def test_what_runs_a_line_sees_as_much_as_everything(request: pytest.FixtureRequest) -> None:
    """Elements of tables that are kept, constants of a module, functions that tests alone run, and lines of no use.

    In a process of its own: what other tests have imported has threads, which a forked recorder may wait for.
    """
    if FRESH not in os.environ:
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", request.node.nodeid]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(words, cwd=room.ROOT, env={**kept, FRESH: "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return
    model = request.getfixturevalue("covered")
    coverage = model.coverage
    whole = replace(model, coverage=Everything(asked=coverage.asked, seconds=coverage.seconds))
    seen = set()
    for file in ("refnum/codec.py", "refnum/philox.py", "refnum/formats.py", "refnum/blocks.py"):
        text = model.text(file)
        for mutant in mutants_of(file, text)[::90]:
            questions, _ = coverage.of(mutant, text)
            some, every = judge(model, mutant), judge(whole, mutant)
            assert some.status == every.status, mutant
            seen.add((some.status, len(questions) < coverage.asked))
    assert seen >= {(KILLED, True), (KILLED, False), (SURVIVED, True)}


def test_lines_of_a_table_count_for_all_that_read_it() -> None:
    recorder = Recorder([FILE])
    recorder._files = {__file__: FILE}
    made = recorder.cache(_double)
    read = []
    for _ in range(2):
        with recorder.listening() as lines:
            assert made(4) == 8
        read.append(lines)
    assert read[0] == read[1] == {(FILE, _double.__code__.co_firstlineno + 1)}


NAMED = """
import pytest

@pytest.mark.parametrize("given", [object(), 1, None], ids=str)
def test_of(given):
    assert given
"""


def test_a_test_whose_name_has_an_address_is_not_asked_for_no_other_process_finds_it(tmp_path: Path) -> None:
    (tmp_path / "test_named.py").write_text(NAMED)
    found = call_forked(lambda: {"tests": [*_recorded_here((), str(tmp_path / "test_named.py"), 0, 1)]}, 60)
    assert [name.partition("::")[2] for name in found["tests"]] == ["test_of[1]"]


@functools.cache
def changes(file: str) -> tuple[str, list[Mutant]]:
    """Return the text of a file and its mutants, of which several reasons speak."""
    text = (room.ROOT / file).read_text()
    return text, mutants_of(file, text)


@pytest.mark.parametrize("row", room.reasons(), ids=lambda row: f"{row.file}: {row.text}")
def test_every_reason_is_still_about_something(row: Reason) -> None:
    text, mutants = changes(row.file)
    for other in row.becomes:
        one = Reason(row.file, row.text, (other,), row.because)
        assert any(one.covers(mutant, text) for mutant in mutants), other
    assert len(row.because.split()) > 4


FEW = """
import sys
from dataclasses import replace
from refnum.conformance.vectors.frozen import frozen_cases
from tools.mutation import __main__ as entry, python
python._questions[:] = [
    (case.label, case.operation, case.profile, dict(case.params), dict(case.inputs), tuple(outputs.values()))
    for case, outputs in frozen_cases("encode_e2m1", "HOPPER", {"input": "float32"})
]
entry.TARGETS = (replace(entry.TARGETS[0], files=("refnum/rounding.py", "refnum/scales.py")),)
entry.app(sys.argv[1:])
"""


def test_the_entry_of_a_checkout_writes_its_verdicts_and_goes_on_from_its_ledger(tmp_path: Path) -> None:
    ledger, out = tmp_path / "ledger.jsonl", tmp_path / "out.json"
    words = ["model", "--file", "refnum/r*.py", "--sample", "6", "--seed", "4", "--workers", "1"]
    words += ["--ledger", str(ledger), "--out", str(out)]
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FEW, *words], cwd=room.ROOT, capture_output=True, text=True)
        found = json.loads(out.read_text())
        statuses = [row["status"] for row in found["mutants"]]
        assert done.returncode == int(SURVIVED in statuses), done.stderr
        assert (found["schema"], found["subject"], len(statuses)) == ("refnum.mutation/1", "model", 6)
        assert {row["file"] for row in found["mutants"]} == {"refnum/rounding.py"}
        assert KILLED in statuses and "Mutants of model" in done.stdout
    kept = [json.loads(line)["status"] for line in ledger.read_text().splitlines()]
    assert len(kept) == 6 + statuses.count(SURVIVED)  # survivors alone are asked again


def test_nothing_is_judged_where_the_unchanged_sources_answer_wrongly() -> None:
    def questions(_: Recorder) -> Iterator[frozenset[tuple[str, int]]]:
        raise AssertionError("control equal: misjudged")
        yield frozenset()

    with pytest.raises(UnsupportedError, match=r"nothing can be judged.*control equal: misjudged"):
        record((), questions, (), 1, TARGETS[1].memory)


def test_a_target_that_does_not_exist_is_answered_with_those_that_do() -> None:
    done = CliRunner().invoke(entry.app, ["kernels"])
    assert done.exit_code == 2 and "choose from model, comparator" in done.output


CODEC = "refnum/codec.py"
FILE = "tests/conformance/test_mutants_python.py"


def _double(n: int) -> int:
    return 2 * n


def test_a_statement_has_all_its_lines() -> None:
    text = "if (a\n        and b):\n    c = [\n        1,\n    ]\n"
    assert [list(statement(text, line)) for line in (1, 2, 4)] == [[1, 2], [1, 2], [3, 4, 5]]


def test_every_file_that_tests_a_verdict_is_among_the_tests_of_the_comparator() -> None:
    modules = "|".join(re.escape(module_of(file)) for file in TARGETS[1].files if "/verdicts/" in file)
    imports = re.compile(rf"^from ({modules}) import", re.M)
    files = (path for path in (room.ROOT / "tests").rglob("test_*.py") if imports.search(path.read_text()))
    assert {str(path.relative_to(room.ROOT)) for path in files} <= set(TARGETS[1].tests)


def test_a_comparator_that_holds_everything_equal_is_seen_by_a_control() -> None:
    comparator = room.Modules.open(TARGETS[1])
    file, every = "conformance/verdicts/compare.py", range(room.control_questions())
    text = comparator.text(file)
    blind = "def compare(*args, **kwargs):\n    return Comparison(compared=1)\n"
    found = call_forked(lambda: room._asked(comparator.target, file, text + "\n" + blind, every), 120)
    assert found["status"] == KILLED and "control" in found["case"]
    assert call_forked(lambda: room._asked(comparator.target, file, text, every), 120, comparator.memory) == {}
    assert SURVIVED not in found.values()
