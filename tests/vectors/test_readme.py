"""The reader's guide tells the truth: its examples are compiled, decoded and compared."""

import json
import re
import shutil
import struct
import subprocess

import pytest

from refnum.conformance.vectors.export import export_vectors

GCC = shutil.which("gcc")


@pytest.fixture(scope="module")
def readme(folder):
    return (folder / "README.md").read_text()


def block(text, language):
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL).group(1)


def test_the_worked_example_decodes(readme):
    record = json.loads(re.search(r"Worked example: `(.*)`", readme).group(1))
    assert struct.unpack("<2f", bytes.fromhex(record["hex"])) == (1.0, -10.0)
    assert struct.unpack("<2I", bytes.fromhex(record["hex"])) == (0x3F800000, 0xC1200000)


@pytest.mark.skipif(GCC is None, reason="needs gcc")
def test_the_c_program_finds_a_wrong_kernel(readme, tmp_path):
    """With a kernel that writes zeros everywhere the guide's program must report vectors and fail."""
    export_vectors("c", tmp_path / "c", "quantize_mxfp4", "HOPPER")
    kernel = """
    void quantize(const uint32_t *x, size_t rows, size_t columns, uint8_t *packed, uint8_t *scales) {
      (void)x; memset(packed, 0, rows * columns / 2); memset(scales, 0, rows * columns / 32); }
    """
    (tmp_path / "c" / "main.c").write_text(block(readme, "c") + kernel)
    subprocess.run(
        [GCC, "-std=c99", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"], cwd=tmp_path / "c", check=True
    )
    result = subprocess.run([tmp_path / "c" / "main"], capture_output=True, text=True, check=False)
    assert result.returncode == 1 and "E2M1_TIES_UP" in result.stdout
    assert "a block of +0" not in result.stdout  # zeros are right there


def test_the_systemverilog_depths_are_those_of_the_export(readme, tmp_path):
    export_vectors("readmemh", tmp_path / "m", "quantize_mxfp4", "HOPPER")
    document = json.loads((tmp_path / "m/quantize_mxfp4/HOPPER/float32/index.json").read_text())
    depths = dict(re.findall(r"(\w+) = (\d+)", re.search(r"localparam int (.*);", readme).group(1)))
    fields = document["fields"]
    assert {name: int(n) for name, n in depths.items()} == {
        "VECTORS": len(document["vectors"]),
        "X": fields["input_x"]["depth"],
        "PACKED": fields["output_packed"]["depth"],
        "SCALES": fields["output_scales"]["depth"],
    }
    assert list(fields) == re.search(r"3 fields: (.*)", readme).group(1).split(", ")


def test_every_field_of_the_vectors_is_explained(readme, all_vectors):
    table = set(
        re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in readme.splitlines() if line.startswith("| `")))
    )
    used = {name for vector in all_vectors for name in (*vector.inputs, *vector.outputs)}
    assert used <= table, used - table
