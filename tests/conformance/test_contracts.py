"""Contracts of inputs: decided on bit patterns, verified inside, told as information outside."""

import functools
import json
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import ml_dtypes
import numpy as np
import pytest
import run_tools
from typer.testing import CliRunner

import refnum as R
from refnum.conformance import judge_kernel
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.contracts import CONTRACTS, brought_inside, checked_contract, outside
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, run_golden, select
from refnum.conformance.cli import app
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan
from refnum.conformance.commands.check.run import run as run_plan
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.badge import badge
from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.loading import discover
from refnum.conformance.subjects.loading.shared_library import from_library
from refnum.errors import ArgumentError

ONE = np.float32(1)
EVERY = tuple(CONTRACTS)


def lies(exact, least):
    """What an exact value is, by name; `least` is the smallest magnitude that is normal."""
    if isinstance(exact, str):
        return {"finite"}
    return {"nonzero"} if exact == 0 else {"normal"} if abs(exact) < least else set()


@functools.cache
def values(fmt):
    return [R.value(fmt, code) for code in range(1 << 16)]


def told(case):
    return {name for name in CONTRACTS if outside(case, (name,))}


def one_input(operation, name, array, params=None, **more):
    return Case(operation, "HOPPER", params or {}, {name: array, **more})


SMALLEST = {"E2M1": Fraction(1), "E2M3": Fraction(1), "E3M2": Fraction(1, 4), "E4M3": Fraction(1, 64),
            "E5M2": Fraction(1, 1 << 14), "MXINT8": Fraction(0)}  # fmt: skip


@pytest.mark.parametrize("element", SMALLEST)
def test_every_code_of_every_element_format(element):
    for code in range(1 << R.get_format(element).bits):
        codes = np.full((1, 32), code, np.uint8)
        scales = np.array([[127]], np.uint8)
        case = one_input("dequantize_mx", "codes", codes, {"element": element}, scales=scales)
        assert told(case) == lies(R.value(element, code), SMALLEST[element]), code
        kept = brought_inside(case, EVERY)
        assert not told(kept) and np.array_equal(kept.inputs["codes"], codes) is not bool(told(case))


def test_every_packed_byte_and_every_scale_byte():
    for byte in range(256):
        packed = np.full((1, 16), byte, np.uint8)
        case = one_input("dequantize_mxfp4", "packed", packed, scales=np.array([[127]], np.uint8))
        want = set().union(*(lies(R.value("E2M1", code), 1) for code in (byte & 15, byte >> 4)))
        assert told(case) == want
        kept = brought_inside(case, ("nonzero",)).inputs["packed"][0, 0]
        for shift in (0, 4):
            code = byte >> shift & 15
            assert (kept >> shift & 15) == (code | 2 if code & 7 == 0 else code)
    for byte in range(256):
        scales = np.full((1, 1), byte, np.uint8)
        case = one_input("dequantize_mxfp4", "packed", np.full((1, 16), 0x22, np.uint8), scales=scales)
        assert told(case) == ({"finite"} if byte == 255 else {"normal"} if byte == 0 else set())


