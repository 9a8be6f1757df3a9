"""The museum: every exhibit fits the sources, a sample is caught at once and named, and the catalogue is complete."""

from __future__ import annotations

from pathlib import Path

import museum_practice
import pytest
from museum_rows import ABSENT, every_row

from refnum.conformance.bugs import WRONG
from refnum.conformance.commands.mutate.library import Library
from refnum.conformance.commands.mutate.museum import EXHIBITS, Exhibit, ExhibitError
from refnum.conformance.commands.mutate.museum import visit as visiting
from refnum.conformance.commands.mutate.museum.visit import visit
from refnum.conformance.commands.mutate.verdict import KILLED, SURVIVED
from refnum.conformance.mismatches.diagnose import notes
from refnum.conformance.vectors import load_vectors

mutants_tools = pytest.importorskip("mutants_tools")
host = pytest.importorskip("refnum.gpu.host")
KERNELS = mutants_tools.HostSources().root

QUICK = ("decode_e4m3", "decode_e8m0")
"""Operations whose questions are made in a moment; `refnum mutate museum` visits all."""


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda one: one.name)
def test_an_exhibit_fits_the_sources(exhibit: Exhibit) -> None:
    text = (KERNELS / exhibit.file).read_text()
    assert exhibit.mutant(text).applied(text) != text
    assert exhibit.seen and set(exhibit.classes) <= set(notes())


def test_an_edit_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(ExhibitError, match="0 times"):
        EXHIBITS[0].mutant("another text")


@pytest.mark.parametrize(("status", "killed"), [(KILLED, True), (SURVIVED, False)])
def test_what_was_not_judged_was_not_caught(monkeypatch: pytest.MonkeyPatch, status: str, killed: bool) -> None:
    monkeypatch.setattr(visiting, "call_forked", lambda work, seconds: {"status": status, "how": "words"})
    assert visiting._met(EXHIBITS[0]) == visiting.Caught(EXHIBITS[0], killed, "words")


def test_every_row_of_the_catalogue_is_shown_or_explained() -> None:
    shown = {row for exhibit in EXHIBITS for row in exhibit.rows}
    assert len(every_row()) == 113 and shown | set(ABSENT) == set(every_row()) and not shown & set(ABSENT)
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS)


def test_each_of_the_first_classes_is_shown_by_all_who_have_it_or_explained() -> None:
    """The table is the museum's, both ways: whoever adds or renames an exhibit changes it."""
    assert len(museum_practice.SHOWN) + len(museum_practice.UNSHOWN) == 24 and not set(museum_practice.SHOWN) & set(
        museum_practice.UNSHOWN
    )
    assert {*museum_practice.SHOWN, *museum_practice.UNSHOWN} <= set(notes())
    for name in (*museum_practice.SHOWN, *museum_practice.UNSHOWN):
        assert museum_practice.SHOWN.get(name, ()) == tuple(one.name for one in EXHIBITS if name in one.classes), name


def test_a_class_without_an_exhibit_is_hunted_by_vectors() -> None:
    flags = {flag for vector in load_vectors() for flag in vector.flags}
    assert set(museum_practice.UNSHOWN) <= flags & set(WRONG) and all(museum_practice.UNSHOWN.values())


def library(unit: str, folder: Path) -> Library:
    """Return a workshop in which exhibits change one unit."""
    return Library.open(mutants_tools.sources_of(unit), folder)


PRODUCTS = ("a term keeps 14 bits", "a zero takes part in the largest exponent", "a part of K overwrites the others")


@pytest.mark.skipif(not host.available()[0], reason=host.available()[1])
def test_products_are_caught_and_named(tmp_path: Path) -> None:
    chosen = [exhibit for exhibit in EXHIBITS if exhibit.name in PRODUCTS]
    caught = list(visit({"host": library("product.cpp", tmp_path)}, chosen))
    assert len(caught) == 3 and all(one.killed and one.right for one in caught), [one.guesses for one in caught]


@pytest.mark.skipif(not host.available()[0], reason=host.available()[1])
def test_a_sample_is_caught_in_a_second_and_named(tmp_path: Path) -> None:
    chosen = [e for e in EXHIBITS if e.build == "host" and e.operation in QUICK and not e.file.startswith("e2m1")]
    caught = list(visit({"host": library("casts.cpp", tmp_path)}, chosen))
    assert len(caught) >= 5 and all(one.killed and one.first < 5 for one in caught)
    assert sum(one.right for one in caught) >= 0.9 * len(caught), [
        (c.exhibit.name, c.guesses) for c in caught if not c.right
    ]
