// Float [M, K] -> MXFP4 by the rules of TetraJet, along rows, by random bytes (clauses N24 and N13). They are read beside the
// input, or made here from a key.
#include "tetrajet_memory.cuh"

TETRAJET_ROWS(quantize_tetrajet_drawn_float32, DRAWN, FLOAT32, FLOAT32)
TETRAJET_ROWS(quantize_tetrajet_drawn_bfloat16, DRAWN, BFLOAT16, FLOAT32)
TETRAJET_ROWS(quantize_tetrajet_drawn_float16, DRAWN, FLOAT16, FLOAT32)
TETRAJET_ROWS(quantize_tetrajet_keyed_float32, KEYED, FLOAT32, FLOAT32)
TETRAJET_ROWS(quantize_tetrajet_keyed_bfloat16, KEYED, BFLOAT16, FLOAT32)
TETRAJET_ROWS(quantize_tetrajet_keyed_float16, KEYED, FLOAT16, FLOAT32)
