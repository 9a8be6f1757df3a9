"""Findings looked at again: large ones in a piece of them, differences of any level, and what only a whole shows."""

import numpy as np
import pytest
from fuzz_tools import PLANTED

import refnum
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.recipes import Recipe, expand
from refnum.conformance.cases.recipes.distributions import distributions_for
from refnum.conformance.commands.fuzz import confirm, halve
from refnum.conformance.commands.fuzz.context import WorkerContext
from refnum.conformance.commands.fuzz.shards import Address, recipes_of
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.device import fetch
from refnum.conformance.verdicts.judge_worker import RecipeJudge

HOST = np.empty(0, np.uint8)
SIGNLESS = """
import numpy as np
import refnum

def quantize_mxfp4(x):
    packed, scales = refnum.quantize_mxfp4(x)
    packed = np.where(packed & 15 == 8, packed & 240, packed)
    return np.where(packed >> 4 == 8, packed & 15, packed), scales

def supports(operation, profile, params):
    return "" if params["input"] == "float32" else "float32 only"
"""
AS_A_WHOLE = """
import refnum

def quantize_mxfp4(x):
    packed, scales = refnum.quantize_mxfp4(x)
    if x.size > 1 << 18:
        packed[-1, -1] ^= 1
    return packed, scales
"""


def context_of(source, elements=1 << 12):
    return WorkerContext(
        make_spec([str(source)], ["quantize_mxfp4"], ["HOPPER"], cases=20, elements=elements, isolate=False)
    )


def written(tmp_path, text):
    (tmp_path / "subject.py").write_text(text)
    return tmp_path / "subject.py"


def task_of(context, address, number, level, tmp_path):
    suspicion = {"kind": "mismatch", "level": level, "finding": "", "words": "", "outcome": ""}
    return {"target": address.target, "seed": address.seed, "stratum": address.stratum, "number": address.number,
            "case": number, "suspicion": suspicion, "folder": str(tmp_path)}  # fmt: skip


def silent(number, warming=False):
    pass


def large(rows, seed=3, distribution="normal"):

    table = distributions_for("quantize_mxfp4")
    return Recipe("quantize_mxfp4", "HOPPER", {"input": "float32"}, (rows, 4096), seed, distribution,
                  dict(table[distribution].simple))  # fmt: skip


def test_a_wrong_sign_of_zero_seen_where_the_data_is_is_confirmed_at_its_level(tmp_path):
    context = context_of(written(tmp_path, SIGNLESS))
    target = next(target for target in context.spec.targets if target.params["input"] == "float32")
    judge = RecipeJudge(context.subject(target.name), 10.0)
    judge.like = HOST
    address = Address(0, target.name, "normal", 0)
    recipes = recipes_of(context.spec, target, address)
    seen = [judge._on_device(recipe, number) for number, recipe in enumerate(recipes)]
    number = next(n for n, each in enumerate(seen) if each.outcome is Outcome.MISMATCH)
    task = task_of(context, address, number, seen[number].level, tmp_path)
    result = confirm.confirm(context, task, silent)
    assert result["shown"] == result["of"] == 3 and result["golden"]
    record = confirm.shrink(context, task, silent)["record"]
    assert record["fails"] == "L1" and record["case"] == "x [1, 32]; 32 elements"


def test_a_large_mismatch_is_cut_down_where_it_is():
    context = context_of(f"{PLANTED}:subjects")
    subject = context.subjects["one_in_a_million"]
    recipe = large(512, distribution="bits")
    small = halve.piece(subject, recipe, HOST, 10.0)
    assert 0 < small.elements <= halve.ENOUGH < expand(recipe).elements
    assert confirm.shows(subject, small, confirm.Failure(small, 1, "", ""))
    rows = {row.tobytes() for row in expand(recipe).inputs["x"].reshape(-1, small.inputs["x"].shape[1])}
    assert {row.tobytes() for row in fetch(small).inputs["x"]} <= rows
    assert halve.piece(context.subjects["right"], recipe, HOST, 10.0) is None


def test_what_only_the_whole_shows_is_confirmed_as_a_whole(tmp_path, monkeypatch):
    context = context_of(written(tmp_path, AS_A_WHOLE), 1 << 19)
    target = next(target for target in context.spec.targets if target.params["input"] == "float32")
    subject, recipe = context.subject(target.name), large(100)
    assert halve.piece(subject, recipe, HOST, 10.0) is None
    monkeypatch.setattr(confirm, "_recipe", lambda context, task: recipe)
    task = task_of(context, Address(0, target.name, "normal", 0), 0, 1, tmp_path)
    assert confirm.confirm(context, task, silent)["shown"] == 3


@pytest.mark.parametrize(("rows", "kept"), [(1, None), (64, 32), (100, 25)])
def test_halves_are_cut_until_they_are_small(rows, kept):
    def differs(case):
        return bool((case.inputs["x"] != 0).any())

    x = np.zeros((rows, 4096), np.float32)
    x[-1, -1] = 1
    whole = expand(large(rows)).with_inputs({"x": x})
    best = halve._halved(whole, lambda case: case.inputs["x"].shape[0], halve.crop.take_rows, 1, differs)
    assert best.inputs["x"][-1, -1] == 1 and best.inputs["x"].shape[0] == (kept or rows)
    assert (best is whole) == (kept is None)


@pytest.mark.parametrize("rows", [64, 200, 300])
def test_tiles_of_many_rows_are_cut_at_their_borders_only(rows):
    """An error in the last row, whose half would be the whole case again when cuts move out to the tile."""
    drawn = dict(distributions_for("dequantize_fp8_tiles")["uniform"].simple)
    params = {"tile": [128, 128], "dtype": "float32"}
    recipe = Recipe("dequantize_fp8_tiles", "HOPPER", params, (rows, 4096), 3, "uniform", drawn)
    last = expand(recipe).inputs["codes"][-1].tobytes()

    def wrong(codes, scales, tile, dtype):
        values = refnum.dequantize_fp8_tiles(codes, scales, tile, dtype)
        if codes.tobytes().endswith(last[-128:]):
            values[-1, -1] = 77.0
        return values

    piece = halve.piece(Subject("k", {"dequantize_fp8_tiles": wrong}), recipe, HOST, 60.0)
    assert piece is not None and piece.inputs["codes"].shape[0] == (rows - 1) % 128 + 1
