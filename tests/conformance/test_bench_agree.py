"""A contender's results against the golden ones, part by part."""

import numpy as np
import pytest
from bench_tools import SHAPE

from refnum.conformance.cases.operation import call_golden
from refnum.conformance.commands.bench import agree, inputs, lines, shapes


def test_parts_have_the_random_bits_of_the_whole(monkeypatch):
    monkeypatch.setattr(agree, "STEP", {0: 32, 1: 32})
    case = inputs.make(np, lines.select(["BF16 -> MXFP4, stochastic, by key"])[0], SHAPE)
    assert [part.case.params["philox"][3] for part in agree.Golden(case).parts] == [0, 32 * 256]
    assert agree.Golden(case).compare(call_golden(case)).verdict == "equal"


@pytest.mark.parametrize("steps", [{0: 128, 1: 128}, {0: 2048, 1: 1024}])
def test_parts_cover_every_byte_once(steps, monkeypatch):
    monkeypatch.setattr(agree, "STEP", steps)
    for line in lines.LINES:
        case = inputs.make(np, line, shapes.Shape(160, 3, 288, 2, 416))
        whole = call_golden(case)
        found = agree.Golden(case).compare(whole)
        assert (found.compared, found.differing) == (sum(x.size for x in whole), 0), line.label
        for number, x in enumerate(whole):
            wrong = [y.copy() for y in whole]
            flat = wrong[number].reshape(-1).view(np.uint8)
            flat[-1] ^= 1
            assert agree.Golden(case).compare(wrong).differing == 1, (line.label, number, x.shape)


def test_other_bytes_of_equal_value_are_told_apart():
    case = inputs.make(np, lines.select(["FP8 -> MXFP4"])[0], SHAPE)
    packed, scales = (x.copy() for x in call_golden(case))
    row, block = np.argwhere((packed.reshape(256, 8, 16) & 0x77 == 0x22).all(-1) | True)[0]
    packed.reshape(256, 8, 16)[row, block], scales[row, block] = 0, 90  # a zero block has any scale
    golden = agree.Golden(case)
    for part in golden.parts:
        part.golden["packed"].reshape(256, 8, 16)[row, block], part.golden["scales"][row, block] = 0, 80
    assert golden.compare((packed, scales)).verdict == "values"
    packed[row, 16 * block] = 2
    assert golden.compare((packed, scales)).verdict == "differs"
