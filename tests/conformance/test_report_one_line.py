"""One line says what is wrong and with which input; results that are no results have an outcome of their own."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import refnum
from refnum.conformance import judge_kernel, summary
from refnum.conformance.reports.junit import junit
from refnum.conformance.reports.summary import markdown
from refnum.conformance.reports.text import one_line


def away(x):
    return refnum.quantize_mxfp4(x, refnum.HOPPER.replace(name="away", ties="away"))


def odd(x):
    packed, scales = refnum.quantize_mxfp4(x)
    packed[0, 0] ^= 1
    return packed, scales


def judged(kernel):
    return judge_kernel(kernel, "quantize_mxfp4", profile="HOPPER", examples=1, level="smoke", save=False)


def test_one_line_names_the_bug_class_and_the_smallest_input():
    document = judged(away)
    (row,) = document["results"]
    line = one_line(row)
    assert line.startswith("E2M1_TIES_UP: row 0 block 0 lane ") and " where " in line and "is right for x = " in line
    assert summary(document) == f"{line}; away on {row['variant']}" and "\n" not in line
    (failure,) = ElementTree.fromstring(junit(document)).iter("failure")
    assert failure.get("message") == line
    assert line.replace("|", "\\|").replace("<", "&lt;") in markdown(document)


def test_one_line_of_what_no_rule_gives_is_the_difference():
    (row,) = judged(odd)["results"]
    assert one_line(row).startswith("row 0 block 0 lane 0 of packed: ") and "x = " in one_line(row)


WIDE = lambda x: tuple(part.astype(np.uint16) for part in refnum.quantize_mxfp4(x))  # noqa: E731
FLAT = lambda x: tuple(part.reshape(-1) for part in refnum.quantize_mxfp4(x))  # noqa: E731


@pytest.mark.parametrize("kernel", [lambda x: None, lambda x: refnum.quantize_mxfp4(x)[0], WIDE, FLAT])
def test_a_result_that_cannot_be_compared_is_an_outcome_of_its_own(kernel):
    document = judged(kernel)
    (row,) = document["results"]
    assert row["outcome"] == "malformed" and document["footer"]["exit"] == 1
    assert row["level"]["reached"] is None and row["holes"] == []
    assert "WRONG_SHAPE_OR_DTYPE" in one_line(row) and "does not fit" in one_line(row)
    text = refnum.conformance.as_text(document)
    assert "MALFORMED" in text and "not covered" not in text and "never tested" not in text and "MISMATCH" not in text


def test_a_kernel_that_is_wrong_as_well_is_a_mismatch():
    def sometimes(x):
        return away(x) if x.shape[0] < 5 else None

    (row,) = judge_kernel(sometimes, "quantize_mxfp4", profile="HOPPER", level="smoke", save=False)["results"][:1]
    assert row["outcome"] == "mismatch" and "wrong-shape-or-dtype" in row["findings"]
