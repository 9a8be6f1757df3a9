"""Explanations by float32 steps end in the golden bits of every output, on cases of all kinds.

Corners, the cases of the controls and drawn ones; of each some elements, the first NaN, infinity and zero among them.
"""

import functools
import sys
from itertools import chain

import numpy as np
import pytest

import refnum
from refnum.arrays import unpack_nibbles
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, outputs_of, run_golden
from refnum.conformance.cases.recipes import sampled_cases
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.mismatches.page import page, source_index
from refnum.errors import RefnumError
from refnum.explanation import EXPLAINED
from refnum.philox import random_words
from refnum.stepwise import STEPWISE

CORNERS = 40
"""Corners of a variant that are looked at, from all parts of the set."""


def alike(one, other):
    return one is other or (not isinstance(one, np.ndarray) and one == other)


def remembered(function):
    """The function, which remembers its last call and answers the same one, of the same arrays, with its results."""
    last = [(), None]

    @functools.wraps(function)
    def call(*given, **named):
        asked = [*given, *named, *named.values()]
        if len(asked) != len(last[0]) or not all(map(alike, asked, last[0])):
            last[:] = [asked, function(*given, **named)]
        return last[1]

    return call


@pytest.fixture(scope="module", autouse=True)
def _golden_once():
    """Each explanation of an element asks the golden model for the whole case, of which some elements are explained."""
    with pytest.MonkeyPatch.context() as patch:
        for room in {sys.modules[steps.__module__] for _, steps in STEPWISE.values()}:
            for name in STEPWISE.keys() & vars(room).keys():
                patch.setattr(room, name, remembered(getattr(room, name)))
        yield


