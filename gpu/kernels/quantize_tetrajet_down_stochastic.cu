// Float [M, K] -> MXFP4 by the rules of TetraJet, down columns, by random bytes (clauses N24 and N13).
#include "tetrajet_memory.cuh"

TETRAJET_DOWN(quantize_tetrajet_down_drawn_float32, DRAWN, FLOAT32, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_drawn_bfloat16, DRAWN, BFLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_drawn_float16, DRAWN, FLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_keyed_float32, KEYED, FLOAT32, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_keyed_bfloat16, KEYED, BFLOAT16, FLOAT32)
TETRAJET_DOWN(quantize_tetrajet_down_keyed_float16, KEYED, FLOAT16, FLOAT32)
