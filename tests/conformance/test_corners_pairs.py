"""Corners of pairs: found again by another way of looking, every pair of classes at every relation of places."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from refnum.conformance.cases.corners.pairs import BYTES, SPANS, pair_corners
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.mutate.triggers.values import CLASSES, FLOATS, Kind, facing

KINDS = [Kind(name, negative) for name in CLASSES for negative in (False, True)]


def arrays(operation, name, **params):
    given = {**OPERATIONS[operation].defaults(), **params}
    return {label: inputs[name] for label, inputs, _ in pair_corners(operation, given)}


@pytest.mark.parametrize(("place", "axis", "spans"), [("along", 1, SPANS), ("down", 0, SPANS)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_pair_of_classes_stands_at_every_relation(dtype, place, axis, spans):
    x = arrays("quantize_mxfp4", "x", input=dtype)[f"pairs of classes {place} rows"]
    bits, fmt = x.view(f"u{x.itemsize}"), FLOATS[dtype]
    found = {kind: kind.found(bits, fmt, 1) for kind in KINDS}
    missing = [
        (str(one), str(other), span)
        for one, other, span in itertools.product(KINDS, KINDS, spans)
        if not facing(found[one], found[other], span, axis, swapped=False).any()
    ]
    assert missing == []


def test_every_scale_byte_stands_beside_and_above_every_other():
    scales = arrays("mxfp4_to_fp8", "scales")["pairs of scale bytes"]
    beside = set(zip(scales[0, :-1].tolist(), scales[0, 1:].tolist(), strict=True))
    above = set(zip(scales[0].tolist(), scales[1].tolist(), strict=True))
    assert set(itertools.product(BYTES, repeat=2)) <= beside & above


@pytest.mark.parametrize("operation", OPERATIONS)
def test_pairs_are_the_same_every_time(operation):
    def listed():
        return [(label, {name: array.tobytes() for name, array in inputs.items()}, extra)
                for label, inputs, extra in pair_corners(operation, OPERATIONS[operation].defaults())]  # fmt: skip

    assert listed() == listed()


def test_every_probability_meets_every_class_of_every_input():
    corner = next(inputs for label, inputs, _ in pair_corners("swiglu_backward", {}) if label.startswith("probabil"))
    for name in OPERATIONS["swiglu_backward"].inputs:
        bits = corner[name].view(np.uint16)
        for weight, kind in itertools.product(KINDS, KINDS):
            rows = weight.found(corner["prob"].view(np.uint32), FLOATS["float32"], 0)
            assert kind.found(bits[rows], FLOATS["bfloat16"], 3).any(), (str(weight), name, str(kind))
