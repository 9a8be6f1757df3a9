"""What the command line lists: operations, profiles and guides; and what it finds in a file without being told."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import refnum
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cli import app
from refnum.conformance.commands import docs
from refnum.conformance.reports import files
from refnum.conformance.subjects.loading import discover
from refnum.conformance.subjects.loading.failure import SCHEMAS
from refnum.errors import ArgumentError


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_operations_are_listed_with_what_they_take():
    shown = run("operations", "unpermute", "quantize_*").stdout
    assert "weights?" in shown and "align=32 | 16 | 128, splits" in shown and "tile=1x128 | 128x128, profile" in shown
    rows = {row["name"]: row for row in json.loads(run("operations", "--json").stdout)}
    assert list(rows) == list(OPERATIONS)
    assert rows["quantize_mx"]["params"]["element"][0] == "E2M1" and rows["quantize_mx"]["optional"] == ["rbits"]
    wrong = run("operations", "quantise")
    assert wrong.exit_code == 2 and "choose from quantize_mxfp4" in wrong.stderr


def test_profiles_are_listed_with_their_choices():
    shown = run("profiles").stdout
    assert all(name in shown for name in refnum.PROFILES) and "amax at least 0x38D1B717" in shown
    rows = json.loads(run("profiles", "--json").stdout)
    assert [refnum.Profile(**row) for row in rows] == list(refnum.PROFILES.values())
    one = run("profiles", "OCP+ties=away")
    assert one.exit_code == 0 and "scale_rule" in one.stdout and "away" in one.stdout
    assert run("profiles", "OPC").exit_code == 2


def test_guides_are_listed_and_printed_with_their_examples():
    assert all(name in run("docs").stdout for name in (*SCHEMAS, "judge-your-kernel"))
    text = run("docs", "c-abi").stdout
    assert text.startswith("# A shared library") and "int dequantize(const uint8_t *packed" in text
    assert "literalinclude" not in text and "{doc}" not in text and "<!--" not in text
    assert json.loads(run("docs", "line-protocol", "--schema").stdout)["title"] == "refnum line protocol"
    for words, sentence in ((("docs", "abc"), "choose from c-abi"), (("docs", "proofs", "--schema"), "has no schema")):
        result = run(*words)
        assert result.exit_code == 2 and sentence in result.stderr


def test_a_guide_is_opened(monkeypatch):
    opened = []
    monkeypatch.setattr(docs.typer, "launch", lambda path: opened.append(path) or 0)
    assert run("docs", "c-abi", "--open").exit_code == 0 and opened[0].endswith("c-abi.md")


TWO = """
import refnum
from refnum import decode_e4m3, encode_e4m3

def decode_e2m1(codes, dtype="float32"):
    return refnum.decode_e2m1(codes, dtype)

def pack_payload(packed, scales):
    return refnum.pack_payload(packed, scales)

def helper(x):
    return x
"""


def test_every_function_of_a_file_that_bears_an_operation_s_name_is_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(TWO)
    (subject,) = discover.from_file("two.py")
    assert set(subject.operations) == {"decode_e2m1", "pack_payload"}
    (tmp_path / "none.py").write_text("from refnum import encode_e4m3\n")
    with pytest.raises(ArgumentError, match="no function named like an operation"):
        discover.from_file("none.py")


def test_a_file_is_judged_without_a_word_before_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("refnum.conformance.commands.check.work.verify", lambda thorough=False: {})
    (tmp_path / "two.py").write_text(TWO)
    result = run("check", "two.py", "--no-isolate", "--level", "smoke", "--examples", "0", "-o", "pack_payload")
    assert result.exit_code == 0 and "two      pack_payload" in result.stdout, result.output
    assert (tmp_path / ".refnum" / ".gitignore").read_text() == "*\n"


def test_only_a_new_folder_of_ours_gets_its_gitignore(tmp_path):
    files.make_folder(tmp_path / "mine")
    files.write_json(tmp_path / "other" / ".refnum" / "cases" / "a.json", {})
    (tmp_path / ".refnum").mkdir()
    files.write_json(tmp_path / ".refnum" / "cases" / "a.json", {})
    found = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(".gitignore")]
    assert found == ["other/.refnum/.gitignore"]


def test_vectors_are_exported_by_the_short_options(tmp_path):
    words = ("vectors", "export", "--out", tmp_path / "out", "-o", "encode_e2m1", "-p", "HOPPER", "--format", "npz")
    assert run(*words).exit_code == 0
    names = [path.name for path in (tmp_path / "out").rglob("*.npz")]
    assert names and all("encode_e2m1" in name for name in names), names
