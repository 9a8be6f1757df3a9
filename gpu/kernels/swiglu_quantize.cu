// SwiGLU of bfloat16 [M, H], quantised to E4M3 tiles of 1x128 or to MXFP4 (clauses N11, N6, N5).
//
// CTAs stay: each keeps the window of silu in shared memory and takes chunk after chunk of 16 elements a thread. The
// chunks of a row are rounded up to whole tiles; those behind the row's end do not exist.
#include "float32_codes.cuh"
#include "memory.cuh"
#include "swiglu.cuh"

#ifndef BLOCKS  // CTAs a multiprocessor holds at once
#define BLOCKS 2
#endif
#ifndef AHEAD  // whether a chunk is read while the one before is worked on
#define AHEAD 1
#endif

namespace refnum {

constexpr int WINDOW = 12, CHUNK = 16, CHUNK_WORDS = 8, CHUNK_BYTES = 32;

// The one parameter (gpu/ops/swiglu.py has its mirror). Strides are in bytes.
struct SwigluArguments {
    const uint8_t *gate, *up, *prob;
    uint8_t *out, *out_scales;
    const uint32_t* table;  // all gates
    offset_t gate_stride, up_stride, prob_stride;
    uint32_t rows, per_row, valid, turns;  // rows; chunks a row, and those that exist; chunks a thread
    uint32_t step_rows, step_columns;      // from a thread's chunk to its next
    Policy policy;
};

struct Spot {
    uint32_t row, column;

    __device__ __forceinline__ bool exists(const SwigluArguments& a) const {
        return row < a.rows && column < a.valid;
    }
    __device__ __forceinline__ Spot next(const SwigluArguments& a) const {
        const uint32_t across = column + a.step_columns, over = across >= a.per_row;
        return {row + a.step_rows + over, over ? across - a.per_row : across};
    }
};

// A chunk as it is read; zeros where there is none.
struct Pairs {
    uint32_t gate[CHUNK_WORDS], up[CHUNK_WORDS], prob;
};

template <bool weighted, bool aligned>
__device__ __forceinline__ void read(const SwigluArguments& a, Spot spot, Pairs& in) {
    in = {};
    if (!spot.exists(a)) return;
    const offset_t across = (offset_t)spot.column * CHUNK_BYTES;
    load<CHUNK_BYTES>(a.gate + spot.row * a.gate_stride + across, aligned, in.gate);
    load<CHUNK_BYTES>(a.up + spot.row * a.up_stride + across, aligned, in.up);
    if (weighted) load<4>(a.prob + spot.row * a.prob_stride, aligned, &in.prob);
}

// The largest of `lanes` neighbouring threads.
template <int lanes>
__device__ __forceinline__ uint32_t largest_of(uint32_t x) {
#pragma unroll
    for (int d = 1; d < lanes; d *= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, x, d);
        x = x > other ? x : other;
    }
    return x;
}

// Quantises one chunk and writes it. `lanes` threads share a scale; its byte is written by the first of them.
template <bool fp8, bool weighted, bool saturate>
__device__ __forceinline__ void quantize(const SwigluArguments& a, const uint32_t* window, uint32_t carry, Spot spot,
                                         const Pairs& in) {
    constexpr int lanes = (fp8 ? 128 : 32) / CHUNK, words = fp8 ? CHUNK / 4 : CHUNK / 8;
    uint32_t bits[CHUNK], out[words], most = 0;
    silu_pairs<CHUNK_WORDS>(window, in.gate, bits);
    swiglu_floats<weighted, CHUNK_WORDS>(bits, in.up, in.prob, bits);
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) most = larger_magnitude(most, bits[i]);
    most = largest_of<lanes>(most);
    if (!spot.exists(a)) return;
    uint32_t byte;
    if (fp8) {
        byte = float_tile_byte(most, carry);
        e4m3_words<words>(bits, byte, out);
    } else {
        const BlockByte block = float_block_byte(most, carry, a.policy);
        byte = block.stored;
        e2m1_words<saturate, words>(bits, block, out);
    }
    const offset_t place = (offset_t)spot.row * a.valid + spot.column;
    store<4 * words>(a.out + place * (4 * words), out);
    if (spot.column % lanes == 0) {
        a.out_scales[(offset_t)spot.row * (a.per_row / lanes) + spot.column / lanes] = (uint8_t)byte;
    }
}

template <bool fp8, bool weighted, bool saturate, bool aligned>
__device__ __forceinline__ void swiglu(const SwigluArguments& a) {
    typedef GateWindow<WINDOW> Window;
    __shared__ uint4 shared[Window::entries / 4];
    uint32_t* window = reinterpret_cast<uint32_t*>(shared);
    const uint32_t first = blockIdx.x * THREADS + threadIdx.x;
    Spot spot = {first / a.per_row, first % a.per_row};
    Pairs in, ahead;
    if (AHEAD) read<weighted, aligned>(a, spot, in);
    for (uint32_t i = 4 * threadIdx.x; i < Window::entries; i += 4 * THREADS) {
        load_vector<16>(reinterpret_cast<const uint8_t*>(a.table + Window::gate(i)), window + i);
    }
    const uint32_t carry = fp8 ? e4m3_carry(a.policy.rule, 23) : e2m1_carry(a.policy.rule, 23);
    __syncthreads();
#pragma unroll 1
    for (uint32_t turn = 0; turn < a.turns; ++turn) {
        const Spot next = spot.next(a);
        if (AHEAD) read<weighted, aligned>(a, next, ahead);
        else read<weighted, aligned>(a, spot, in);
        quantize<fp8, weighted, saturate>(a, window, carry, spot, in);
        if (AHEAD) in = ahead;
        spot = next;
    }
}

}  // namespace refnum

#define KERNEL(name, fp8, weighted, saturate, aligned)                                         \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void name(refnum::SwigluArguments a) { \
        refnum::swiglu<fp8, weighted, saturate, aligned>(a);                                   \
    }
KERNEL(swiglu_quantize_fp8, true, false, false, true)
KERNEL(swiglu_quantize_fp8_weighted, true, true, false, true)
KERNEL(swiglu_quantize_mxfp4, false, false, false, true)
KERNEL(swiglu_quantize_mxfp4_weighted, false, true, false, true)
KERNEL(swiglu_quantize_mxfp4_saturate, false, false, true, true)
KERNEL(swiglu_quantize_mxfp4_weighted_saturate, false, true, true, true)
KERNEL(swiglu_quantize_fp8_loose, true, false, false, false)
KERNEL(swiglu_quantize_fp8_weighted_loose, true, true, false, false)
KERNEL(swiglu_quantize_mxfp4_saturate_loose, false, false, true, false)
KERNEL(swiglu_quantize_mxfp4_weighted_saturate_loose, false, true, true, false)
