// Packed codes of LUQ -> bfloat16 or float32 [M, K] (clause N23.6).
#include "logarithmic_values.cuh"

namespace refnum {

template <bool wide, bool flat>
__device__ __forceinline__ void dequantize_luq(const LogarithmicArguments& a) {
    const uint32_t alpha = __ldg(a.number);
    store_values<wide, flat>(a, [alpha](uint32_t packed, uint32_t* out) { luq_values<wide>(packed, alpha, out); });
}

}  // namespace refnum

#define KERNEL(name, wide, flat)                                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::LogarithmicArguments a) { \
        refnum::dequantize_luq<wide, flat>(a);                                                   \
    }
KERNEL(dequantize_luq_bfloat16_flat, false, true)
KERNEL(dequantize_luq_float32_flat, true, true)
KERNEL(dequantize_luq_bfloat16, false, false)
KERNEL(dequantize_luq_float32, true, false)
