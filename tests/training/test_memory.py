"""The memory of a step, counted without a device, is what the step holds."""

import dataclasses

import pytest
import torch
from layer_ranks import Case, inputs

from refnum.training import edges
from refnum.training.layer import MoELayer
from refnum.training.memory import BLOCK, Load, step_memory
from refnum.training.policies import get_policy, saved_bytes

LOAD = Load(24, (24,), (24,), (12, 0, 30, 6), 2)


def up(size):
    return -(-size // BLOCK) * BLOCK


@pytest.mark.parametrize("policy", ["bf16", "fp8", "mxfp4", "mxfp4+fc2_input=store", "fp8+saved_activation=recompute"])
def test_what_is_saved_is_what_the_policy_s_row_says(policy):
    counted = saved_bytes(get_policy(policy), 256, 128, scale_bytes=1)
    wanted = 24 * counted["input"] + 3 * 128 * (counted["activation"] + counted["fc2_input"])
    assert step_memory(policy, 256, 128, LOAD).saved == wanted


def test_the_parts_of_a_step_in_mxfp4_by_hand():
    found = step_memory("mxfp4", 256, 128, LOAD)
    weights = 4 * (2 * 128 * 256 + 256 * 128)
    operands = [weights // 3 * 2, 4 * 2 * 2, weights // 3, 4 * 2]  # codes and scales of both
    rows = 3 * 128
    kept = [24 * 136, rows * 128, rows * 8]  # payload, codes and scales of gate and up
    route = [8 * 24, 8 * 48, 8 * 48, 8 * 48, 8 * 48, 4 * rows, 2 * 8 * 3]
    assert found.kept == sum(map(up, [*operands, *kept, *route, 24 * 256 * 2]))
    assert found.gradients == 2 * weights + 24 * 256 * 2 + 24 * 2 * 4
    assert found.backward > found.kept + found.gradients


def test_a_layer_on_a_processor_saves_as_many_bytes():
    case = Case((24,))
    layer = MoELayer(128, 128, 4, 2, "mxfp4", seed=1)
    x, experts, probs, _ = inputs(case, 0)
    out = layer(x.requires_grad_(), (experts, probs))
    splits = tuple(torch.bincount(experts.flatten(), minlength=4).tolist())
    kept = out.grad_fn.saved_tensors[5:]
    assert step_memory("mxfp4", 128, 128, Load(24, (24,), (24,), splits, 2)).saved == sum(one.nbytes for one in kept)


def test_freed_intermediates_are_not_in_the_peak():
    """The peak of the backward pass is less than half of all matrices that it makes."""
    load = Load(512, (512,), (512,), (256,) * 4, 2)
    found = step_memory("mxfp4", 1024, 512, load)
    rows = 1024
    made = rows * (2 * 1024 + 2 * 1024 + 2 * 512 + 2 * 1024 + 8 * 512 + 2 * 1024 + 1024 + 1024 + 512 + 2 * 1024)
    assert found.backward - found.kept - found.gradients < made / 2


def test_rows_sent_to_other_ranks_are_counted():
    alone = Load(2400, (2400,), (2400,), (120, 0, 300, 60), 2)
    one, two = (step_memory("mxfp4", 256, 128, load) for load in
                (alone, dataclasses.replace(alone, send=(2000, 1500), receive=(900, 1500))))  # fmt: skip
    assert two.saved == one.saved and two.kept - one.kept == up(8 * 3500) - up(8 * 2400)


def test_bf16_is_counted_with_and_without_the_kernel_of_its_swiglu(monkeypatch):
    """The kernel cannot run on tensors without data; it failed there where Triton is installed."""

    class Fused:
        @staticmethod
        def takes(_):
            return True

        @staticmethod
        def weighted_swiglu(gate, up, prob):
            raise AssertionError("launched without data")

    without = step_memory("bf16", 1024, 512, LOAD)
    monkeypatch.setattr(edges, "fused", Fused)
    assert step_memory("bf16", 1024, 512, LOAD) == without
