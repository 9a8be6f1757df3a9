"""Changes without effect, by reason: a row covers exactly what it says, and settles survivors alone."""

import pytest

from refnum.conformance.commands.mutate.accepted import Reason, accepted, reasons_of
from refnum.conformance.commands.mutate.kernels import Kernels
from refnum.conformance.commands.mutate.operators import mutants_of
from refnum.conformance.commands.mutate.score import by_operator
from refnum.conformance.commands.mutate.verdict import KILLED, REASONED, SURVIVED, Verdict
from refnum.gpu.mutation.kernels import DeviceSources

TEXT = "if (wide && n < 4) return near(n);\nif (n < 4) return far(n);\n"


def test_a_row_covers_its_text_and_its_change_and_nothing_else():
    row = Reason("k*.cu", "wide && n < 4", ("wide && n <= 4",), "both ways give the same")
    covered = [mutant for mutant in mutants_of("kernel.cu", TEXT) if row.covers(mutant, TEXT)]
    assert [(mutant.line, mutant.old, mutant.new) for mutant in covered] == [(1, " < ", " <= ")]
    assert not any(row.covers(mutant, TEXT) for mutant in mutants_of("other.cu", TEXT))
    assert not any(row.covers(mutant, TEXT.replace("wide", "tall")) for mutant in mutants_of("kernel.cu", TEXT))


def test_survivors_alone_are_settled_and_no_longer_counted():
    row = Reason("kernel.cu", "n < 4", ("n <= 4",), "both ways give the same")
    mutants = [mutant for mutant in mutants_of("kernel.cu", TEXT) if mutant.new == " <= "]
    verdicts = accepted([Verdict(mutants[0], SURVIVED), Verdict(mutants[1], KILLED)], [row], {"kernel.cu": TEXT})
    assert [(one.status, one.how) for one in verdicts] == [(REASONED, row.because), (KILLED, "")]
    assert by_operator(verdicts)["all"].judged == 1


@pytest.fixture(scope="module")
def workshop():
    return Kernels.open(DeviceSources())


@pytest.fixture(scope="module")
def lines(workshop):
    return {file: mutants_of(file, text) for file, text in workshop.texts.items()}


@pytest.mark.parametrize("row", reasons_of(DeviceSources().reasons()), ids=lambda row: f"{row.file}: {row.text}")
def test_every_reason_of_our_kernels_is_still_about_something(row, workshop, lines):
    for other in row.becomes:
        one = Reason(row.file, row.text, (other,), row.because)
        assert any(one.covers(m, workshop.texts[file]) for file, found in lines.items() for m in found), other
    assert len(row.because.split()) > 4
