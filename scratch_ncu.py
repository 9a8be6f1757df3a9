import sys
sys.path.insert(0, "benchmarks")
import cupy, numpy as np
from nvfp4 import M, K, ops
amax = cupy.asarray(np.array([40], np.float32))
x = (cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
for _ in range(2):
    ops.hadamard_quantize_nvfp4(x, tensor_amax=amax)
    ops.hadamard_quantize_nvfp4(x, axis=0, tensor_amax=amax)
    ops.quantize_tetrajet(x, axis=0, philox=(5, 1, 2, 0))
