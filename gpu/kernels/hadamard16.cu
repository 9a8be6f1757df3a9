// Float [M, K] -> its groups of 16 rotated, bfloat16 or float32 (clause N22).
#include "rotation_memory.cuh"

namespace refnum {

template <int kind, int digits, bool down>
__device__ __forceinline__ void rotate(const RotationArguments& a) {
    constexpr int size = digits == 24 ? 4 : 2;
    const GroupPlace place = group_place<down>(a);
    if (!place.exists) return;
    uint32_t words[ROTATED_WORDS<digits>];
    load_rotated<kind, digits, down>(a, place, words);
    if (!down) {
        store<GROUP * size>(a.out + place.number * (GROUP * size), words);
        return;
    }
    uint8_t* p = a.out + ((uint64_t)place.column * GROUP * a.k + place.row) * size;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
        const uint32_t word = digits == 24 ? words[digits == 24 ? i : 0] : words[i / 2] >> (16 * (i % 2)) & 0xFFFF;
        store<size>(p + (uint64_t)i * a.k * size, &word);
    }
}

}  // namespace refnum

#define KERNEL(name, kind, digits, down)                                                      \
    extern "C" __global__ __launch_bounds__(THREADS) void name(refnum::RotationArguments a) { \
        refnum::rotate<refnum::kind, digits, down>(a);                                        \
    }
#define KERNELS(name, digits)                               \
    KERNEL(name##_float32, FLOAT32, digits, false)          \
    KERNEL(name##_bfloat16, BFLOAT16, digits, false)        \
    KERNEL(name##_float32_down, FLOAT32, digits, true)      \
    KERNEL(name##_bfloat16_down, BFLOAT16, digits, true)
KERNELS(rotate_float32, 24)
KERNELS(rotate_bfloat16, 8)
