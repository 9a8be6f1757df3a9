"""Frozen ids stay: what vanishes or changes must be named."""

import json
import shutil

import pytest

from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.history import answers, require_kept

MLX = "quantize_mxfp4/MLX.json"


@pytest.fixture
def frozen(small, tmp_path, spoil):
    """(the folder as it was, the folder as it would be), both frozen."""
    spoil(small / "history.json", lambda document: document.update(frozen=True))
    fresh = tmp_path / "fresh"
    shutil.copytree(small, fresh)
    return small, fresh


def drop_first(document):
    document["groups"][0]["vectors"].pop(0)


def change_first(document):
    output = document["groups"][0]["vectors"][0]["outputs"]["scales"]
    output["hex"] = "ee" + output["hex"][2:]


def first_id(folder):
    return json.loads((folder / MLX).read_text())["groups"][0]["vectors"][0]["id"]


def test_nothing_changed_is_fine(frozen):
    require_kept(*frozen)
    assert len(answers(frozen[0])) > 40


def test_a_vector_that_vanishes_must_be_named(frozen, spoil):
    old, fresh = frozen
    identity = first_id(fresh)
    spoil(fresh / MLX, drop_first)
    with pytest.raises(VectorFileError, match=f"{identity}.*would vanish"):
        require_kept(old, fresh)
    entry = {"id": identity, "operation": "quantize_mxfp4", "profile": "MLX", "release": "2", "reason": "x", "by": None}
    spoil(fresh / "history.json", lambda document: document["removed"].append(entry))
    require_kept(old, fresh)


def test_an_answer_that_changes_must_be_named(frozen, spoil):
    old, fresh = frozen
    spoil(fresh / MLX, change_first)
    with pytest.raises(VectorFileError, match="would change"):
        require_kept(old, fresh)
    entry = {"id": first_id(fresh), "release": "2", "reason": "x", "previous": "0" * 64}
    spoil(fresh / "history.json", lambda document: document["corrected"].append(entry))
    require_kept(old, fresh)


def test_new_vectors_may_come_and_drafts_may_change(frozen, spoil):
    old, fresh = frozen
    require_kept(fresh, old)
    spoil(old / MLX, drop_first)
    require_kept(old, fresh)
    spoil(old / "history.json", lambda document: document.update(frozen=False))
    require_kept(fresh, old)
