"""The torch layer equals the golden layer in all intermediates, saved tensors and gradients, on one and two ranks."""

import dataclasses

import layer_ranks
import pytest
import torch
from layer_ranks import Case

from refnum.errors import RefnumError
from refnum.training.layer import MoELayer
from refnum.training.policies import get_policy

ROWS = {name: get_policy(name) for name in ("bf16", "fp8", "mxfp4")}
STORED = dataclasses.replace(ROWS["mxfp4"], name="stored", fc2_input="store")
MIXED = dataclasses.replace(ROWS["fp8"], name="mixed", saved_input="mxfp4", saved_activation="bfloat16")
LATE = dataclasses.replace(ROWS["fp8"], name="late", dispatched="bfloat16", saved_input="mxfp4", fc2_input="store")

ALONE = {
    "mxfp4": Case((40,)),
    "fp8": Case((21,), "fp8"),
    "bf16": Case((21,), "bf16"),
    "top 1": Case((9,), top=1),
    "top 4, 150 rows of an expert": Case((150,), experts=5, top=4),
    "an expert with no token": Case((12,), barred=(1,)),
    "one token": Case((1,)),
    "no token": Case((0,)),
    "fc2's input stored": Case((30,), STORED),
    "saved in fewer bits than dispatched": Case((30,), MIXED),
    "dispatched in bfloat16": Case((30,), LATE),
    "gate and up made again": Case((30,), "fp8+saved_activation=recompute"),
    "all made again from MXFP4": Case((30,), "mxfp4+saved_activation=recompute"),
    "gate and up made again in bfloat16": Case((9,), "bf16+saved_activation=recompute"),
    "MXFP4 simulated": Case((20,), "mxfp4-products-random", barred=(1,)),
    "NVFP4 as published": Case((20,), "nvfp4", barred=(0,)),
    "NVFP4 to nearest, made again": Case((9,), "nvfp4-nearest+saved_activation=recompute+fc2_input=store"),
}
TOGETHER = {
    "two ranks": Case((33, 7)),
    "a rank with no token": Case((24, 0), top=4),
    "a rank whose experts get no token": Case((8, 5), top=1, barred=(2, 3)),
    "fp8": Case((10, 6), "fp8", top=1),
    "random words of experts elsewhere": Case((10, 6), "mxfp4-products-random", top=1),
}
BROKEN = {"scales": Case((20, 9), bug="scales of another rank")}


