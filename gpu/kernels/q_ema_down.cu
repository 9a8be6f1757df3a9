// Weights [M, K] and their running averages -> MXFP4 by Q-EMA, down columns (clause N24.7).
#include "tetrajet_memory.cuh"

#define KERNEL(name, way, kind, mode, other, how)                                                               \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::TetrajetArguments s) { \
        refnum::way<refnum::kind, refnum::mode, refnum::other, how>(s);                                           \
    }
#define KERNELS(name, mode, kind, other)                          \
    KERNEL(name##_aligned, tetrajet_down, kind, mode, other, true)   \
    KERNEL(name, tetrajet_down, kind, mode, other, false)
KERNELS(q_ema_down_float32_float32, AVERAGED, FLOAT32, FLOAT32)
KERNELS(q_ema_down_bfloat16_bfloat16, AVERAGED, BFLOAT16, BFLOAT16)
KERNELS(q_ema_down_bfloat16_float32, AVERAGED, BFLOAT16, FLOAT32)
KERNELS(q_ema_down_float16_float16, AVERAGED, FLOAT16, FLOAT16)
KERNELS(q_ema_down_float16_float32, AVERAGED, FLOAT16, FLOAT32)
