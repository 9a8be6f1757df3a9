// NVFP4 -> bfloat16 or float32 [M, K] (clause N21.7). A chunk is half a block, eight elements.
#include "nvfp4_memory.cuh"

namespace refnum {

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_nvfp4(const Nvfp4Arguments& a) {
    __shared__ uint32_t numbers[256];
    Place<flat> places[UNROLL];
    uint32_t packed[UNROLL] = {}, codes[UNROLL] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const Place<flat> place = places[u] = nvfp4_place<flat>(a, u);
        if (!place.exists) continue;
        load<4>(nvfp4_input(a, place, 4), flat || a.aligned, packed + u);
        const uint64_t row = a.square ? place.row / 16 : place.row;
        const uint64_t at = flat ? place.number / 2 : LAYOUT_IN == BYTES ? row * a.scale_stride + place.column / 2
                            : scale_place(LAYOUT_IN, a.rows, a.columns, (uint32_t)row, place.column / 2);
        codes[u] = load_byte(a.scales + at);
    }
    const uint32_t amax = tensor_maximum(__ldg(a.amax));
    for (uint32_t code = threadIdx.x; code < 256; code += THREADS) numbers[code] = nvfp4_number(code, amax, a.order);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (!places[u].exists) continue;
        uint32_t out[wide ? 8 : 4];
        nvfp4_values<wide>(packed[u], numbers[codes[u]], out);
        store<wide ? 32 : 16>(a.out + places[u].number * (wide ? 32 : 16), out);
    }
}

}  // namespace refnum

#define KERNEL(name, wide, flat)                                                            \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::Nvfp4Arguments a) {  \
        refnum::dequantize_nvfp4<wide, flat>(a);                                            \
    }
KERNEL(dequantize_nvfp4_bfloat16_flat, false, true)
KERNEL(dequantize_nvfp4_float32_flat, true, true)
KERNEL(dequantize_nvfp4_bfloat16, false, false)
KERNEL(dequantize_nvfp4_float32, true, false)