@pytest.mark.parametrize("name", ALONE)
def test_one_rank_equals_the_model(name):
    assert layer_ranks.differing(ALONE[name]) == {}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Run all steps of two ranks in one pair of processes."""
    return layer_ranks.run_together(TOGETHER | BROKEN, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", TOGETHER)
def test_two_ranks_equal_the_model(name, together):
    assert layer_ranks.differing(TOGETHER[name], together[name]) == {}


def test_scales_of_another_rank_are_seen(together):
    wrong = layer_ranks.differing(BROKEN["scales"], together["scales"])
    assert any(name.endswith("forward.received") for name in wrong)
    assert any(name.endswith("forward.out") for name in wrong)


def test_weights_do_not_depend_on_the_ranks(together):
    alone = MoELayer(128, 128, 4, 2, "mxfp4", seed=3)
    assert torch.equal(torch.cat([one["w1"] for one in together["two ranks"]]), alone.w1)


def test_gradients_do_not_depend_on_who_looks():
    """Without a record the intermediates are freed on the way, and the weight gradients are the same."""
    recorded, layer = layer_ranks.step(ALONE["mxfp4"], 0), MoELayer(128, 128, 4, 2, "mxfp4", seed=3)
    x, experts, probs, grad = layer_ranks.inputs(ALONE["mxfp4"], 0)
    x, probs = x.requires_grad_(), probs.requires_grad_()
    layer(x, (experts, probs)).backward(grad)
    found = {"dx": x.grad, "dprobs": probs.grad, "dw1": layer.w1.grad, "dw2": layer.w2.grad}
    assert all(torch.equal(one, recorded[name]) for name, one in found.items())


def test_two_runs_are_equal():
    one, other = (layer_ranks.step(ALONE["mxfp4"], 0) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in ("dx", "dprobs", "dw1", "dw2", "forward.out"))


CAUGHT = {
    "bytes not moved": Case((40,)),
    "experts without rows are skipped": Case((12,), barred=(1,)),
    "sums in bfloat16": Case((60,), top=4),
    "the probability is left out": Case((9,)),
    "a gradient in the wrong slot": Case((9,)),
}


@pytest.mark.parametrize("bug", CAUGHT)
def test_a_planted_bug_is_seen(bug):
    assert layer_ranks.differing(dataclasses.replace(CAUGHT[bug], bug=bug))


class Seen:
    """An observer that keeps the dtypes that every conversion reads and writes, by name."""

    def __init__(self):
        self.calls = []

    def enter(self, layer, backward):
        self.calls.append(("backward" if backward else "forward", set()))

    def wants(self, calls):
        return True

    def conversion(self, name, arguments, named, results):
        tensors = [one for one in (*arguments, *(results if isinstance(results, tuple) else (results,)))
                   if isinstance(one, torch.Tensor)]  # fmt: skip
        self.calls.append((name, {one.dtype for one in tensors}))

    def product(self, name, operands, result):
        if name.endswith("[0]"):
            a, b = operands()
            self.calls.append((name, {one.dtype for one in (*a, *b)}))

    def follows(self):
        return False

    def forward(self, layer, inputs, found):
        return None

    def backward(self, layer, kept, found):
        return None


def test_no_bfloat16_tensor_lies_between_the_payload_and_its_products():
    """FP4 becomes FP8 directly: the forward rows and the columns of FC1's weight gradient."""
    seen = Seen()
    layer = MoELayer(128, 128, 2, 2, "mxfp4", witness=seen, seed=0)
    layer(torch.randn(9, 128).to(torch.bfloat16)).float().sum().backward()
    names = [name for name, _ in seen.calls]
    start = names.index("permute_unpack")
    forward = seen.calls[start : start + 3]
    assert [name for name, _ in forward] == ["permute_unpack", "mxfp4_to_fp8", "fc1[0]"]
    again = seen.calls[names.index("permute_unpack", start + 1) :][:2]
    assert [name for name, _ in again] == ["permute_unpack", "mxfp4_to_fp8_columns"]
    assert all(dtypes <= {torch.uint8, torch.int64} for _, dtypes in (*forward, *again))
    assert all(dtypes == {torch.uint8} for name, dtypes in seen.calls if name.startswith("fc"))


BAD = {
    "hidden": {"hidden": 100},
    "ffn": {"ffn": 0},
    "top": {"top": 5},
    "experts": {"experts": 0},
}


@pytest.mark.parametrize("name", BAD)
def test_numbers_that_do_not_fit_are_refused(name):
    given = {"hidden": 128, "ffn": 128, "experts": 4, "top": 2, "policy": "mxfp4"} | BAD[name]
    with pytest.raises(RefnumError, match=r"allowed (is|are)"):
        MoELayer(**given)


@pytest.mark.parametrize(
    "x",
    [torch.zeros(3, 64, dtype=torch.bfloat16), torch.zeros(3, 128), torch.zeros(128, dtype=torch.bfloat16)],
)
def test_tokens_that_do_not_fit_are_refused(x):
    with pytest.raises(RefnumError, match="allowed is"):
        MoELayer(128, 128, 2, 1, "mxfp4", seed=0)(x)


def test_a_routing_that_does_not_fit_is_refused():
    layer = MoELayer(128, 128, 4, 2, "mxfp4", seed=0)
    x, probs = torch.zeros(1, 128, dtype=torch.bfloat16), torch.ones(1, 2)
    for experts in ([[0, 4]], [[1, 1]], [[-1, 0]], [[0]]):
        with pytest.raises(RefnumError, match="routing"):
            layer(x, (torch.tensor(experts), probs))


def test_the_router_weights_sum_to_one_and_learn():
    layer = MoELayer(128, 128, 4, 2, "mxfp4", seed=0)
    x = torch.randn(6, 128).to(torch.bfloat16).requires_grad_()
    experts, probs = layer.route(x)
    assert torch.allclose(probs.sum(1), torch.ones(6)) and bool((probs[:, 0] >= probs[:, 1]).all())
    assert all(len(set(row)) == 2 for row in experts.tolist())
    layer(x).float().square().sum().backward()
    assert bool(layer.router.grad.abs().sum() > 0) and bool(x.grad.abs().sum() > 0)
