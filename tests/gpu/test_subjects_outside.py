"""What the kernels declare not to take: it is asked of no kernel, and everything beside it is."""

import numpy as np

from refnum.conformance.cases.case import Case
from refnum.gpu.subjects import outside, supports


def test_rotated_nvfp4_is_to_nearest_and_in_the_variants_that_the_kernels_have():
    x, keyed = {"x": np.zeros((2, 32), np.float32)}, {"philox": [1, 2, 3]}
    assert not outside(Case("quantize_nvfp4", "HOPPER", keyed, x))
    assert not outside(Case("hadamard_quantize_nvfp4", "HOPPER", {}, x))
    assert outside(Case("hadamard_quantize_nvfp4", "HOPPER", keyed, x))
    assert not supports("quantize_nvfp4", "HOPPER", {"variant": "MODELOPT", "tile": [16, 16]})
    assert supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "MODELOPT"})
    assert not supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "TORCHAO"})
