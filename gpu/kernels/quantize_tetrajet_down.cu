// Float [M, K] -> MXFP4 by the rules of TetraJet, down columns, to nearest (clause N24).
#include "tetrajet_memory.cuh"

TETRAJET_DOWN(quantize_tetrajet_down_even_float32, TO_EVEN, FLOAT32, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_even_bfloat16, TO_EVEN, BFLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_even_float16, TO_EVEN, FLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_away_float32, AWAY, FLOAT32, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_away_bfloat16, AWAY, BFLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_away_float16, AWAY, FLOAT16, FLOAT32)
