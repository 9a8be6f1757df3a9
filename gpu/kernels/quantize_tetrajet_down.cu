// Float [M, K] -> MXFP4 by the rules of TetraJet, down columns, to nearest (clause N24).
#include "tetrajet_memory.cuh"

#define KERNEL(name, way, kind, mode, other, how)                                                               \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                           \
    }
#define KERNELS(name, mode, kind, other)                          \
    KERNEL(name##_aligned, tetrajet_down, kind, mode, other, true)   \
    KERNEL(name, tetrajet_down, kind, mode, other, false)
KERNELS(quantize_tetrajet_down_even_float32, TO_EVEN, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_down_even_bfloat16, TO_EVEN, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_even_float16, TO_EVEN, FLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_away_float32, AWAY, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_down_away_bfloat16, AWAY, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_away_float16, AWAY, FLOAT16, FLOAT32)
