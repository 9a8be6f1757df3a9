"""Recipes: rows as the clause prints them, words of their own for each operand, and the command that shows a policy."""

import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import refnum
from refnum.conformance.cli import app
from refnum.training.layer import MoELayer
from refnum.training.policies import POLICIES, get_policy
from refnum.training.recipes import PRODUCTS, RECIPES, Draw

CLAUSE = Path(__file__).resolve().parents[2] / "docs" / "specification" / "N28.md"


LETTERS = {"mxfp4": "M", "nvfp4": "N", "tetrajet": "T", "sawb": "S", "luq": "L", "vectors": "V"}


def words(operand):
    first = f"{words(operand.before)} forward" if operand.before else ""
    if operand.form == "bfloat16":
        return first or "B"
    letter = f"R {operand.phase}" if operand.form == "radix4" else LETTERS[operand.form]
    square = " 16x16" if operand.block == (16, 16) else ""
    marks = [mark for mark in ("rotated", "random", "averaged", "clamped") if getattr(operand, mark)]
    return " ".join([*([first, "then"] if first else []), letter + square, *marks])


def test_rows_are_those_of_the_clause():
    found = re.findall(r"^\| `([\w-]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$", CLAUSE.read_text(), re.MULTILINE)
    written = {name: [text.strip() for text in rest] for name, *rest in found}
    rows = {name: [", ".join(map(words, getattr(row, kind))) for kind in ("fprop", "dgrad", "wgrad")]
            for name, row in RECIPES.items()}  # fmt: skip
    assert written == rows and set(RECIPES) < set(POLICIES)
    dge = re.findall(r"`([\w-]+)`", re.search(r"estimator (.*?) DGE", CLAUSE.read_text(), re.DOTALL)[1])
    assert dge == [name for name, row in RECIPES.items() if row.estimator == "dge"]


def test_every_operand_of_every_expert_has_words_of_its_own():
    places = list(itertools.product(PRODUCTS, (False, True), range(3)))
    keys = {Draw(5, 7, first).key(*place) for first in (0, 3) for place in places}
    assert len(keys) == 72 and {key[::2] for key in keys} == {(5, 7)}
    assert Draw(5, 7, 3).key("fc2.dgrad", False, 1) == (5, (6 << 24) + 4, 7, 0)


def gradients(policy, step, monkeypatch, rotated=None):
    layer = MoELayer(128, 128, 2, 1, policy, seed=4)
    layer.step = step
    generator = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(20, 128, generator=generator).to(torch.bfloat16) for _ in range(2))
    if rotated is not None:
        right = refnum.hadamard16
        monkeypatch.setattr(refnum, "hadamard16", lambda x: rotated.append(tuple(x.shape)) or right(x))
    layer(x).backward(grad)
    return layer.w1.grad, layer.w2.grad


def test_a_step_has_its_own_words_and_the_same_ones_again(monkeypatch):
    first, again, other = (gradients("mxfp4-products-random", step, monkeypatch) for step in (1, 1, 2))
    assert all(map(torch.equal, first, again)) and not any(map(torch.equal, first, other))
    assert all(map(torch.equal, *(gradients("mxfp4-products", step, monkeypatch) for step in (1, 2))))


@pytest.mark.parametrize("policy", ["nvfp4", "nvfp4-no-rotation"])
def test_operands_of_weight_gradients_are_rotated_along_tokens(policy, monkeypatch):
    rotated = []
    gradients(policy, 0, monkeypatch, rotated)
    assert {shape[1] for shape in rotated} == ({256} if policy == "nvfp4" else set())
    assert sorted({shape[0] for shape in rotated}) == ([128, 256] if policy == "nvfp4" else [])


@pytest.mark.parametrize("name", [*POLICIES, "mxfp4+fc2_input=store"])
def test_a_policy_is_shown_as_a_graph(name):
    done = CliRunner().invoke(app, ["policies", name], env={"COLUMNS": "80"})
    assert done.exit_code == 0 and done.stdout.startswith(name) and max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads(CliRunner().invoke(app, ["policies", name, "--json"]).stdout)[0]
    shown = re.sub(r"[\s│]+", " ", done.stdout)  # a long line is broken
    assert all(form in shown for pair in found["operands"].values() for form in pair)
    assert found["dispatched"] == get_policy(name).dispatched


def test_all_policies_fit_a_table_of_80_columns():
    done = CliRunner().invoke(app, ["policies"], env={"COLUMNS": "80"})
    assert all(f"  {name} " in done.stdout for name in POLICIES) and "…" not in done.stdout


def test_an_unknown_policy_is_one_sentence():
    done = CliRunner().invoke(app, ["policies", "fp9"])
    assert done.exit_code == 2 and done.stderr.startswith("refnum: policy 'fp9' is not known")
