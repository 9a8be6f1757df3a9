// Packed codes of radix 4 -> bfloat16 or float32 [M, K] (clause N23.9).
#include "logarithmic_values.cuh"

namespace refnum {

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_radix4(const LogarithmicArguments& a) {
    const DecodeTable table = radix_table((uint32_t)(127 + a.exponent));
    store_values<wide, flat>(a, [&table](uint32_t packed, uint32_t* out) { radix_values<wide>(packed, table, out); });
}

}  // namespace refnum

#define KERNEL(name, wide, flat)                                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::LogarithmicArguments a) { \
        refnum::dequantize_radix4<wide, flat>(a);                                                \
    }
KERNEL(dequantize_radix4_bfloat16_flat, false, true)
KERNEL(dequantize_radix4_float32_flat, true, true)
KERNEL(dequantize_radix4_bfloat16, false, false)
KERNEL(dequantize_radix4_float32, true, false)