def cases(operation, params):
    corners = list(corner_cases(operation, "HOPPER", params))
    return chain(corners[:: -(-len(corners) // CORNERS)], control_cases(operation, "HOPPER", params),
                 sampled_cases(operation, "HOPPER", params, 11, 4))  # fmt: skip


def elements(case, number):
    """Places of some elements, as indices of the first input, and the first of each special kind."""
    shape = STEPWISE[case.operation][0]({**case.inputs, **case.params})
    size = int(np.prod(shape))
    flat = {int(word) % size for word in random_words(3, number)} if size else set()
    for given in case.inputs.values():
        if given.shape == shape and given.dtype.kind in "fV":
            numbers = given.astype(np.float32).reshape(-1)
            kinds = (np.isnan(numbers), np.isinf(numbers), numbers == 0)
            flat |= {int(kind.argmax()) for kind in kinds if kind.any()}
    return shape, [tuple(map(int, np.unravel_index(one, shape))) for one in sorted(flat)]


def golden_at(output, array, shape, at):
    """The item of an output that belongs to an element: its own, or its group's."""
    array = unpack_nibbles(array) if output.kind == "packed" else array
    if array.shape == shape:
        return int(array[at])
    if array.ndim == 1:
        return int(array[at[0] % array.size])  # one of all, or one of a row
    tall = -(-shape[0] // array.shape[0]) if array.shape[0] else 1
    return int(array[at[0] // tall, at[1] // (-(-shape[1] // array.shape[1]))])


@pytest.mark.parametrize("operation", list(STEPWISE))
def test_the_steps_end_in_the_golden_bits_of_every_output(operation):
    seen, names = 0, set()
    for params in OPERATIONS[operation].variants():
        for number, case in enumerate(cases(operation, params)):
            golden = run_golden(case)
            shape, places = elements(case, number)
            for at in places:
                told = refnum.explain(operation, case, at)
                assert told.index == at and told.steps[0].name == "element" and told.steps[0].clause in ("N0", "N1")
                assert all(step.clause.startswith("N") and step.text for step in told.steps)
                for output in outputs_of(case):
                    if output.name == "kept":  # places in a group, which are no number of an element
                        continue
                    expected = golden_at(output, golden[output.name], shape, at)
                    assert told.outputs[output.name] == expected, (case.label, output.name, at)
                    names.add(output.name)
                assert told.code == next(iter(told.outputs.values()))
                seen += 1
    assert seen > 40 and names


@pytest.mark.parametrize("operation", list(STEPWISE))
def test_the_last_steps_show_the_golden_bits(operation):
    """A page of a mismatch of any output states the step of that name, with the bits that are expected."""
    for params in OPERATIONS[operation].variants():
        (case,) = control_cases(operation, "HOPPER", params)
        golden = run_golden(case)
        for output in outputs_of(case):
            flipped = golden[output.name].copy()
            flipped.reshape(-1)[5 % flipped.size] ^= 1
            shown = page(case, golden, {**golden, output.name: flipped}, 0)
            if source_index(output, case, tuple(shown["index"])) is None:
                assert not shown["steps"]
                continue
            assert shown["steps"][0]["name"] == "element", shown["steps"]
            assert shown["rule"]
            if output.kind == "values":
                assert shown["expected"]["bits"] in shown["rule"]


def test_nan_of_any_sign_and_payload_comes_first_and_zeros_are_equal():
    bits = np.resize(np.array([0x3F800000, 0x80000000, 0], np.uint32), 256)
    bits[40::20] = np.resize(np.array([0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFF800001], np.uint32), 11)
    case = Case("out_control", "HOPPER", {"share": [1, 2], "input": "float32"}, {"norms": bits.view(np.float32)[None]})
    flags = run_golden(case)["flags"]
    assert flags.sum() == 128 and flags[0, 240]
    assert [refnum.explain("out_control", case, place).code for place in range(256)] == flags[0].tolist()


@pytest.mark.parametrize("operation", ["swiglu_quantize", "quantize_payload", "fp8_to_payload"])
def test_joined_steps_end_in_the_golden_code_and_scale(operation):
    for params in OPERATIONS[operation].variants():
        for number, case in enumerate(cases(operation, params)):
            golden = list(run_golden(case).values())
            rows, columns = next(iter(case.inputs.values())).shape
            if len(golden) == 1:
                golden = [golden[0][:, : columns // 2], golden[0][:, columns // 2 :]]
            codes = golden[0] if golden[0].shape == (rows, columns) else unpack_nibbles(golden[0])
            for word in random_words(3, number) if rows * columns else ():
                row, column = divmod(int(word) % (rows * columns), columns)
                told = refnum.explain(operation, case, (row, column))
                scale = golden[1][row, column // (128 if params.get("to") == "fp8" else 32)]
                assert (told.code, told.scale, told.index) == (codes[row, column], scale, (row, column))
                assert told.operation == operation and told.steps[0].name == "element"
                assert told.steps[-1].name == ("payload" if operation.endswith("payload") else "code")


REFUSED = [
    ("q_ramping", {"dist_w": np.ones(2, np.float32)}, 0, "'dist_q' is missing"),
    ("q_ramping", {"dist_w": np.ones(2, np.float32), "dist_q": np.ones(2)}, 0, "allowed is float32"),
    ("adam_apply", dict.fromkeys(("gradient", "weight", "m", "v"), np.ones(2, np.float32)), 1, "'factors' is missing"),
    ("adam_apply", {"gradient": np.ones(2, np.float32)}, 2, "outside the array of shape"),
    ("unpermute", {"rows": np.ones(3, np.float32), "row_map": np.zeros(0, int), "splits": [0], "tokens": 1}, 0, "rows"),
    ("unpermute", {"rows": np.ones((0, 3), np.float32), "tokens": "a"}, 0, "tokens"),
    ("out_control", {"norms": np.ones((2, 3), np.float32), "share": 2}, (1, 1), "share"),
    ("dequantize_mxfp4", {"packed": np.zeros((1, 16), np.uint8), "scales": np.zeros((1, 2), np.uint8)}, 31, "scales"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "case", "index", "words"), REFUSED)
def test_what_is_no_case_is_refused(operation, case, index, words):
    with pytest.raises(RefnumError, match=words):
        refnum.explain(operation, case, index)


def test_all_operations_that_compute_are_explained():
    """What only moves bytes has no steps."""
    assert {name for name, row in OPERATIONS.items() if name not in EXPLAINED} == {
        name for name, row in OPERATIONS.items() if row.moves_only
    }


def test_the_element_of_a_groups_scale_lies_in_the_group():
    x = np.zeros((2, 256), np.float32)
    x[1, 150], x[0, 40] = 7, 3
    case = Case("quantize_tetrajet_v2", "HOPPER", {"seed": None, "input": "float32"}, {"x": x})
    outputs = {output.name: output for output in outputs_of(case)}
    assert source_index(outputs["outer"], case, (1, 1)) == (1, 150)
    assert source_index(outputs["scales"], case, (0, 2)) == (0, 40)
    assert source_index(outputs["scales"], case, (0, 3)) == (0, 48)
