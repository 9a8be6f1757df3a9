// Weights [M, K] and their running averages -> MXFP4 by Q-EMA, down columns (clause N24.7).
#include "tetrajet_memory.cuh"

TETRAJET_DOWN(q_ema_down_float32_float32, AVERAGED, FLOAT32, FLOAT32)
TETRAJET_DOWN(q_ema_down_bfloat16_bfloat16, AVERAGED, BFLOAT16, BFLOAT16)
TETRAJET_DOWN(q_ema_down_bfloat16_float32, AVERAGED, BFLOAT16, FLOAT32)
TETRAJET_DOWN(q_ema_down_float16_float16, AVERAGED, FLOAT16, FLOAT16)
TETRAJET_DOWN(q_ema_down_float16_float32, AVERAGED, FLOAT16, FLOAT32)
