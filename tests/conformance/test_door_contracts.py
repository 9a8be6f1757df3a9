"""The two contracts of kernels that are not Python: each has a guide, a schema and an example, and errors name them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import FORM, Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.loading import executable, shared_library
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.loading.failure import LIBRARY, LINES, schema_file
from refnum.conformance.subjects.loading.shapes import output_specs
from refnum.conformance.verdicts.refusals import refusal
from refnum.errors import ArgumentError, UnsupportedError

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
X = np.ones((2, 32), np.float32)


def library(folder: Path, source: str, declaration: str):
    (folder / "k.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", folder / "k.c", "-o", folder / "k.so"], check=True)
    (folder / "k.toml").write_text(declaration)
    return from_file(str(folder / "k.toml"))[0]


def program(folder: Path, body: str):
    path = folder / "program"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return from_file(f"exec:{path}:decode_e2m1")[0]


@needs_compiler
def test_a_function_without_a_status_works_where_it_is_declared(tmp_path):
    source = "void f(const char *p, const char *s, char *out) { for (int i = 0; i < 34; i++) out[i] = 7; }"
    subject = library(tmp_path, source, '[operations.pack_payload]\nsymbol = "f"\nreturns = "void"\n')
    packed, scales = np.zeros((2, 16), np.uint8), np.zeros((2, 1), np.uint8)
    (payload,) = subject.operations["pack_payload"](packed=packed, scales=scales)
    assert payload.shape == (2, 17) and (payload == 7).all()


@needs_compiler
@pytest.mark.parametrize("arguments", ["", 'arguments = ["codes", "scales", "packed", "out(scales)"]'])
def test_an_output_with_the_name_of_an_input_has_a_place_of_its_own(tmp_path, arguments):
    source = "int f(const char *c, const char *s, char *p, char *o) { o[0] = s[0] + 1; return 0; }"
    subject = library(tmp_path, source, f'[operations.fp8_to_mxfp4]\nsymbol = "f"\n{arguments}\n')
    codes, scales = np.zeros((1, 128), np.uint8), np.full((1, 1), 9, np.uint8)
    packed, found = subject.operations["fp8_to_mxfp4"](codes=codes, scales=scales)
    assert packed.shape == (1, 64) and found.shape == (1, 4) and found[0, 0] == 10 and scales[0, 0] == 9


@needs_compiler
def test_a_status_that_is_none_is_a_fault_in_every_form_of_a_call(tmp_path):
    subject = library(tmp_path, "int f() { return 7; }", '[operations.quantize_mxfp4]\nsymbol = "f"\n')
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32", FORM: {"x.storage": "read-only"}}, {"x": X})
    called = call(subject, case)
    assert called.outcome is Outcome.FAULT and not refusal(called)
    assert "returned 7; allowed are 0, and 1" in called.words and "refnum docs c-abi" in called.words


@pytest.mark.parametrize("body", ["exit 3", "cat > /dev/null & echo end", "echo zz; echo end"])
def test_an_executable_that_dies_or_talks_nonsense_is_a_fault_when_an_argument_was_left_out_too(tmp_path, body):
    case = Case(
        "decode_e2m1", "HOPPER", {"dtype": "float32", FORM: {"scalars": "omitted"}}, {"codes": np.eye(2, 3, dtype="u1")}
    )
    called = call(program(tmp_path, body), case)
    assert called.outcome is Outcome.FAULT and not refusal(called), called
    assert "refnum docs line-protocol" in called.words


def test_an_executable_that_refuses_a_form_refuses_it(tmp_path):
    called = call(
        program(tmp_path, "cat > /dev/null & echo unsupported never"),
        Case("decode_e2m1", "HOPPER", {}, {"codes": np.eye(2, 3, dtype="u1")}),
    )
    assert called.outcome is Outcome.UNSUPPORTED and refusal(called) and called.words == "never"


def test_parameters_that_a_call_leaves_out_are_sent_at_their_default(tmp_path):
    kept = tmp_path / "kept"
    subject = program(tmp_path, f"head -n 1 > {kept}; echo unsupported now")
    call(
        subject,
        Case(
            "decode_e2m1",
            "HOPPER",
            {"dtype": "float32", FORM: {"scalars": "omitted"}},
            {"codes": np.eye(2, 3, dtype="u1")},
        ),
    )
    assert kept.read_text() == "case decode_e2m1 profile=HOPPER dtype=float32\n"


def test_every_question_is_as_the_schema_says():
    schema = json.loads(schema_file(LINES).read_text())
    asked = jsonschema.Draft202012Validator({"$ref": "#/$defs/question", "$defs": schema["$defs"]})
    for operation in OPERATIONS:
        cases = corner_cases(operation, "OCP+ties=away", next(OPERATIONS[operation].variants()))
        for case in [case for case in cases if case.elements < 2000 and "maxval" not in case.inputs][:5]:
            names = [output.name for output in executable.outputs_of(case)]
            case = executable.whole(case)
            text = executable.question(case, list(zip(names, output_specs(case), strict=True)))
            asked.validate(text.splitlines())
            assert not asked.is_valid(text.replace("case ", "cases ", 1).splitlines())


def test_answers_are_as_the_schema_says():
    schema = json.loads(schema_file(LINES).read_text())
    answer = jsonschema.Draft202012Validator({"$ref": "#/$defs/answer", "$defs": schema["$defs"]})
    for right in (["3f800000 0", "", "end"], ["# hello", "unsupported only float32"]):
        answer.validate(right)
    for wrong in ([], ["3f800000"], ["1.5", "end"], ["unsupported", "end"]):
        assert not answer.is_valid(wrong), wrong


def test_the_schema_of_declarations_has_the_keys_that_are_read():
    schema = json.loads(schema_file(LIBRARY).read_text())
    assert set(schema["properties"]) == shared_library._KEYS
    assert set(schema["$defs"]["function"]["properties"]) == shared_library._OPERATION_KEYS


class FakeStream:
    """A stream of CuPy that notes what it is waited for."""

    def __init__(self, ptr, log, capturing=False):
        self.ptr, self.log, self.capturing = ptr, log, capturing

    def synchronize(self):
        self.log.append(self.ptr)

    def is_capturing(self):
        return self.capturing


@pytest.mark.parametrize("ptr", [0, 5])
def test_a_library_on_a_device_is_called_in_the_order_of_the_callers_stream(ptr, monkeypatch):
    log = []
    stream = FakeStream(ptr, log)
    cuda = SimpleNamespace(get_current_stream=lambda: stream, Stream=SimpleNamespace(null=FakeStream(0, log)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    assert shared_library._stream() == ptr
    assert shared_library._between_streams("f", lambda: log.append("call") or 0) == 0
    assert log == (["call"] if ptr == 0 else [5, "call", 0])
    stream.capturing = True
    if ptr:
        with pytest.raises(UnsupportedError, match="f takes no stream"):
            shared_library._between_streams("f", lambda: log.append("call"))


def test_the_guide_of_libraries_explains_every_key_and_every_word():
    text = (GUIDES / f"{LIBRARY}.md").read_text()
    words = {"out(NAME)", "rows(NAME)", "columns(NAME)", "size(NAME)", "splits", "tokens", "profile", "stream"}
    for word in (shared_library._KEYS | shared_library._OPERATION_KEYS | words) - {"operations"}:
        assert f"`{word}`" in text, word


@pytest.mark.parametrize("guide", [LIBRARY, LINES])
def test_a_guide_has_a_complete_example_and_its_schema(guide):
    text = (GUIDES / f"{guide}.md").read_text()
    assert "{literalinclude} examples/" in text and schema_file(guide).name in text
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_file(guide).read_text()))


@pytest.mark.parametrize("path", sorted(GUIDES.glob("examples/*.toml")), ids=lambda path: path.name)
def test_declarations_of_the_guides_are_as_the_schema_says(path):
    jsonschema.Draft202012Validator(json.loads(schema_file(LIBRARY).read_text())).validate(
        tomllib.loads(path.read_text())
    )


@needs_compiler
def test_the_library_of_the_guide_is_right_on_a_few_cases(tmp_path):
    for name in ("mxfp4.c", "mxfp4.toml"):
        shutil.copy(GUIDES / "examples" / name, tmp_path / name)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", tmp_path / "mxfp4.c", "-o", tmp_path / "mxfp4.so"], check=True)
    (subject,) = from_file(str(tmp_path / "mxfp4.so"))
    scales = np.arange(256, dtype=np.uint8).reshape(2, 128)
    packed = np.resize(np.arange(256, dtype=np.uint8), (2, 128 * 16))
    for dtype in ("float32", "bfloat16"):
        (values,) = subject.operations["dequantize_mxfp4"](packed=packed, scales=scales, dtype=dtype)
        want = refnum.dequantize_mxfp4(packed, scales, dtype)
        assert values.tobytes() == want.tobytes()


def test_the_executable_of_the_guide_answers_as_the_schema_says():
    case = Case("decode_e2m1", "HOPPER", {"dtype": "float32"}, {"codes": np.arange(16, dtype=np.uint8).reshape(2, 8)})
    refused = case.with_inputs(params={"dtype": "bfloat16"})
    text = "".join(executable.question(one, [("values", output_specs(one)[0])]) for one in (case, refused))
    command = [sys.executable, GUIDES / "examples" / "e2m1_sim.py"]
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    schema = json.loads(schema_file(LINES).read_text())
    answer = jsonschema.Draft202012Validator({"$ref": "#/$defs/answer", "$defs": schema["$defs"]})
    answer.validate(said[:3])
    answer.validate(said[3:])
    values = executable.read(iter(said), np.dtype(np.float32), (2, 8), "values")
    assert np.array_equal(values.view("u4"), refnum.decode_e2m1(case.inputs["codes"]).view("u4"))


def specs_of(cases):
    """Return the shapes and dtypes of the outputs of the first case that is no illegal one."""
    for case in cases:
        with contextlib.suppress(ArgumentError):
            return output_specs(case)
    raise AssertionError


def test_the_guide_names_the_type_of_every_output_of_whole_numbers():
    """A pointer does not say what it points at: who takes `offsets` for words of 32 bits writes over memory."""
    table = (GUIDES / "c-abi.md").read_text().partition("## Elements")[2].partition("## Status")[0]
    rows = {said: f" {cells} " for cells, said in re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)}
    for name, row in OPERATIONS.items():
        params = {key: choices[0] for key, choices in row.params.items() if key != "input"}
        for output, (_, dtype) in zip(row.outputs, specs_of(corner_cases(name, "HOPPER", params)), strict=False):
            dtype = np.dtype(dtype)
            if dtype.kind in "iu" and dtype.itemsize > 1:
                words = " ".join(cells for said, cells in rows.items() if f"`{dtype.name}_t`" in said)
                assert f"`{output.name}`" in words, f"{name}: {output.name} is {dtype}"
