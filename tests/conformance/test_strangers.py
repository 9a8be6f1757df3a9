"""Files from strangers: nothing that a file names runs unless a person names it."""

import contextlib
import copy
import json
import resource
import time

import numpy as np
import pytest
from fuzz_tools import right_subject
from hypothesis import given, settings
from hypothesis import strategies as st
from report_documents import document
from safetensors.numpy import save_file
from typer.testing import CliRunner

from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cli import app
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.data import load_tensors
from refnum.conformance.commands.fuzz.database import create
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.commands.prove.certificate import published, sealed
from refnum.conformance.mismatches import replay
from refnum.conformance.reports import files
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure
from refnum.errors import RefnumError

OPERATION = "quantize_mxfp4"


def refnum(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def replay_file(folder, name, kind="gpu", finding=""):
    """Write a replay file whose subject is called `name`; its id is right, as a stranger would make it."""
    (case,) = control_cases(OPERATION, "HOPPER", OPERATIONS[OPERATION].defaults())
    golden = run_golden(case)
    subject = Subject("placeholder", {}, kind=kind)
    body = replay.document(case, golden, golden, subject, Failure(case, NO_LEVEL, "", finding))
    body["subject"]["name"] = name
    return replay.save({**body, "id": replay.identity(body)}, folder)


@pytest.fixture
def trap(tmp_path):
    """A program and a Python file that leave a mark when they run; yields (their words, the mark)."""
    mark = tmp_path / "ran"
    script, module = tmp_path / "trap.sh", tmp_path / "trap.py"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    module.write_text(f"open({str(mark)!r}, 'w').close()\ndef {OPERATION}(x, profile): return x\n")
    return {"exec": f"exec:{script}", "file": str(module)}, mark


@pytest.mark.parametrize("finding", ["", "process-died"])
@pytest.mark.parametrize("kind", ["gpu", "user"])
@pytest.mark.parametrize("which", ["exec", "file"])
def test_a_replay_file_runs_nothing_that_it_names(tmp_path, trap, which, kind, finding):
    words, mark = trap
    path = replay_file(tmp_path, words[which], kind, finding)
    result = refnum("replay", path)
    assert result.exit_code == 0 and not mark.exists()
    assert "was not called" in result.stdout and "--subject" in result.stdout and words[which] in result.stdout
    assert refnum("shrink", path).exit_code == 2 and not mark.exists()


def test_a_trusted_replay_file_calls_what_it_names(tmp_path, trap):
    words, mark = trap
    refnum("replay", replay_file(tmp_path, words["file"]), "--trust")
    assert mark.exists()


def test_an_installed_subject_is_called_when_it_is_named(tmp_path):
    path = replay_file(tmp_path, "model", "model")
    assert "model was not called" in refnum("replay", path).stdout
    assert "model gives every expected byte" in refnum("replay", path, "--trust").stdout
    assert "model gives every expected byte" in refnum("replay", path, "--subject", "model").stdout


def test_the_printed_command_names_the_subject(tmp_path):
    assert replay.command(tmp_path / "a.json", Subject("gpu", {}, kind="gpu")).endswith("a.json --subject gpu")


@pytest.fixture
def campaign(tmp_path, trap):
    """A campaign whose list of subjects was given a trap by a stranger."""
    words, mark = trap
    spec = make_spec([right_subject(tmp_path)], cases=2, elements=256)
    data = {**json.loads(spec.to_json()), "subjects": [words["file"]]}
    create(tmp_path / "camp", type(spec).from_json(json.dumps(data))).close()
    return tmp_path / "camp", words["file"], mark


@pytest.mark.parametrize("verb", [("resume", "--cases", "2", "--workers", "1"), ("minimise",)])
def test_a_campaign_runs_no_file_that_nobody_named(campaign, verb):
    folder, name, mark = campaign
    result = refnum("fuzz", verb[0], folder, *verb[1:])
    assert result.exit_code == 2 and not mark.exists()
    assert name in result.stderr and "--trust" in result.stderr and result.stderr.count("\n") == 1
    other = refnum("fuzz", verb[0], folder, *verb[1:], "--subject", "other.py")
    assert other.exit_code == 2 and not mark.exists()


def test_reading_a_campaign_runs_nothing(campaign, tmp_path):
    folder, _, mark = campaign
    for words in (("status", folder), ("merge", tmp_path / "both", folder), ("export", folder, "--out", tmp_path)):
        assert "Traceback" not in refnum("fuzz", *words).output and not mark.exists()


def test_a_named_file_of_a_campaign_may_run(tmp_path):
    subject = right_subject(tmp_path)
    create(tmp_path / "camp", make_spec([subject], cases=2, elements=256)).close()
    for words in (("--subject", subject), ("--trust",)):
        assert refnum("fuzz", "minimise", tmp_path / "camp", *words).exit_code == 0


# --- spoilt files: success or one sentence, within SECONDS and ROOM

SECONDS, ROOM = 10.0, 1 << 20
"""Of a command on a small file: seconds, and KiB of memory beyond what was taken before."""


def runs_or_says_one_sentence(*words):
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = refnum(*words)
    assert time.monotonic() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output and "\x1b" not in result.output
    if result.exit_code == 2:
        assert result.stderr.startswith("refnum: ") and result.stderr.count("\n") == 1
    return result


def case_file(folder, operation, change=lambda body: None):
    """Write a replay file of a small case with something changed and an id that fits."""
    (case,) = control_cases(operation, "HOPPER", OPERATIONS[operation].defaults())
    golden = run_golden(case)
    body = json.loads(json.dumps(replay.document(case, golden, golden, Subject("k", {}), Failure(case, 1), case)))
    change(body)
    path = folder / "case.json"
    path.write_text(json.dumps({**body, "id": replay.identity(body)}))
    return path


def first(body, part):
    return body[part][min(body[part])]


def reshaped(part):
    def change(body):
        entry = first(body, part)
        entry["shape"] = [1, *entry["shape"]][:3] if len(entry["shape"]) < 3 else entry["shape"][::-1]

    return change


def emptied(part):
    return lambda body: first(body, part).update(shape=[0], hex="")


@pytest.mark.parametrize(
    ("operation", "change", "words"),
    [
        (OPERATION, reshaped("expected"), "quantize_mxfp4 gives uint8"),
        (OPERATION, reshaped("observed"), "quantize_mxfp4 gives uint8"),
        (OPERATION, emptied("expected"), "quantize_mxfp4 gives uint8"),
        (OPERATION, emptied("observed"), "quantize_mxfp4 gives uint8"),
        (OPERATION, lambda b: first(b, "observed").update(dtype="uint16", shape=[1]), None),
        ("unpermute", lambda b: b["params"].pop("tokens"), "unpermute needs the parameters ['tokens'] too"),
        ("unpermute", lambda b: b["params"].update(tokens=1 << 50), "ask for 1125899906842624 rows"),
        ("unpermute", lambda b: b["params"].update(tokens="many"), "does not describe a case"),
        ("permute_pad", lambda b: b["params"].update(align=1 << 40), "rows; what it expects has"),
        ("permute_pad", lambda b: b["params"].update(align=0), "does not describe a case"),
        ("permute_pad", lambda b: b["params"].pop("splits"), "needs the parameters ['splits'] too"),
        (OPERATION, lambda b: b["inputs"]["x"].update(shape=[1 << 30, 0], hex=""), "beyond the 67108864 bytes"),
    ],
)
def test_a_replay_file_of_another_shape_is_refused_in_one_sentence(tmp_path, operation, change, words):
    result = runs_or_says_one_sentence("replay", case_file(tmp_path, operation, change))
    assert result.exit_code == 2 and (words is None or words in result.stderr)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["\x1b[2J", "\udcff", "\u202e", "HOPPER", "uint8", "zz"]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=4), part, max_size=3), max_leaves=4,
)  # fmt: skip


