"""Structure: what is asked of every operation, and that no kernel wrong in one thing of it is verified."""

import itertools
import re

import numpy as np
import pytest
import structure_kernels
import structure_kernels_calls  # noqa: F401 (adds its kernels)
import structure_kernels_forms  # noqa: F401 (as well)
from structure_tools import engine_of, golden, verdict

from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.cases.structure import build, covering, factors
from refnum.conformance.cases.structure.illegal import illegal_cases, legal_beside
from refnum.conformance.cases.structure.plan import _called_rows, shared_rows, structure_rows
from refnum.conformance.commands.check import structure
from refnum.conformance.commands.check.run import Plan, run
from refnum.conformance.reports import covered
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.badge import badge
from refnum.conformance.subjects.subject import Subject
from refnum.errors import RefnumError

PARAMS = {"quantize_mxfp4: uint16_taken_for_numbers": {"input": "bfloat16"}}


@pytest.mark.parametrize("name", sorted(structure_kernels.KERNELS))  # rows of an operation are made once
def test_a_kernel_wrong_in_structure_is_not_verified(name):
    operation, function, more = structure_kernels.KERNELS[name]
    tally = verdict(operation, function, **{"params": PARAMS.get(name), **more})
    assert tally.outcome not in (Outcome.PASS, Outcome.UNSUPPORTED), tally.words


@pytest.mark.parametrize("operation", ["unpack_payload", "encode_e8m0", "dequantize_mxfp4"])
def test_the_golden_function_is_right_in_every_form(operation):
    subject = Subject("k", {operation: golden(operation)})
    engine = engine_of(subject, operation, quick=False)
    whole = engine.structural()
    engine.refusals(whole)
    engine.finish()
    tally = engine.tallies["k"]
    assert tally.close() is Outcome.PASS, tally.words
    assert tally.structural > 200 and not tally.coverage.never() and not engine.report.harness
    assert not tally.coverage.forms and tally.coverage.refused == 0 and tally.coverage.illegal > 1


@pytest.fixture(scope="module", params=OPERATIONS)
def operation(request):
    """Each operation, of which all tests run before those of the next: its rows are made once."""
    return request.param


def test_every_case_is_legal_for_the_golden_model(operation):
    params = OPERATIONS[operation].defaults()
    for number, row in list(enumerate(structure_rows(operation, "HOPPER", params, "full")))[::17]:
        case = build(operation, "HOPPER", params, row, number)
        if case.elements < 1 << 16:
            assert run_golden(case)


def test_rows_are_the_same_every_time_and_small(operation):
    params = OPERATIONS[operation].defaults()
    rows = structure_rows(operation, "HOPPER", params, "full")
    _called_rows.cache_clear()
    assert rows == structure_rows(operation, "HOPPER", params, "full")
    assert 200 < len(rows) < 7500
    assert len(structure_rows(operation, "HOPPER", params, "smoke")) < 10


@pytest.mark.parametrize("operation", ["quantize_tetrajet", "quantize_nvfp4", "hadamard16", "dge"])
def test_each_row_of_a_shape_is_asked_of_some_variant_beside_the_first(operation):
    choices = list(OPERATIONS[operation].variants())
    every = [shared_rows(operation, "HOPPER", params, list(range(997))) for params in choices]
    assert {row for rows in every for row in rows} == set(range(997))
    for name, values in OPERATIONS[operation].params.items():
        for value in values if len(choices) > 20 and len(values) < 4 else ():
            alike = [rows for rows, params in zip(every, choices, strict=True) if params[name] == value]
            assert len({row for rows in alike for row in rows}) > 700 * min(1, len(alike) / 11), (name, value)


def test_pairs_hold_every_pair_that_fits():
    table = {"a": (1, 2, 3), "b": ("x", "y", "z"), "c": (0, 5)}
    fits = lambda row: not (row["a"] == 3 and row["b"] == "z")  # noqa: E731
    rows = covering.pairs(table, fits, {"a": 1, "b": "x", "c": 0})
    assert all(fits(row) for row in rows)
    for one, other in itertools.combinations(table, 2):
        found = {(row[one], row[other]) for row in rows}
        wanted = set(itertools.product(table[one], table[other]))
        assert wanted - found <= {(3, "z")}


def test_singles_hold_every_level_that_fits():
    table = {"rows": tuple(range(1, 12)), "columns": (32, 64, 96)}
    rows = covering.singles(table, lambda row: row["rows"] * row["columns"] < 600, {"rows": 1, "columns": 32})
    assert {row["rows"] for row in rows} == set(table["rows"])
    assert {row["columns"] for row in rows} == set(table["columns"])


def report_of(function, operation="unpack_payload", **more):
    subject = Subject("k", {operation: function}, **more)
    plan = Plan([subject], [OPERATIONS[operation]], ["HOPPER"], examples=2, save=False, shown=0)
    return run(plan, reports.Report(reports.header("standard", 0, [], [], [])))


def test_the_last_line_says_what_verified_covers():
    verdict = report_of(golden("unpack_payload")).footer()["verdict"]
    assert verdict.startswith("verified at level standard (1 variant,")
    assert "agreement L0, rows 1 to 131073, columns 17 to 139281, 0.0 % of structure refused" in verdict
    assert re.search(r", flips above 1 in [\d,]+ calls excluded\)$", verdict)


