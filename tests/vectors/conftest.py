"""A small vectors folder to spoil, and the committed one to trust."""

import json
import shutil

import pytest

from refnum.conformance.vectors import load_vectors, vectors_folder
from refnum.conformance.vectors.build import manifest
from refnum.conformance.vectors.record import canonical

SMALL = (
    "quantize_mxfp4/MLX.json",
    "pack_payload/HOPPER.json",
    "codes_to_packed/HOPPER.json",
    "mxfp4_columns/HOPPER.json",
)


@pytest.fixture(scope="session")
def folder():
    return vectors_folder()


@pytest.fixture(scope="session")
def all_vectors(folder):
    return list(load_vectors(folder=folder))


@pytest.fixture(scope="session")
def _small(folder, tmp_path_factory):
    """Four files with their tensors and notes: lint and oracle take a moment, not a minute."""
    small = tmp_path_factory.mktemp("small") / "vectors"
    small.mkdir()
    shutil.copytree(folder / "schema", small / "schema")
    for name in ("README.md", "history.json"):
        shutil.copyfile(folder / name, small / name)
    used = set()
    for name in SMALL:
        (small / name).parent.mkdir()
        shutil.copyfile(folder / name, small / name)
        for group in json.loads((small / name).read_text())["groups"]:
            for entry in group["vectors"]:
                used.update(entry["flags"])
                if "tensor" in entry:
                    (small / "tensors").mkdir(exist_ok=True)
                    shutil.copyfile(folder / entry["tensor"], small / entry["tensor"])
    notes = json.loads((folder / "notes.json").read_text())
    notes["notes"] = {name: note for name, note in notes["notes"].items() if name in used}
    (small / "notes.json").write_text(canonical(notes))
    (small / "MANIFEST.sha256").write_text(manifest(small))
    return small


@pytest.fixture
def small(_small, tmp_path):
    target = tmp_path / "vectors"
    shutil.copytree(_small, target)
    return target


@pytest.fixture
def spoil():
    """Edit a JSON file in place: spoil(path, change) writes change(document) in canonical text."""

    def spoiled(path, change):
        document = json.loads(path.read_text())
        change(document)
        path.write_text(canonical(document))

    return spoiled