def places(value, path=()):
    """Yield the path of every part of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def mutated(data, document):
    """Return a copy of a document with one to three parts replaced, removed or doubled."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(document) if path]))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(JSON)
        else:
            del holder[path[-1]]
    return document


@settings(max_examples=60, deadline=None, database=None)
@given(st.data())
def test_any_part_of_a_replay_file_may_be_another(tmp_path_factory, data):
    operation = data.draw(st.sampled_from([OPERATION, "unpermute", "permute_pad", "swiglu_backward", "decode_e4m3"]))
    path = case_file(tmp_path_factory.mktemp("replay"), operation)
    body = mutated(data, json.loads(path.read_text()))
    with contextlib.suppress(KeyError, AttributeError, TypeError):  # else it is no replay file at all
        body["id"] = replay.identity(body)
    path.write_text(json.dumps(body))
    for words in (("replay", path), ("explain", path)):
        runs_or_says_one_sentence(*words)


@settings(max_examples=60, deadline=None, database=None)
@given(st.data())
def test_any_part_of_a_report_may_be_another(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("report") / "r.json"
    path.write_text(json.dumps(mutated(data, data.draw(st.sampled_from([document()])))))
    verb = data.draw(st.sampled_from(["show", "html", "junit", "sarif", "summary", "badge", "diff", "merge"]))
    more = {"diff": [path], "merge": ["-o", path.with_name("o.json")]}.get(verb, [])
    runs_or_says_one_sentence("report", verb, path, *more)


def test_a_report_without_a_part_of_a_page_is_one_sentence(tmp_path):
    """Every part that the HTML page shows of the first failure and of the environment, left out in turn."""
    whole, path = document(), tmp_path / "r.json"
    number = next(at for at, result in enumerate(whole["results"]) if result["failures"])
    page, environment = ("results", number, "failures", 0, "page"), ("header", "environment")
    parts = whole["results"][number]["failures"][0]["page"], whole["header"]["environment"]
    for at, holder in zip((page, environment), parts, strict=True):
        for name in holder:
            one = copy.deepcopy(whole)
            part = one
            for key in at:
                part = part[key]
            del part[name]
            path.write_text(json.dumps(one))
            runs_or_says_one_sentence("report", "html", path)


@settings(max_examples=40, deadline=None, database=None)
@given(st.data())
def test_any_part_of_a_certificate_may_be_another(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("proof") / "c.json"
    document = mutated(data, json.loads(published()["dequantize", "gpu"].read_text()))
    if data.draw(st.booleans()):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            document = sealed(document)
    path.write_text(json.dumps(document))
    result = runs_or_says_one_sentence("prove", "--verify", path, "--chunk", "0")
    assert result.exit_code in (0, 1, 2) and not ("verified" in result.stdout and result.exit_code)


@settings(max_examples=40, deadline=None, database=None)
@given(st.data())
def test_any_byte_of_a_tensor_file_may_be_another(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("tensors") / f"t{data.draw(st.sampled_from(['.npz', '.npy', '.safetensors']))}"
    x = np.linspace(-3, 3, 256, dtype=np.float32).reshape(2, 128)
    write = {".npz": lambda: np.savez_compressed(path, x=x), ".npy": lambda: np.save(path, x)}
    write.get(path.suffix, lambda: save_file({"x": x}, path))()
    spoilt = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, min(len(spoilt), 400) - 1), min_size=1, max_size=4)):
        spoilt[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(spoilt)
    began = time.monotonic()
    with contextlib.suppress(RefnumError):
        list(load_tensors(path))
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("depth", [65, 400, 900, 200_000])
@pytest.mark.parametrize("words", [("report", "show"), ("replay",), ("prove", "--verify")])
def test_a_deeply_nested_file_is_refused(tmp_path, words, depth):
    path = tmp_path / "deep.json"
    kind = {"report": "report", "replay": "replay", "prove": "proof"}[words[0]]
    path.write_text(f'{{"schema": "refnum.{kind}/1", "header": {"[" * depth}{"]" * depth}}}')
    assert "nested deeper than 64 levels" in runs_or_says_one_sentence(*words, path).stderr


@pytest.mark.parametrize("words", [("report", "show"), ("replay",), ("prove", "--verify")])
def test_a_file_without_an_end_is_refused(tmp_path, monkeypatch, words):
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    path = tmp_path / "zero.json"
    path.symlink_to("/dev/zero")
    assert "has more than 1048576 bytes" in runs_or_says_one_sentence(*words, path).stderr


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_not_finite_or_endless_are_refused(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(f'{{"schema": "refnum.report/1", "footer": {text}}}')
    assert "no readable JSON" in runs_or_says_one_sentence("report", path).stderr


def test_a_name_never_reaches_the_terminal_raw(tmp_path):
    name = "k\x1b[2J\x9b1m\u202eab\r"
    path = replay_file(tmp_path, name)
    shown = runs_or_says_one_sentence("replay", path).stdout
    assert "k\\x1b[2J\\x9b1m\\u202eab\\x0d" in shown
    for report in [document()]:
        text = json.dumps(report).replace(json.dumps(report["results"][0]["subject"]), json.dumps(name))
        path.write_text(text)
        shown = runs_or_says_one_sentence("report", "show", path)
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(shown.output)


def corpus_file(folder, **recipe):
    plain = {"operation": "mxfp4_to_fp8", "profile": "HOPPER", "params": {"scale": "max"}, "shape": [1, 128], "seed": 0,
             "distribution": "zero", "parameters": {"base": 127}, "edits": [], "optional": False}  # fmt: skip
    entry = {"target": "t", "points": [], "elements": 1, "recipe": {**plain, **recipe}}
    path = folder / "corpus.json"
    path.write_text(json.dumps({"schema": "refnum.corpus/1", "model": "m", "cases": [entry]}))
    return path


@pytest.mark.parametrize(
    "change",
    [{"shape": [1, 33]}, {"shape": [1, 31]}, {"shape": [1 << 40, 128]}, {"parameters": {"base": "x"}},
     {"parameters": {}}, {"params": {"scale": "max", "splits": ["a"]}}, {"params": {"scale": "max", "splits": [-1, 2]}},
     {"params": {"scale": "max", "layout_in": "upside-down"}}, {"operation": "nothing"}, {"seed": 1 << 80},
     {"edits": [[0, 0, 1 << 100]]}],
)  # fmt: skip
def test_a_bad_corpus_is_the_files_fault(tmp_path, change):
    good = corpus_file(tmp_path)
    words = ("fuzz", "run", tmp_path / "camp", "-s", "model", "-o", "mxfp4_to_fp8", "-p", "HOPPER",
             "--corpus", good, "--cases", "2", "--shard", "1", "--elements", "256", "--workers", "1")  # fmt: skip
    corpus_file(tmp_path, **change)
    result = runs_or_says_one_sentence(*words)
    assert result.exit_code in (0, 2) and "golden" not in result.output
    if result.exit_code == 2:
        assert "corpus.json: " in result.stderr and not (tmp_path / "camp").exists()
