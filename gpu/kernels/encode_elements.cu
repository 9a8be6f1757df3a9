// Floats of any shape -> codes, one a byte: the scalar conversions of the headers (clauses N1 and N2). A thread takes
// eight neighbours.
#include "e4m3.cuh"
#include "memory.cuh"

namespace refnum {

constexpr int EIGHT = 8;

// gpu/elements.py has its mirror.
struct Elements {
    const uint8_t* x;
    uint8_t* out;
    offset_t count;
    int32_t byte;      // E2M1, E4M3: scale byte
    int32_t rounding;  // E8M0: ByteRounding
    uint32_t option;   // E4M3: overflow gives NaN; E8M0: overflow saturates
    uint32_t aligned;  // whether eight elements can be read by vector loads
};

struct ToE2m1 {
    static __device__ __forceinline__ uint32_t code(uint32_t bits, const Elements& a) {
        return a.byte == NAN_BYTE ? 0 : e2m1_encode<false>(bits, a.byte - 127, 0);
    }
};
struct ToE4m3 {
    static __device__ __forceinline__ uint32_t code(uint32_t bits, const Elements& a) {
        return a.option ? e4m3_encode<false>(bits, a.byte - 127) : e4m3_encode<true>(bits, a.byte - 127);
    }
};
struct ToE8m0 {
    static __device__ __forceinline__ uint32_t code(uint32_t bits, const Elements& a) {
        return e8m0_encode(bits, a.rounding, a.option != 0);
    }
};

template <int kind, class To>
__device__ __forceinline__ void encode_elements(const Elements& a) {
    constexpr int width = kind == FLOAT32 ? 4 : 2;
    const offset_t first = ((offset_t)blockIdx.x * THREADS + threadIdx.x) * EIGHT;
    if (first >= a.count) return;
    const uint8_t* p = a.x + first * width;
    if (first + EIGHT > a.count) {
        for (int i = 0; i < a.count - first; ++i) a.out[first + i] = (uint8_t)To::code(float_at<kind>(p, i), a);
        return;
    }
    uint32_t w[EIGHT * width / 4], codes[2] = {0, 0};
    load<EIGHT * width>(p, a.aligned, w);
#pragma unroll
    for (int i = 0; i < EIGHT; ++i) {
        const uint32_t bits = kind == FLOAT32 ? w[i] : widen_lane<kind>(w[i * width / 4] >> (16 * (i & 1)) & 0xFFFF);
        codes[i >> 2] |= To::code(bits, a) << (8 * (i & 3));
    }
    store<EIGHT>(a.out + first, codes);
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
