"""The implementation that was written from the text alone agrees with every vector, and tells what holds each part."""

import hashlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from refnum.conformance.cases.primitives import VECTOR_OPERATIONS
from refnum.conformance.vectors import load_vectors, vectors_folder

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import clause_coverage  # noqa: E402  (the path comes first)

ROOM = Path(__file__).parent
SOURCES = sorted([*ROOM.glob("*.hpp"), *ROOM.glob("*.cpp")])
NOT_YET = {name for name, one in VECTOR_OPERATIONS.items() if one.clause in clause_coverage.UNWRITTEN}
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return clause_coverage.compile_room(tmp_path_factory.mktemp("clean_room"))


def judged(program, folder):
    """Return (exit status, operation -> (vectors, differing ones), unknown operations)."""
    done = subprocess.run([program, folder], capture_output=True, text=True, timeout=120)
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    counts = {words[1]: (int(words[2]), int(words[3])) for words in lines if words[0] == "operation"}
    return done.returncode, counts, {words[1] for words in lines if words[0] == "unknown"}


def test_it_agrees_on_every_vector(program):
    status, counts, unknown = judged(program, vectors_folder())
    asked = Counter(vector.operation for vector in load_vectors())
    assert unknown == NOT_YET
    assert counts == {name: (count, 0) for name, count in asked.items() if name not in NOT_YET}
    assert status == 0 and sum(asked.values()) > 2000


@pytest.mark.parametrize("file", ["pack_payload/HOPPER.json", "quantize_mxfp4/MLX.json", "unpermute/HOPPER.json"])
def test_a_changed_answer_is_seen(program, tmp_path, file):
    target = tmp_path / file
    target.parent.mkdir(parents=True)
    shutil.copytree(vectors_folder() / "tensors", tmp_path / "tensors")
    text = (vectors_folder() / file).read_text()
    target.write_text(text)
    assert judged(program, tmp_path)[0] == 0
    at = text.index('"hex": "', text.index('"outputs"')) + len('"hex": "')
    target.write_text(f"{text[:at]}{'1' if text[at] == '0' else '0'}{text[at + 1 :]}")
    status, counts, _ = judged(program, tmp_path)
    assert status == 1 and [differ for _, differ in counts.values()] == [1]


def test_a_broken_file_is_no_agreement(program, tmp_path):
    (tmp_path / "HOPPER.json").write_text('{"schema": "refnum.vectors/1", "groups": [')
    done = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 2 and "ends early" in done.stderr


def test_silu_and_sigmoid_have_the_digests_of_n11_1(program, tmp_path):
    subprocess.run([program, "--silu", tmp_path / "silu.bin"], check=True)
    data = (tmp_path / "silu.bin").read_bytes()
    text = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    clause = text.partition("### N11.1 ")[2].partition("### N11.2 ")[0]
    printed = re.findall(r"`([0-9a-f]{64})`", clause)
    assert printed == [hashlib.sha256(part).hexdigest() for part in (data[: 1 << 18], data[1 << 18 :], data)]


def test_it_is_made_of_integers():
    for path in SOURCES:
        text = re.sub(r'"[^"\n]*"|//[^\n]*', "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\b(float|double|long double|_Float16|__bf16)\b|<cmath>|<cfenv>", text), path.name


def test_it_shares_nothing_with_the_model():
    own = {path.name for path in SOURCES}
    for path in SOURCES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("#include"):
                name = line.split()[1]
                assert (name.startswith("<") and "/" not in name) or name.strip('"') in own, (path.name, line)


def test_files_and_lines_have_the_house_s_lengths():
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 300 and max(map(len, lines)) <= 120, path.name


def test_the_table_of_parts_is_what_it_measures(program):
    assert clause_coverage.measure(program) == clause_coverage.MEASURED.read_text(encoding="utf-8"), (
        "run `python docs/_ext/clause_coverage.py`"
    )
