// A step of Stable-SPAM on weights of any shape, given the scalars of the step (clause N27.4). A chunk is 4 numbers.
#include "memory.cuh"
#include "stable_spam.cuh"

namespace refnum {

// gpu/ops/optimisers.py has its mirror.
struct SpamArguments {
    const uint8_t *gradient, *weight, *m, *v;
    const uint32_t* factors;
    uint8_t *out, *out_m, *out_v;
    offset_t count;
    int32_t forget;
    uint32_t aligned;  // whether chunks can be read by vector loads
};

__device__ __forceinline__ void stable_spam(const SpamArguments& a) {
    SpamFactors by;
    uint32_t* scalars = &by.decay;
#pragma unroll
    for (int i = 0; i < 12; ++i) scalars[i] = __ldg(a.factors + i);
    const offset_t chunks = a.aligned ? a.count / 4 : 0, first = (offset_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    uint32_t gradient[UNROLL][4], weight[UNROLL][4], m[UNROLL][4], v[UNROLL][4];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const offset_t at = 16 * (first + u * THREADS);
        if (first + u * THREADS >= chunks) break;
        load<16>(a.gradient + at, true, gradient[u]);
        load<16>(a.weight + at, true, weight[u]);
        load<16>(a.m + at, true, m[u]);
        load<16>(a.v + at, true, v[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const offset_t at = 16 * (first + u * THREADS);
        if (first + u * THREADS >= chunks) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const SpamWeight found = stable_spam_weight(gradient[u][i], {weight[u][i], m[u][i], v[u][i]}, by, a.forget);
            weight[u][i] = found.weight, m[u][i] = found.m, v[u][i] = found.v;
        }
        store<16>(a.out + at, weight[u]);
        store<16>(a.out_m + at, m[u]);
        store<16>(a.out_v + at, v[u]);
    }
#pragma unroll 1
    for (offset_t i = chunks * 4 + (offset_t)blockIdx.x * THREADS + threadIdx.x; i < a.count; i += gridDim.x * THREADS) {
        const SpamWeight old = {float_at<FLOAT32>(a.weight + 4 * i, 0), float_at<FLOAT32>(a.m + 4 * i, 0),
                                float_at<FLOAT32>(a.v + 4 * i, 0)};
        const SpamWeight found = stable_spam_weight(float_at<FLOAT32>(a.gradient + 4 * i, 0), old, by, a.forget);
        store<4>(a.out + 4 * i, &found.weight);
        store<4>(a.out_m + 4 * i, &found.m);
        store<4>(a.out_v + 4 * i, &found.v);
    }
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(THREADS) void stable_spam(refnum::SpamArguments a) { refnum::stable_spam(a); }
