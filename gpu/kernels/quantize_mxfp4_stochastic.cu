// Float [M, K] -> MXFP4 with stochastic rounding (clauses N5 and N13). A chunk is PART elements of a block, 16 or 32,
// and half as many of float32. Random bits are read beside the input, or made here from a key.
#include "philox.cuh"
#include "shares.cuh"

namespace refnum {

// gpu/ops/blocks.py has its mirror.
struct StochasticArguments {
    Arguments rows;
    const uint8_t* random;  // one byte an element; not read where there is a key
    offset_t random_stride;
    uint64_t first_block;  // of the stream: where element 0 of the input has its bits
    PhiloxKey key;
    uint32_t random_aligned;
};

template <int kind, bool flat, bool keyed>
__device__ __forceinline__ void quantize_stochastic(const StochasticArguments& s) {
    constexpr int part = FloatShare<kind>::part, lanes = FloatShare<kind>::lanes, words = FloatShare<kind>::words;
    constexpr int bytes = FloatShare<kind>::bytes;
    const Arguments& a = s.rows;
    Chunk<flat> chunks[UNROLL];
    locate(a, chunks);
    uint32_t in[UNROLL][bytes / 4] = {}, random[UNROLL][part / 4] = {}, w[UNROLL][words], most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<bytes>(a.x + chunks[u].input(a, bytes), flat || a.aligned, in[u]);
        if (keyed) continue;
        const offset_t at = flat ? (offset_t)(chunks[u].number * part)
                                 : chunks[u].row * s.random_stride + (offset_t)chunks[u].column * part;
        load<part>(s.random + at, flat || s.random_aligned, random[u]);
    }
    float_share<kind>(in, w, most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[words / 4];
        if (keyed) {
            const uint64_t block = s.first_block + chunks[u].place(a) * (part / PHILOX_BYTES);
#pragma unroll
            for (int i = 0; i < part / (int)PHILOX_BYTES; ++i) philox_block(block + i, s.key, random[u] + 4 * i);
        }
        const uint32_t byte =
            quantize_part_stochastic<kind, words>(in[u], w[u], most[u], random[u], a.policy, packed);
        if (!chunks[u].exists) continue;
        store<part / 2>(a.out + chunks[u].place(a) * (part / 2), packed);
        if (chunks[u].leads(lanes)) chunks[u].store_scale(a, lanes, byte);
    }
}

}  // namespace refnum

#define KERNEL(name, kind, flat, keyed)                                                                     \
    extern "C" __global__ __launch_bounds__(THREADS) void name(const __grid_constant__ refnum::StochasticArguments s) { \
        refnum::quantize_stochastic<kind, flat, keyed>(s);                                                  \
    }
KERNEL(quantize_mxfp4_drawn_float32_flat, refnum::FLOAT32, true, false)
KERNEL(quantize_mxfp4_drawn_bfloat16_flat, refnum::BFLOAT16, true, false)
KERNEL(quantize_mxfp4_drawn_float16_flat, refnum::FLOAT16, true, false)
KERNEL(quantize_mxfp4_drawn_float32, refnum::FLOAT32, false, false)
KERNEL(quantize_mxfp4_drawn_bfloat16, refnum::BFLOAT16, false, false)
KERNEL(quantize_mxfp4_drawn_float16, refnum::FLOAT16, false, false)
KERNEL(quantize_mxfp4_keyed_float32_flat, refnum::FLOAT32, true, true)
KERNEL(quantize_mxfp4_keyed_bfloat16_flat, refnum::BFLOAT16, true, true)
KERNEL(quantize_mxfp4_keyed_float16_flat, refnum::FLOAT16, true, true)
KERNEL(quantize_mxfp4_keyed_float32, refnum::FLOAT32, false, true)
KERNEL(quantize_mxfp4_keyed_bfloat16, refnum::BFLOAT16, false, true)
KERNEL(quantize_mxfp4_keyed_float16, refnum::FLOAT16, false, true)
