"""Peers of the matrix alone: found where they are, skipped with a reason where they are not, entries in order."""

import numpy as np
import pytest

from refnum.conformance.cases.levels import CLASSES
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.matrix import inputs, run
from refnum.conformance.subjects.peers import (
    PEERS,
    all_differences,
    all_subjects,
    build,
    differences,
    foreign,
    nvidia_device,
    subjects,
    torch_peer,
)
from refnum.conformance.subjects.subject import from_dict
from refnum.errors import UnsupportedError

OTHERS = all_subjects()[len(subjects()) :]
SUBJECTS = {entry["name"]: from_dict(entry, "test") for entry in OTHERS}


def test_every_peer_says_why_it_cannot_be_used(monkeypatch, tmp_path):
    monkeypatch.setenv(foreign.VARIABLE, str(tmp_path))
    for subject in SUBJECTS.values():
        ready, reason = subject.available()
        assert ready or len(reason) > 10, subject.name
        assert subject.kind == "peer" and set(subject.operations) <= set(inputs.OPERATIONS)
    assert len(SUBJECTS) > 2 * sum(bool(needs) for needs in PEERS.values())


def test_every_entry_names_a_peer_an_operation_and_a_clause():
    own = all_differences()[len(differences()) :]
    assert len(own) > 100
    names = {torch_peer.base_name(name) for name in SUBJECTS} | set(SUBJECTS)
    assert {entry.subject for entry in own} <= names
    for entry in own:
        assert entry.operation in OPERATIONS and entry.clause in (
            "N1",
            "N2",
            "N3",
            "N4",
            "N5",
            "N6",
            "N7",
            "N21",
            "N25",
            "N27",
        ), entry
        assert entry.of in ("x", "amax", "codes", "scales", "quotient", "byte", "zero_block", "minus_zero", "gradient")
        assert all(low <= high for low, high in entry.where)
        assert entry.words and entry.note.replace("-", "").isalnum()


def first_row(subject, entry):
    """The first row of the matrix in an entry's place, run through the peer that is here; None where it has none."""
    from refnum.conformance.commands.matrix import cells

    for params in OPERATIONS[entry.operation].variants():
        if not inputs.wanted(entry.operation, params) or not entry.covers(entry.operation, params, entry.profile):
            continue
        if params.get("input") == "bfloat16" or subject.refuses(entry.operation, subject.profiles[0], params):
            continue
        given = inputs.rows(entry.operation, params)
        case, golden = cells.golden_of(entry.operation, subject.profiles[0], params, given)
        [(_, place)] = cells.places([entry], given, golden.get("scales"))
        answer = run.answer(subject, entry.operation, subject.profiles[0], params, given)
        golden, observed = cells.comparable(case, golden, answer.outputs)
        return cells.differing_rows(golden, observed)[place]
    return None


@pytest.mark.parametrize("name", ["torch-formula"])
def test_a_peer_that_is_installed_differs_where_its_entries_say(name):
    subject = SUBJECTS[name]
    ready, reason = subject.available()
    if not ready:
        pytest.skip(reason)
    entries = [entry for entry in all_differences() if entry.subject == name]
    assert entries
    for entry in entries:
        hit = first_row(subject, entry)
        assert hit is not None and hit.size
        assert hit.all() if entry.exact else hit.any(), entry


def test_an_excerpt_runs_what_is_asked_for_and_no_more(tmp_path):
    path = tmp_path / "foreign_file.py"
    path.write_text("import not_there\nLIMIT = 3\n@not_there.jit\ndef twice(x) -> 'x':\n    return 2 * x + LIMIT\n")
    assert foreign.excerpt(path, ("twice", "LIMIT"), {})["twice"](2) == 7
    with pytest.raises(UnsupportedError, match="no longer defines thrice"):
        foreign.excerpt(path, ("thrice",), {})


def test_a_checkout_is_found_by_its_variable_and_nothing_is_found_without(tmp_path, monkeypatch):
    package = tmp_path / "clone" / "src" / "refnum_foreign_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 41\n")
    (package / "more.py").write_text("VALUE = 42\n")
    monkeypatch.setenv(foreign.VARIABLE, f"{tmp_path / 'absent'}:{tmp_path}")
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    assert foreign.folders() == [tmp_path]
    assert foreign.source("refnum_foreign_test/more.py", ("clone/src",)) == package / "more.py"
    assert foreign.load("refnum_foreign_test.more", ("clone/src",)).VALUE == 42
    monkeypatch.setenv(foreign.VARIABLE, "")
    with pytest.raises(UnsupportedError, match="neither installed nor in a folder"):
        foreign.source("refnum_nowhere/more.py")
    with pytest.raises(UnsupportedError, match="cannot be imported"):
        foreign.load("refnum_nowhere.more")


def test_scale_bytes_are_exact_and_refuse_what_is_no_power_of_two():
    torch = pytest.importorskip("torch")
    powers = np.ldexp(1.0, np.arange(-127, 128)).astype(np.float32)
    assert torch_peer.scale_bytes(torch.from_numpy(powers)).tolist() == list(range(255))
    assert torch_peer.scale_bytes(torch.tensor([0.0, float("inf"), float("nan")])).tolist() == [0, 255, 255]
    with pytest.raises(UnsupportedError, match="no power of two"):
        torch_peer.scale_bytes(torch.tensor([3.0]))


def test_the_device_source_compiles_for_the_host_of_a_device():
    options = nvidia_device.include_options()
    assert all(option.startswith("-I") for option in options)
    assert not build.include_roots() or options


def test_class_letters_of_batches_cover_every_class():
    assert sorted("".join(run.BATCHES)) == sorted(CLASSES)
