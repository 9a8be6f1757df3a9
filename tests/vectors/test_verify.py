"""Verification from the command line: what was edited by hand is named, and the exit status says of which kind."""

import hashlib
import json
import shutil

import pytest
from typer.testing import CliRunner

from refnum.conformance.commands.vectors import vectors_app
from refnum.conformance.vectors.build import build, manifest
from refnum.conformance.vectors.errors import VectorFileError, VectorMismatchError
from refnum.conformance.vectors.oracle import agrees, expected_by_oracle, remembered, sampled
from refnum.conformance.vectors.verify import compare, require_manifest, verify

MLX = "quantize_mxfp4/MLX.json"


def run(*words):
    return CliRunner().invoke(vectors_app, list(map(str, words)))


def wrong_answer(document):
    output = document["groups"][0]["vectors"][0]["outputs"]["packed"]
    output["hex"] = f"{int(output['hex'][:2], 16) ^ 1:02x}" + output["hex"][2:]


@pytest.fixture(scope="module")
def verified(folder):
    """What a verification of the committed folder found; it raises where lint, rebuild or manifest do not agree."""
    return verify(folder, rebuild=True, oracle_rows=0)


def test_a_rebuild_in_another_process_is_the_committed_folder(verified):
    """The promise of the folder: nothing in it depends on the machine, the time or the order of a dictionary."""
    assert verified.vectors > 1900 and verified.rebuilt_files > 100


def test_the_committed_folder_is_clean(verified, all_vectors):
    assert verified.vectors == len(all_vectors)
    assert len({vector.id for vector in all_vectors}) == len(all_vectors)


def test_the_manifest_is_what_sha256sum_reads(folder):
    require_manifest(folder)
    lines = (folder / "MANIFEST.sha256").read_text().splitlines()
    names = [line[66:] for line in lines]
    assert names == sorted(names) and "notes.json" in names and "MANIFEST.sha256" not in names
    digest, name = lines[7][:64], lines[7][66:]
    assert lines[7][64:66] == "  " and hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_second_oracle_gives_the_committed_answers(all_vectors):
    """Every eleventh inline vector and a few rows of every other tensor; `refnum vectors verify` takes all."""
    checked = 0
    with remembered():
        for n, vector in enumerate(all_vectors):
            if n % 11 and (vector.tensor is None or n % 2):
                continue
            part = sampled(vector, 2)
            expected = expected_by_oracle(part)
            if expected is not None:
                assert agrees(part, expected) is None, (vector.id, vector.comment)
                checked += 1
    assert checked > 150


@pytest.mark.slow
def test_the_second_oracle_gives_every_row_of_every_tensor(folder):
    assert verify(folder, rebuild=False, oracle_rows=None).by_oracle > 1900


def test_a_clean_folder_verifies(small):
    result = run("verify", "--vectors", small, "--no-rebuild")
    assert result.exit_code == 0 and "answered by the second oracle" in result.output
    assert "not verified" not in result.output


def test_a_hand_edited_answer_is_a_mismatch(small, spoil):
    spoil(small / MLX, wrong_answer)
    result = run("verify", "--vectors", small, "--no-rebuild")
    assert result.exit_code == 1 and MLX in result.output and "mismatch" in result.output


def test_the_oracle_finds_it_when_the_manifest_was_edited_too(small, spoil):
    spoil(small / MLX, wrong_answer)
    identity = json.loads((small / MLX).read_text())["groups"][0]["vectors"][0]["id"]
    (small / "MANIFEST.sha256").write_text(manifest(small))
    result = run("verify", "--vectors", small, "--no-rebuild")
    assert result.exit_code == 1 and identity in result.output and "oracle" in result.output
    assert run("verify", "--vectors", small, "--no-rebuild", "--oracle", "none").exit_code == 0


def test_a_malformed_vector_is_status_two(small, spoil):
    spoil(small / MLX, lambda document: document["groups"][0]["vectors"][0].pop("outputs"))
    result = run("verify", "--vectors", small, "--no-rebuild")
    assert result.exit_code == 2 and MLX in result.output


def test_a_wrong_tensor_is_found(small):
    tensor = next((small / "tensors").iterdir())
    data = bytearray(tensor.read_bytes())
    data[-1] ^= 1
    tensor.write_bytes(bytes(data))
    assert run("verify", "--vectors", small, "--no-rebuild").exit_code == 1


def test_a_bad_option_is_status_two(small):
    assert run("verify", "--vectors", small, "--oracle", "some").exit_code == 2
    assert run("verify", "--vectors", small / "nowhere").exit_code == 2


@pytest.mark.parametrize(
    "edit,words",
    [
        (lambda f: (f / "MANIFEST.sha256").unlink(), "has no MANIFEST"),
        (lambda f: (f / "MANIFEST.sha256").write_bytes(b"\xba" * 70), "no ASCII"),
        (lambda f: (f / "stray.txt").write_text("x"), "stray.txt"),
        (
            lambda f: (f / "MANIFEST.sha256").write_text(
                "\n".join(reversed((f / "MANIFEST.sha256").read_text().split("\n")))
            ),
            "order|line of",
        ),
    ],
)
def test_the_manifest_covers_every_file(small, edit, words):
    edit(small)
    with pytest.raises((VectorFileError, VectorMismatchError), match=words):
        require_manifest(small)


def test_a_comparison_names_the_first_difference(small, spoil, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(small, twin)
    assert compare(small, twin) > 10
    spoil(twin / MLX, wrong_answer)
    with pytest.raises(VectorMismatchError, match=r"MLX.json: vector [0-9a-f]{16}: output 'packed'"):
        compare(small, twin)
    spoil(twin / MLX, wrong_answer)
    spoil(twin / MLX, lambda document: document["groups"][0]["vectors"][2].update(comment="another"))
    with pytest.raises(VectorMismatchError, match="flags or comment"):
        compare(small, twin)
    (twin / MLX).unlink()
    with pytest.raises(VectorMismatchError, match="not generated any more"):
        compare(small, twin)


def test_build_refuses_a_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(VectorFileError, match="no vectors folder"):
        build(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_build_replaces_what_a_link_names(monkeypatch, tmp_path):
    """The installed folder of a checkout is a link to `vectors/` beside the package."""
    (tmp_path / "vectors").mkdir()
    (tmp_path / "link").symlink_to("vectors")
    monkeypatch.setattr("refnum.conformance.vectors.build.generated_files", lambda: ({"made.json": b"{}"}, 1))
    monkeypatch.setattr("refnum.conformance.vectors.history.require_kept", lambda *_folders: None)
    assert build(tmp_path / "link") == 1
    assert (tmp_path / "link").is_symlink() and (tmp_path / "vectors" / "made.json").is_file()
