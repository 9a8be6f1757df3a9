"""The Python door: a kernel judged from a test."""

import numpy as np
import pytest

import refnum
from refnum.conformance import assert_conforms, implements, judge_kernel
from refnum.conformance.api import as_subject
from refnum.conformance.reports import report as reports
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError, ProfileError


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def wrong(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))


def test_a_right_kernel_conforms():
    assert_conforms(right, "quantize_mxfp4", level="smoke")
    assert_conforms({"decode_e2m1": lambda codes, dtype: refnum_decode(codes, dtype)}, level="smoke")
    assert_conforms(Subject("k", {"quantize_mxfp4": right}), level="smoke")


def refnum_decode(codes, dtype):
    from refnum.casts import decode_e2m1

    return decode_e2m1(codes, dtype)


def test_a_wrong_kernel_fails_with_its_page(tmp_path):
    with pytest.raises(AssertionError) as caught:
        assert_conforms(wrong, "quantize_mxfp4", profile="OCP", level="smoke")
    text = str(caught.value)
    assert "MISMATCH" in text and "E2M1_TIES_UP" in text and "refnum replay" in text
    assert list((tmp_path / ".refnum" / "cases").glob("*.json"))


def test_the_report_is_valid_and_says_what_was_asked(tmp_path):
    document = judge_kernel(wrong, "quantize_mxfp4", profile="HOPPER", level="smoke", save=False)
    reports.check(document, "the report")
    assert document["footer"]["exit"] == 1 and [r["profile"] for r in document["results"]] == ["HOPPER"]
    assert not (tmp_path / ".refnum").exists()


def no_negative_zero(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="drop", negative_zero="drop"))


FILE = """import refnum
def quantize_mxfp4(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="drop", negative_zero="drop"))
"""


@pytest.mark.parametrize("form", ["function", "dict", "subject", "declared", "path"])
def test_the_level_that_is_enough_counts_for_every_form_of_kernel(form, tmp_path):
    (tmp_path / "own.py").write_text(FILE)
    operations = {"quantize_mxfp4": no_negative_zero}
    kernel = {
        "function": no_negative_zero,
        "dict": {"name": "k", "level": 1, "operations": operations},
        "subject": Subject("k", operations, level=1, levels={"quantize_mxfp4": 1}),
        "declared": implements("quantize_mxfp4", level=1)(lambda x, profile: no_negative_zero(x, profile)),
        "path": "own.py:quantize_mxfp4",
    }[form]
    of = "quantize_mxfp4" if form == "function" else None
    claimed = {"function": 0, "path": 0}.get(form, 1)
    for agreement, counts in ((None, claimed), (2, 2), (0, 0)):
        assert as_subject(kernel, of, agreement).claimed_level("quantize_mxfp4") == counts
    with pytest.raises(ArgumentError, match="L4, P1, or 0 to 5"):
        as_subject(kernel, of, 6)


def test_a_declared_level_beyond_the_last_is_refused_where_it_is_declared():
    with pytest.raises(ArgumentError, match="quantize_mxfp4 claims level 99; a level of agreement is L0, L1"):
        implements("quantize_mxfp4", level=99)


def test_a_level_of_agreement_can_be_enough():
    asked = {"profile": "HOPPER", "level": "smoke", "examples": 0}
    assert_conforms(no_negative_zero, "quantize_mxfp4", agreement=2, **asked)
    with pytest.raises(AssertionError, match="fails L1"):
        assert_conforms(no_negative_zero, "quantize_mxfp4", **asked)


def test_what_is_not_supported_does_not_conform(little_structure):
    with pytest.raises(AssertionError, match="takes no 'scale'"):
        assert_conforms(
            lambda packed, scales: refnum.mxfp4_to_fp8(packed, scales), "mxfp4_to_fp8", save=False, examples=0
        )


@pytest.mark.parametrize(
    ("kernel", "operation", "options", "error"),
    [
        (right, None, {}, ArgumentError),
        (7, "quantize_mxfp4", {}, ArgumentError),
        (right, "quantise", {}, ArgumentError),
        (right, "quantize_mxfp4", {"profile": "NOPE"}, ProfileError),
        (right, "quantize_mxfp4", {"level": "heroic"}, ArgumentError),
    ],
)
def test_unknown_names_are_refused(kernel, operation, options, error):
    with pytest.raises(error):
        judge_kernel(kernel, operation, **options)


def test_an_operation_that_the_kernel_lacks_is_reported():
    document = judge_kernel({"quantize_mxfp4": right}, "quantize_fp8_tiles", level="smoke")
    assert [row["outcome"] for row in document["results"]] == ["unsupported"] and document["footer"]["exit"] == 3
    assert "has no quantize_fp8_tiles" in document["results"][0]["words"]


def test_importing_a_part_does_not_import_all():
    import subprocess
    import sys

    code = "import sys, refnum.conformance.cases.case;"
    code += "sys.exit('refnum.conformance.commands.check.controls' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert np.__version__
