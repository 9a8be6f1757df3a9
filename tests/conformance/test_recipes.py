"""Recipes: the same seed, the same cases; JSON and simplification that lose nothing and end."""

import json
import subprocess
import sys
from functools import partial

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from refnum import philox
from refnum.conformance.cases import case as cases
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.draw import Draw, words
from refnum.conformance.cases.draw.bits import float_bits
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes import (
    Recipe,
    expand,
    sampled_cases,
    sampled_recipes,
    simpler,
    size,
)
from refnum.conformance.cases.recipes.distributions import distributions_for
from refnum.conformance.cases.recipes.strategies import drawn, recipes
from refnum.errors import ArgumentError

VARIANTS = [(name, params) for name, operation in OPERATIONS.items() for params in list(operation.variants())[:2]]


ZEROS = {"distribution": "zero", "parameters": {"base": 1}}


def plain(**changes):
    fields = {"operation": "quantize_mxfp4", "profile": "HOPPER", "params": {"input": "bfloat16"}, "shape": (3, 64),
              "seed": 5, "distribution": "normal", "parameters": {"exponent": 0}}  # fmt: skip
    return Recipe(**{**fields, **changes})


@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)
def test_the_golden_model_takes_every_sampled_case(name, params):
    distributions = set()
    for case in sampled_cases(name, "HOPPER", params, seed=11, examples=25):
        assert run_golden(case)
        assert case.recipe is not None and case.label == str(case.recipe)
        distributions.add(case.recipe.distribution)
    assert len(distributions) > 2


@pytest.mark.parametrize("name", ["swiglu_quantize", "swiglu_backward"])
def test_draws_of_a_variant_are_kept_for_the_next_one(name):
    variant = name, "HOPPER", OPERATIONS[name].defaults()
    words._kept.cache_clear()
    missed = []
    for _ in range(2):
        assert list(corner_cases(*variant)) and list(sampled_cases(*variant, 0, 25))
        missed.append(words._kept.cache_info().misses)
    assert missed[0] == missed[1]


@pytest.mark.parametrize("name", ["quantize_mxfp4", "fp8_columns", "unpermute", "swiglu_backward"])
def test_recipes_are_reproducible_and_survive_json(name):
    params = OPERATIONS[name].defaults()
    first = sampled_recipes(name, "HOPPER", params, 7, 30)
    assert first == sampled_recipes(name, "HOPPER", params, 7, 30)
    assert first != sampled_recipes(name, "HOPPER", params, 8, 30)
    assert len(first) == 30
    for recipe in first:
        again = Recipe.from_json(recipe.to_json())
        assert again == recipe
        assert expand(again).digest() == expand(recipe).digest()
    assert sampled_recipes(name, "HOPPER", params, 7, 0) == []


@pytest.mark.parametrize("name", ["quantize_mx", "mxfp4_columns", "unpermute", "matmul_fp8"])
def test_what_is_drawn_does_not_depend_on_the_parameters(name):
    """Hypothesis draws once for all variants; drawn for each by itself, every recipe is the same."""
    operation = OPERATIONS[name]
    for params in [*operation.variants()][-3:]:
        for more in [{}, {"splits": [3, 0, 6]}] if operation.ragged else [{}]:
            asked = sampled_recipes(name, "HOPPER", {**params, **more}, 3, 12)
            alone = drawn(name, json.dumps(cases.plain({**params, **more})), 3, 12)
            assert [recipe.to_json() for recipe in asked] == [recipe.to_json() for recipe in alone]


def test_words_that_are_kept_are_those_of_philox_and_cannot_be_written():
    for _ in range(2):
        words = Draw(11, 2).words(3, 5)
        assert np.array_equal(words.reshape(-1), philox.random_words(15, 11, stream=2))
        with pytest.raises(ValueError):
            words[0, 0] = 1


def test_many_seeds_reach_every_distribution_and_ragged_splits():
    found = sampled_recipes("mxfp4_columns", "HOPPER", {"scale": "amax"}, 3, 300)
    assert {recipe.distribution for recipe in found} == set(distributions_for("mxfp4_columns"))
    drawn = [recipe.params["splits"] for recipe in found if "splits" in recipe.params]
    assert any(0 in counts for counts in drawn) and [] in drawn
    assert all(count % 2 == 0 for counts in drawn for count in counts)
    assert any("splits" not in recipe.params for recipe in found)
    widths = {recipe.shape[1] for recipe in found}
    assert widths >= {32, 96, 128, 160} and max(widths) > 1000
    assert all(recipe.shape[0] % 2 == 0 for recipe in found)


def test_edits_are_planted_in_the_first_input():
    case = expand(plain(edits=((4, 70, 0x7FC0), (0, 0, 0x18000))))
    bits = float_bits(case.inputs["x"])
    assert bits[1, 6] == 0x7FC0 and bits[0, 0] == 0x8000
    untouched = float_bits(expand(plain()).inputs["x"])
    assert (bits != untouched).sum() == 2
    codes = expand(Recipe("dequantize_mx", "HOPPER", {"element": "E2M1", "dtype": "float32"}, (2, 32), 1, "zero",
                          {"base": 127}, ((0, 1, 0xFF),))).inputs["codes"]  # fmt: skip
    assert codes[0, 1] == 15
    assert expand(plain(shape=(0, 32), edits=((1, 1, 1),))).inputs["x"].size == 0