@pytest.mark.parametrize(("dtype", "fmt"), [("bfloat16", "BF16"), ("float16", "FP16"), ("uint16", "BF16")])
@pytest.mark.parametrize("operation", ["encode_e2m1", "quantize_mxfp4", "quantize_fp8_tiles"])
def test_every_sixteen_bit_number(operation, dtype, fmt):
    """A number that is quantised to blocks is normal from where no block scale is subnormal."""
    least = Fraction(2) ** (
        -14 if fmt == "FP16" else {"quantize_mxfp4": -124, "quantize_fp8_tiles": -118}.get(operation, -126)
    )
    every = np.arange(1 << 16, dtype=np.uint16)
    x = every.view(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    before = [lies(exact, least) for exact in values(fmt)]
    for place in range(0, 1 << 16, 97):
        assert told(one_input(operation, "x", x[place : place + 1].reshape(1, 1))) == before[place]
    kept = brought_inside(one_input(operation, "x", x.reshape(64, -1)), EVERY).inputs["x"].view(np.uint16).reshape(-1)
    assert all((new == old) is not bool(names) for new, old, names in zip(kept, every, before, strict=True))
    assert not any(lies(values(fmt)[code], least) for code in np.unique(kept))


def test_what_is_no_number_puts_no_case_outside():
    payload = np.zeros((2, 17), np.uint8)
    assert not told(one_input("unpack_payload", "payload", payload))
    assert not told(one_input("permute_pad", "payload", payload, {"splits": [2]}, row_map=np.array([0, 1])))
    x = np.full((1, 32), ONE)
    assert not told(one_input("quantize_mxfp4", "x", x, rbits=np.zeros((1, 32), np.uint8)))
    prob = np.array([np.nan], np.float32)
    gate = np.ones((1, 32), ml_dtypes.bfloat16)
    assert (
        outside(one_input("swiglu_quantize", "gate", gate, up=gate, prob=prob), ("finite",)) == "prob holds NaN or Inf"
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_corner_cases_of_every_operation_are_brought_inside_and_stay_legal(operation):
    row = OPERATIONS[operation]
    changed = 0
    for number, case in enumerate(corner_cases(operation, "HOPPER", row.defaults())):
        if number % 5 or case.elements > 1 << 16:
            continue
        kept = brought_inside(case, EVERY)
        changed += kept is not case
        assert not told(kept) and (kept is case) is (not told(case))
        assert {name: (a.dtype, a.shape) for name, a in kept.inputs.items()} == {
            name: (a.dtype, a.shape) for name, a in case.inputs.items()
        }
        if number % 10 == 0:
            run_golden(kept)
    assert changed or row.moves_only


def test_a_contract_is_named():
    assert checked_contract("finite", "k") == ("finite",) and checked_contract(None, "k") == ()
    assert checked_contract(["normal", "finite", "normal"], "k") == ("finite", "normal")
    for wrong in ("positive", ["finite", 5], 5, [["finite"]]):
        with pytest.raises(ArgumentError, match="choose from finite, nonzero, normal"):
            checked_contract(wrong, "k")


# ------------------------------------------------------------------------------------------------- runs


def wrong_on_inf(x, profile):
    packed, scales = R.quantize_mxfp4(x, profile)
    infinite = np.isinf(np.asarray(x, np.float32)).reshape(*scales.shape, 32).any(-1)
    return packed, np.where(infinite, np.uint8(254), scales)


def refuses_nan(x, profile):
    if np.isnan(np.asarray(x, np.float32)).any():
        raise ValueError("NaN in the input")
    return R.quantize_mxfp4(x, profile)


def dies_of_inf(x, profile):
    if not np.isfinite(np.asarray(x, np.float32)).all():
        raise RuntimeError("boom")
    return R.quantize_mxfp4(x, profile)


def ties_away(x, profile):
    return wrong_on_inf(x, profile.replace(name="away", ties="away"))


def wrong_on_zero(x, profile):
    packed, scales = R.quantize_mxfp4(x, profile)
    empty = (np.asarray(x, np.float32) == 0).reshape(*scales.shape, 32).all(-1)
    return packed, np.where(empty, np.uint8(1), scales)


def flushes(x, profile):
    """FTZ and DAZ: subnormal inputs and subnormal scales are zero."""
    wide = np.asarray(x, np.float32)
    wide = np.where(np.abs(wide) < np.float32(2.0**-126), np.copysign(np.float32(0), wide), wide)
    packed, scales = R.quantize_mxfp4(wide, profile)
    return np.where(np.repeat(scales == 0, 16, axis=1), packed & 0x88, packed), scales


def few(operation, profile, params):
    """The case of the controls, which has NaN, Inf and blocks of zeros, and one whose block scales are subnormal."""
    (case,) = control_cases(operation, profile, params)
    yield case
    if params["input"] != "float16":
        x = case.inputs["x"]
        tiny = np.ldexp(np.where(np.isfinite(x), x, 1).astype(np.float64), -128).astype(x.dtype)
        yield case.with_inputs({"x": tiny}, label="tiny")


def judged(function, cases=few, **more):
    document = run_tools.report_of(run_tools.subject(function, **more), cases=cases, level="smoke")
    return document, run_tools.only(document)


@pytest.mark.parametrize(
    ("function", "contract"),
    [(wrong_on_inf, "finite"), (refuses_nan, "finite"), (dies_of_inf, "finite"), (wrong_on_zero, "nonzero"),
     (flushes, "normal")],
)  # fmt: skip
def test_a_kernel_holds_inside_of_its_contract_and_what_it_does_outside_is_information(function, contract):
    document, row = judged(function)
    assert row["outcome"] != "pass" and document.exit_status() != 0 and "outside" not in row
    document, row = judged(function, inputs=contract)
    assert row["outcome"] == "pass" and not row["failures"] and document.exit_status() == 0, row["words"]
    out = row["outside"]
    assert (
        out["contract"] == [contract]
        and out["cases"] == out["held"] + out["differing"] + out["refused"] + out["failed"]
    )
    assert out["differing"] or out["refused"] or out["failed"]
    assert f"outside of inputs={contract}" in row["evidence"] and row["corners"]
    reports.check(json.loads(json.dumps(document.document())), "here")


def test_the_model_holds_outside_too():
    _, row = judged(lambda x, profile: R.quantize_mxfp4(x, profile), inputs=EVERY)
    assert row["outcome"] == "pass" and row["outside"]["held"] == row["outside"]["cases"] > 0
    assert "all hold" in row["outside"]["words"]


def test_a_kernel_is_wrong_in_spite_of_its_contract_and_shown_by_a_case_inside():
    document, row = judged(ties_away, inputs="finite")
    assert row["outcome"] == "mismatch" and document.exit_status() == 1
    (record,) = row["failures"][:1]
    assert record["shrunk"] and "inf" not in record["page"]["input"][0]["value"]


def test_every_stream_of_a_whole_run_is_asked_inside():
    _, row = judged(wrong_on_inf, cases=None, inputs="finite")
    assert row["outcome"] == "pass" and row["corners"] and row["structural"] and row["vectors"] and row["sampled"]
    assert row["outside"]["differing"] and not any("Inf" in hole or "NaN" in hole for hole in row["holes"])


def test_calls_outside_that_fail_are_given_up_after_three():
    calls = []

    def kernel(x, profile):
        calls.append(bool(np.isfinite(np.asarray(x, np.float32)).all()))
        return dies_of_inf(x, profile)

    _, row = judged(kernel, cases=lambda *key: chain(*(few(*key) for _ in range(5))), inputs="finite")
    assert row["outside"]["failed"] == 3 == calls.count(False) and row["faults"] == 0


def test_a_domain_partly_outside_is_run_and_not_called_proved_and_verdict_and_badge_say_the_contract(little_structure):
    def kernel(codes, dtype="float32"):
        return R.decode_e4m3(np.where(codes & 127 == 127, np.uint8(0), codes), dtype)

    document = judge_kernel(kernel, "decode_e4m3", inputs=["finite"], save=False)
    for row in document["results"]:
        assert row["domains"] and {domain["verdict"] for domain in row["domains"]} == {"incomplete"}
        assert "that is inside of inputs=finite" in row["evidence"]
    words = "verified within its contract inputs=finite"
    assert document["footer"]["verdict"].startswith(words) and f"refnum: {words}, standard" in badge(document)
    assert "2e7d32" in badge(document) and document["footer"]["exit"] == 0


# ---------------------------------------------------------------------------------------- how it is declared


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(discover, "installed", lambda: ([], []))
    return tmp_path


KERNEL = """
import numpy as np, refnum
from refnum.conformance import implements

def quantize_mxfp4(x, profile="HOPPER"):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    infinite = np.isinf(np.asarray(x, np.float32)).reshape(*scales.shape, 32).any(-1)
    return packed, np.where(infinite, np.uint8(254), scales)
"""
DECLARED = """
@implements("quantize_mxfp4", profile="HOPPER", inputs="finite")
def declared(x):
    return quantize_mxfp4(x)

TABLE = {"name": "table", "inputs": ["finite", "normal"], "operations": {"quantize_mxfp4": quantize_mxfp4}}
"""


def run(*words):
    return CliRunner().invoke(app, ["check", "-o", "quantize_mxfp4", "-p", "HOPPER", "--level", "smoke", *words])


def test_the_command_line_takes_it(folder):
    (folder / "k.py").write_text(KERNEL)
    found = run("-s", "k.py:quantize_mxfp4", "--inputs", "finite")
    assert found.exit_code == 0 and "for information: quantize_mxfp4 quantize_mxfp4" in found.stdout
    assert "outside of inputs=finite" in found.stdout
    wrong = run("-s", "k.py", "--inputs", "positive")
    assert wrong.exit_code == 2 and "choose from finite, nonzero, normal" in wrong.stderr


def test_the_decorator_and_the_dict_take_it_in_this_process_and_another(folder):
    (folder / "k.py").write_text(KERNEL + DECLARED)
    for isolate in (True, False):
        found = {one.name: one.inputs for one in choose(["k.py", "k.py:TABLE"], isolate).usable}
        assert found == {"declared": ("finite",), "table": ("finite", "normal")}
    with pytest.raises(ArgumentError, match="inputs='positive'"):
        from refnum.conformance import implements

        implements("quantize_mxfp4", inputs="positive")


def test_a_declaration_of_a_library_takes_it(folder):
    text = 'inputs = {}\n[operations.quantize_mxfp4]\narguments = ["x", "rows(x)", "columns(x)", "packed", "scales"]\n'
    (folder / "k.toml").write_text(text.format('["finite", "nonzero"]'))
    assert from_library(folder / "k.toml")["inputs"] == ("finite", "nonzero")
    (folder / "k.toml").write_text(text.format('"positive"'))
    with pytest.raises(ArgumentError, match="choose from"):
        from_library(folder / "k.toml")


def test_tensors_of_a_file_outside_of_the_contract_are_information(folder):
    (folder / "k.py").write_text(KERNEL)
    np.savez("t.npz", plain=np.ones((2, 32), np.float32), odd=np.full((2, 32), np.inf, np.float32))
    found = run("-s", "k.py:quantize_mxfp4", "--inputs", "finite", "--data", "t.npz", "--report", "r.json")
    rows = {row["tensor"].rpartition(":")[2]: row for row in json.loads((folder / "r.json").read_text())["data"]}
    assert found.exit_code == 0 and len(rows) == 2
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert sorted(outcomes.values()) == ["pass", "unsupported"]


def test_the_peer_gfloat_is_green_on_finite_inputs():
    pytest.importorskip("gfloat")
    (peer,) = choose(["gfloat"]).usable
    for inputs, holds in (("finite", True), ((), False)):
        plan = Plan([replace(peer, inputs=inputs)], select(["quantize_mxfp4"]), level="smoke", cases=few, save=False)
        (row,) = run_plan(plan, reports.Report(reports.header("smoke", 0, [], [], []))).document()["results"]
        assert (row["outcome"] == "pass") is holds
