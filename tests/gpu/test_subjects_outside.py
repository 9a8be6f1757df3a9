"""What the kernels declare not to take: it is asked of no kernel, and everything beside it is."""

import numpy as np

from refnum.conformance.cases.case import Case
from refnum.gpu.subjects import outside, supports


def test_nvfp4_is_to_nearest_and_in_the_variants_that_the_kernels_have():
    x = {"x": np.zeros((2, 32), np.float32)}
    assert not outside(Case("quantize_nvfp4", "HOPPER", {}, x))
    assert outside(Case("quantize_nvfp4", "HOPPER", {"philox": [1, 2, 3]}, x))
    assert supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "MODELOPT"})
    assert not supports("hadamard_quantize_nvfp4", "HOPPER", {"variant": "TORCHAO"})
