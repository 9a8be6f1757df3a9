// Float [M, K] -> MXFP4 by the rules of TetraJet, along rows, by random bytes (clauses N24 and N13). They are read beside the
// input, or made here from a key.
#include "tetrajet_memory.cuh"

#define KERNEL(name, way, kind, mode, other, how)                                                               \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                           \
    }
#define KERNELS(name, mode, kind, other)                          \
    KERNEL(name##_flat, tetrajet_rows, kind, mode, other, true)   \
    KERNEL(name, tetrajet_rows, kind, mode, other, false)
KERNELS(quantize_tetrajet_drawn_float32, DRAWN, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_drawn_bfloat16, DRAWN, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_drawn_float16, DRAWN, FLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_keyed_float32, KEYED, FLOAT32, FLOAT32)
KERNELS(quantize_tetrajet_keyed_bfloat16, KEYED, BFLOAT16, FLOAT32)
KERNELS(quantize_tetrajet_keyed_float16, KEYED, FLOAT16, FLOAT32)
