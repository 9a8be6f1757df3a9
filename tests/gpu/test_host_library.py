"""How the library is found, built and kept, and that a changed header is noticed by the proofs."""

import shutil
import subprocess
import sys

import float64_oracle as oracle
import numpy as np
import pytest

from refnum.conformance.cases.operation import OPERATIONS
from refnum.errors import UnsupportedError
from refnum.gpu import subjects
from refnum.gpu.checks import BFLOAT16
from refnum.gpu.host import build as library


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache, and a process that has not yet decided whether there is a library."""
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path / "cache"))
    library._loaded.cache_clear()
    yield tmp_path / "cache"
    library._loaded.cache_clear()


def test_no_compiler_is_said(fresh, monkeypatch):
    monkeypatch.setenv("PATH", str(fresh))
    monkeypatch.delenv("CXX", raising=False)
    usable, reason = library.available()
    assert not usable and "compiler" in reason
    assert library.describe()["available"] == "no"
    with pytest.raises(UnsupportedError, match="compiler"):
        library.library()
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    library._loaded.cache_clear()
    assert "no-such-compiler" in library.available()[1]


def test_a_compiler_that_fails_is_said_and_leaves_no_file(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    usable, reason = library.available()
    assert not usable and "could not compile" in reason
    assert not list(fresh.glob("*"))


def test_a_cache_that_cannot_be_written_is_said(fresh, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("REFNUM_CACHE", str(blocked / "below"))
    usable, reason = library.available()
    assert not usable and "could not be made" in reason


def test_key_follows_sources_flags_and_compiler(host, monkeypatch, tmp_path):
    build = library.plan()
    assert build.digest == library.source_digest() == host.describe()["source_sha256"]
    copy = tmp_path / "gpu"
    shutil.copytree(library.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(library, "ROOT", copy)
    assert library.plan().key == build.key
    with open(copy / "kernels" / "e2m1.cuh", "a") as header:
        header.write("// changed\n")
    assert library.plan().key != build.key
    parts = [(version, flags, machine) for version in "12" for flags in (("a",), ("b",)) for machine in "mn"]
    assert len({library.Build(("g++",), *part, "d").key for part in parts}) == 8


MUTANTS = {
    "ties away from even": ("fp8_to_mxfp4.cuh", "0x07070707u", "0x08080808u"),
    "empty blocks take part": ("mxfp4_to_fp8.cuh", "byte == NAN_BYTE || is_empty(packed)", "byte == NAN_BYTE"),
    "float32 ties go up": ("float32.cuh", "2 * rest + (kept & 1) > 1u", "2 * rest + 1 > 1u"),
}


def test_changed_arithmetic_is_another_library_and_is_caught(fresh, monkeypatch, tmp_path):
    """One build with three faults: the same inputs that pass for the real headers must fail here."""
    copy = tmp_path / "gpu"
    shutil.copytree(library.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in MUTANTS.values():
        path = copy / "kernels" / name
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))
    codes = np.tile(np.arange(0x40, 0x60, dtype=np.uint8), (2, 4))
    scales = np.full((2, 1), 127, np.uint8)
    packed = np.zeros((1, 64), np.uint8)
    packed[0, :16] = 0x77
    bytes_ = np.array([[120, 140, 140, 140]], np.uint8)
    row, weight = np.full((1, 1), 1 + 2.0**-12, np.float32), np.full(1, 1 + 2.0**-12, np.float32)
    tie = [[1 + 2.0**-11]]  # of 1 + 2**-11 + 2**-24, to even
    one_row = (np.zeros(1, np.int64), [1], weight, 1, 1)
    from refnum.gpu import host

    if not shutil.which("g++"):
        pytest.skip("no g++")
    monkeypatch.setattr(library, "FLAGS", ("-O0", *library.FLAGS[1:]))
    monkeypatch.setattr(library, "ROOT", copy)
    assert not np.array_equal(host.fp8_to_mxfp4(codes, scales)[0], oracle.fp8_to_mxfp4(codes, scales)[0])
    assert not np.array_equal(host.mxfp4_to_fp8(packed, bytes_)[1], oracle.mxfp4_to_fp8(packed, bytes_)[1])
    assert host.unpermute(row, *one_row).tolist() != tie
    assert [p.suffix for p in fresh.iterdir()] == [".so"]
    monkeypatch.undo()
    library._loaded.cache_clear()
    assert np.array_equal(host.fp8_to_mxfp4(codes, scales)[0], oracle.fp8_to_mxfp4(codes, scales)[0])
    assert np.array_equal(host.mxfp4_to_fp8(packed, bytes_)[1], oracle.mxfp4_to_fp8(packed, bytes_)[1])
    assert host.unpermute(row, *one_row).tolist() == tie


def test_importing_needs_no_compiler():
    code = "import os; os.environ['PATH'] = ''; import refnum.gpu.subjects as s; print(s.subjects()[0]['name'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "host", done.stderr


def test_subject_declares_every_operation(host):
    entry = next(entry for entry in subjects.subjects() if entry["name"] == "host")
    assert entry["kind"] == "host" and entry["profiles"] == ("HOPPER", "OCP", "CEIL", "EVEN", "TE")
    assert entry["available"]() == (True, "")
    assert set(entry["describe"]()) >= {"compiler", "version", "flags", "source_sha256"}
    assert {name: call.__name__ for name, call in entry["operations"].items()} == {n: n for n in entry["operations"]}
    without = {name for name, row in OPERATIONS.items() if row.family in ("integer", "oscillation", "tetrajet_v2")}
    without |= {"quantize_mx", "dequantize_mx", "adam_apply", "spam_apply"}
    assert set(OPERATIONS) - set(entry["operations"]) == without


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (5, 7)])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", BFLOAT16])
def test_address_is_that_of_the_first_byte(shape, dtype):
    x = np.zeros(shape, dtype)
    x.flags.writeable = False
    for view in (x, x[..., ::-1][..., 1:] if x.ndim else x, x.T, x.view(np.ndarray)):
        assert library.address(view) == view.ctypes.data
