// Floats (clause N5) and E4M3 tiles (clause N7) -> MXFP4 payload rows (clause N12) in one pass. A chunk is PART
// elements of a block, half as many of float32; codes and scale byte go to the two parts of one row.
#include "payload_memory.cuh"
#include "shares.cuh"

namespace refnum {

// The chunks of this thread with their rows, by a product with 1 / per_row: exact below 2**64 / per_row chunks.
__device__ __forceinline__ void locate_rows(const Arguments& a, Chunk<false> (&chunks)[UNROLL]) {
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        Chunk<false>& chunk = chunks[u];
        chunk.number = first + u * THREADS;
        chunk.exists = chunk.number < a.chunks;
        const uint64_t row = a.per_row == 1 ? chunk.number : high_product(chunk.number, a.per_row_inverse);
        chunk.row = (offset_t)row;
        chunk.column = (uint32_t)chunk.number - (uint32_t)row * a.per_row;
    }
}

// Writes a chunk of `elements` to its row of the payload: the codes, and by the first thread of a block its byte.
// `whole`: rows are a multiple of 16 bytes.
template <int elements, bool whole>
__device__ __forceinline__ void store_payload(const Arguments& a, const Chunk<false>& chunk, const uint32_t* packed,
                                              uint32_t byte) {
    constexpr uint32_t lanes = 32 / elements;
    const uint32_t codes = a.valid * (elements / 2), width = codes + a.valid / lanes;
    uint8_t* row = a.out + (uint64_t)chunk.row * width;
    uint8_t* to = row + chunk.column * (elements / 2);
    if (whole) store<elements / 2>(to, packed);
    else store_codes<elements / 2>(to, packed, width);
    if (chunk.leads(lanes)) row[codes + chunk.column / lanes] = (uint8_t)byte;
}

// aligned: input rows and payload rows start at multiples of 16 bytes. Else a.aligned says whether input rows do.
template <int kind, bool aligned, bool rceil>
__device__ __forceinline__ void quantize_payload(const Arguments& a) {
    constexpr int part = FloatShare<kind>::part, words = FloatShare<kind>::words;
    constexpr int bytes = FloatShare<kind>::bytes;
    Chunk<false> chunks[UNROLL];
    locate_rows(a, chunks);
    uint32_t in[UNROLL][bytes / 4] = {}, w[UNROLL][words], most[UNROLL];
    load_share<bytes>(a, chunks, aligned || a.aligned, in);
    float_share<kind>(in, w, most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[words / 4];
        const uint32_t byte = quantize_part<kind, !rceil, words>(w[u], most[u], own_policy<rceil>(a), packed);
        if (chunks[u].exists) store_payload<part, aligned>(a, chunks[u], packed, byte);
    }
}

template <bool aligned, bool rceil>
__device__ __forceinline__ void fp8_to_payload(const Arguments& a) {
    constexpr int words = PART / 4;
    Chunk<false> chunks[UNROLL];
    locate_rows(a, chunks);
    uint32_t w[UNROLL][words] = {}, tile[UNROLL] = {}, most[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!chunks[u].exists) continue;
        load<PART>(a.x + chunks[u].input(a, PART), aligned || a.aligned, w[u]);
        tile[u] = load_byte(a.scales + chunks[u].row * a.scale_stride + chunks[u].column / (128 / PART));
    }
    CodeLanes<words> part[UNROLL];
    code_share<words>(w, part, most);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[words / 2];
        const uint32_t byte = recode_part<!rceil>(part[u], most[u], tile[u], own_policy<rceil>(a), packed);
        if (chunks[u].exists) store_payload<PART, aligned>(a, chunks[u], packed, byte);
    }
}

}  // namespace refnum

#define KERNEL(name, ...)                                                        \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Arguments a) { \
        refnum::__VA_ARGS__(a);                                                  \
    }
KERNEL(quantize_payload_float32_aligned_rceil, quantize_payload<refnum::FLOAT32, true, true>)
KERNEL(quantize_payload_bfloat16_aligned_rceil, quantize_payload<refnum::BFLOAT16, true, true>)
KERNEL(quantize_payload_float16_aligned_rceil, quantize_payload<refnum::FLOAT16, true, true>)
KERNEL(quantize_payload_float32_aligned, quantize_payload<refnum::FLOAT32, true, false>)
KERNEL(quantize_payload_bfloat16_aligned, quantize_payload<refnum::BFLOAT16, true, false>)
KERNEL(quantize_payload_float16_aligned, quantize_payload<refnum::FLOAT16, true, false>)
KERNEL(quantize_payload_float32, quantize_payload<refnum::FLOAT32, false, false>)
KERNEL(quantize_payload_bfloat16, quantize_payload<refnum::BFLOAT16, false, false>)
KERNEL(quantize_payload_float16, quantize_payload<refnum::FLOAT16, false, false>)
KERNEL(fp8_to_payload_aligned_rceil, fp8_to_payload<true, true>)
KERNEL(fp8_to_payload_aligned, fp8_to_payload<true, false>)
KERNEL(fp8_to_payload, fp8_to_payload<false, false>)
