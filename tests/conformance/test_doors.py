"""Kernels that are no Python function, and functions that declare themselves, come in and are judged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum import layouts
from refnum.conformance import implements
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.commands.check.run import run
from refnum.conformance.reports.report import Report
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.loading.executable import from_executable
from refnum.conformance.subjects.loading.shared_library import from_library
from refnum.conformance.subjects.subject import from_dict
from refnum.errors import ArgumentError, FileError, ProfileError, UnsupportedError

SOURCE = Path(__file__).parent / "kernels" / "quantizer.c"
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

DECLARATION = """
name = "quantizer"
profiles = ["OCP"]
library = "libquantizer.so"

[operations.quantize_mxfp4]
symbol = "quantize"
arguments = ["x", "rows(x)", "columns(x)", "packed", "scales"]
dtypes = ["float32"]
"""


def build(folder: Path, name: str, *flags: str) -> Path:
    target = folder / name
    subprocess.run(["gcc", "-O1", *flags, str(SOURCE), "-o", str(target), "-lm"], check=True)
    return target


def library(folder: Path, *flags: str, declaration: str = DECLARATION) -> Path:
    build(folder, "libquantizer.so", "-shared", "-fPIC", *flags)
    path = folder / "quantizer.toml"
    path.write_text(declaration)
    return path


def rows_of(text: str) -> list[dict]:
    subjects = from_file(text)
    plan = Plan(subjects, select(["quantize_mxfp4"]), ["OCP"], "smoke", 0, 3, 20.0, shown=0, save=False)
    return run(plan, Report({"level": "smoke"})).results


def outcomes(text: str) -> list[str]:
    return [row["outcome"] for row in rows_of(text)]


@needs_compiler
def test_a_right_library_passes_and_says_what_it_does_not_take(tmp_path):
    rows = rows_of(str(library(tmp_path)))
    assert rows[0]["outcome"] == "pass" and rows[0]["compared"] > 1000
    assert all(row["outcome"] in ("pass", "unsupported") for row in rows)


@needs_compiler
@pytest.mark.parametrize(("flag", "outcome"), [("-DWRONG", "mismatch"), ("-DREFUSE", "unsupported")])
def test_a_wrong_library_fails_and_a_refusal_is_said(tmp_path, flag, outcome):
    assert outcomes(str(library(tmp_path, flag)))[0] == outcome


@needs_compiler
def test_a_library_without_the_function_is_a_fault(tmp_path):
    text = DECLARATION.replace('"quantize"', '"quantise"')
    assert outcomes(str(library(tmp_path, declaration=text)))[0] == "fault"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("quantize_mxfp4", "quantise_mxfp4", "no operation is named"),
        ('"rows(x)"', '"rows(y)"', "no argument 'rows\\(y\\)'"),
        ('symbol = "quantize"', "symbols = 1", "unknown keys"),
        ('library = "libquantizer.so"', 'memory = "shared"', "at memory: .*host.*see `refnum docs c-abi`"),
        ("[operations.quantize_mxfp4]", "[operation]", "unknown keys"),
        ('"OCP"', '"OPC"', "not known"),
        ('profiles = ["OCP"]', 'profiles = "OCP"', "at profiles: .*array.*see `refnum docs c-abi`"),
        ('dtypes = ["float32"]', 'returns = "char"', "at operations.quantize_mxfp4.returns: .*void"),
        (', "scales"]', "]", "no scales among its arguments"),
        (', "scales"]', ', "packed"]', "has packed twice"),
    ],
)
def test_a_declaration_that_is_off_says_what_is_allowed(tmp_path, old, new, words):
    path = tmp_path / "quantizer.toml"
    path.write_text(DECLARATION.replace(old, new))
    with pytest.raises((ArgumentError, ProfileError), match=words):
        from_dict(from_library(path), "test")


def test_a_library_without_a_declaration_is_named(tmp_path):
    with pytest.raises(FileError, match=r"quantizer\.toml"):
        from_library(tmp_path / "quantizer.so")


@needs_compiler
def test_an_executable_answers_in_hex_lines(tmp_path):
    path = build(tmp_path, "sim", "-DEXECUTABLE")
    rows = rows_of(f"exec:{path}:quantize_mxfp4")
    assert [row["outcome"] for row in rows] == ["pass"], rows[0]["words"]
    plan = Plan(from_file(f"exec:{path}:quantize_mxfp4"), select(["quantize_mxfp4"]), ["HOPPER"], "smoke", save=False)
    refused = run(plan, Report({"level": "smoke"})).results
    assert {row["outcome"] for row in refused} == {"unsupported"} and "only profile OCP" in refused[0]["words"]


@needs_compiler
def test_a_wrong_executable_fails_and_one_that_dies_is_a_fault(tmp_path):
    wrong = build(tmp_path, "wrong", "-DEXECUTABLE", "-DWRONG")
    dies = build(tmp_path, "dies", "-DEXECUTABLE", "-DDIES")
    assert outcomes(f"exec:{wrong}:quantize_mxfp4")[0] == "mismatch"
    subject = from_dict(from_executable(f"{dies}:quantize_mxfp4"), "test")
    first = subject.operations["quantize_mxfp4"](x=np.ones((1, 32), np.float32), profile=refnum.OCP)
    again = subject.operations["quantize_mxfp4"](x=np.ones((1, 32), np.float32), profile=refnum.OCP)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)), "it is started again"
    named = subject.operations["quantize_mxfp4"](x=np.ones((1, 32), np.float32), profile="OCP")
    assert all(np.array_equal(a, b) for a, b in zip(first, named, strict=True)), "a profile may be a name"


def script(folder: Path, body: str) -> str:
    path = folder / "answers"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return f"exec:{path}:quantize_mxfp4"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo end; cat > /dev/null", "row 0 of packed has"),
        ("while read line; do case $line in end) echo zz; echo end;; esac; done", "row 0 of packed has"),
        ("exit 3", "status 3"),
    ],
)
def test_an_answer_that_does_not_fit_is_a_fault(tmp_path, body, words):
    row = rows_of(script(tmp_path, body))[0]
    assert row["outcome"] == "fault" and words in row["words"], row["words"]


def test_a_program_that_does_not_exist_is_named():
    with pytest.raises(FileError, match="no executable file"):
        from_file("exec:/no/such/program")


def test_the_decorator_declares_a_subject_and_leaves_the_function_alone(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import refnum\nfrom refnum.conformance import implements\n\n"
        "@implements('quantize_mxfp4', name='mine', profile='OCP+ties=away', columns=64)\n"
        "def quantize(x):\n    return refnum.quantize_mxfp4(x, 'OCP+ties=away')\n\n"
        "@implements('fp8_to_mxfp4', name='mine', profile='OCP+ties=away')\n"
        "def recode(codes, scales):\n    return refnum.fp8_to_mxfp4(codes, scales, 'OCP+ties=away')\n"
    )
    (subject,) = from_file(str(path))
    assert subject.name == "mine" and sorted(subject.operations) == ["fp8_to_mxfp4", "quantize_mxfp4"]
    assert subject.profiles == ("OCP+ties=away",)
    plan = Plan([subject], select(list(subject.operations)), None, "smoke", 0, 3, save=False)
    rows = run(plan, Report({"level": "smoke"})).results
    assert {row["outcome"] for row in rows} == {"pass"}
    assert any("columns of 64" in row["refusal"] for row in rows)


@pytest.mark.parametrize("nibbles", layouts.NIBBLE_ORDERS)
@pytest.mark.parametrize("scales", layouts.LAYOUTS)
def test_other_layouts_are_turned_into_ours(nibbles, scales):
    @implements("quantize_mxfp4", profile="TE", nibbles=nibbles, scales=scales)
    def theirs(x):
        packed, block_scales = refnum.quantize_mxfp4(x, "TE")
        codes = layouts.codes_from_packed(packed)
        return layouts.codes_to_packed(codes, nibbles), layouts.scales_to_layout(block_scales, scales)

    subject = from_dict(theirs.refnum_subject.entry, "test")
    plan = Plan([subject], select(["quantize_mxfp4"]), None, "smoke", 0, 2, save=False)
    assert {row["outcome"] for row in run(plan, Report({"level": "smoke"})).results} == {"pass"}


def test_two_declarations_of_one_name_must_agree(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from refnum.conformance import implements\n\n"
        "@implements('quantize_mxfp4', name='mine', profile='OCP')\ndef one(x): ...\n\n"
        "@implements('fp8_to_mxfp4', name='mine', profile='TE')\ndef two(codes, scales): ...\n"
    )
    with pytest.raises(ArgumentError, match="differ in profiles"):
        from_file(str(path))


def test_an_unknown_operation_is_refused_where_it_is_declared():
    with pytest.raises(ArgumentError, match="choose from quantize_mxfp4"):
        implements("quantise")


TWO = DECLARATION.replace('["OCP"]', '["OCP", "HOPPER"]')


@needs_compiler
def test_a_library_that_is_told_no_profile_is_judged_by_its_first_and_the_others_are_said(tmp_path):
    (subject,) = from_file(str(library(tmp_path, declaration=TWO)))
    assert subject.profiles_for("quantize_mxfp4") == ("OCP", "HOPPER")
    plan = Plan([subject], select(["quantize_mxfp4"]), None, "smoke", 0, 3, save=False)
    found = {row["profile"]: row for row in run(plan, Report({"level": "smoke"})).results}
    assert {name: row["outcome"] for name, row in found.items()} == {"OCP": "pass", "HOPPER": "unsupported"}
    assert "takes no `profile`, so only its first one, OCP" in found["HOPPER"]["words"]


@needs_compiler
def test_a_library_that_is_told_the_profile_is_judged_by_each(tmp_path):
    told = TWO.replace('"quantize"', '"quantize_by"').replace("columns(x)", 'columns(x)", "profile')
    for declaration, wanted in ((told, {"pass"}), (told.replace('"OCP", "HOPPER"', '"HOPPER", "OCP"'), {"mismatch"})):
        (subject,) = from_file(str(library(tmp_path, declaration=declaration)))
        plan = Plan([subject], select(["quantize_mxfp4"]), None, "smoke", 0, 3, shown=0, save=False)
        rows = run(plan, Report({"level": "smoke"})).results
        assert len(rows) == 2 and {row["outcome"] for row in rows} == wanted
    with pytest.raises(ArgumentError, match="declare them"):
        from_file(str(library(tmp_path, declaration=told.replace('profiles = ["OCP", "HOPPER"]', ""))))


TILES = """
name = "tiles"
profiles = ["HOPPER"]
library = "libquantizer.so"

