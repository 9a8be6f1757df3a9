// Rows from FP8 tiles to MXFP4 blocks and back (clauses N7 and N8).
#include "common.hpp"

#include "../kernels/parts.cuh"

using namespace refnum;

extern "C" {

void refnum_fp8_to_mxfp4(const uint8_t* codes, const uint8_t* scales, int64_t m, int64_t k, int rule, int zero_byte,
                         uint8_t* packed, uint8_t* out_scales) {
    const Policy policy = {rule, 0, (uint32_t)zero_byte};
    const bool saturate = e2m1_saturates(rule);
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t b = 0; b < k / BLOCK; ++b) {
            uint32_t w[8], out[4];
            std::memcpy(w, codes + r * k + b * BLOCK, 32);
            const uint32_t tile = scales[r * tiles(k) + b / 4];
            CodeLanes<8> part = code_lanes<8>(w);
            const uint32_t most = larger_lane(code_largest(part));
            const uint32_t byte = saturate ? recode_part<true>(part, most, tile, policy, out)
                                           : recode_part<false>(part, most, tile, policy, out);
            std::memcpy(packed + (r * k + b * BLOCK) / 2, out, 16);
            out_scales[r * (k / BLOCK) + b] = (uint8_t)byte;
        }
    }
}

void refnum_mxfp4_to_fp8(const uint8_t* packed, const uint8_t* scales, int64_t m, int64_t k, int amax, uint8_t* codes,
                         uint8_t* out_scales) {
    for (int64_t r = 0; r < m; ++r) {
        for (int64_t t = 0; t < tiles(k); ++t) {
            const int64_t first = r * (k / BLOCK) + 4 * t;  // block; a thread of the device takes half of one
            const int halves = 2 * (int)(k / BLOCK - 4 * t < 4 ? k / BLOCK - 4 * t : 4);
            uint32_t w[8][4] = {}, part = 0, out[4];
            for (int h = 0; h < halves; ++h) {
                std::memcpy(w[h], packed + 16 * first + 8 * h, 8);
                const uint32_t byte = scales[first + h / 2];
                const uint32_t own = amax ? block_part_amax(w[h], byte) : block_part_max(w[h], byte);
                part = own > part ? own : part;
            }
            const uint32_t tile = amax ? tile_byte_amax(part) : tile_byte_max(part);
            for (int h = 0; h < halves; ++h) {
                const RecodeTable table = recode_table(scales[first + h / 2], tile);
                for (int i = 0; i < 2; ++i) e4m3_words(w[h][i], table, out[2 * i], out[2 * i + 1]);
                std::memcpy(codes + 32 * first + 16 * h, out, 16);
            }
            out_scales[r * tiles(k) + t] = (uint8_t)tile;
        }
    }
}

}  // extern "C"
