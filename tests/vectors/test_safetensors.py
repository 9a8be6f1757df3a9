"""The writer against the official reader."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.safetensors import read_safetensors, write_safetensors

TENSORS = {
    "inputs.x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "inputs.codes": np.arange(5, dtype=np.uint8),
    "outputs.rows": np.zeros((0, 32), np.uint8),
    "outputs.map": np.asarray([-1, 7], np.int64),
    "inputs.half": np.asarray([1, 2], np.float16),
}


def test_the_official_reader_reads_it(tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_bytes(write_safetensors(TENSORS, {"id": "x", "params": {"b": 1, "a": [2]}}))
    read = safetensors.numpy.load_file(path)
    assert set(read) == set(TENSORS)
    for name, array in TENSORS.items():
        assert read[name].dtype == array.dtype and np.array_equal(read[name], array)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"refnum": '{"id":"x","params":{"a":[2],"b":1}}'}


def test_every_committed_tensor_is_read_by_the_official_reader(folder, all_vectors):
    seen = 0
    for vector in all_vectors:
        if vector.tensor is None or seen >= 12:
            continue
        seen += 1
        with safetensors.safe_open(folder / vector.tensor, "numpy") as file:
            assert json.loads(file.metadata()["refnum"])["id"] == vector.id
            for name, array in vector.outputs.items():
                got = file.get_tensor(f"outputs.{name}")
                assert got.shape == array.shape and got.tobytes() == array.tobytes()
    assert seen == 12


def test_the_order_of_tensors_and_metadata_does_not_change_the_bytes():
    turned = dict(reversed(list(TENSORS.items())))
    assert write_safetensors(TENSORS, {"a": 1, "b": 2}) == write_safetensors(turned, {"b": 2, "a": 1})


def test_tensors_are_aligned_and_without_holes():
    data = write_safetensors(TENSORS, {})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    assert size % 8 == 0
    end = 0
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        assert start == end and start % TENSORS[name].dtype.itemsize == 0
        end = stop
    assert 8 + size + end == len(data)


def test_bfloat16_round_trips_to_the_bit():
    x = np.asarray([[0x7FC1, 0x8000, 0x0001]], np.uint16).view(ml_dtypes.bfloat16)
    tensors, metadata = read_safetensors(write_safetensors({"inputs.x": x}, {"id": "q"}), "here")
    assert tensors["inputs.x"].tobytes() == x.tobytes() and metadata == {"id": "q"}


@pytest.mark.parametrize("cut", [0, 4, 40, -1])
def test_a_truncated_file_is_a_named_error(cut):
    data = write_safetensors(TENSORS, {})
    with pytest.raises(VectorFileError, match="no safetensors file"):
        read_safetensors(data[:cut], "broken")
