// Float [M, K] -> NVFP4 (clause N21), and the largest magnitude of a tensor. A chunk is a block of 16, or two blocks of
// 16-bit floats where rows are contiguous.
#include "nvfp4_memory.cuh"

namespace refnum {

template <int kind, bool flat>
constexpr int NVFP4_BLOCKS = flat && kind != FLOAT32 ? 2 : 1;

template <int kind, bool flat>
__device__ __forceinline__ void load_blocks(const Nvfp4Arguments& a, Place<flat> (&places)[UNROLL],
                                            uint32_t (&w)[UNROLL][NVFP4_BLOCKS<kind, flat> * NVFP4_WORDS<kind>]) {
    constexpr int bytes = 4 * NVFP4_BLOCKS<kind, flat> * NVFP4_WORDS<kind>;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        places[u] = nvfp4_place<flat>(a, u);
        if (places[u].exists) load<bytes>(nvfp4_input(a, places[u], bytes), flat || a.aligned, w[u]);
    }
}

template <int kind, bool flat>
__device__ __forceinline__ void quantize_nvfp4(const Nvfp4Arguments& a) {
    constexpr int blocks = NVFP4_BLOCKS<kind, flat>, words = NVFP4_WORDS<kind>;
    __shared__ uint32_t factors[NVFP4_CODES];
    Place<flat> places[UNROLL];
    uint32_t w[UNROLL][blocks * words] = {};
    load_blocks<kind, flat>(a, places, w);
    const uint32_t amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
    const TensorScale tensor = tensor_scale(amax, a.order);
    for (uint32_t code = threadIdx.x; code < NVFP4_CODES; code += THREADS) {
        factors[code] = block_factor(code, tensor, a.order);
    }
    if (a.amax && blockIdx.x == 0 && threadIdx.x == 0) *a.out_amax = amax;
    __syncthreads();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!places[u].exists) continue;
        uint32_t packed[2 * blocks], codes = 0;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            bool odd = false;
            const uint32_t most = nvfp4_maximum<kind>(w[u] + b * words, odd);
            const uint32_t code = block_code(most, tensor, a.order), factor = factors[code];
            nvfp4_block<kind>(w[u] + b * words, factor, odd || is_odd_factor(factor), packed + 2 * b);
            codes |= code << (8 * b);
        }
        store<8 * blocks>(a.out + places[u].number * (8 * blocks), packed);
        if (LAYOUT_OUT != BYTES) {
            lay_scale(a.out_scales, a.rows, a.columns, (offset_t)places[u].row, places[u].column, codes);
        } else if (blocks == 2) {
            reinterpret_cast<uint16_t*>(a.out_scales)[places[u].number] = (uint16_t)codes;
        } else {
            a.out_scales[places[u].number] = (uint8_t)codes;
        }
    }
}

// The largest magnitude of x, NaN left out, into out_amax, which holds a maximum already.
template <int kind, bool flat>
__device__ __forceinline__ void largest_nvfp4(const Nvfp4Arguments& a) {
    constexpr int blocks = NVFP4_BLOCKS<kind, flat>, words = NVFP4_WORDS<kind>;
    Place<flat> places[UNROLL];
    uint32_t w[UNROLL][blocks * words] = {}, most = 0;
    load_blocks<kind, flat>(a, places, w);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            bool odd = false;
            const uint32_t found = nvfp4_maximum<kind>(w[u] + b * words, odd);
            most = found > most ? found : most;
        }
    }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0 && most > *reinterpret_cast<volatile uint32_t*>(a.out_amax)) atomicMax(a.out_amax, most);
}

}  // namespace refnum

#define KERNEL(name, function, kind, flat)                                                  \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Nvfp4Arguments a) {  \
        refnum::function<refnum::kind, flat>(a);                                            \
    }
#define KERNELS(name, function)                            \
    KERNEL(name##_float32_flat, function, FLOAT32, true)   \
    KERNEL(name##_bfloat16_flat, function, BFLOAT16, true) \
    KERNEL(name##_float16_flat, function, FLOAT16, true)   \
    KERNEL(name##_float32, function, FLOAT32, false)       \
    KERNEL(name##_bfloat16, function, BFLOAT16, false)     \
    KERNEL(name##_float16, function, FLOAT16, false)
KERNELS(quantize_nvfp4, quantize_nvfp4)
KERNELS(largest_nvfp4, largest_nvfp4)
extern "C" __global__ void no_largest_nvfp4(refnum::Nvfp4Arguments a) { *a.out_amax = 0; }
