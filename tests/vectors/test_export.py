"""Exports, read back by readers written here: a C compiler, NumPy without pickle, a $readmemh parser."""

import json
import re
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from refnum.conformance.commands.vectors import vectors_app
from refnum.conformance.vectors import load_vectors
from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.export import export_vectors

GCC = shutil.which("gcc")
PRINTER = """
#include <stdio.h>
static void print_arrays(const char *id, const char *side, const refnum_array *a, size_t n) {
  for (size_t i = 0; i < n; i++) {
    printf("%s %s %s %s %u %zu %zu ", id, side, a[i].name, a[i].dtype, a[i].rank, a[i].shape[0], a[i].shape[1]);
    for (size_t k = 0; k < a[i].count; k++)
      for (unsigned byte = 0; byte < a[i].width; byte++) {
        unsigned long long word = a[i].width == 1 ? ((const uint8_t *)a[i].data)[k] : a[i].width == 2 ?
          ((const uint16_t *)a[i].data)[k] : a[i].width == 4 ? ((const uint32_t *)a[i].data)[k] :
          ((const uint64_t *)a[i].data)[k];
        printf("%02llx", (word >> (8 * byte)) & 255);
      }
    printf("\\n");
  }
}
static void print_vectors(const refnum_vector *v, size_t n) {
  for (size_t i = 0; i < n; i++) {
    print_arrays(v[i].id, "inputs", v[i].inputs, v[i].input_count);
    print_arrays(v[i].id, "outputs", v[i].outputs, v[i].output_count);
  }
}
"""
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


@pytest.mark.skipif(GCC is None, reason="needs gcc")
def test_every_header_compiles_without_a_warning(tmp_path):
    export_vectors("c", tmp_path / "c")
    headers = sorted(path.name for path in (tmp_path / "c").glob("refnum_*_*.h"))
    assert len(headers) > 50
    (tmp_path / "c" / "all.c").write_text(
        "".join(f'#include "{name}"\n' for name in headers) * 2 + "int main(void) { return 0; }\n"
    )
    subprocess.run([GCC, *STRICT, "-fsyntax-only", "all.c"], cwd=tmp_path / "c", check=True)


