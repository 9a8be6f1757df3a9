// Float [M, K] -> MXFP4 by the rules of TetraJet, down columns, by random bytes (clauses N24 and N13).
#include "tetrajet_memory.cuh"

#define KERNEL(name, way, kind, mode, other, how)                                                               \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                           \
    }
#define KERNELS(name, mode, kind, other)                          \
    KERNEL(name##_aligned, tetrajet_down, kind, mode, other, true)   \
    KERNEL(name, tetrajet_down, kind, mode, other, false)
KERNELS(quantize_tetrajet_down_drawn_float32, DRAWN, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_down_drawn_bfloat16, DRAWN, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_drawn_float16, DRAWN, FLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_keyed_float32, KEYED, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_down_keyed_bfloat16, KEYED, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_down_keyed_float16, KEYED, FLOAT16, FLOAT32)
