// The step of Stable-SPAM (clause N27.4).
#include "common.hpp"

#include "../kernels/stable_spam.cuh"

using namespace refnum;

extern "C" {

void refnum_stable_spam_apply(const void* gradient, const void* weight, const void* m, const void* v,
                              const void* factors, int forget, int64_t n, uint8_t* out, uint8_t* out_m, uint8_t* out_v) {
    SpamFactors by;
    std::memcpy(&by, factors, sizeof by);
    for (int64_t i = 0; i < n; ++i) {
        const SpamWeight old = {word_at(weight, i), word_at(m, i), word_at(v, i)};
        const SpamWeight found = stable_spam_weight(word_at(gradient, i), old, by, forget);
        std::memcpy(out + 4 * i, &found.weight, 4);
        std::memcpy(out_m + 4 * i, &found.m, 4);
        std::memcpy(out_v + 4 * i, &found.v, 4);
    }
}

}  // extern "C"
