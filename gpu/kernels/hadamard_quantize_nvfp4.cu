// Float [M, K] -> NVFP4 of its rotated groups, and the largest magnitude of the rotated matrix (clause N22.6).
#include "rotation_memory.cuh"

namespace refnum {

template <int kind, bool down>
__device__ __forceinline__ void rotate_quantize(const RotationArguments& a) {
    __shared__ uint32_t factors[NVFP4_CODES];
    const GroupPlace place = group_place<down>(a);
    uint32_t words[GROUP / 2], packed[2];
    if (place.exists) load_rotated<kind, 8, down>(a, place, words);
    const uint32_t amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
    const TensorScale tensor = tensor_scale(amax, a.order);
    for (uint32_t code = threadIdx.x; code < NVFP4_CODES; code += THREADS) {
        factors[code] = block_factor(code, tensor, a.order);
    }
    if (a.amax && blockIdx.x == 0 && threadIdx.x == 0) *a.out_amax = amax;
    __syncthreads();
    if (!place.exists) return;
    bool odd = false;
    const uint32_t most = nvfp4_maximum<BFLOAT16>(words, odd);
    const uint32_t code = block_code(most, tensor, a.order), factor = factors[code];
    nvfp4_block<BFLOAT16>(words, factor, odd || is_odd_factor(factor), packed);
    store<8>(a.out + place.number * 8, packed);
    if (LAYOUT_OUT != BYTES) lay_scale(a.out_scales, a.rows, a.columns, (offset_t)place.row, place.column, code);
    else a.out_scales[place.number] = (uint8_t)code;
}

// The largest magnitude of the rotated matrix, NaN left out, into out_amax, which holds a maximum already.
template <int kind, bool down>
__device__ __forceinline__ void rotate_largest(const RotationArguments& a) {
    const GroupPlace place = group_place<down>(a);
    uint32_t words[GROUP / 2], most = 0;
    bool odd = false;
    if (place.exists) {
        load_rotated<kind, 8, down>(a, place, words);
        most = nvfp4_maximum<BFLOAT16>(words, odd);
    }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0 && most > *reinterpret_cast<volatile uint32_t*>(a.out_amax)) atomicMax(a.out_amax, most);
}

}  // namespace refnum

#define KERNEL(name, function, kind, down)                                                    \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::RotationArguments a) { \
        refnum::function<refnum::kind, down>(a);                                              \
    }
#define KERNELS(name)                                    \
    KERNEL(name##_float32, name, FLOAT32, false)         \
    KERNEL(name##_bfloat16, name, BFLOAT16, false)       \
    KERNEL(name##_float32_down, name, FLOAT32, true)     \
    KERNEL(name##_bfloat16_down, name, BFLOAT16, true)
KERNELS(rotate_quantize)
KERNELS(rotate_largest)
extern "C" __global__ void rotate_nothing(refnum::RotationArguments a) { *a.out_amax = 0; }
