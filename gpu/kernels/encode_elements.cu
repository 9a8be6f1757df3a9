// Floats of any shape -> codes, one a byte (clauses N1 and N2). A chunk is PART elements, half as many of float32.
#include "encode_elements.cuh"
#include "memory.cuh"

namespace refnum {

// gpu/ops/casts.py has its mirror.
struct Elements {
    const uint8_t* x;
    uint8_t* out;
    offset_t count;
    int32_t byte;      // E2M1: scale byte
    int32_t rounding;  // E8M0: ByteRounding
    uint32_t option;   // E4M3: overflow gives NaN; E8M0: overflow saturates
    uint32_t aligned;  // whether chunks can be read by vector loads
};

// Each of the three: what a launch shares, and `words` words of four codes from as many loaded floats of a kind.
struct ToE2m1 {
    ElementScale scale;
    __device__ __forceinline__ explicit ToE2m1(const Elements& a) : scale(element_scale((uint32_t)a.byte)) {}
    template <int kind, int words>
    __device__ __forceinline__ void encode(const uint32_t* in, uint32_t* codes) const {
        uint32_t lanes[2 * words];
        bfloat16_lanes<kind, 2 * words>(in, lanes);
        e2m1_elements<words>(lanes, scale, codes);
    }
};
struct ToE4m3 {
    bool nan;
    __device__ __forceinline__ explicit ToE4m3(const Elements& a) : nan(a.option != 0) {}
    template <int kind, int words>
    __device__ __forceinline__ void encode(const uint32_t* in, uint32_t* codes) const {
        uint32_t bits[4 * words];
        float_bits<kind, 2 * words>(in, bits);
#pragma unroll
        for (int i = 0; i < words; ++i) codes[i] = nan ? e4m3_elements<true>(bits + 4 * i) : e4m3_elements<false>(bits + 4 * i);
    }
};
struct ToE8m0 {
    ByteRule rule;
    __device__ __forceinline__ explicit ToE8m0(const Elements& a) : rule(byte_rule(a.rounding, a.option != 0)) {}
    template <int kind, int words>
    __device__ __forceinline__ void encode(const uint32_t* in, uint32_t* codes) const {
        uint32_t lanes[2 * words];
        bfloat16_lanes<kind, 2 * words>(in, lanes);
        e8m0_elements<words>(lanes, rule, codes);
    }
};

template <int kind, class To>
__device__ __forceinline__ void encode_elements(const Elements& a) {
    constexpr uint32_t width = kind == FLOAT32 ? 4 : 2, part = kind == FLOAT32 ? PART / 2 : PART;
    constexpr uint32_t most = THREADS * UNROLL * part;  // elements of a CTA
    const offset_t first = (offset_t)blockIdx.x * most;
    const uint32_t here = a.count - first < most ? (uint32_t)(a.count - first) : most;
    const uint32_t chunked = a.aligned ? here - here % part : 0;
    const uint8_t* x = a.x + first * width;
    uint8_t* out = a.out + first;
    const To to(a);
    uint32_t in[UNROLL][part * width / 4];
#pragma unroll
    for (uint32_t u = 0; u < UNROLL; ++u) {
        const uint32_t place = (u * THREADS + threadIdx.x) * part;
        if (place < chunked) load<part * width>(x + place * width, true, in[u]);
    }
#pragma unroll
    for (uint32_t u = 0; u < UNROLL; ++u) {
        const uint32_t place = (u * THREADS + threadIdx.x) * part;
        if (place >= chunked) continue;
        uint32_t codes[part / 4];
        to.template encode<kind, part / 4>(in[u], codes);
        store<part>(out + place, codes);
    }
    // what fills no chunk, or cannot be read by vectors: neighbours in a warp, four elements a thread
#pragma unroll 1
    for (uint32_t from = chunked + threadIdx.x; from < here; from += 4 * THREADS) {
        uint32_t bits[4] = {}, codes;
        bool exists[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            exists[i] = from + i * THREADS < here;
            if (exists[i]) bits[i] = float_at<kind>(x, (int)(from + i * THREADS));
        }
        to.template encode<FLOAT32, 1>(bits, &codes);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            if (exists[i]) out[from + i * THREADS] = (uint8_t)(codes >> 8 * i);
        }
    }
}

}  // namespace refnum

#define KERNEL(name, kind, To)                                                          \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Elements a) { \
        refnum::encode_elements<refnum::kind, refnum::To>(a);                             \
    }
KERNEL(encode_e2m1_float32, FLOAT32, ToE2m1)
KERNEL(encode_e2m1_bfloat16, BFLOAT16, ToE2m1)
KERNEL(encode_e2m1_float16, FLOAT16, ToE2m1)
KERNEL(encode_e4m3_float32, FLOAT32, ToE4m3)
KERNEL(encode_e4m3_bfloat16, BFLOAT16, ToE4m3)
KERNEL(encode_e4m3_float16, FLOAT16, ToE4m3)
KERNEL(encode_e8m0_float32, FLOAT32, ToE8m0)
KERNEL(encode_e8m0_bfloat16, BFLOAT16, ToE8m0)
KERNEL(encode_e8m0_float16, FLOAT16, ToE8m0)
