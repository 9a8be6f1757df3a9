// Twins of single instructions and small functions, each asked by itself (gpu/mutation/instructions.py): out[i] = f(a[i], b[i], c[i]).
#include "common.hpp"

#include "../kernels/bit_planes.cuh"
#include "../kernels/column_halves.cuh"
#include "../kernels/dequantize_fp8_tiles.cuh"
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

#define TWIN(name, expression)                                                                                    \
    void refnum_twin_##name(const uint32_t* as, const uint32_t* bs, const uint32_t* cs, uint32_t* out, int64_t n) { \
        for (int64_t i = 0; i < n; ++i) {                                                                         \
            const uint32_t a = as[i], b = bs[i], c = cs[i];                                                       \
            (void)a, (void)b, (void)c;                                                                            \
            out[i] = (uint32_t)(expression);                                                                      \
        }                                                                                                         \
    }

extern "C" {
TWIN(permute, permute(a, b, c))
TWIN(sign_bytes, sign_bytes(a))
TWIN(lane_signs, lane_signs(a))
TWIN(pair_upper_0, pair_upper<0>(a, b))
TWIN(pair_upper_1, pair_upper<1>(a, b))
TWIN(pair_upper_2, pair_upper<2>(a, b))
TWIN(pair_upper_3, pair_upper<3>(a, b))
TWIN(choose, choose(a, b, c))
TWIN(max_lanes, max_lanes(a, b))
TWIN(min_lanes, min_lanes(a, b))
TWIN(max3_lanes, max3_lanes(a, b, c))
TWIN(larger_lane, larger_lane(a))
TWIN(subtract_to_zero, subtract_to_zero(a, b))
TWIN(add_and_clamp, add_and_clamp(a, b, c))
TWIN(scale_halves, scaled(a, b))
TWIN(scale_each, scaled_each(a, b))
TWIN(halves_below, halves_below(a, b, c))
TWIN(add_and_max_lanes, add_and_max_lanes(a, b, c))
TWIN(add_and_min, add_and_min(a, b, c))
TWIN(high_product, high_product((uint64_t)a << 32 | b, (uint64_t)c << 32 | a) >> 7)
TWIN(shift_in, shift_in<4>(a, b))
TWIN(larger_magnitude, larger_magnitude(a, b))
TWIN(multiply, multiply_floats(a, b))
TWIN(add, add_floats(a, b))
TWIN(outside_12, (any_outside<12, 1>(&a)))
TWIN(outside_11, (any_outside<11, 1>(&a)))
TWIN(silu_of_large, silu_of_large(a))
TWIN(sigmoid_of_large, sigmoid_of_large(a))
TWIN(scale_float, scale_float(a, b))
TWIN(tree_sum, (tree_sum(a, b)))
TWIN(has_nan_code, has_nan_code(a))
TWIN(round_to_bfloat16, round_to_bfloat16(a))
TWIN(is_plain_tile, is_plain_tile(a))
TWIN(largest_binade, binade_of_two(a, b, c))
TWIN(e2m1_decode, e2m1_decode(a & 15, b & 255))
TWIN(byte_place, scale_place(BYTES, 0, a, b, c))
TWIN(planes_found, planes_found(a, b, c))
}  // extern "C"
