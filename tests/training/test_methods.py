"""Operands of other methods have the bits of the golden operations, and layers under them those of the golden layer."""

import dataclasses

import layer_ranks
import numpy as np
import pytest
import torch
from layer_ranks import SEED, Case
from test_forms import KEYS, numbers, same

from refnum.training import compare, golden, golden_forms, methods
from refnum.training.forms import Experts
from refnum.training.layer import MoELayer
from refnum.training.model import ByteModel
from refnum.training.models import get_model
from refnum.training.recipes import AVERAGED_FROM, RECIPES, Operand

OPERANDS = {
    "tetrajet": Operand("tetrajet"),
    "tetrajet random": Operand("tetrajet", random=True),
    "sawb": Operand("sawb"),
    "luq": Operand("luq"),
    "luq random": Operand("luq", random=True),
    "radix4": Operand("radix4"),
    "radix4 odd": Operand("radix4", phase="odd"),
    "vectors": Operand("vectors"),
    "vectors clamped": Operand("vectors", clamped=True),
}
NEW = [name for name in RECIPES if not name.startswith(("mxfp4", "nvfp4"))]


PLACED = [(name, dim) for name in OPERANDS for dim in (0, 1) if not (dim and name.startswith("vectors"))]
"""A row of vectors is one expert's."""


@pytest.mark.parametrize("name, dim", PLACED)
def test_operands_are_those_of_the_model(name, dim):
    operand, experts, x = OPERANDS[name], Experts(dim, (128, 128)), numbers(dim)
    x.view(-1)[torch.arange(0, 65536, 257)] *= 2.0**-20  # far below each maximum
    found = methods.values(x, operand, experts, KEYS if operand.random else (), None)
    for expert, (part, values) in enumerate(zip(experts.parts(x), experts.parts(found), strict=True)):
        key = KEYS[expert] if operand.random else None
        right = golden_forms.coded(compare.to_array(part.contiguous()), operand, key)
        assert same(values, torch.from_numpy(right.view(np.int16)).view(torch.bfloat16))


@pytest.mark.parametrize("name", OPERANDS)
def test_zeros_and_one_number_are_those_of_the_model(name):
    operand = OPERANDS[name]
    for x in (
        torch.zeros(128, 128),
        torch.zeros(128, 128).index_fill_(1, torch.tensor([5]), -1.0),
        torch.ones(128, 128),
    ):
        given = x.to(torch.bfloat16)
        found = methods.values(given, operand, Experts(0, (128,)), KEYS[:1] if operand.random else (), None)
        right = golden_forms.coded(compare.to_array(given), operand, KEYS[0] if operand.random else None)
        assert same(found, torch.from_numpy(right.view(np.int16)).view(torch.bfloat16))


def test_codes_that_an_average_chooses_are_those_of_the_model():
    x = numbers(3)
    average = x.float() * (1 + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    found = methods.values(x, Operand("tetrajet", averaged=True), Experts(0, (256,)), (), average)
    right = golden_forms.coded(compare.to_array(x), Operand("tetrajet", averaged=True), None, average.numpy())
    assert same(found, torch.from_numpy(right.view(np.int16)).view(torch.bfloat16))
    assert not same(found, methods.values(x, Operand("tetrajet"), Experts(0, (256,)), (), None))


@pytest.mark.parametrize("policy", NEW)
def test_a_layer_is_that_of_the_model(policy):
    """One expert has no token; gate and up are made again, so that random words are drawn twice."""
    assert layer_ranks.differing(Case((20,), f"{policy}+saved_activation=recompute", barred=(1,))) == {}


def averaged_layer(step):
    """Return a layer at a step whose average has followed the weights of two, and the weights of the first."""
    layer = MoELayer(128, 128, 4, 2, "tetrajet-ema", seed=SEED)
    before = [compare.to_array(one).copy() for one in (layer.w1, layer.w2)]
    layer.at_step(step - 1)
    with torch.no_grad():
        for weight in (layer.w1, layer.w2):
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    layer.at_step(step)
    return layer, before


@pytest.mark.parametrize("step", [AVERAGED_FROM - 1, AVERAGED_FROM])
def test_a_layer_with_an_average_is_that_of_the_model(step):
    layer, before = averaged_layer(step)
    layer.record = {}
    x, experts, probs, grad = layer_ranks.inputs(Case((20,)), 0)
    layer(x, (experts, probs)).backward(grad)
    w1, w2 = (compare.to_array(one.detach()) for one in (layer.w1, layer.w2))
    names = {"fc1": (before[0], w1), "fc2": (before[1], w2)}
    averages = {name: np.stack([golden_forms.averaged([old[e], new[e]]) for e in range(4)])
                for name, (old, new) in names.items()}  # fmt: skip
    given = "tetrajet-ema", SEED, step, averages if step >= AVERAGED_FROM else None
    arrays = [compare.to_array(one) for one in (x, experts, probs, grad)]
    forward = golden.forward([arrays[0]], [arrays[1]], [arrays[2]], w1, w2, *given)
    backward = golden.backward(forward, [arrays[3]], [arrays[1]], *given)
    assert np.array_equal(compare.to_array(layer.record["forward.fc1"]), forward[0].fc1)
    assert np.array_equal(compare.to_array(layer.w1.grad), backward[0].dw1)
    assert np.array_equal(compare.to_array(layer.w2.grad), backward[0].dw2)


def test_weights_that_flip_are_counted():
    layer, _ = averaged_layer(AVERAGED_FROM)
    assert 0.05 < float(layer.edges.flips) < 0.9
    layer.at_step(AVERAGED_FROM + 1)
    assert float(layer.edges.flips) < 0.001


def test_each_part_of_a_method_changes_its_gradients():
    """No two of the recipes are one."""
    found = {}
    for name in NEW:
        case = Case((20,), name)
        found[name] = layer_ranks.step(dataclasses.replace(case), 0)
    for one in NEW:
        for other in NEW:
            equal = all(torch.equal(found[one][key], found[other][key]) for key in ("dw1", "dw2", "dx"))
            assert equal == (one == other or {one, other} == {"tetrajet", "tetrajet-ema"})


def test_a_checkpoint_keeps_the_averages():
    """A model that goes on from what was kept has the averages that the first one has."""
    first, second = (ByteModel(get_model("tiny"), "tetrajet-ema", seed=1) for _ in range(2))
    for step in range(2):
        first.at_step(step)
        with torch.no_grad():
            first.blocks[0].experts.w1 *= 1.5
    assert len(first.averages()) == 4 and second.averages() == {}
    second.load_state_dict(first.state_dict())
    second.restore(first.averages() | {"0.master": torch.zeros(1)})
    for model in (first, second):
        model.at_step(2)
    kept = second.averages()
    assert all(torch.equal(one, kept[name]) for name, one in first.averages().items())
    assert not torch.equal(kept["average.0.fc1"], second.blocks[0].experts.w1.float())
