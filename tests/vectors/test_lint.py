"""Every fault that the lint and the schemas are there for, one at a time; `test_verify` asks the committed folder."""

import json

import pytest

from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.lint import lint

MLX, COLUMNS = "quantize_mxfp4/MLX.json", "mxfp4_columns/HOPPER.json"


def entry(document, n=0):
    return document["groups"][0]["vectors"][n]


def long_flags(document):
    return next(e["flags"] for e in document["groups"][0]["vectors"] if len(e["flags"]) > 1)


def test_the_small_folder_is_clean(small):
    assert lint(small) > 40


FAULTS = {
    "unknown flag": (MLX, lambda d: entry(d)["flags"].append("ZZ_NO_SUCH_NOTE"), "has no note"),
    "flags unsorted": (MLX, lambda d: long_flags(d).reverse(), "canonical order"),
    "unknown key": (
        MLX,
        lambda d: entry(d).update(result="valid"),
        "additionalProperties|Additional properties|is not valid",
    ),
    "missing outputs": (MLX, lambda d: entry(d).pop("outputs"), "required|is not valid"),
    "bad clause": (MLX, lambda d: entry(d).update(clause="N99"), "N99"),
    "odd hex": (MLX, lambda d: entry(d)["outputs"]["scales"].update(hex="0"), "hex|does not match|is not valid"),
    "hex too short": (MLX, lambda d: entry(d)["outputs"]["packed"].update(hex="00"), "do not fill"),
    "unknown dtype": (MLX, lambda d: entry(d)["outputs"]["packed"].update(dtype="float64"), "float64"),
    "edited input": (
        MLX,
        lambda d: entry(d)["inputs"]["x"].update(hex="ff" * (len(entry(d)["inputs"]["x"]["hex"]) // 2)),
        "has the id",
    ),
    "edited argument": (COLUMNS, lambda d: entry(d)["arguments"].update(splits=[4, 4]), "has the id"),
    "other id": (MLX, lambda d: entry(d).update(id="0" * 16), "has the id"),
    "duplicate": (MLX, lambda d: d["groups"][0]["vectors"].__setitem__(1, entry(d)), "already in"),
    "count": (MLX, lambda d: d.update(count=d["count"] + 1), "count is"),
    "operation of another file": (MLX, lambda d: d.update(operation="quantize_mx"), "name must say so"),
    "profile redefined": (MLX, lambda d: d["profile"].update(zero_scale=3), "is not refnum's MLX"),
    "group twice": (
        MLX,
        lambda d: d["groups"].append({**d["groups"][0], "vectors": [d["groups"][0]["vectors"].pop()]}),
        "two groups",
    ),
    "note without vector": (
        "notes.json",
        lambda d: d["notes"].update(ZZ_NEW=dict(next(iter(d["notes"].values())))),
        "has no vector",
    ),
    "note without effect": ("notes.json", lambda d: next(iter(d["notes"].values())).pop("effect"), "effect"),
    "notes unsorted": ("notes.json", lambda d: d.update(notes=dict(reversed(d["notes"].items()))), "not sorted"),
    "removed but present": (
        "history.json",
        lambda d: d["removed"].append(
            {
                "id": "0" * 16,
                "operation": "quantize_mxfp4",
                "profile": "MLX",
                "release": "9",
                "reason": "none",
                "by": "1" * 16,
            }
        ),
        "does not exist",
    ),
    "corrected but absent": (
        "history.json",
        lambda d: d["corrected"].append({"id": "0" * 16, "release": "9", "reason": "none", "previous": "0" * 64}),
        "does not exist",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_named_error(name, small, spoil):
    file, change, words = FAULTS[name]
    spoil(small / file, change)
    with pytest.raises(VectorFileError, match=words):
        lint(small)


def test_text_that_is_not_canonical_is_refused(small):
    path = small / MLX
    path.write_text(json.dumps(json.loads(path.read_text())))
    with pytest.raises(VectorFileError, match="not canonical"):
        lint(small)


def test_a_missing_tensor_and_a_stray_tensor_are_refused(small):
    tensor = next((small / "tensors").iterdir())
    data = tensor.read_bytes()
    tensor.unlink()
    with pytest.raises(VectorFileError, match="missing"):
        lint(small)
    tensor.write_bytes(data)
    tensor.with_name("stray.safetensors").write_bytes(data)
    with pytest.raises(VectorFileError, match="stray"):
        lint(small)


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema.update({"$id": 7}),
        lambda schema: schema.update(required=3),
        lambda schema: schema["properties"].update(profile={"$ref": "common.schema.json#/$defs/no_such"}),
    ],
)
def test_a_broken_schema_is_a_named_error(small, spoil, change):
    spoil(small / "schema" / "vectors.schema.json", change)
    with pytest.raises(VectorFileError, match="broken"):
        lint(small)


def test_no_json_and_no_folder_are_named_errors(small, tmp_path):
    (small / MLX).write_text("{")
    with pytest.raises(VectorFileError, match="no readable JSON"):
        lint(small)
    with pytest.raises(VectorFileError):
        lint(tmp_path / "nowhere")
