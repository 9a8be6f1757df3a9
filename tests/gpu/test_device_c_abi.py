"""Libraries of the C ABI whose pointers are device pointers: the guide's example is right, and spoilt ones are not.

Without nvcc on the machine with the device, build first on one that has it, and carry `build/device_libraries` over:

    python tests/gpu/test_device_c_abi.py
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refnum import gpu
from refnum.conformance.subjects.loading.shared_library import from_library

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "guides" / "examples" / "mxfp4_device.cu"
BUILT = ROOT / "build" / "device_libraries"
RETURN = "return cudaGetLastError() == cudaSuccess ? 0 : 2;"
SPOILT = {
    "right": ("", ""),
    "beyond": ("i < count; i += step", "i <= count; i += step"),
    "input": (RETURN, f"cudaMemsetAsync((void *)packed, 0x77, 1, (cudaStream_t)stream); {RETURN}"),
    "status": (RETURN, "return 7;"),
    "bits": ("const uint32_t sign = (uint32_t)(code & 8) << 28;", "const uint32_t sign = 0;"),
}  # fmt: skip
"""Name -> what is replaced in the example, and by what."""


def build(name: str, folder: Path) -> Path:
    """Return the library of one variant with its declaration, made by nvcc unless it was carried here."""
    library = folder / f"mxfp4_{name}.so"
    if (BUILT / library.name).is_file():
        return BUILT / library.name
    old, new = SPOILT[name]
    text = EXAMPLE.read_text()
    assert old in text
    source = folder / f"mxfp4_{name}.cu"
    source.write_text(text.replace(old, new) if old else text)
    said = EXAMPLE.with_suffix(".toml").read_text().replace("mxfp4_device", f"mxfp4_{name}")
    library.with_suffix(".toml").write_text(said)
    subprocess.run(["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
USABLE, REASON = gpu.available()
needs_device = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")


@needs_nvcc
def test_the_example_builds_and_is_declared(tmp_path):
    entry = from_library(build("right", tmp_path))
    assert entry["arrays"] == "cupy" and set(entry["operations"]) == {"dequantize_mxfp4", "pack_payload"}
    assert entry["available"]()[0]


def checked(library: Path, folder: Path) -> dict:
    """Return the results of `refnum check` by operation and variant."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "refnum.conformance.cli", "check", str(library), "--level", "smoke"]
    subprocess.run([*command, "--report", str(report)], cwd=ROOT, capture_output=True, timeout=300)
    return {row["variant"]: row for row in json.loads(report.read_text())["results"]}


@needs_device
@pytest.mark.skipif(shutil.which("nvcc") is None and not BUILT.is_dir(), reason="no nvcc, and nothing was carried here")
@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [("right", "pass", ""), ("beyond", "fault", "wrote memory after"), ("input", "mismatch", "changed its input"),
     ("status", "fault", "returned 7"), ("bits", "mismatch", "")],
)  # fmt: skip
def test_a_library_with_device_pointers_is_judged(name, outcome, words, tmp_path):
    found = checked(build(name, tmp_path), tmp_path)
    assert len(found) == 2
    for variant, row in found.items():
        if "dequantize" in variant:
            assert row["outcome"] == outcome and words in json.dumps(row), (variant, row["outcome"], row["words"])
        else:
            assert row["outcome"] == "pass"


if __name__ == "__main__":
    BUILT.mkdir(parents=True, exist_ok=True)
    for spoilt in SPOILT:
        print(build(spoilt, BUILT))
