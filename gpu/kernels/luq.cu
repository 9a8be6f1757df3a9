// Float [M, K] and two random words an element -> [1,3,0] codes by logarithmic unbiased quantisation, and the step
// (clause N23); beside it the largest magnitude of a tensor.
#include "logarithmic_memory.cuh"

namespace refnum {

template <int kind>
__device__ __forceinline__ void luq_pairs(const LogarithmicArguments& a, const Stretch& place, uint32_t alpha) {
    const LuqScale scale = {alpha, 0, 0, 0, false};
#pragma unroll 1
    for (uint32_t i = 0; i < place.count; i += 2) {
        uint32_t bits[2], words[2][2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int at = (int)i + j;
            bits[j] = canonical_float(float_at<kind>(place.in<FLOAT_BYTES<kind>>(a.x, a.x_stride), at));
            words[0][j] = float_at<FLOAT32>(place.in<4>(a.under, a.under_stride), at);
            words[1][j] = float_at<FLOAT32>(place.in<4>(a.log, a.log_stride), at);
        }
        a.out[(place.element(a) + i) / 2] = (uint8_t)luq_codes<2, false>(bits, words[0], words[1], scale);
    }
}

template <int kind, bool flat>
__device__ __forceinline__ void luq(const LogarithmicArguments& a) {
    constexpr int bytes = PART * FLOAT_BYTES<kind>, count = PART < 8 ? PART : 8;
    Stretch places[UNROLL];
    uint32_t x[UNROLL][bytes / 4], under[UNROLL][PART], log[UNROLL][PART];
    const bool whole = stretches_whole<flat>(a);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) places[u] = stretch_place<flat>(a, u);
    if (whole) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            load<bytes>(places[u].template in<FLOAT_BYTES<kind>>(a.x, a.x_stride), true, x[u]);
            load<4 * PART>(places[u].template in<4>(a.under, a.under_stride), true, under[u]);
            load<4 * PART>(places[u].template in<4>(a.log, a.log_stride), true, log[u]);
        }
    }
    const uint32_t alpha =
        a.number ? luq_step(tensor_maximum(__ldg(a.number)), a.divisor, a.rule != 0) : *a.out_alpha;
    if (a.number && blockIdx.x == 0 && threadIdx.x == 0) *a.out_alpha = alpha;
    const LuqScale scale = luq_scale(alpha);
    if (!whole || !scale.plain) {
#pragma unroll 1
        for (int u = 0; u < UNROLL; ++u) luq_pairs<kind>(a, stretch_place<flat>(a, u), alpha);
        return;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t bits[PART], packed[(PART + 7) / 8];
        float_bits<kind, PART / 2>(x[u], bits);
        unsigned_nans<PART>(bits);
#pragma unroll
        for (int i = 0; i < PART; i += count) {
            packed[i / count] = luq_codes<count, true>(bits + i, under[u] + i, log[u] + i, scale);
        }
        store<PART / 2>(a.out + places[u].element(a) / 2, packed);
    }
}

// The largest magnitude of x, NaN left out, into out_alpha, which holds a maximum already.
template <int kind, bool flat>
__device__ __forceinline__ void luq_largest(const LogarithmicArguments& a) {
    constexpr int bytes = PART * FLOAT_BYTES<kind>;
    uint32_t x[UNROLL][bytes / 4], most = 0;
    if (stretches_whole<flat>(a)) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            load<bytes>(stretch_place<flat>(a, u).template in<FLOAT_BYTES<kind>>(a.x, a.x_stride), true, x[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            uint32_t bits[PART];
            bool odd = false;
            float_bits<kind, PART / 2>(x[u], bits);
            const uint32_t found = largest_number<PART>(bits, odd);
            most = found > most ? found : most;
        }
    } else {
#pragma unroll 1
        for (int u = 0; u < UNROLL; ++u) {
            const Stretch place = stretch_place<flat>(a, u);
#pragma unroll 1
            for (uint32_t i = 0; i < place.count; ++i) {
                const uint8_t* p = place.in<FLOAT_BYTES<kind>>(a.x, a.x_stride);
                const uint32_t found = tensor_maximum(float_at<kind>(p, (int)i));
                most = found > most ? found : most;
            }
        }
    }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0 && most > *reinterpret_cast<volatile uint32_t*>(a.out_alpha)) atomicMax(a.out_alpha, most);
}

}  // namespace refnum

#define KERNEL(name, function, kind, flat)                                                       \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::LogarithmicArguments a) { \
        refnum::function<refnum::kind, flat>(a);                                                 \
    }
#define KERNELS(name)                                   \
    KERNEL(name##_float32_flat, name, FLOAT32, true)    \
    KERNEL(name##_bfloat16_flat, name, BFLOAT16, true)  \
    KERNEL(name##_float16_flat, name, FLOAT16, true)    \
    KERNEL(name##_float32, name, FLOAT32, false)        \
    KERNEL(name##_bfloat16, name, BFLOAT16, false)      \
    KERNEL(name##_float16, name, FLOAT16, false)
KERNELS(luq)
KERNELS(luq_largest)
extern "C" __global__ void luq_nothing(refnum::LogarithmicArguments a) { *a.out_alpha = 0; }
extern "C" __global__ void luq_found(refnum::LogarithmicArguments a) {
    *a.out_alpha = refnum::luq_step(*a.out_alpha, a.divisor, a.rule != 0);
}
