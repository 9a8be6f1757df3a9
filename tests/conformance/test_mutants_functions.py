"""Functions proved equal, or told apart by a witness; verdicts kept in a file; twins of instructions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from refnum.conformance.commands.mutate.functions import (
    FunctionDomain,
    Rows,
    chooses_between_equals,
    definition,
    settled,
)
from refnum.conformance.commands.mutate.ledger import Ledger
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.other_build import sources, taken
from refnum.conformance.commands.mutate.score import document
from refnum.conformance.commands.mutate.verdict import ENUMERATED, KILLED, OUTSIDE, SURVIVED, Verdict

host = pytest.importorskip("refnum.gpu.host")
twins = pytest.importorskip("refnum.gpu.mutation.instructions")
sources_of_host = pytest.importorskip("refnum.gpu.mutation.host")
if not host.available()[0]:
    pytest.skip(host.available()[1], allow_module_level=True)

TEXT = """#pragma once
#include <cstdint>
namespace refnum {
inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
inline uint32_t places(uint32_t x) {
    if (x < 16) return 4;
    return x > 30 ? 30 : x;
}
}
"""
DOMAIN = {"file": "x.cuh", "function": "places", "axes": "x 0 100", "value": "at::places(x)"}


def change(old: str, new: str) -> Mutant:
    assert TEXT.count(old) == 1
    start = TEXT.index(old)
    return Mutant("x.cuh", TEXT[:start].count("\n") + 1, "test", 1, start, start + len(old), old, new)


def sign(context: str, new: str) -> Mutant:
    """The sign of a comparison, as the operators change it."""
    whole, old = change(context, ""), f" {context.split()[1]} "
    start = whole.start + context.index(old)
    return replace(whole, start=start, end=start + len(old), old=old, new=f" {new} ")


def workshop() -> SimpleNamespace:
    return SimpleNamespace(name="test", texts={"x.cuh": TEXT}, digest=lambda file: "")


def rows(*domains: dict) -> Rows:
    from refnum.gpu.host.build import find_compiler

    return Rows.of({"domain": list(domains), "compiler": find_compiler()})


def verdict_on(mutant: Mutant, tmp_path: Path, *domains: dict) -> Verdict:
    return settled(workshop(), rows(*domains), [Verdict(mutant, SURVIVED)], tmp_path, 1)[0]


def test_a_function_that_is_the_same_everywhere_settles_a_mutant(tmp_path: Path) -> None:
    verdict = verdict_on(change("x > 30 ?", "x >= 30 ?"), tmp_path, DOMAIN)
    assert verdict.status == ENUMERATED and "101 points" in verdict.how


def test_a_function_that_differs_names_a_witness(tmp_path: Path) -> None:
    verdict = verdict_on(change("x < 16", "x < 15"), tmp_path, DOMAIN)
    assert verdict.status == SURVIVED and verdict.how.endswith("x=15")


def test_a_domain_without_a_point_or_of_another_function_settles_nothing(tmp_path: Path) -> None:
    mutant = change("x < 16", "x <= 16")
    assert "no point" in verdict_on(mutant, tmp_path / "a", {**DOMAIN, "where": "x > 100"}).how
    assert verdict_on(mutant, tmp_path / "b", {**DOMAIN, "function": "larger"}).how == ""
    assert verdict_on(mutant, tmp_path / "c", {**DOMAIN, "lines": "30"}).how == ""


def test_equality_may_go_in_and_out_of_a_choice_between_the_same_values() -> None:
    assert chooses_between_equals(sign("a > b ?", ">="), TEXT)
    assert not chooses_between_equals(sign("a > b ?", "<"), TEXT)
    assert not chooses_between_equals(sign("x < 16", "<="), TEXT)
    bounded = "a = last > -24 ? last : -24;"
    place = bounded.index(">")
    assert chooses_between_equals(Mutant("x", 1, "comparison", 1, place, place + 1, ">", ">="), bounded)


def test_what_a_build_has_no_code_of_is_settled_where_nothing_differs_and_else_stays(tmp_path: Path) -> None:
    same, other = change("x > 30 ?", "x >= 30 ?"), change("x < 16", "x < 15")
    found = settled(workshop(), rows(DOMAIN), [Verdict(same, OUTSIDE), Verdict(other, OUTSIDE)], tmp_path, 1)
    assert [verdict.status for verdict in found] == [ENUMERATED, OUTSIDE] and not found[1].how


def test_a_definition_is_whole() -> None:
    start, end = definition(TEXT, "places")
    assert TEXT[start:end].startswith("inline uint32_t places") and TEXT[end - 2 : end] == "\n}"
    assert FunctionDomain(**DOMAIN).has(change("x < 16", "x <= 16"), TEXT)


OVERLOADED = """#pragma once
#include <cstdint>
namespace refnum {
inline uint32_t half(uint32_t low, uint32_t high) { return (low + high) / 2; }
inline uint32_t half(uint32_t x) {
    if (half(x, 0)) return x / 2;
    return 0;
}
}
"""


def test_a_proof_of_one_overload_is_none_of_another(tmp_path: Path) -> None:
    one, two = "half(uint32_t x)", "half(uint32_t low, uint32_t high)"
    start = OVERLOADED.index(" + high")
    mutant = Mutant("x.cuh", 4, "sign", 1, start, start + 3, " + ", " - ")
    here = SimpleNamespace(name="test", texts={"x.cuh": OVERLOADED}, digest=lambda file: "")
    for name, value, status in (
        (one, "at::half(x)", SURVIVED),
        (two, "at::half(x, 0)", ENUMERATED),
        (two, "at::half(0, x)", SURVIVED),
    ):
        domain = {"file": "x.cuh", "function": name, "axes": "x 0 100", "value": value}
        (found,) = settled(here, rows(domain), [Verdict(mutant, SURVIVED)], tmp_path / status / value, 1)
        assert found.status == status, domain
    assert definition(OVERLOADED, two)[1] <= definition(OVERLOADED, one)[0]
    for name in ("half", "half(uint32_t y)", "third"):
        with pytest.raises(ValueError, match="definitions"):
            definition(OVERLOADED, name)


DOMAINS = [(domain, name) for domain in Rows.of(sources_of_host.functions()).domains for name in domain.names]


@pytest.mark.parametrize("domain, name", DOMAINS, ids=lambda one: one if isinstance(one, str) else one.file)
def test_every_domain_names_one_definition(domain: FunctionDomain, name: str) -> None:
    start, end = definition((sources_of_host.HostSources().root / domain.file).read_text(), name)
    assert start < end


_CALL = re.compile(r"\b(\w+)(?:<(?:[^<>()]|<[^<>]*>)*>)?\(")


def calls(text: str) -> set[tuple[str, int]]:
    """Return (name, number of arguments) of what looks like a call in a text, a head of a definition too."""
    found = set()
    for call in _CALL.finditer(text):
        depth, end, count = 1, call.end(), 1
        while depth and end < len(text):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[end], 0)
            count += depth == 1 and text[end] == ","
            end += 1
        found.add((call[1], count))
    return found


def bodies(text: str) -> dict[str, str]:
    """Return name -> what is behind the head, of functions of one definition or of more, and of macros."""
    found: dict[str, str] = {}
    for head in re.finditer(r"^[^\n/;=(]*\b(\w+)\([^;{}]*\)[^;{}()]*\{", text, re.M):
        depth, end = 1, head.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found[head[1]] = found.get(head[1], "") + text[head.end() : end]
    macros = re.finditer(r"^#define (\w+)\([^)]*\)((?:[^\n]*\\\n)*[^\n]*)", text, re.M)
    return {**found, **{macro[1]: macro[2] for macro in macros}}


@pytest.mark.parametrize("domain, name", DOMAINS, ids=lambda one: one if isinstance(one, str) else one.file)
def test_a_domain_calls_every_function_that_it_names(domain: FunctionDomain, name: str) -> None:
    """What its program never enters, it would prove equal whatever the change."""
    here = sources_of_host.HostSources()
    defined = bodies("\n".join([here.functions()["prelude"], *((here.root / file).read_text() for file in here.files)]))
    called, waiting = set(), [domain.value]
    while waiting:
        new = calls(waiting.pop()) - called
        called |= new
        waiting += [defined[one] for one, _ in new if one in defined]
    function, _, parameters = name.partition("(")
    assert {count for one, count in called if one == function} >= ({parameters.count(",") + 1} if parameters else set())
    assert function in {one for one, _ in called}


def test_a_ledger_knows_what_was_judged_but_asks_survivors_again(tmp_path: Path) -> None:
    here, path = workshop(), tmp_path / "ledger.jsonl"
    killed = Verdict(change("x < 16", "x <= 16"), KILLED, "other bytes", vectors=3, changed=("a",))
    survived = Verdict(change("x > 30 ?", "x >= 30 ?"), SURVIVED)
    for verdict in (killed, survived):
        Ledger(path).write(here, verdict)
    path.write_text(path.read_text() + '{"key": "cut o')
    assert Ledger(path).known(here, killed.mutant) == killed
    assert Ledger(path).known(here, survived.mutant) is None
    assert Ledger(path).known(here, replace(killed.mutant, new="x < 17")) is None


def test_a_ledger_knows_nothing_of_a_mutant_that_is_built_from_other_sources(tmp_path: Path) -> None:
    here, ledger = workshop(), tmp_path / "ledger.jsonl"
    killed = Verdict(change("x < 16", "x <= 16"), KILLED, "other bytes")
    Ledger(ledger).write(here, killed)
    assert Ledger(ledger).known(here, killed.mutant) == killed
    here.digest = lambda file: "another header, or another compiler"
    assert Ledger(ledger).known(here, killed.mutant) is None


def test_a_proof_holds_for_every_subject_until_a_header_of_the_function_changes(tmp_path: Path) -> None:
    one, other, ledger = workshop(), workshop(), Ledger(tmp_path / "ledger.jsonl")
    mutant = change("x > 30 ?", "x >= 30 ?")
    texts = {"x.cuh": '#include "y.cuh"\n', "y.cuh": "", "z.cuh": ""}
    ledger.write(one, Verdict(mutant, ENUMERATED, "at 101 points"))
    other.name = "other"
    found = settled(other, rows(), [Verdict(mutant, SURVIVED)], tmp_path, 1, Ledger(ledger.path))[0]
    assert found.status == ENUMERATED and found.how == "at 101 points"
    one.texts = texts
    ledger.write(one, Verdict(mutant, ENUMERATED, "at 101 points"))
    other.texts = {**texts, "z.cuh": "other"}
    assert Ledger(ledger.path).proof(other, mutant) is not None
    other.texts = {**texts, "y.cuh": "other"}
    assert Ledger(ledger.path).proof(other, mutant) is None


FAR = {"file": "x.cuh", "function": "larger", "axes": "a 0 9; b 0 9", "value": "at::larger(a, b)"}


@pytest.mark.parametrize(
    ("then", "holds"),
    [
        (rows(DOMAIN), True),
        (rows(DOMAIN, FAR), True),
        (rows({**DOMAIN, "axes": "x 0 101"}), False),
        (rows(DOMAIN, {**DOMAIN, "where": "x > 3"}), False),
        (rows(FAR), False),
        (replace(rows(DOMAIN), prelude="static const int table[1] = {0};"), False),
        (replace(rows(DOMAIN), flags=("-DREFNUM_CHECKED",)), False),
    ],
    ids=["the same", "another function's too", "more arguments", "one more", "none", "another prelude", "another flag"],
)
def test_a_proof_holds_while_it_asks_the_same(then: Rows, holds: bool, tmp_path: Path) -> None:
    here, path = workshop(), tmp_path / "ledger.jsonl"
    proved = Verdict(change("x > 30 ?", "x >= 30 ?"), ENUMERATED, "at 101 points")
    Ledger(path, rows(DOMAIN).digest).write(here, proved)
    kept = Ledger(path, then.digest)
    for found in (kept.proof(here, proved.mutant), kept.known(here, proved.mutant)):
        assert found == (proved if holds else None)


def test_what_a_build_has_no_code_of_takes_its_verdict_from_a_run_on_the_same_text() -> None:
    mutant, texts = change("x < 16", "x <= 16"), {"x.cuh": TEXT}
    killed = Verdict(mutant, KILLED, "other bytes", "pack", "corner: one")
    run = document([killed, Verdict(change("x > 30 ?", "x >= 30 ?"), SURVIVED)], subject="gpu", sources=sources(texts))
    (told,) = taken([Verdict(mutant, OUTSIDE)], run, texts)
    assert (told.status, told.operation, told.how) == (KILLED, "pack", "by gpu: other bytes")
    assert taken([Verdict(mutant, SURVIVED)], run, texts)[0].status == SURVIVED
    assert taken([Verdict(replace(mutant, new="x < 17"), OUTSIDE)], run, texts)[0].status == OUTSIDE
    assert taken([Verdict(mutant, OUTSIDE)], run, {"x.cuh": TEXT + " "})[0].status == OUTSIDE


@pytest.mark.parametrize(
    "name, words, promised", list(twins.questions()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_twin_does_what_its_instruction_does(name: str, words: dict, promised: np.ndarray) -> None:
    assert promised.size and np.array_equal(twins.ask(name, **words), promised)
