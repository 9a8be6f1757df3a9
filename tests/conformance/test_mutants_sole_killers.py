"""What a frozen vector alone kills: counted to two, deaths included, and written as a page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.mutate import command, corpus, sole_killers
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.run import judge
from refnum.conformance.commands.mutate.sole_killers import VectorsOnly
from refnum.conformance.commands.mutate.verdict import KILLED, OUTSIDE, REFUSED, SURVIVED, Verdict

mutants_tools = pytest.importorskip("mutants_tools")
host = pytest.importorskip("refnum.gpu.host")

if not host.available()[0]:
    pytest.skip(host.available()[1], allow_module_level=True)

FILE, LIFT = "fp8_to_mxfp4.cuh", "    const int32_t lift = amax < 8"
TIES = ("0x07070707u; }", "0x08080808u; }")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VectorsOnly]:
    """A host workshop that knows the vectors of one operation under one profile."""
    whole = sole_killers.vectors_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sole_killers, "vectors_of", lambda name, profiles: whole(name, ("HOPPER",)) * (name == "fp8_to_mxfp4")
        )
        yield VectorsOnly.open(mutants_tools.sources_of("recast.cpp", "blocks.cpp"), tmp_path_factory.mktemp("alone"))


def change(library: VectorsOnly, old: str, new: str) -> Mutant:
    text = library.texts[FILE]
    assert text.count(old) == 1
    return Mutant(FILE, 1, "test", 1, text.index(old), text.index(old) + len(old), old, new)


@pytest.mark.parametrize(
    ("old", "new", "status", "vectors"),
    [
        (*TIES, KILLED, 2),
        (LIFT, "    if (amax != 12345) __builtin_trap();\n" + LIFT, KILLED, 2),
        (LIFT, "    int idle = 0;\n    idle += 1;\n" + LIFT, SURVIVED, 0),
        ("#pragma once", "#pragma once\n// other words", OUTSIDE, -1),
        ("return x + (x >> 4", "return y + (x >> 4", REFUSED, -1),
    ],
    ids=["wrong", "dies in every vector", "right", "no code", "no C++"],
)
def test_a_mutant_is_asked_until_two_vectors_see_it(
    library: VectorsOnly, old: str, new: str, status: str, vectors: int
) -> None:
    verdict = judge(library, change(library, old, new))
    assert (verdict.status, verdict.vectors, verdict.only) == (status, vectors, "")


def test_the_only_vector_that_sees_a_mutant_is_named(library: VectorsOnly, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, vectors = change(library, *TIES), library.questions("fp8_to_mxfp4")
    first = judge(library, mutant).case
    after = next(number for number, one in enumerate(vectors) if one.label == first) + 1
    monkeypatch.setitem(library._questions, "fp8_to_mxfp4", vectors[:after])
    verdict = judge(library, mutant)
    assert (verdict.status, verdict.vectors, verdict.only, verdict.operation) == (KILLED, 1, first, "fp8_to_mxfp4")


def test_what_breaks_the_judge_is_no_kill(library: VectorsOnly, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of memory, or of time on a crowded host, is not seen by a vector: nothing is known then."""
    mutant, answer = change(library, *TIES), corpus.answer
    labels = [question.label for question in library.questions("fp8_to_mxfp4")]

    def short(function: Any, question: Any) -> Any:
        if question.label == labels[0]:
            raise MemoryError("no room")
        return answer(function, question)

    monkeypatch.setattr(corpus, "answer", short)
    verdict = judge(library, mutant)
    assert (verdict.status, verdict.how) == (SURVIVED, "not judged: MemoryError: no room")
    assert (verdict.vectors, verdict.only) == (-1, "")
    monkeypatch.setattr("refnum.conformance.commands.mutate.forked.PATIENCE", 0.1)
    monkeypatch.setattr(corpus, "answer", lambda function, question: time.sleep(60))
    verdict = judge(library, mutant)
    assert verdict.status == SURVIVED and verdict.how.startswith("not judged: no answer within 0.5 s, in which it had")


def test_the_page_is_made_from_a_sample_and_again_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sole_killers, "vectors_of", lambda name, profiles: ())
    seen = lambda workshop, chosen, workers: (  # noqa: E731
        Verdict(one, KILLED, vectors=1, only="vector: vector 0123") for one in chosen
    )
    monkeypatch.setattr(command, "judge_all", seen)
    page, kept = tmp_path / "page.md", tmp_path / "run.json"
    words = ["mutate", "vectors", "--file", FILE, "--sample", "2", "--json", str(kept), "--out", str(page)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "2 of 2 mutants are detected" in " ".join(page.read_text().split())
    assert len(json.loads(kept.read_text())["mutants"]) == 2
    assert len(re.findall(r"`fp8_to_mxfp4.cuh:\d+ ", page.read_text())) == 2
    assert CliRunner().invoke(app, ["mutate", "vectors", str(kept)]).output.count("| `0123` |") == 1
