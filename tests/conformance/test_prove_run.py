"""Runs of proofs: a wrong byte refutes and is named, a stopped or killed run goes on, certificates do not lie."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import refnum
from refnum.conformance.cases.domains.wide import Cut, EveryPattern
from refnum.conformance.cli import app
from refnum.conformance.commands.prove import catalogue
from refnum.conformance.commands.prove.catalogue import CATALOGUE, HOST, Proof
from refnum.conformance.commands.prove.certificate import (
    CertificateError,
    file_name,
    load_certificate,
    seal,
    write_certificate,
)
from refnum.conformance.commands.prove.chunk import Refuted
from refnum.conformance.commands.prove.digest import root
from refnum.conformance.commands.prove.run import Stopped, Watch, prove, unchanged
from refnum.conformance.commands.prove.standard import Standard
from refnum.conformance.commands.prove.state import State
from refnum.conformance.commands.prove.verify import draw_chunks, verify
from refnum.conformance.reports.files import write_json
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError, FileError, UnsupportedError

MODEL = Subject("model", {"encode_e2m1": refnum.encode_e2m1}, kind="model")
BYTES = (0, 1, 100, 126, 127, 128, 129, 130, 200, 253, 254, 255)
SMALL = Proof(
    "small",
    "every bfloat16 under twelve scale bytes to E2M1",
    "N18.2",
    ("encode_e2m1",),
    12 << 16,
    "as listed",
    EveryPattern("encode_e2m1", {"input": "bfloat16"}, "scale_byte", BYTES, cut=Cut(1 << 15, 1 << 14)),
)


@pytest.fixture(autouse=True)
def in_the_catalogue(monkeypatch):
    monkeypatch.setitem(catalogue.CATALOGUE, "small", SMALL)


def wrong_at(bits, byte):
    def encode_e2m1(x, scale_byte=127):
        codes = refnum.encode_e2m1(x, scale_byte)
        return codes ^ ((x.view(np.uint16) == bits) & (scale_byte == byte)).astype(np.uint8)

    return Subject("wrong", {"encode_e2m1": encode_e2m1})


def stop_after(count):
    """A watch that presses Ctrl-C after so many chunks."""
    seen = []

    def advance(*_):
        seen.append(1)
        if len(seen) == count:
            raise KeyboardInterrupt

    return Watch(advance=advance)


def test_a_right_subject_is_proved_and_certified(tmp_path):
    told = []
    watch = Watch(
        lambda proof, chunks, done: told.append((proof.name, chunks, done)), lambda *counts: told.append(counts)
    )
    document = prove(SMALL, MODEL, tmp_path, watch)
    assert told[0] == ("small", 24, 0) and told[1:] == [(1 << 15, 1 << 15)] * 24
    assert document["result"] == {"verdict": "proved", "members": 12 << 16, "elements": 12 << 16,
                                  "compared": 12 << 16, "mismatches": 0}  # fmt: skip
    assert document["digest"]["root"] == root(document["digest"]["chunks"])
    assert len(document["digest"]["chunks"]) == len(set(document["digest"]["chunks"][:-2])) + 2 == 24
    assert document["run"]["resumed"] == 0 and document["machine"]["numpy"]
    assert list(tmp_path.iterdir()) == [], "a finished proof leaves no state"
    write_certificate(tmp_path / "small.model.json", document)
    assert load_certificate(tmp_path / "small.model.json") == document


@pytest.mark.parametrize(("bits", "byte"), [(0x3FC1, 130), (0x0000, 0), (0xFFFF, 255), (0x8001, 126)])
def test_one_wrong_input_refutes_and_is_named(tmp_path, bits, byte):
    with pytest.raises(Refuted) as caught:
        prove(SMALL, wrong_at(bits, byte), tmp_path)
    error = caught.value
    assert error.chunk == BYTES.index(byte) * 2 + (bits >= 1 << 15)
    assert f"= {bits:#x}, scale_byte={byte}" in str(error) and f"scale_byte={byte}, patterns" in str(error)
    assert error.first.observed == error.first.golden ^ 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("at", "flip"), [(0, 0x01), (1, 0x10)])
def test_the_nibble_that_differs_names_its_element(at, flip):
    def quantize_mxfp4(x, profile=None):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        packed[3, 70] ^= flip
        return packed, scales

    proof = CATALOGUE["maxima-rceil"]
    made = dataclasses.replace(proof.made, cut=Cut(1 << 14, 1 << 14))
    with pytest.raises(Refuted, match=rf"packed\[3, 70\] is .*input x\[3, {140 + at}\] = 0x0"):
        prove(dataclasses.replace(proof, made=made), Subject("wrong", {"quantize_mxfp4": quantize_mxfp4}))


def test_a_subject_that_changes_shape_is_refuted():
    shorter = Subject("shorter", {"encode_e2m1": lambda x, scale_byte=127: refnum.encode_e2m1(x, scale_byte)[1:]})
    with pytest.raises(Refuted, match="codes has shape"):
        prove(SMALL, shorter)


def test_a_subject_without_the_operation_or_of_another_library():
    with pytest.raises(UnsupportedError, match="no quantize_mxfp4; maxima-rceil needs it"):
        prove(CATALOGUE["maxima-rceil"], MODEL)
    with pytest.raises(UnsupportedError, match="takes torch arrays"):
        prove(SMALL, dataclasses.replace(MODEL, arrays="torch"))


def test_a_stopped_run_goes_on(tmp_path):
    whole = prove(SMALL, MODEL)
    with pytest.raises(Stopped, match="small: 5 of 24 chunks"):
        prove(SMALL, MODEL, tmp_path, stop_after(5))
    with pytest.raises(Stopped, match="small: 7 of 24 chunks"):
        prove(SMALL, MODEL, tmp_path, most=2)
    seen = []
    document = prove(SMALL, MODEL, tmp_path, Watch(lambda *start: seen.append(start)))
    assert seen[0][1:] == (24, 7)
    assert document["digest"]["chunks"] == whole["digest"]["chunks"] and document["result"] == whole["result"]
    assert document["run"]["resumed"] == 2 and document["run"]["seconds"] > 0


def test_another_subject_model_or_a_damaged_state_starts_anew(tmp_path):
    def started(subject):
        seen = []
        with pytest.raises(Stopped):
            prove(SMALL, subject, tmp_path, Watch(lambda *start: seen.append(start[2]), stop_after(3).advance))
        return seen[0]

    first = dataclasses.replace(MODEL, trace=lambda operation: {"machine_code": "aa", "source": "1"})
    assert (started(first), started(first)) == (0, 3)
    assert started(dataclasses.replace(first, trace=lambda operation: {"machine_code": "aa", "source": "2"})) == 6
    assert started(dataclasses.replace(first, trace=lambda operation: {"machine_code": "bb"})) == 0
    state = tmp_path / f"{file_name('small', 'model')}.part"
    for damage in (b"", b"{", b'{"schema": "refnum.proof-state/1"}', state.read_bytes()[:-40]):
        state.write_bytes(damage)
        assert started(dataclasses.replace(first, trace=lambda operation: {"machine_code": "bb"})) == 0
    assert State.load(None, "key").chunks == []


def test_without_a_digest_nothing_is_taken_over(tmp_path):
    unknown = dataclasses.replace(MODEL, trace=lambda operation: {})
    with pytest.raises(Stopped):
        prove(SMALL, unknown, tmp_path, stop_after(3))
    assert list(tmp_path.iterdir()) == []
    document = prove(SMALL, unknown, tmp_path)
    assert document["subject"]["digest"] == ""
    write_certificate(tmp_path / "c.json", document)
    assert not unchanged(tmp_path / "c.json", SMALL, unknown)


def test_a_certificate_holds_until_something_changes(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    assert not unchanged(path, SMALL, MODEL)
    write_certificate(path, prove(SMALL, MODEL))
    assert unchanged(path, SMALL, MODEL)
    assert not unchanged(path, SMALL, dataclasses.replace(MODEL, trace=lambda operation: {"machine_code": "x"}))
    monkeypatch.setattr("refnum.conformance.commands.prove.trace._file_digest", lambda name: "another file")
    assert not unchanged(path, SMALL, MODEL)


def test_the_model_may_run_on_the_host_for_a_subject_elsewhere():
    made = Standard(("decode_e2m1", "pack_payload"), tensors=True)
    proof = Proof("crossed", "s", "N18.6", made.operations, made.size, "o", made, golden=HOST)
    calls = {"decode_e2m1": refnum.decode_e2m1, "pack_payload": refnum.pack_payload}
    document = prove(proof, Subject("model", calls))
    assert document["result"]["members"] == made.size
    bad = {**calls, "decode_e2m1": lambda codes, dtype="float32": -refnum.decode_e2m1(codes, dtype)}
    with pytest.raises(Refuted, match=r"decode_e2m1\[HOPPER, dtype=float32\]"):
        prove(proof, Subject("model", bad))


# --- verification and tampering (N18.7)


@pytest.fixture
def certificate(tmp_path):
    path = tmp_path / "small.model.json"
    write_certificate(path, prove(SMALL, MODEL))
    return path


def edited(path, change):
    document = json.loads(path.read_text())
    change(document)
    write_json(path, document)
    return path


def test_chunks_are_made_again(certificate):
    document = load_certificate(certificate)
    assert verify(document, draw_chunks(document, None, 0)) == 24
    assert draw_chunks(document, 3, 7) == draw_chunks(document, 3, 7) != draw_chunks(document, 3, 8)
    assert draw_chunks(document, 1, 0, [5, 2, 5]) == [2, 5]
    with pytest.raises(ArgumentError, match="chunk 24 does not exist; small has chunks 0 to 23"):
        draw_chunks(document, 1, 0, [24])


def flip(document, number=9):
    chunks = document["digest"]["chunks"]
    chunks[number] = f"{int(chunks[number], 16) ^ 1:032x}"


def refit(document):
    document["digest"]["root"] = root(document["digest"]["chunks"])
    document["digest"]["certificate"] = seal(document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flip, "do not give its root"),
        (lambda d: (d["digest"]["chunks"].pop(), refit(d)), "23 chunk digests for 24"),
        (lambda d: (d["result"].update(members=5), refit(d)), "5 of 786432 members"),
        (lambda d: d["domain"].update(size=5), "has size 5; the catalogue has 786432"),
        (lambda d: d["domain"].update(order="another"), "has order"),
        (lambda d: d.update(proof="unheard-of"), "no proof named"),
        (lambda d: (d.update(statement="all is well"), refit(d)), "its statement is 'all is well'; the catalogue has"),
        (lambda d: (d["operations"].append("swiglu_quantize"), refit(d)), "its operations is"),
        (lambda d: (d.update(clause="N18.6"), refit(d)), "its clause is"),
        (lambda d: d["subject"].update(name="gpu"), "was changed after it was written"),
        (lambda d: d["subject"].update(kind="gpu"), "was changed after it was written"),
        (lambda d: d["subject"]["code"].clear(), "was changed after it was written"),
        (lambda d: d["model"].update(digest="sha256:" + "0" * 64), "was changed after it was written"),
        (lambda d: d["machine"].update(device="H300"), "was changed after it was written"),
        (lambda d: d["run"].update(finished="2020-01-01"), "was changed after it was written"),
        (lambda d: d["result"].update(elements=7), "was changed after it was written"),
    ],
)
def test_a_certificate_that_contradicts_itself(certificate, change, words):
    with pytest.raises(CertificateError, match=words):
        load_certificate(edited(certificate, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["result"].update(mismatches=1),
        lambda d: d["result"].update(verdict="likely"),
        lambda d: d.pop("subject"),
        lambda d: d["digest"].update(rule="N1.1"),
        lambda d: d.update(extra=1),
    ],
)
def test_a_certificate_against_its_schema(certificate, change):
    with pytest.raises(FileError):
        load_certificate(edited(certificate, change))


def test_a_forged_chunk_is_caught_when_it_is_made_again(certificate):
    document = load_certificate(edited(certificate, lambda d: (flip(d), refit(d))))
    with pytest.raises(CertificateError, match=r"small, chunk 9 \(scale_byte=127, patterns 0x00008000 and up\)"):
        verify(document, draw_chunks(document, None, 0))
    assert verify(document, [8]) == 1


# --- the command


def command(*arguments):
    return CliRunner().invoke(app, ["prove", *map(str, arguments)])


def test_the_command_proves_skips_verifies_and_refuses(tmp_path):
    folders = ("--out", tmp_path / "out", "--state", tmp_path / "state")
    made = tmp_path / "out" / "codes.model.json"
    first = command("codes", "-s", "model", *folders)
    assert first.exit_code == 0 and "proved   codes: 1,056 members" in first.output and made.is_file()
    again = command("codes", "-s", "model", *folders)
    assert again.exit_code == 0 and "holds, nothing changed" in again.output
    checked = command("--verify", made, "--chunks", "all")
    assert checked.exit_code == 0 and "6 of 6 chunks" in checked.output
    edited(made, flip_first)
    assert command("--verify", made).exit_code == 1
    assert command("codes", "--most", 2, "--again", "-s", "model", *folders).exit_code == 130
    assert command("--verify", made, "--chunks", "few").exit_code == 2
    assert command("nothing-*").exit_code == 2 and command().exit_code == 2
    listing = command("--list")
    assert listing.exit_code == 0 and "e2m1-float32-scales" in listing.output


def flip_first(document):
    flip(document, 0)


def test_the_command_tells_a_refutation(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text(
        "import numpy as np\nimport refnum\n"
        "def decode_e2m1(codes, dtype='float32'):\n    return refnum.decode_e2m1(codes, dtype)\n"
        "def decode_e4m3(codes, dtype='float32'):\n    return refnum.decode_e4m3(codes, dtype)\n"
        "def decode_e8m0(codes, dtype='float32'):\n"
        "    return np.where(codes == 9, np.zeros(1, 'f4').astype(refnum.decode_e8m0(codes, dtype).dtype),"
        " refnum.decode_e8m0(codes, dtype))\n"
    )
    result = command("codes", "-s", source, "--out", tmp_path, "--state", tmp_path)
    assert result.exit_code == 1 and "refuted  codes, chunk" in result.output.replace("\n", " ")
    assert not list(tmp_path.glob("*.json"))
    only = command("scalars", "-s", source, "--out", tmp_path, "--state", tmp_path)
    assert only.exit_code == 3 and "not run" in only.output


KILLED = """
import sys, time
from pathlib import Path
from refnum.conformance.commands.prove import state
from refnum.conformance.commands.prove.run import Watch, prove
from refnum.conformance.commands.prove.certificate import write_certificate
sys.path.insert(0, sys.argv[1])
from test_prove_run import MODEL, SMALL
from refnum.conformance.commands.prove import catalogue
catalogue.CATALOGUE["small"] = SMALL
state.EVERY = 0.0
folder = Path(sys.argv[2])
document = prove(SMALL, MODEL, folder, Watch(advance=lambda *_: time.sleep(0.02)))
write_certificate(folder / "done.json", document)
"""


def test_kill_nine_loses_no_written_chunk_and_counts_none_twice(tmp_path):
    whole = prove(SMALL, MODEL)
    draw, kills = random.Random(4), 0
    for _ in range(6):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path)],
                                   env=environment)  # fmt: skip
        part = tmp_path / f"{file_name('small', 'model')}.part"
        before = part.stat().st_mtime_ns if part.exists() else 0
        while process.poll() is None and not (part.exists() and part.stat().st_mtime_ns != before):
            time.sleep(0.005)
        time.sleep(draw.random() * 0.1)
        if process.poll() is None and kills < 2:
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
        kept = json.loads(part.read_text())
        assert kept["chunks"] == whole["digest"]["chunks"][: len(kept["chunks"])]
        assert kept["members"] == len(kept["chunks"]) << 15
    else:
        pytest.fail("the proof never came to its end")
    document = load_certificate(tmp_path / "done.json")
    assert document["digest"]["chunks"] == whole["digest"]["chunks"] and document["result"] == whole["result"]
    assert document["run"]["resumed"] == kills > 0
