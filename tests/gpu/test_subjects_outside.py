"""What the kernels declare not to take: it is asked of no kernel, and everything beside it is."""

import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.gpu.subjects import outside, supports


def product(splits, columns, dtype=np.float32, blocks=1):
    rows, experts = sum(splits), len(splits)
    scales = {"a_scales": np.ones((rows, blocks), dtype), "b_scales": np.ones((experts, columns, blocks), dtype)}
    codes = {"a": np.zeros((rows, 33), np.uint8), "b": np.zeros((experts, columns, 33), np.uint8)}
    return Case("matmul_fp8", "HOPPER", {"order": "chain", "splits": splits}, {**codes, **scales})


@pytest.mark.parametrize(
    ("case", "taken"),
    [
        (product([2, 3], 4), True),
        (product([1, 3], 4), False),
        (product([2, 3], 1), False),
        (product([1, 3], 4, np.uint8), True),
        (product([1, 3], 4, blocks=2), True),
    ],
)
def test_scales_of_one_row_of_an_expert_are_outside(case, taken):
    assert (outside(case) == "") is taken


def test_nvfp4_is_to_nearest_and_in_the_variants_that_the_kernels_have():
    x = {"x": np.zeros((2, 32), np.float32)}
    assert not outside(Case("quantize_nvfp4", "HOPPER", {}, x))
    assert outside(Case("quantize_nvfp4", "HOPPER", {"philox": [1, 2, 3]}, x))
    assert supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "MODELOPT"})
    assert not supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "TORCHAO"})
