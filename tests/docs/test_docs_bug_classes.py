"""The page of bug classes has every note, and every note is one that vectors or reports can name."""

import bug_classes
import pytest

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.vectors import load_vectors


def test_every_note_has_a_section_with_its_id_as_anchor():
    sections = bug_classes.sections("bug-classes", lambda text, _: [])
    anchors = {part["ids"][0] for section in sections for part in section.children if part.get("ids")}
    assert set(bug_classes.notes()) <= anchors and len(bug_classes.notes()) > 20


def test_counts_are_those_of_the_vectors():
    expected = {}
    for vector in load_vectors():
        for flag in vector.flags:
            expected.setdefault(flag, {}).setdefault(vector.operation, 0)
            expected[flag][vector.operation] += 1
    assert {name: dict(counts) for name, counts in bug_classes.hunted().items()} == expected


def test_overview_sums_up_every_class():
    total = sum(int(row[2].replace(",", "")) for row in bug_classes.overview().rows)
    assert total == sum(sum(counts.values()) for counts in bug_classes.hunted().values())


def test_table_of_vectors_counts_every_vector():
    rows = bug_classes.frozen().rows
    assert sum(int(row[3].replace(",", "")) for row in rows) == len(list(load_vectors()))
    assert set(OPERATIONS) <= {row[0].removeprefix("@") for row in rows}


@pytest.mark.parametrize("name", ["E2M1_TIES_UP", "E8M0_ZERO_IS_TINY"])
def test_well_known_bugs_are_there_with_a_source(name):
    note = bug_classes.notes()[name]
    assert note["links"] and name in bug_classes.hunted()
