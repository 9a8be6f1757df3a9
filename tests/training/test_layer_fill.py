"""Products of rows that fill up: zeros, or the NaN that a weight makes of every row."""

from __future__ import annotations

import numpy as np
import pytest

from refnum.training.compare import different, without_fill

NAN, ONE = 0x7FFF, 0x3F80
SPLITS = (2, 0, 130)


def golden():
    """Return bfloat16 bits [128 + 256, 3] of three experts: in column 1 every row of the last expert is NaN."""
    want = np.zeros((384, 3), np.uint16)
    want[:2] = want[128:258] = ONE
    want[128:258, 1], want[128, 2], want[0, 0] = NAN, NAN, NAN
    return want


@pytest.mark.parametrize(
    ("place", "value", "differ"),
    [
        ((slice(258, 384), 1), NAN, 0),
        ((258, 1), NAN, 0),
        ((258, 1), 0x7FC0, 1),
        ((258, 1), ONE, 1),
        ((258, 2), NAN, 1),
        ((2, 0), NAN, 1),
        ((257, 0), NAN, 1),
        ((257, 1), 0, 1),
    ],
)
def test_rows_that_fill_up_are_zero_or_the_nan_of_every_row(place, value, differ):
    got = golden()
    got[place] = value
    assert different(without_fill(got, golden(), SPLITS), golden()) == differ
    assert got[place].flat[0] == value
