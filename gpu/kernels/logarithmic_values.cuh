// Packed logarithmic codes -> bfloat16 or float32 [M, K], by a function of eight codes (clauses N23.6 and N23.9). Device
// only. A chunk is PART codes, 4, 8 or 16.
#pragma once

#include "logarithmic_memory.cuh"

namespace refnum {

// `values(packed, out)`: eight codes to eight float32, or to four pairs of bfloat16.
template <bool wide, bool flat, class Values>
__device__ __forceinline__ void store_values(const LogarithmicArguments& a, const Values& values) {
    constexpr int size = wide ? 4 : 2, words = 2 * size;  // of a value in bytes, of eight values
    Stretch places[UNROLL];
    uint32_t packed[UNROLL][(PART + 7) / 8];
    if (!stretches_whole<flat>(a)) {
#pragma unroll 1
        for (int u = 0; u < UNROLL; ++u) {
            const Stretch place = stretch_place<flat>(a, u);
#pragma unroll 1
            for (uint32_t i = 0; i < place.count; i += 2) {
                uint32_t out[words];
                values(load_byte(a.x + (offset_t)place.row * a.x_stride + (place.first + i) / 2), out);
                uint8_t* p = a.out + (place.element(a) + i) * size;
                store<4>(p, out);
                if (wide) store<4>(p + 4, out + 1);
            }
        }
        return;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        places[u] = stretch_place<flat>(a, u);
        load<PART / 2>(a.x + (offset_t)places[u].row * a.x_stride + places[u].first / 2, true, packed[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        uint32_t out[(PART + 7) / 8 * words];
#pragma unroll
        for (int i = 0; i < (PART + 7) / 8; ++i) values(packed[u][i], out + words * i);
        store<PART * size>(a.out + places[u].element(a) * size, out);
    }
}

}  // namespace refnum
