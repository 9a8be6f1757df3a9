"""What the library's products read: scales packed for all experts at once, and codes that `fp8_columns` turns."""

import numpy as np
import pytest
import torch

import refnum
from refnum.training.dispatch import Ranks, make_route
from refnum.training.products import Products, float32_scales, packed_scales, turned_codes


def route_of(counts):
    """Return the route of one rank whose experts have so many rows."""
    experts = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))[:, None]
    return make_route(Ranks(), experts, torch.ones(experts.shape), len(counts))[0]


@pytest.mark.parametrize("counts", [(1, 300, 0, 128, 129), (0, 0, 5), (128,)], ids=str)
@pytest.mark.parametrize("blocks", [1, 3])
def test_each_expert_s_scales_have_the_rows_beside_each_other(counts, blocks):
    route = route_of(counts)
    scales = torch.arange(sum(route.rows) * blocks, dtype=torch.float32).view(-1, blocks)
    parts = packed_scales(scales, route)
    for part, want in zip(parts, scales.split(route.rows), strict=True):
        assert torch.equal(part, want)
        assert part.t().is_contiguous()


def test_a_route_without_rows_has_no_segments():
    route = make_route(Ranks(), torch.zeros((0, 2), dtype=torch.int64), torch.zeros((0, 2)), 4)[0]
    assert [one.shape for one in packed_scales(torch.zeros((0, 3)), route)] == [(0, 3)] * 4


def test_codes_of_square_tiles_turn_as_they_are():
    """Zeros of both signs, NaN tiles and tiles of every size of number come through unchanged."""
    dice = np.random.default_rng(5)
    w = dice.standard_normal((2 * 256, 384)).astype(np.float32) * np.exp2(dice.integers(-30, 30, (512, 384)))
    w[:128, :128], w[128:256, :128], w[300, 200] = 0.0, -0.0, np.nan
    given = torch.from_numpy(w).to(torch.bfloat16)
    codes, scales = refnum.quantize_fp8_tiles(given, (128, 128))
    codes, scales = codes.view(2, 256, 384), scales.view(2, 2, 3)
    assert torch.equal(turned_codes(refnum.fp8_columns, codes, scales), codes.transpose(1, 2))
    assert torch.equal(Products(True).turned((codes, scales))[1], scales.transpose(1, 2))


def test_a_scale_byte_is_its_power_of_two():
    bytes_ = torch.arange(255, dtype=torch.uint8)
    want = torch.ldexp(torch.ones(255, dtype=torch.float64), bytes_.double() - 127)
    assert torch.equal(float32_scales(bytes_).double(), want)
