// N24.9, N24.10, N24.14 and N24.15: periods of weights, their steps, which are reset, which channels keep eight bits.
#pragma once
#include "tetrajet_v2.hpp"
#include "updates.hpp"

constexpr std::int64_t MOST_QUOTIENT = std::int64_t(1) << 31;

// The floor of the exact quotient of two finite numbers that are not negative, the second not 0, and at most 2^31.
inline std::int64_t floor_quotient(Number a, Number b) {
    int distance = a.exponent - b.exponent;
    if (a.zero() || distance < -60) return 0;
    if (distance > 60) return MOST_QUOTIENT;
    Wide up = Wide(a.significand) << std::max(distance, 0), down = Wide(b.significand) << std::max(-distance, 0);
    return std::int64_t(std::min(up / down, Wide(MOST_QUOTIENT)));
}

inline std::int64_t period_of(Word dist_w, Word dist_q, Word alpha, std::int64_t beta, std::int64_t most) {  // N24.9
    Word above = divide(dist_q, alpha), below = READ("N24.9/epsilon", add(dist_w, 0x322BCC77), dist_w);
    std::int64_t f = 0;
    bool number = !is_nan32(above) && !is_nan32(below) && !(above == INF32 && below == INF32);
    if (!number && WRONG("N24.9/nan")) f = MOST_QUOTIENT;
    if (number && above != 0 && !(above & SIGN32) && !(below & SIGN32) && below != INF32) {
        Word rounded = WRONG("N24.9") ? divide(above, below) : 0;
        if (above == INF32 || below == 0 || rounded == INF32) f = MOST_QUOTIENT;
        else f = rounded ? floor_quotient(float32(rounded), float32(ONE32))
                         : floor_quotient(float32(above), float32(below));
    }
    return std::min(beta * f + READ("N24.9/one", 1, f == 0), READ("N24.9/most", most, MOST_QUOTIENT - 1));
}

struct Accumulated {
    Word total, count, due, mean;
};

inline Word counted32(std::int64_t n) {  // fl(n)
    int lost = 0;
    while (WRONG("N24.10/count") && n >> 24) n >>= 1, lost++;
    return round32(false, Wide(n), lost);
}

inline Accumulated accumulated(Word total, Word count, Word grad, Word period, bool finite) {  // N24.10
    bool own = (grad & ~SIGN32) < INF32;
    if (READ("N24.10/finite", finite, own)) total = add(total, grad);
    count++;
    if (READ("N24.10", count % period != 0, count != period)) return {total, count, 0, 0};
    Word mean = divide(total, counted32(READ("N24.10/mean", count, period)));
    return {READ("N24.10/anew", Word(0), total), 0, 1, mean};
}

// N24.14: r of a bin, in quarters.
inline int width_of_bin(Word magnitude) { return magnitude < 4 ? 2 : magnitude == 4 ? 3 : 4 + 2 * int(magnitude - 5); }

inline bool near_edge(Word w, Word p, Word code, Word threshold) {  // N24.14
    Number level = value(format("E2M1"), code);
    Word q = level.zero() ? (level.negative ? SIGN32 : 0) : round32(level.negative, level.significand, level.exponent);
    Word y = READ("N24.14", divide(w, p), multiply(w, divide(ONE32, p)));
    Word off = add(y, minus32(q)) & ~SIGN32;
    Word bound = multiply(threshold, ratio32(READ("N24.14/width", width_of_bin(code & 7), 2), 4));
    if (is_nan32(off)) return WRONG("N24.14/nan");
    return above32(off, bound) || (off == bound && WRONG("N24.14/edge"));
}

inline bool oscillates(Word dist_w, Word dist_q, Word threshold) {  // N24.14
    if ((dist_w & ~SIGN32) == 0 && !WRONG("N24.14/still")) return false;
    Word ratio = divide(dist_q, dist_w);
    return above32(ratio, threshold) || (ratio == threshold && !WRONG("N24.14/distance"));
}

inline std::int64_t height(Word norm) {  // N24.15: larger ones have larger heights, equal ones the same
    std::int64_t size = norm & ~SIGN32, top = std::int64_t(1) << 32;
    bool negative = norm & SIGN32;
    if (is_nan32(norm)) return WRONG("N24.15/nan") || (negative && WRONG("N24.15/nans")) ? -top : top;
    return negative && !WRONG("N24.15/sign") ? -size - READ("N24.15/zero", 0, 1) : size;
}

inline std::size_t kept_channels(std::int64_t above, std::int64_t below, std::size_t k) {  // N24.15
    Wide product = Wide(above) * k, wanted = product / Wide(below);
    if (WRONG("N24.15/floor")) wanted += product % Wide(below) > 0;
    if (WRONG("N24.15/exact"))
        wanted = floor_quotient(float32(multiply(ratio32(above, below), counted32(k))), float32(ONE32));
    return std::min(std::size_t(wanted + READ("N24.15", 127, 0)) / 128 * 128, READ("N24.15/most", k / 128 * 128, k));
}

inline Words channels(const Word* norms, std::size_t k, std::size_t count) {  // N24.15, of one row
    std::vector<std::size_t> places(k);
    std::iota(places.begin(), places.end(), 0);
    if (WRONG("N24.15/first")) std::reverse(places.begin(), places.end());
    std::stable_sort(places.begin(), places.end(),
                     [&](std::size_t a, std::size_t b) { return height(norms[a]) > height(norms[b]); });
    Words out(k);
    for (std::size_t i = 0; i < count; i++) out[places[i]] = 1;
    return out;
}
