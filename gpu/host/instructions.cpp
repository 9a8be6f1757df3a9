// Single instructions and small functions, each on its own words (gpu/mutation/instructions.py): out[i] = f(a[i], b[i], c[i]).
#include "common.hpp"

#include "../kernels/bit_planes.cuh"
#include "../kernels/column_keys.cuh"
#include "../kernels/dequantize_fp8_tiles.cuh"
#include "../kernels/division.cuh"
#include "../kernels/float32_codes.cuh"
#include "../kernels/layouts.cuh"
#include "../kernels/quantize_fp8_tiles.cuh"
#include "../kernels/swiglu.cuh"

namespace refnum {
namespace {

uint32_t scaled(uint32_t a, uint32_t powers) { return scale_halves(a, powers); }

uint32_t scaled_each(uint32_t a, uint32_t powers) {
    scale_each<1>(&a, &powers);
    return a;
}

// Bit 0: whether turn_planes finds columns whose only element, code `code`, lies `depth` rows' binades below `top`.
uint32_t planes_found(uint32_t code, uint32_t depth, uint32_t top) {
    uint32_t store[DEPTHS - NEAREST] = {}, w[32] = {};
    uint32_t* masks = store - NEAREST;
    masks[0] = 1;
    if (depth < DEPTHS) masks[depth] |= 2;
    for (int c = 0; c < 8; ++c) {
        for (int bit = 0; bit < 3; ++bit) w[8 * bit + c] = (code >> bit & 1) << 1;
    }
    Table bytes;
    return turn_planes<true>(masks, top, w, bytes) ? 1 : 0;
}

// The sum of `count` terms of which every pending node is `node`.
uint32_t tree_sum(uint32_t count, uint32_t node) {
    TreeSum tree;
    for (uint32_t& pending : tree.pending) pending = node;
    tree.count = count;
    return tree.sum();
}

// Of a block of which two words, or one, are not zero; `places` says which.
int32_t binade_of_two(uint32_t a, uint32_t b, uint32_t places) {
    uint32_t packed[4] = {};
    packed[places & 3] = a;
    packed[(places + 1 + (places >> 2) % 3) & 3] = b;
    return largest_binade(packed);
}

}  // namespace
}  // namespace refnum

using namespace refnum;

#define INSTRUCTION(name, expression)                                                                                      \
    void refnum_instruction_##name(const uint32_t* as, const uint32_t* bs, const uint32_t* cs, uint32_t* out, int64_t n) { \
        for (int64_t i = 0; i < n; ++i) {                                                                                  \
            const uint32_t a = as[i], b = bs[i], c = cs[i];                                                                \
            (void)a, (void)b, (void)c;                                                                                     \
            out[i] = (uint32_t)(expression);                                                                               \
        }                                                                                                                  \
    }

extern "C" {
INSTRUCTION(permute, permute(a, b, c))
INSTRUCTION(sign_bytes, sign_bytes(a))
INSTRUCTION(lane_signs, lane_signs(a))
INSTRUCTION(pair_upper_0, pair_upper<0>(a, b))
INSTRUCTION(pair_upper_1, pair_upper<1>(a, b))
INSTRUCTION(pair_upper_2, pair_upper<2>(a, b))
INSTRUCTION(pair_upper_3, pair_upper<3>(a, b))
INSTRUCTION(choose, choose(a, b, c))
INSTRUCTION(max_lanes, max_lanes(a, b))
INSTRUCTION(min_lanes, min_lanes(a, b))
INSTRUCTION(max3_lanes, max3_lanes(a, b, c))
INSTRUCTION(larger_lane, larger_lane(a))
INSTRUCTION(subtract_to_zero, subtract_to_zero(a, b))
INSTRUCTION(add_and_clamp, add_and_clamp(a, b, c))
INSTRUCTION(scale_halves, scaled(a, b))
INSTRUCTION(scale_each, scaled_each(a, b))
INSTRUCTION(halves_below, halves_below(a, b, c))
INSTRUCTION(add_and_max_lanes, add_and_max_lanes(a, b, c))
INSTRUCTION(add_and_min, add_and_min(a, b, c))
INSTRUCTION(high_product, high_product((uint64_t)a << 32 | b, (uint64_t)c << 32 | a) >> 7)
INSTRUCTION(shift_in, shift_in<4>(a, b))
INSTRUCTION(larger_magnitude, larger_magnitude(a, b))
INSTRUCTION(multiply, multiply_floats(a, b))
INSTRUCTION(add, add_floats(a, b))
INSTRUCTION(outside_12, (any_outside<12, 1>(&a)))
INSTRUCTION(outside_11, (any_outside<11, 1>(&a)))
INSTRUCTION(silu_of_large, silu_of_large(a))
INSTRUCTION(sigmoid_of_large, sigmoid_of_large(a))
INSTRUCTION(scale_float, scale_float(a, b))
INSTRUCTION(tree_sum, (tree_sum(a, b)))
INSTRUCTION(has_nan_code, has_nan_code(a))
INSTRUCTION(round_to_bfloat16, round_to_bfloat16(a))
INSTRUCTION(is_plain_tile, is_plain_tile(a))
INSTRUCTION(largest_binade, binade_of_two(a, b, c))
INSTRUCTION(e2m1_decode, e2m1_decode(a & 15, b & 255))
INSTRUCTION(byte_place, scale_place(BYTES, 0, a, b, c))
INSTRUCTION(planes_found, planes_found(a, b, c))
INSTRUCTION(divide, divide_floats(a, b))
INSTRUCTION(multiply_add, multiply_add_floats(a, b, c))
INSTRUCTION(max_bytes, max_bytes(a, b))
INSTRUCTION(permute_low, permute_low(a, b, c))
}  // extern "C"
