"""The page of a mismatch: where, what and why, numbers that are short and exact."""

import numpy as np
import pytest
from diagnose_tools import distant, quantise, under

import refnum
from refnum.conformance.cases import crop
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.mismatches.diagnose import Seen, hints
from refnum.conformance.mismatches.page import number_text, page
from refnum.conformance.reports.text import headline
from refnum.explanation import EXPLAINED


def test_a_page_says_where_what_and_why():
    case = quantise(6, 0, 0, 1.25)
    shown = page(case, run_golden(case), under(case, ties="away"), 0)
    assert shown["place"] == "row 0 block 0 lane 3" and shown["output"] == "packed"
    assert shown["input"] == [
        {"name": "x", "bits": "0x3FA00000", "fields": "0 01111111 01000000000000000000000", "value": "1.25"}
    ]
    assert shown["expected"] == {"bits": "0x2", "fields": "0 01 0", "value": "1"}
    assert shown["observed"] == {"bits": "0x3", "fields": "0 01 1", "value": "1.5"}
    assert shown["differs"] == "mantissa bit 0 differs" and "tie at 1.25 -> even" in shown["rule"]
    assert shown["scale"] == {"expected": "0x7F (1)", "observed": "0x7F (1)"}
    assert shown["differing"] == {"packed": "1 of 32"}


def test_a_page_of_the_same_codes_under_another_scale_shows_an_input_and_the_scale():
    case = quantise(0, 0, np.inf)
    shown = page(case, run_golden(case), under(case, nonfinite="satfinite"), 4)
    assert shown["input"][0]["value"] == "+inf"
    zeros = {**run_golden(case), "scales": np.array([[127]], np.uint8)}
    shown = page(case, run_golden(case), zeros, 4)
    assert shown["input"][0]["value"] == "+inf" and shown["expected"]["bits"] == shown["observed"]["bits"]
    line = headline({"page": shown, "words": "", "finding": ""})
    assert line.startswith("row 0 block 0 lane 2: scale 0x7F (1) where 0xFF (nan) is right for x = +inf")
    assert headline({"page": {}, "words": "", "finding": "", "reproduced": "1 of 3"}) == "shown in 1 of 3 runs"


def test_a_page_of_a_wrong_scale_shows_the_scale_rule():
    case = quantise(7.0)
    golden = run_golden(case)
    shown = page(case, golden, {**golden, "scales": golden["scales"] - 1}, 0)
    assert shown["output"] == "scales" and shown["place"] == "row 0 block 0"
    assert shown["rule"].startswith("rceil: k = 2 - 2 + 1 = 1") and shown["expected"]["value"] == "2"
    assert shown["differs"] == "bits 0, 1, 2, 3, 4, 5, 6, 7 differ"  # 128 and 127
    one_bit = {**golden, "scales": golden["scales"] + 1}
    assert page(case, golden, one_bit, 0)["differs"] == "bit 0 differs"


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_every_operation_has_a_page_for_each_output(operation):
    every = list(OPERATIONS[operation].variants())
    for params in (every[0], every[-1]):
        (case,) = control_cases(operation, "HOPPER", params)
        golden = run_golden(case)
        for name, array in golden.items():
            flipped = array.copy()
            flipped.reshape(-1)[-1] ^= 1
            shown = page(case, golden, {**golden, name: flipped}, 0)
            assert shown["output"] == name and shown["expected"]["bits"] != shown["observed"]["bits"]
            assert shown["differs"] and shown["place"]


def test_column_pages_point_at_the_input_row():
    case = distant(columns=True)
    golden = run_golden(case)
    codes = golden["codes"].copy()
    codes[33, 1] ^= 0x80
    shown = page(case, golden, {**golden, "codes": codes}, 0)
    assert shown["place"] == "input row 1 column 33 (output [33, 1])"
    assert {entry["name"]: entry["bits"] for entry in shown["input"]} == {"packed": "0x8", "scales": "0x7F"}


@pytest.mark.parametrize("operation", [name for name, row in OPERATIONS.items() if row.scalar and name in EXPLAINED])
def test_a_page_of_a_scalar_conversion_shows_its_input_and_the_steps(operation):
    (case,) = control_cases(operation, "HOPPER", OPERATIONS[operation].defaults())
    golden = run_golden(case)
    ((name, array),) = golden.items()
    flipped = array.copy()
    flipped.reshape(-1)[5] ^= 1
    shown = page(case, golden, {name: flipped}, 0)
    (given,) = shown["input"]
    at = tuple(shown["index"])
    main = next(iter(case.inputs.values()))
    assert int(given["bits"], 16) == int(main[at].view(f"u{main.dtype.itemsize}")) and given["value"]
    assert shown["steps"][0]["name"] == "element" and shown["rule"]


@pytest.mark.parametrize("operation", ["q_ramping", "osci_reset", "ramping_step", "out_control"])
def test_a_page_of_periods_counts_and_truth_values_shows_what_stands_at_their_place(operation):
    (case,) = control_cases(operation, "HOPPER", OPERATIONS[operation].defaults())
    golden = run_golden(case)
    name = {"q_ramping": "period", "ramping_step": "due"}.get(operation, "flags")
    flipped = golden[name].copy()
    flipped[1, 5] ^= 1
    shown = page(case, golden, {**golden, name: flipped}, 0)
    assert tuple(shown["index"]) == (1, 5) and shown["output"] == name
    given = {one["name"]: int(one["bits"], 16) for one in shown["input"]}
    assert set(given) == set(case.inputs)
    shown_there = crop.COUNTED | {"dist_w", "norms"}
    assert all(given[n] == int(a.view(np.uint32)[1, 5]) for n, a in case.inputs.items() if n in shown_there)


@pytest.mark.parametrize(
    ("value", "text"),
    [("5/4", "1.25"), ("1/1024", "0.0009765625"), ("0", "0"), (str(2**127), "2^127"), (f"3/{2**130}", "1.5*2^-129")],
)
def test_numbers_are_short_and_exact(value, text):
    from fractions import Fraction

    assert number_text(Fraction(value)) == text


@pytest.mark.parametrize(
    ("element", "note"), [("E2M1", "E2M1_TIES_UP"), ("E4M3", "E4M3_TIES_UP"), ("E3M2", "ELEMENT_TIES_UP")]
)
def test_ties_are_named_after_the_element_format(element: str, note: str) -> None:
    """The rule is one, its notes are three: only the one of the format at hand is named."""
    x = np.zeros((1, 32), np.float32)
    fmt = refnum.FORMATS[element]
    tie = (refnum.value(fmt, 4) + refnum.value(fmt, 5)) / 2
    x[0, :2] = float(fmt.max_value), float(tie)
    case = Case("quantize_mx", "HOPPER", {"element": element, "input": "float32"}, {"x": x})
    away = refnum.HOPPER.replace(name="AWAY", ties="away")
    codes, scales = refnum.quantize_mx(x, element, away)
    found = hints([Seen(case, {"codes": codes, "scales": scales})])
    assert note in [entry["id"] for entry in found]
    assert [entry["id"] for entry in found if entry["id"].endswith("_TIES_UP")] == [note]
