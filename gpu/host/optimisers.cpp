// The step of Stable-SPAM (clause N27.4).
#include "common.hpp"

#include "../kernels/stable_spam.cuh"

using namespace refnum;

namespace {

// Weights in parts, each in arrays of its own, so that compilers make vectors of it.
template <int forget>
void apply(const void* const (&inputs)[4], const SpamFactors& by, int64_t n, uint8_t* const (&outputs)[3]) {
    constexpr int64_t PART = 64;
    for (int64_t i = 0; i < n; i += PART) {
        const size_t bytes = 4 * (size_t)(n - i < PART ? n - i : PART);
        uint32_t numbers[4][PART] = {}, found[3][PART];
        for (int a = 0; a < 4; ++a) std::memcpy(numbers[a], words_at(inputs[a], FLOAT32, i), bytes);
        for (uint32_t& gradient : numbers[0]) gradient = clipped_gradient(gradient, by);
        if (scales_gradients(by)) for (uint32_t& gradient : numbers[0]) gradient = scaled_gradient(gradient, by);
        for (int64_t j = 0; j < PART; ++j) {
            const SpamWeight old = {numbers[1][j], numbers[2][j], numbers[3][j]};
            const SpamWeight one = updated_weight(numbers[0][j], old, by, forget);
            found[0][j] = one.weight, found[1][j] = one.m, found[2][j] = one.v;
        }
        for (int a = 0; a < 3; ++a) std::memcpy(outputs[a] + 4 * i, found[a], bytes);
    }
}

}  // namespace

extern "C" {

void refnum_stable_spam_apply(const void* gradient, const void* weight, const void* m, const void* v,
                              const void* factors, int forget, int64_t n, uint8_t* out, uint8_t* out_m, uint8_t* out_v) {
    SpamFactors by;
    std::memcpy(&by, factors, sizeof by);
    const auto rule = forget == KEEP ? apply<KEEP> : forget == BEFORE ? apply<BEFORE> : apply<AFTER>;
    rule({gradient, weight, m, v}, by, n, {out, out_m, out_v});
}

}  // extern "C"
