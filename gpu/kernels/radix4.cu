// Float [M, K] -> [1,3,0] codes of powers of four, or of twice those (clause N23.8).
#include "logarithmic_memory.cuh"

namespace refnum {

template <int kind>
__device__ __forceinline__ void radix_pairs(const LogarithmicArguments& a, const Stretch& place,
                                            const RadixBounds& bounds) {
    const uint8_t* p = place.in<FLOAT_BYTES<kind>>(a.x, a.x_stride);
#pragma unroll 1
    for (uint32_t i = 0; i < place.count; i += 2) {
        const uint32_t bits[2] = {canonical_float(float_at<kind>(p, (int)i)),
                                  canonical_float(float_at<kind>(p, (int)i + 1))};
        a.out[(place.element(a) + i) / 2] = (uint8_t)radix_codes<2>(bits, bounds);
    }
}

template <int kind, bool flat>
__device__ __forceinline__ void radix4(const LogarithmicArguments& a) {
    constexpr int bytes = PART * FLOAT_BYTES<kind>;
    Stretch places[UNROLL];
    uint32_t x[UNROLL][bytes / 4];
    const RadixBounds bounds = radix_bounds(a.exponent, a.rule);
    if (!stretches_whole<flat>(a)) {
#pragma unroll 1
        for (int u = 0; u < UNROLL; ++u) radix_pairs<kind>(a, stretch_place<flat>(a, u), bounds);
        return;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        places[u] = stretch_place<flat>(a, u);
        load<bytes>(places[u].template in<FLOAT_BYTES<kind>>(a.x, a.x_stride), true, x[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t packed[PART / 8];
        if (kind == BFLOAT16 && bounds.narrow) {
#pragma unroll
            for (int i = 0; i < PART / 8; ++i) packed[i] = radix_lanes(x[u] + 4 * i, bounds);
        } else {
            uint32_t bits[PART];
            float_bits<kind, PART / 2>(x[u], bits);
            unsigned_nans<PART>(bits);
#pragma unroll
            for (int i = 0; i < PART / 8; ++i) packed[i] = radix_codes<8>(bits + 8 * i, bounds);
        }
        store<PART / 2>(a.out + places[u].element(a) / 2, packed);
    }
}

}  // namespace refnum

#define KERNEL(name, kind, flat)                                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::LogarithmicArguments a) { \
        refnum::radix4<refnum::kind, flat>(a);                                                   \
    }
KERNEL(radix4_float32_flat, FLOAT32, true)
KERNEL(radix4_bfloat16_flat, BFLOAT16, true)
KERNEL(radix4_float16_flat, FLOAT16, true)
KERNEL(radix4_float32, FLOAT32, false)
KERNEL(radix4_bfloat16, BFLOAT16, false)
KERNEL(radix4_float16, FLOAT16, false)
