"""Hex, canonical text and ids: each recomputed here without the code under test where it can be."""

import hashlib
import json
import struct

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.vectors import safetensors, vectors_folder
from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.record import (
    DTYPES,
    array_record,
    canonical,
    profile_choices,
    profile_record,
    record_array,
    vector_id,
)


def test_hex_is_the_little_endian_memory_image():
    record = array_record(np.asarray([[1.0, -10.0]], np.float32))
    assert record == {"dtype": "float32", "shape": [1, 2], "hex": "0000803f000020c1"}
    assert bytes.fromhex(record["hex"]) == struct.pack("<2f", 1.0, -10.0)


@pytest.mark.parametrize(
    "array",
    [
        np.asarray([[0x7FC1, 0x8000]], np.uint16).view(ml_dtypes.bfloat16),
        np.asarray([0x7F800001, 0x80000000], np.uint32).view(np.float32),
        np.zeros((0, 64), np.uint8),
        *(np.asarray([-1, 5]).astype(kind) for kind in ("i1", "i2", "i4", "i8", "u8")),
    ],
)
def test_records_round_trip_to_the_bit(array):
    back = record_array(json.loads(json.dumps(array_record(array))))
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_every_dtype_of_a_row_map_fits_a_record_the_schema_and_a_tensor_file():
    schema = json.loads((vectors_folder() / "schema" / "common.schema.json").read_text())
    assert set(schema["$defs"]["array"]["properties"]["dtype"]["enum"]) == set(DTYPES) == set(safetensors._NAMES)
    kinds = {np.dtype(f"{sign}{size}").name for sign in "iu" for size in (1, 2, 4, 8)}
    assert kinds <= set(DTYPES)


def test_big_endian_arrays_give_the_same_hex():
    array = np.asarray([1, 2, 0xABCD], np.uint16)
    assert array_record(array)["hex"] == "01000200cdab"


def test_hex_that_does_not_fill_the_shape_is_refused():
    with pytest.raises(VectorFileError, match="do not fill"):
        record_array({"dtype": "float32", "shape": [2], "hex": "0000803f"})
    with pytest.raises(VectorFileError, match="float64"):
        array_record(np.zeros(1))


def test_an_id_depends_on_the_question_alone():
    x = {"x": array_record(np.zeros((1, 32), np.float32))}
    hopper = profile_record(refnum.HOPPER)
    first = vector_id("quantize_mxfp4", hopper, {"a": 1, "b": 2}, x)
    assert first == vector_id("quantize_mxfp4", {**hopper, "name": "OTHER"}, {"b": 2, "a": 1}, dict(x))
    assert first != vector_id("quantize_mxfp4", profile_record(refnum.OCP), {"a": 1, "b": 2}, x)
    assert first != vector_id("quantize_mx", hopper, {"a": 1, "b": 2}, x)
    assert first != vector_id("quantize_mxfp4", hopper, {"a": 1}, x)
    assert first != vector_id(
        "quantize_mxfp4", hopper, {"a": 1, "b": 2}, {"x": array_record(np.ones((1, 32), np.float32))}
    )


def test_the_readme_recipe_gives_the_committed_ids(folder):
    for path in sorted(folder.glob("*/OCP.json")):
        document = json.loads(path.read_text())
        choices = {"scale_rule": "floor"}  # all that sets OCP apart
        for group in document["groups"]:
            for entry in group["vectors"]:
                if "inputs" not in entry:
                    continue
                question = {
                    "operation": document["operation"],
                    "profile": choices,
                    "params": {**group["params"], **entry.get("arguments", {})},
                    "inputs": entry["inputs"],
                }
                text = json.dumps(question, sort_keys=True, separators=(",", ":"))
                assert entry["id"] == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_profile_choices_are_the_differences_from_hopper():
    assert profile_choices(profile_record(refnum.HOPPER)) == {}
    assert profile_choices(profile_record(refnum.PROFILES["MLX"])) == {
        "ties": "zero",
        "negative_zero": "drop",
        "zero_scale": 127,
    }


def test_canonical_text_is_json_and_a_fixed_point():
    document = {"a": [1, 2], "long": ["x" * 60, "y" * 60], "array": {"hex": "00" * 200}, "empty": [], "none": None}
    text = canonical(document)
    assert json.loads(text) == document
    assert canonical(json.loads(text)) == text
    assert text.count("\n") == 10 and text.endswith("}\n")
