"""A kernel that follows another profile than the one it is judged by is told so, and no other kernel is."""

from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.mismatches.diagnose import Seen
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.mismatches.other_profile import advice, other_profiles, other_values, value_advice
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.compare import compare
from refnum.conformance.verdicts.tally import Failure


def failing(rule, operation="quantize_mxfp4"):
    """Return (case, what a rule gives) for the small corner cases that fail under HOPPER."""
    params = OPERATIONS[operation].defaults()
    cases = [case for case in corner_cases(operation, "HOPPER", params) if 0 < case.elements < 5000]
    seen = [(case, rule(case)) for case in cases]
    return [
        Seen(case, bits)
        for case, bits in seen
        if not all(np.array_equal(a, bits[n]) for n, a in run_golden(case).items())
    ]


@pytest.mark.parametrize("operation", ["quantize_mxfp4", "fp8_to_mxfp4", "swiglu_quantize"])
@pytest.mark.parametrize("name", ["OCP", "MICROXCALING"])
def test_a_profile_that_gives_all_is_named(name, operation):
    seen = failing(lambda case: run_golden(case, refnum.PROFILES[name]), operation)
    assert seen and other_profiles(seen)[0] == name


def test_a_kernel_that_follows_none_is_told_none():
    def wrong(case):
        bits = run_golden(case, refnum.OCP)
        return {**bits, "packed": bits["packed"] ^ 1}

    assert other_profiles(failing(wrong)) == [] == other_profiles([])


def test_an_operation_without_a_profile_is_told_none():
    case = Case(
        "pack_payload", "HOPPER", {}, {"packed": np.zeros((1, 16), np.uint8), "scales": np.ones((1, 1), np.uint8)}
    )
    assert other_profiles([Seen(case, run_golden(case))]) == []


X = np.full((1, 32), 7, np.float32)
CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": X})


def judged(kernel, **fields):
    subject = Subject("mine", {"quantize_mxfp4": kernel}, **fields)
    seen = compare(CASE, run_golden(CASE), kernel(X))
    return subject, Failure(CASE, seen.level, observed=seen.observed)


def test_the_page_says_which_profile_to_try(tmp_path):
    subject, failure = judged(lambda x: refnum.quantize_mxfp4(x, "OCP"))
    presenter = Presenter(Plan([subject], [], seconds=9.0), lambda: Path(tmp_path))
    record = presenter.record(subject, failure, alike=[failure])
    assert "every bit is right under OCP" in record["words"] and "try -p OCP" in record["words"]


def test_a_kernel_that_is_told_its_profile_ignores_it_and_one_that_claims_another_is_to_declare():
    told, failure = judged(lambda x, profile=None: refnum.quantize_mxfp4(x, "OCP"))
    seen = [Seen(CASE, failure.observed)]
    assert advice(told, seen).endswith("though the kernel was told HOPPER")
    claims, _ = judged(lambda x: refnum.quantize_mxfp4(x, "OCP"), profiles=("HOPPER",))
    assert advice(claims, seen).endswith("try -p OCP and declare it in the place of HOPPER")


@pytest.mark.parametrize("variant", ["MODELOPT", "TORCHAO", "FOUR_OVER_SIX"])
def test_a_kernel_that_follows_another_variant_is_told_which(variant):
    def rule(case):
        return run_golden(case.with_inputs(params={**case.params, "variant": variant}))

    seen = failing(rule, "quantize_nvfp4")
    assert seen and other_values(seen) == [("variant", variant)]
    without = Subject("mine", {"quantize_nvfp4": lambda x, tensor_amax=None: None})
    assert value_advice(without, seen).startswith(
        f"every bit is right under variant={variant}; if it follows that, take"
    )
    told = Subject("mine", {"quantize_nvfp4": lambda x, variant="TE", tensor_amax=None: None})
    assert value_advice(told, seen).endswith("though the kernel was told variant=TE")


def test_a_kernel_that_follows_no_variant_is_told_none():
    wrong = failing(lambda case: {**(bits := run_golden(case)), "scales": bits["scales"] ^ 1}, "quantize_nvfp4")
    assert wrong and other_values(wrong) == [] == other_values([])


def test_the_page_says_which_value_to_accept(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    case = Case("quantize_nvfp4", "HOPPER", OPERATIONS["quantize_nvfp4"].defaults(), {"x": x})
    subject = Subject("mine", {"quantize_nvfp4": lambda x: refnum.quantize_nvfp4(x, "FOUR_OVER_SIX")})
    seen = compare(case, run_golden(case), refnum.quantize_nvfp4(x, "FOUR_OVER_SIX"))
    failure = Failure(case, seen.level, observed=seen.observed)
    record = Presenter(Plan([subject], [], seconds=9.0), lambda: Path(tmp_path)).record(
        subject, failure, alike=[failure]
    )
    assert "every bit is right under variant=FOUR_OVER_SIX; if it follows that" in record["words"]
