// DGE and OCC (clause N25).
#include <algorithm>
#include <vector>

#include "common.hpp"

#include "../kernels/dge.cuh"
#include "../kernels/occ.cuh"

using namespace refnum;

namespace {

template <int digits, int compat>
void slopes(int kind, const void* x, int64_t n, const DgeRule& rule, uint8_t* out) {
    constexpr int size = digits == 24 ? 4 : 2;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t slope = dge_exact<digits, compat>(float_at(x, kind, i), rule);
        std::memcpy(out + size * i, &slope, size);
    }
}

// A matrix [m, k] as vectors of numbers that are sorted together.
struct Vectors {
    int64_t m, k;
    int axis;
    int64_t count() const { return axis == TENSOR ? 1 : axis == TOKEN ? m : k; }
    int64_t length() const { return axis == TENSOR ? m * k : axis == TOKEN ? k : m; }
    int64_t place(int64_t vector, int64_t i) const {
        return axis == CHANNEL ? i * k + vector : axis == TOKEN ? vector * k + i : i;
    }
};

template <int kind>
uint32_t number_at(const void* x, int64_t i) {
    return kind == FLOAT32 ? word_at(x, i) : half_at(x, i);
}
template <int kind>
void put(uint8_t* out, int64_t i, uint32_t bits) {
    constexpr int size = kind == FLOAT32 ? 4 : 2;
    std::memcpy(out + size * i, &bits, size);
}

template <int kind>
uint32_t order_statistic(std::vector<uint32_t>& keys, int64_t index) {
    std::nth_element(keys.begin(), keys.begin() + index, keys.end());
    return keys[(size_t)index];
}

template <int kind>
void clamp(const void* x, const Vectors& all, int64_t lower, int64_t upper, uint8_t* clamped, uint8_t* residual,
           uint8_t* thresholds) {
    std::vector<uint32_t> keys((size_t)all.length());
    for (int64_t v = 0; v < all.count(); ++v) {
        for (int64_t i = 0; i < all.length(); ++i) keys[(size_t)i] = key_of<kind>(number_at<kind>(x, all.place(v, i)));
        const bool empty = keys.empty();
        const uint32_t low = empty ? number_key<kind>(OCC_INF<kind> | OCC_SIGN<kind>) : order_statistic<kind>(keys, lower);
        const uint32_t high = empty ? number_key<kind>(OCC_INF<kind>) : order_statistic<kind>(keys, upper);
        put<kind>(thresholds, v, bits_of_key<kind>(low));
        put<kind>(thresholds, all.count() + v, bits_of_key<kind>(high));
        constexpr int PART = 64;  // in arrays of its own, so that compilers make vectors of it
        for (int64_t first = 0; first < all.length(); first += PART) {
            const int count = all.length() - first < PART ? (int)(all.length() - first) : PART;
            uint32_t bits[PART] = {}, inside[PART], rest[PART];
            for (int i = 0; i < count; ++i) bits[i] = number_at<kind>(x, all.place(v, first + i));
            for (int i = 0; i < PART; ++i) {
                const int up = kind == FLOAT32 ? 0 : 16 * (i & 1);  // both lanes of a word by turns
                const Clamped found = clamp_word<kind>(bits[i] << up, low << up, high << up);
                inside[i] = found.clamped >> up, rest[i] = found.residual >> up;
            }
            for (int i = 0; i < count; ++i) {
                const int64_t place = all.place(v, first + i);
                constexpr uint32_t sign = kind == FLOAT32 ? FLOAT_SIGN : 0x8000u;
                Clamped found = {inside[i], rest[i]};
                if (beyond_clamp<kind>(bits[i], high) & sign) found = clamp_any<kind>(bits[i], low, high);
                put<kind>(clamped, place, found.clamped);
                put<kind>(residual, place, found.residual);
            }
        }
    }
}

}  // namespace

extern "C" {

// `cap`: bits in the target. `wide`: whether that is float32, not bfloat16.
void refnum_dge(int kind, const void* x, int64_t n, int k, uint32_t cap, int wide, int compat, uint8_t* out) {
    const DgeRule rule = {1.0 / k, (k + 1) / (2.0 * k * k), (float)(1.0 / k - 1), k, cap};
    if (wide) (compat == PAPER ? slopes<24, PAPER> : slopes<24, MS_AMP>)(kind, x, n, rule, out);
    else (compat == PAPER ? slopes<8, PAPER> : slopes<8, MS_AMP>)(kind, x, n, rule, out);
}

void refnum_occ(int kind, const void* x, int64_t m, int64_t k, int axis, int64_t lower, int64_t upper, uint8_t* clamped,
                uint8_t* residual, uint8_t* thresholds) {
    const Vectors all = {m, k, axis};
    (kind == FLOAT32 ? clamp<FLOAT32> : clamp<BFLOAT16>)(x, all, lower, upper, clamped, residual, thresholds);
}

}  // extern "C"