@pytest.mark.parametrize(("name", "first"), [("unpermute", "rows"), ("swiglu_backward", "grad")])
def test_wide_recipes_have_a_float32_first_input(name, first):
    found = sampled_recipes(name, "HOPPER", OPERATIONS[name].defaults(), 3, 40)
    assert {recipe.wide for recipe in found} == {False, True}
    for recipe in found:
        inputs = expand(recipe).inputs
        assert inputs[first].dtype == (np.float32 if recipe.wide else ml_dtypes.bfloat16)
        assert ("wide" in recipe.to_json()) is recipe.wide, (
            "recipes written before there were wide ones stay as they are"
        )
        assert Recipe.from_json(recipe.to_json()) == recipe
        others = set(inputs) & {"gate", "up"}
        assert all(inputs[other].dtype == ml_dtypes.bfloat16 for other in others)


def test_stochastic_and_optional_inputs():
    case = expand(plain(profile="STOCHASTIC"))
    assert case.inputs["rbits"].shape == (3, 64) and case.inputs["rbits"].max() < 256
    for optional in (False, True):
        recipe = Recipe("swiglu_quantize", "HOPPER", {"to": "fp8"}, (3, 64), 1, "normal", {"exponent": 0}, (), optional)
        assert ("prob" in expand(recipe).inputs) is optional


def test_inputs_of_one_case_differ():
    case = expand(Recipe("swiglu_quantize", "HOPPER", {"to": "fp8"}, (3, 64), 1, "normal", {"exponent": 0}))
    assert (case.inputs["gate"] != case.inputs["up"]).any()


@pytest.mark.parametrize(("change", "words"), [
    ({"operation": "nothing"}, "operation 'nothing'"),
    ({"distribution": "gauss"}, "distribution 'gauss'"),
    ({"parameters": {}}, "takes parameters"),
    ({"parameters": {"exponent": 9999}}, "outside"),
    ({**ZEROS, "operation": "fp8_columns", "params": {"splits": [1]}}, "sum to 1"),
    ({**ZEROS, "operation": "permute_pad", "params": {}}, "give splits"),
    ({"wide": True}, "only those for swiglu_backward, unpermute can be"),
])  # fmt: skip
def test_impossible_recipes_are_refused(change, words):
    with pytest.raises(ArgumentError, match=words):
        plain(**change)


def test_json_with_other_fields_is_refused():
    data = plain().to_json()
    with pytest.raises(ArgumentError, match="colour"):
        Recipe.from_json({**data, "colour": 1})
    del data["seed"]
    with pytest.raises(ArgumentError, match="seed"):
        Recipe.from_json(data)


@pytest.mark.parametrize("name", ["quantize_mxfp4", "mxfp4_columns", "fp8_columns", "permute_pad", "swiglu_backward"])
def test_every_simpler_recipe_is_smaller_and_runs(name):
    params = OPERATIONS[name].defaults()
    for recipe in sampled_recipes(name, "HOPPER", params, 5, 25):
        for candidate in simpler(recipe):
            assert size(candidate) < size(recipe)
        for candidate in list(simpler(recipe))[:2]:
            run_golden(expand(candidate))


def test_simplifying_ends_at_one_block():
    """Keep what still has a NaN: the smallest recipe is one row, one block, one edit."""
    recipe = plain(shape=(64, 1024), edits=((3, 70, 0x7FC0), (9, 9, 1)), distribution="lattice",
                   parameters={"low": 5, "span": 200})  # fmt: skip
    steps = 0

    def fails(candidate):
        x = expand(candidate).inputs["x"].astype(np.float32)
        return bool(np.isnan(x).any())

    while True:
        better = next((candidate for candidate in simpler(recipe) if fails(candidate)), None)
        if better is None:
            break
        recipe, steps = better, steps + 1
        assert steps < 200
    assert recipe.shape == (1, 32) and recipe.distribution == "zero" and recipe.seed == 0
    assert recipe.edits == ((3, 70, 0x7FC0),)


def test_hypothesis_itself_shrinks_to_a_small_recipe():
    seen = []

    @settings(max_examples=200, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @hypothesis.given(recipes("quantize_mxfp4", "HOPPER", {"input": "float32"}))
    def never_wide(recipe):
        if recipe.shape[0] >= 1 and recipe.shape[1] >= 128:
            seen.append(recipe)
            raise AssertionError

    with pytest.raises(AssertionError):
        never_wide()
    assert seen[-1].shape == (1, 128) and seen[-1].distribution == "zero" and not seen[-1].edits


def test_frozen_case_digest():
    """A change here breaks every stored replay that holds a recipe."""
    assert expand(plain()).digest()[:16] == FROZEN


FROZEN = "53649a9321d8e964"


DRAWS = """
import sys
if sys.argv[1:]:
    import mine
from refnum.conformance.cases.recipes import sampled_recipes
for name, params in (("unpermute", {"align": 32}), ("matmul_fp8", {})):
    print([recipe.to_json() for recipe in sampled_recipes(name, "HOPPER", params, 3, 40)])
"""


def test_what_is_drawn_does_not_depend_on_modules_that_are_loaded(tmp_path):
    """A seed draws the same beside a user's module full of numbers, and leaves no folder there."""
    (tmp_path / "mine.py").write_text(f"NUMBERS = {list(range(2, 2000, 7))}\n")
    (tmp_path / "draws.py").write_text(DRAWS)
    run = partial(subprocess.run, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    alone, beside = (run([sys.executable, "draws.py", *more]).stdout for more in ([], ["mine"]))
    assert alone.count(b"'seed'") == 80 and alone == beside
    assert not (tmp_path / ".hypothesis").exists()
