"""A kernel that kills the process is found by the next run, with its case."""

import json
import os
import signal

import pytest
from cli_tools import command

from refnum.conformance.cases.recipes import sampled_cases
from refnum.conformance.commands.check import journal
from refnum.conformance.commands.check.journal import FINDING, Journal, again, leftovers
from refnum.conformance.mismatches import replay

DEADLY = """
import os, signal
import refnum

def quantize_mxfp4(x):
    if x.shape[0] == 96:
        os.kill(os.getpid(), signal.SIGSEGV)
    return refnum.quantize_mxfp4(x)
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deadly.py").write_text(DEADLY)


def check(*words):
    asked = ["check", "-s", "deadly.py", "-o", "quantize_mxfp4", "--level", "smoke", "--no-isolate"]
    return command(*asked, *words, folder=".")


def test_a_segfault_is_found_by_the_next_run_with_a_case_that_kills_again(tmp_path):
    assert check().returncode == -signal.SIGSEGV
    (note,) = (tmp_path / ".refnum").glob("journal-*.json")
    assert json.loads(note.read_text())["subject"] == "deadly"
    (told, path) = next(leftovers())
    assert told["operation"] == "quantize_mxfp4" and not note.exists()
    saved = replay.load(path)
    assert saved.case.inputs["x"].shape[0] == 96 and saved.body["finding"] == FINDING
    shown = command("replay", path, "-s", "deadly.py", folder=tmp_path)
    assert shown.returncode == 1 and "FAULT  deadly: its process ended with SIGSEGV" in shown.stdout
    # of another size, as Python takes bytecode of the same second and size for that of the file
    (tmp_path / "deadly.py").write_text(DEADLY.replace("SIGSEGV", "SIGCONT "))
    fixed = command("replay", path, "-s", "deadly.py", folder=tmp_path)
    assert fixed.returncode == 0 and "the saved failure is gone" in fixed.stdout


def test_a_run_that_ends_leaves_no_note(tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY.replace("96", "-1"))
    done = check()
    assert done.returncode == 0 and list((tmp_path / ".refnum").glob("journal-*")) == []


def test_the_note_of_a_living_process_is_left_alone(tmp_path):
    (tmp_path / ".refnum").mkdir()
    book = Journal(tmp_path / ".refnum" / f"journal-{os.getpid()}.json")
    book.enter(("quantize_mxfp4", "HOPPER", {"input": "float32"}), "corners")
    book.note("k", 0)
    assert list(leftovers()) == [] and book.path.exists()
    book.close()
    assert not book.path.exists()


def test_a_run_that_ends_while_its_note_is_read_has_not_died(tmp_path, monkeypatch):
    """Its note is gone when it is to be taken away."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".refnum" / "journal-7.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"pid": 7, "subject": "gpu"}))
    monkeypatch.setattr(journal, "_alive", lambda pid: path.unlink())
    assert list(leftovers()) == []


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1e99}', '{"pid": "x"}', "[]", '{"pid": 999999999}'])
def test_a_torn_note_is_swept_away(tmp_path, text):
    (tmp_path / ".refnum").mkdir()
    path = tmp_path / ".refnum" / "journal-1.json"
    path.write_text(text)
    assert list(leftovers()) == [] and not path.exists()


def test_a_case_that_cannot_be_made_again_is_said():
    os.makedirs(".refnum")
    note = {
        "pid": 999999999,
        "subject": "k",
        "operation": "quantize_mxfp4",
        "profile": "GONE",
        "params": {},
        "stream": "corners",
        "number": 0,
        "seed": 0,
        "examples": 0,
        "level": "smoke",
    }
    with open(".refnum/journal-2.json", "w") as stream:
        json.dump(note, stream)
    assert [path for _, path in leftovers()] == [None]


def test_a_sampled_case_is_the_same_again():
    params = {"input": "bfloat16"}
    wanted = list(sampled_cases("quantize_mxfp4", "OCP", params, 7, 5))[3]
    note = {
        "operation": "quantize_mxfp4",
        "profile": "OCP",
        "params": params,
        "stream": "sampled",
        "number": 3,
        "seed": 7,
        "examples": 5,
        "level": "standard",
    }
    assert again(note).digest() == wanted.digest()