[operations.quantize_fp8_tiles]
symbol = "tiles"
arguments = ["x", "rows(x)", "columns(x)", "codes", "scales"]
dtypes = ["float32"]
"""


@needs_compiler
def test_a_parameter_that_the_library_is_not_told_is_unsupported_and_not_written_past(tmp_path):
    """With 128 x 128 tiles the scales are fewer: a function that is not told writes beyond its buffer."""
    source = tmp_path / "tiles.c"
    source.write_text("int tiles(const float *x, long m, long k, char *c, char *s) { return c[0] = s[0] = 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "libquantizer.so"], check=True)
    path = tmp_path / "tiles.toml"
    path.write_text(TILES)
    subject = from_file(str(path))[0]
    x = np.ones((128, 256), np.float32)
    codes, scales = subject.operations["quantize_fp8_tiles"](x=x, profile=None)
    assert codes.shape == (128, 256) and scales.shape == (128, 2)
    with pytest.raises(UnsupportedError, match=r"'tile', so tile=.128, 128. cannot be judged"):
        subject.operations["quantize_fp8_tiles"](x=x, tile=[128, 128], profile=None)
    with pytest.raises(UnsupportedError, match="takes no rbits"):
        library(tmp_path)
        quantizer = from_file(str(tmp_path / "quantizer.toml"))[0].operations["quantize_mxfp4"]
        quantizer(x=x, rbits=np.zeros(x.shape, np.uint8), profile=None)


def test_a_file_whose_function_is_named_almost_like_an_operation_is_told_which(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def helper(x): return x\ndef quantise_mxfp4(x): return x\n")
    with pytest.raises(ArgumentError, match=r"it has helper, quantise_mxfp4 \(quantize_mxfp4 is similar\)\.$"):
        from_file(str(file))
    file.write_text("ANSWER = 3\n")
    with pytest.raises(ArgumentError, match="no function named like an operation; name one"):
        from_file(str(file))
