"""Replay files: literal, checked, refused when touched, and the same verdict anywhere."""

import json
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan
from refnum.conformance.mismatches import replay
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure
from refnum.errors import FileError


def ties_away(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))


SUBJECT = Subject("k", {"quantize_mxfp4": ties_away}, origin="k.py:quantize_mxfp4")


def saved(tmp_path, operation="quantize_mxfp4", **params):
    (case,) = control_cases(operation, "HOPPER", {**OPERATIONS[operation].defaults(), **params})
    golden = run_golden(case)
    body = replay.document(case, golden, golden, SUBJECT, Failure(case, NO_LEVEL), case)
    return case, replay.save(body, tmp_path)


def test_the_form_of_a_call_survives_the_file(tmp_path):
    form = {"x.storage": "transposed", "x.address": 48}
    case, path = saved(tmp_path, form=form)
    assert replay.load(path).case.params["form"] == form == case.params["form"]


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_a_case_of_every_operation_survives_the_file(tmp_path, operation):
    every = list(OPERATIONS[operation].variants())
    for params in (every[0], every[-1]):
        (case,) = control_cases(operation, "HOPPER", params)
        golden = run_golden(case)
        path = replay.save(replay.document(case, golden, golden), tmp_path)
        back = replay.load(path)
        assert back.case.digest() == case.digest()
        assert {name: array.dtype for name, array in back.case.inputs.items()} == {
            name: array.dtype for name, array in case.inputs.items()
        }
        again = back.golden()
        assert all(np.array_equal(again[name], back.expected[name]) for name in golden)


def dtypes_of(case):
    return {name: array.dtype for name, array in case.inputs.items()}


def smallest_corners(operation):
    """The smallest corner case of every choice of dtypes that the corners of an operation have."""
    found = {}
    every = list(OPERATIONS[operation].variants())
    profiles = [name for name in ("HOPPER", "STOCHASTIC") if not OPERATIONS[operation].undefined(name)]
    for profile in profiles if OPERATIONS[operation].profiled else profiles[:1]:
        for params in (every[0], every[-1]):
            for case in corner_cases(operation, profile, params):
                key = tuple(sorted((name, str(dtype)) for name, dtype in dtypes_of(case).items()))
                if case.elements and (key not in found or case.elements < found[key].elements):
                    found[key] = case
    return found.values()


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_every_dtype_of_a_corner_survives_the_file(tmp_path, operation):
    cases = list(smallest_corners(operation))
    assert cases
    for case in cases:
        golden = run_golden(case)
        back = replay.load(replay.save(replay.document(case, golden, golden), tmp_path))
        assert back.case.digest() == case.digest() and dtypes_of(back.case) == dtypes_of(case)


def test_a_row_map_of_any_signed_integers_survives_the_file(tmp_path):
    (case,) = control_cases("unpermute", "HOPPER", {"align": 32})
    golden = run_golden(case)
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        other = case.with_inputs({"row_map": case.inputs["row_map"].astype(dtype)})
        back = replay.load(replay.save(replay.document(other, golden, golden), tmp_path))
        assert dtypes_of(back.case)["row_map"] == dtype
        assert all(np.array_equal(array, golden[name]) for name, array in back.golden().items())


def test_the_schema_and_the_reader_know_the_same_dtypes():
    schema = json.loads((Path(replay.__file__).parents[1] / "reports" / "schema" / "replay.schema.json").read_text())
    assert set(schema["$defs"]["array"]["properties"]["dtype"]["enum"]) == set(replay._DTYPES)


def test_the_id_comes_from_the_content_not_from_the_time_or_the_machine(tmp_path, monkeypatch):
    _, one = saved(tmp_path)
    monkeypatch.setattr(
        replay, "environment", lambda: {"model_digest": "sha256:" + "0" * 64, "versions": {}, "variables": {}}
    )
    _, two = saved(tmp_path)
    assert one == two and one.name == f"{json.loads(one.read_text())['id']}.json"
    _, other = saved(tmp_path, input="bfloat16")
    assert other != one