@pytest.mark.skipif(GCC is None, reason="needs gcc")
def test_the_headers_hold_the_vectors(tmp_path):
    out = tmp_path / "c"
    expected, source = {}, ""
    for operation, profile in (("quantize_mxfp4", "MLX"), ("permute_pad", "HOPPER"), ("dequantize_mxfp4", "HOPPER")):
        target = out / operation
        export_vectors("c", target, operation, profile)
        stem = f"refnum_{operation}_{profile}"
        source += f'#include "{operation}/{stem}.h"\n'
        for vector in load_vectors(operation, profile):
            if vector.tensor is None:
                for side in ("inputs", "outputs"):
                    for name, array in getattr(vector, side).items():
                        shape = [*array.shape, 0][:2]
                        expected[vector.id, side, name] = [
                            array.dtype.name,
                            str(array.ndim),
                            *map(str, shape),
                            array.tobytes().hex(),
                        ]
    body = "".join(f"print_vectors({s}, {s}_count);" for s in re.findall(r"/(\w+)\.h", source))
    (out / "main.c").write_text(f"{source}{PRINTER}int main(void) {{ {body} return 0; }}\n")
    subprocess.run([GCC, *STRICT, "main.c", "-o", "main"], cwd=out, check=True)
    printed = subprocess.run([out / "main"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in printed.splitlines():
        identity, side, name, *rest = line.split(" ")
        found[identity, side, name] = rest
    assert found == expected and len(found) > 100


def test_npz_loads_without_pickle_and_holds_the_vectors(tmp_path):
    assert export_vectors("npz", tmp_path / "n", "quantize_mxfp4", "TE") == 1
    with np.load(tmp_path / "n" / "quantize_mxfp4-TE.npz", allow_pickle=False) as archive:
        index = {entry["id"]: entry for entry in json.loads(archive["index"].tobytes())}
        count = 0
        for vector in load_vectors("quantize_mxfp4", "TE"):
            if vector.tensor is not None:
                continue
            count += 1
            assert (
                index[vector.id]["flags"] == list(vector.flags)
                and index[vector.id]["profile"]["nonfinite"] == "satfinite"
            )
            for side in ("inputs", "outputs"):
                for name, array in getattr(vector, side).items():
                    got = archive[f"{vector.id}.{side}.{name}"]
                    if index[vector.id]["dtypes"][f"{side}.{name}"] == "bfloat16":
                        got = got.view(ml_dtypes.bfloat16)
                    assert got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == array.tobytes()
    assert count == len(index) > 40


def test_npz_is_the_same_bytes_twice(tmp_path):
    for name in ("a", "b"):
        export_vectors("npz", tmp_path / name, "philox4x32")
    assert (tmp_path / "a/philox4x32-HOPPER.npz").read_bytes() == (tmp_path / "b/philox4x32-HOPPER.npz").read_bytes()


def readmemh(path):
    """Parse a memory file as a simulator does: comments out, words by white space."""
    return [int(word, 16) for word in re.sub(r"//[^\n]*", "", path.read_text()).split()]


@pytest.mark.parametrize(
    "operation,profile",
    [("mxfp4_to_fp8_columns", "HOPPER"), ("quantize_mxfp4", "OCP"), ("swiglu_quantize", "HOPPER"),
     ("matmul_fp8", "HOPPER")],
)  # fmt: skip
def test_readmemh_memories_hold_the_vectors(tmp_path, operation, profile):
    export_vectors("readmemh", tmp_path / "m", operation, profile)
    vectors = {v.id: v for v in load_vectors(operation, profile) if v.tensor is None}
    seen = 0
    for path in (tmp_path / "m").rglob("index.json"):
        document = json.loads(path.read_text())
        index = readmemh(path.with_name("index.hex"))
        assert len(index) == document["index"]["depth"]
        memories = {name: readmemh(path.with_name(f"{name}.hex")) for name in document["fields"]}
        for name, facts in document["fields"].items():
            assert len(memories[name]) == facts["depth"] and all(word < 1 << facts["bits"] for word in memories[name])
        for n, entry in enumerate(document["vectors"]):
            seen += 1
            words = index[n * document["index"]["words_per_vector"] :]
            for f, name in enumerate(document["fields"]):
                first, rows, columns = words[3 * f : 3 * f + 3]
                assert [first, rows, columns] == entry["places"][name]
                side, field = name.split("_", 1)
                arrays = vectors[entry["id"]].inputs if side == "input" else vectors[entry["id"]].outputs
                if field in arrays:
                    array = arrays[field]
                    right = array.view(f"u{array.dtype.itemsize}").reshape(-1).tolist()
                    assert memories[name][first : first + rows * columns] == right
                elif field == "splits":
                    assert memories[name][first : first + columns] == (entry["params"].get("splits") or [])
    assert seen == len(vectors) > 20


def test_tensors_are_exported_when_asked_for(tmp_path):
    export_vectors("npz", tmp_path / "n", "swiglu_backward", tensors=True)
    with np.load(tmp_path / "n/swiglu_backward-HOPPER.npz") as archive:
        assert any(archive[name].shape == (32, 200) for name in archive.files)


def test_refusals_are_named(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for words in (
        ["--format", "xml", "--out", tmp_path / "x"],
        ["--out", tmp_path / "full"],
        ["--operation", "no_such", "--out", tmp_path / "y"],
    ):
        result = CliRunner().invoke(vectors_app, ["export", *map(str, words)])
        assert result.exit_code == 2 and "refnum:" in result.output
    assert (tmp_path / "full" / "file").read_text() == "mine" and not (tmp_path / "y").exists()
    with pytest.raises(VectorFileError, match="xml"):
        export_vectors("xml", tmp_path / "z")
