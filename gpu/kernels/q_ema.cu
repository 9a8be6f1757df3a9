// Weights [M, K] and their running averages -> MXFP4 by Q-EMA, along rows (clause N24.7).
#include "tetrajet_memory.cuh"

TETRAJET_ROWS(q_ema_float32_float32, AVERAGED, FLOAT32, FLOAT32)
TETRAJET_ROWS(q_ema_bfloat16_bfloat16, AVERAGED, BFLOAT16, BFLOAT16)
TETRAJET_ROWS(q_ema_bfloat16_float32, AVERAGED, BFLOAT16, FLOAT32)
TETRAJET_ROWS(q_ema_float16_float16, AVERAGED, FLOAT16, FLOAT16)
TETRAJET_ROWS(q_ema_float16_float32, AVERAGED, FLOAT16, FLOAT32)