def test_a_real_failure_is_written_and_read_with_its_observed_bytes(tmp_path):
    (case,) = control_cases("quantize_mxfp4", "HOPPER", {"input": "float32"})
    record = Presenter(Plan([SUBJECT], [], shown=1), folder=lambda: tmp_path).record(SUBJECT, Failure(case, NO_LEVEL))
    back = replay.load(tmp_path / f"{record['id']}.json")
    assert record["bug_classes"][0]["id"] == "E2M1_TIES_UP" and record["reproduced"] == "3 of 3"
    assert back.case.inputs["x"].shape == (1, 32) and back.body["shrunk_from"] == case.digest()
    wrong = ties_away(back.case.inputs["x"], refnum.HOPPER)
    assert np.array_equal(back.observed["packed"], wrong[0])
    assert np.array_equal(back.expected["packed"], call_golden(back.case)[0])
    assert record["command"] == f"refnum replay {tmp_path}/{record['id']}.json --subject k.py:quantize_mxfp4"


def changed(path, change):
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    return path


def resign(body):
    body["id"] = replay.identity(body)


def both(change):
    """Apply a change and give the file the id that its new content would have."""

    def apply(body):
        change(body)
        resign(body)

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.update(schema="refnum.replay/2"), "this version reads refnum.replay/1 only"),
        (lambda b: b.update(schema="refnum.report/1"), "is no refnum replay file"),
        (lambda b: b.pop("schema"), "is no refnum replay file"),
        (lambda b: b.pop("inputs"), "'inputs' is a required property"),
        (lambda b: b.update(comment="hi"), "Additional properties are not allowed"),
        (lambda b: b["inputs"]["x"].update(hex="zz"), "does not match"),
        (
            lambda b: b["inputs"]["x"].update(hex=b["inputs"]["x"]["hex"][:-2] + "41"),
            "was changed after it was written",
        ),
        (lambda b: b["expected"]["scales"].update(hex="00" * 32), "was changed after it was written"),
        (lambda b: b["params"].update(input="float16"), "was changed after it was written"),
        (lambda b: b.update(id="0" * 16), "was changed after it was written"),
        (both(lambda b: b["inputs"]["x"].update(hex=b["inputs"]["x"]["hex"][:-8])), "bytes do not fill"),
        (both(lambda b: b["inputs"]["x"].update(shape=[4, 255])), "bytes do not fill"),
        (both(lambda b: b.update(operation="quantize_mxfp5")), "this version does not know"),
        (both(lambda b: b["inputs"].update(y=b["inputs"]["x"])), "unknown ['y']"),
        (both(lambda b: b["inputs"].clear()), "missing ['x']"),
        (both(lambda b: b["params"].update(colour="red")), "no parameters ['colour']"),
        (both(lambda b: b["profile"].update(ties="away")), "has other fields here"),
        (both(lambda b: b["profile"].update(name="NOPE")), "does not describe a case"),
        (both(lambda b: b["profile"].pop("ties")), None),
        (both(lambda b: b["expected"].pop("scales")), "outputs of quantize_mxfp4 are"),
        (lambda b: b["inputs"]["x"].update(dtype="float64"), "is not one of"),
        (lambda b: b["inputs"]["x"].update(shape=[-4, -256]), "less than the minimum"),
        (lambda b: b["inputs"]["x"].update(shape=[1 << 40]), "greater than the maximum"),
    ],
)
def test_a_touched_file_is_refused_in_words(tmp_path, change, words):
    _, path = saved(tmp_path)
    if words is None:  # fields of a profile that are left out have their defaults: the same profile
        replay.load(changed(path, change))
        return
    with pytest.raises(FileError) as caught:
        replay.load(changed(path, change))
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00\x01", "[" * 5000, '{"schema": "refnum.replay/1"}'])
def test_a_file_that_is_no_replay_file_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(FileError):
        replay.load(path)


def test_a_missing_and_a_huge_file_are_refused(tmp_path, monkeypatch):
    with pytest.raises(FileError, match="No such file"):
        replay.load(tmp_path / "absent.json")
    _, path = saved(tmp_path)
    monkeypatch.setattr(replay, "MAX_BYTES", 100)
    with pytest.raises(FileError, match="at most 100"):
        replay.load(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    from refnum.conformance.reports import files

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(FileError, match="No space left"):
        saved(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_file_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FileError, match="Cannot write"):
        saved(blocked / "cases")


def test_another_version_of_the_model_is_noticed(tmp_path):
    _, path = saved(tmp_path)
    assert replay.load(path).same_model
    path = changed(path, lambda b: b["environment"].update(model_digest="sha256:" + "0" * 64))
    assert not replay.load(path).same_model
