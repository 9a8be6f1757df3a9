"""The plan: models' sizes, what each part counts, the paper's table, and the command."""

import dataclasses
import itertools
import json
import math
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.errors import ArgumentError
from refnum.training.models import MODELS, get_model
from refnum.training.plan import PARTS, PUBLISHED, Setting, edges, layers_of, plan, published
from refnum.training.policies import get_policy

V3 = MODELS["deepseek-v3"]
SETTING = Setting(256, 16, 16, tensor=2)


@pytest.mark.parametrize(
    "name, billions",
    [("deepseek-v3", 671.03), ("deepseek-v2", 235.74), ("deepseek-v2-lite", 15.706), ("kimi-k2", 1026.4),
     ("qwen3-235b", 235.09), ("qwen3-30b", 30.53)],
)  # fmt: skip
def test_a_model_has_as_many_weights_as_its_name_says(name, billions):
    assert MODELS[name].parameters() / 1e9 == pytest.approx(billions, rel=1e-4)


def test_stages_have_every_layer_once():
    found = [layer for stage in range(16) for layer in layers_of(V3, SETTING, stage)]
    assert found == list(range(61))


def test_a_stage_of_one_layer_is_counted_by_hand():
    model = dataclasses.replace(MODELS["qwen3-30b"], layers=1)
    found = plan(model, get_policy("mxfp4"), Setting(8, 1, 8))
    experts, other = 3 * 2048 * 768 * 128 // 8, 2048 * (32 + 8 + 32) * 128 + 2048 * 128 + 2 * 151936 * 2048
    assert found.parts["weights"] == 2 * (experts + other)
    assert found.parts["gradients"] == 2 * (experts + other)
    assert found.parts["optimiser"] == 8 * (experts + other // 8)
    copies = 8 * (1 - Fraction(math.comb(112, 8), math.comb(128, 8)))
    assert found.edges["received rows"] == 4096 * math.ceil(copies * (2048 * 17 // 32))
    assert found.edges["experts' gate and up"] == 4096 * 8 * 1536 * 17 // 32
    assert found.dispatched == (1088, math.ceil(copies * 4096 * 1088))
    assert sum(found.edges.values()) == found.parts["saved activations"]
    assert tuple(found.parts) == PARTS


def test_all_expert_edges_of_a_layer_are_what_the_policy_saves():
    kept = {one.name: one.bytes for one in edges(V3, get_policy("mxfp4+fc2_input=store"), 60, 256)}
    assert sum(size for name, size in kept.items() if name == "received rows" or "experts'" in name) == 8 * 7_072


def test_a_token_goes_once_to_a_rank():
    pairs = [set(pair) for pair in itertools.combinations(range(8), 2)]
    for ranks in (1, 2, 4, 8):
        counted = Fraction(sum(len({expert * ranks // 8 for expert in pair}) for pair in pairs), len(pairs))
        assert dataclasses.replace(MODELS["small"], experts=8, top=2).copies(ranks) == counted


@pytest.mark.parametrize("module", ["mla-up", "attention", "norm", "mlp", "experts", "layer"])
def test_each_recomputation_saves_memory(module):
    whole, less = (plan(V3, get_policy("fp8"), Setting(256, 1, 8, recompute=names)) for names in ((), (module,)))
    assert less.parts["saved activations"] < whole.parts["saved activations"]


def test_tensor_ranks_split_matrices_and_tokens_but_not_experts():
    one, two = (plan(V3, get_policy("mxfp4"), Setting(256, 1, 8, tensor=parts)) for parts in (1, 2))
    experts = 2 * 58 * V3.expert_weights() // 8
    assert two.parts["weights"] - experts == (one.parts["weights"] - experts) // 2
    assert two.parts["saved activations"] == one.parts["saved activations"] // 2
    assert two.parts["optimiser"] == pytest.approx(one.parts["optimiser"], rel=1e-9)
    assert two.dispatched[1] == pytest.approx(one.dispatched[1] / 2, abs=1)


def test_policies_stand_in_their_order_and_the_recipe_pays_for_less_recomputation():
    totals = {name: plan(V3, get_policy(name), SETTING).total for name in ("mxfp4", "fp8", "bf16")}
    assert sorted(totals.values()) == list(totals.values())


def test_the_paper_s_table_has_the_plan_s_distance():
    """The guide explains the distances; a change of the count must change these figures and the guide."""
    distance = [
        round(100 * plan(V3, get_policy(row.policy), dataclasses.replace(SETTING, recompute=row.recompute)).total / 80e9
              - row.percent, 1)
        for row in PUBLISHED
    ]  # fmt: skip
    assert distance == [0.7, -10.9, 0.1, 2.9, 3.2]


def test_only_the_paper_s_own_runs_are_published():
    setting = dataclasses.replace(SETTING, recompute=("norm", "experts", "attention"))
    assert published("deepseek-v3", get_policy("mxfp4+fc2_input=store"), setting) == 59.40
    assert published("deepseek-v3", get_policy("fp8"), SETTING) is None
    assert published("kimi-k2", get_policy("fp8"), setting) is None


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"gpus": 100}, "100 GPUs are no multiple of 16 pipeline stages x 16 expert ranks"),
        ({"tensor": 32}, "256 GPUs are no multiple of 16 pipeline stages x 32 tensor ranks"),
        ({"sequences": 0}, "are 1 or more"),
        ({"recompute": ("all",)}, "recompute 'all' is not known"),
        ({"optimiser": "sgd"}, "optimiser 'sgd' is not known"),
        ({"gradients": "fp8"}, "gradients 'fp8' is not known"),
    ],
)
def test_a_wrong_setting_is_one_sentence(given, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        dataclasses.replace(SETTING, **given)


def test_degrees_that_do_not_fit_the_model_are_refused():
    with pytest.raises(ArgumentError, match="64 pipeline stages for 61 layers"):
        plan(V3, get_policy("bf16"), Setting(256, 64, 4))
    with pytest.raises(ArgumentError, match="256 experts are no multiple of 3"):
        plan(V3, get_policy("bf16"), Setting(3, 1, 3))
    with pytest.raises(ArgumentError, match="model 'gpt' is not known"):
        get_model("gpt")


def test_the_command_fits_80_columns():
    done = CliRunner().invoke(app, ["plan", "--recompute", "mla-up", "--memory", "40"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert (
        "published: 70.11 % of 80 GB; this plan: 73.28 %" in done.output and "it does not fit into 40 GB" in done.output
    )


def test_the_command_s_json_is_the_plan():
    done = CliRunner().invoke(app, ["plan", "--model", "qwen3-30b", "--gpus", "8", "--policy", "fp8", "--json"])
    assert json.loads(done.stdout)["parts"] == plan(MODELS["qwen3-30b"], get_policy("fp8"), Setting(8, 1, 8)).parts


@pytest.mark.parametrize("words", [["--gpus", "100", "--pipeline", "3"], ["--policy", "fp9"], ["--model", "x"]])
def test_a_wrong_option_of_the_command_is_one_sentence(words):
    done = CliRunner().invoke(app, ["plan", *words])
    assert done.exit_code == 2 and done.stderr.startswith("refnum: ") and done.stderr.count("\n") == 1