def test_a_narrow_contract_stands_in_the_last_line_and_the_badge(monkeypatch):
    monkeypatch.setattr(structure, "amount_for", lambda engine: "brief")

    def outside(case):
        return "" if case.inputs["payload"].shape[1] % 68 == 0 else "columns in multiples of 128"

    document = report_of(golden("unpack_payload"), outside=outside).document()
    verdict = document["footer"]["verdict"]
    assert verdict.startswith("verified within its contract at level standard") and "% of structure refused" in verdict
    assert document["footer"]["exit"] == 0 and "within its contract" in badge(document)
    rows = list(covered.coverage(document["results"]))
    assert any("refused" in words for _, factor, _, _, words in rows if factor == "columns")


def test_a_form_that_is_refused_with_an_error_belongs_to_the_contract():
    def contiguous_only(payload):
        if not payload.flags.c_contiguous:
            raise ValueError("contiguous arrays only")
        return golden("unpack_payload")(payload)

    document = report_of(contiguous_only).document()
    (result,) = document["results"]
    assert result["outcome"] == "pass", result["words"]
    assert result["structure"]["forms"]["payload.storage transposed"] == "ValueError: contiguous arrays only"
    assert document["footer"]["verdict"].startswith("verified within its contract")
    addresses = next(line for line in result["structure"]["factors"] if line["factor"] == "payload.address")
    assert addresses["answered"] == addresses["levels"]


def test_a_level_other_than_l0_stands_in_the_last_line_and_the_badge(little_structure):
    def other_nan(codes, dtype="float32"):
        out = golden("decode_e4m3")(codes, dtype)
        if dtype == "float32":
            out.view(np.uint32)[np.isnan(out)] = 0x7FC00001
        return out

    document = report_of(other_nan, "decode_e4m3", level=4).document()
    assert document["footer"]["verdict"].startswith("verified to L3 only at level standard")
    assert "agreement L3" in document["footer"]["verdict"] and "to L3 only" in badge(document)


@pytest.mark.parametrize(("amount", "limit", "most"), [("full", 60.0, 600), ("exhaustive", 1.0, 600),
                                                      ("brief", 60.0, 120), ("brief", 90.0, 180)])  # fmt: skip
def test_structural_calls_have_so_many_seconds(amount, limit, most):
    subject = Subject("k", {"unpack_payload": golden("unpack_payload")})
    engine = engine_of(subject, "unpack_payload")
    coverage, engine.plan.seconds = engine.tallies["k"].coverage, limit
    for coverage.seconds, cut in ((most, False), (most + 1e-6, True), (0.0, True)):
        assert structure._too_slow(engine, subject, amount) is cut
    coverage.cut, coverage.seconds, engine.plan.seconds = "", 1e9, 0.0  # calls without a limit
    assert not structure._too_slow(engine, subject, amount)


def test_a_kernel_too_slow_for_all_its_structural_cases_is_not_verified(little_structure, monkeypatch):
    monkeypatch.setattr(structure, "BRIEF_SECONDS", 0.0)
    document = report_of(golden("unpack_payload")).document()
    (result,) = document["results"]
    assert (result["outcome"], document["footer"]["exit"]) == ("not-verified", 3)
    assert result["words"].startswith("structural cases beyond 0 seconds were not asked") and not document["harness"]


def test_a_level_that_is_never_asked_is_an_error_of_the_harness(little_structure):
    engine = engine_of(Subject("k", {"unpack_payload": golden("unpack_payload")}), "unpack_payload", quick=False)
    engine.structural()
    engine.tallies["k"].coverage.expect([{"rows": 12345}])
    engine.finish()
    assert "rows 12345" in engine.report.harness[0]


def test_every_level_of_the_tables_is_asked(operation):
    rows = structure_rows(operation, "HOPPER", OPERATIONS[operation].defaults(), "full")
    for paired in (False, True):
        for name, levels in factors.shape_table(operation, paired).items():
            missing = set(levels) - {row[name] for row in rows if name in row}
            assert not missing, (name, missing)


def test_the_model_refuses_every_illegal_call_and_takes_the_legal_one(operation):
    """Of every variant; a form of `out` or `splits` is made by the call, not by the model's arguments."""
    for params in OPERATIONS[operation].variants():
        call_golden(legal_beside(operation, "HOPPER", params))
        for case in illegal_cases(operation, "HOPPER", params):
            if not case.label.startswith(("illegal: out with", "illegal: splits in an array")):
                with pytest.raises(RefnumError):
                    call_golden(case)


@pytest.mark.parametrize("bit", range(4, 8))
def test_a_code_is_refused_by_each_bit_that_its_format_lacks(bit):
    def blind(codes, dtype="float32"):
        return golden("decode_e2m1")(codes & np.uint8(255 - (1 << bit)) if codes.dtype == np.uint8 else codes, dtype)

    tally = verdict("decode_e2m1", blind, rows=lambda row: False)
    assert tally.words == f"1 calls were taken that must be refused: a code beyond 4 bits, by bit {bit}"
