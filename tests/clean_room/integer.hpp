// N26: integer quantisers: exact means and their clip, affine groups, two kept elements, rows and tensors of LLM-QAT.
#pragma once
#include <array>
#include <numeric>

#include "arithmetic.hpp"
#include "matrix.hpp"
#include "nvfp4.hpp"

inline Word ratio32(Word a, Word b) { return divide(whole32(a), whole32(b)); }  // fl(a / b)

// R(.): the nearest whole number, ties to even, with its sign.
inline Word nearest32(Word bits) {
    Number x = float32(bits);
    if (x.kind != Kind::finite || x.exponent >= 0) return bits;
    Split s = split(x, 0);
    int half = against_half(s);
    return round32(x.negative, s.n + (half > 0 || (half == 0 && (s.n & 1))), 0);
}

inline std::int64_t integer_of(Word bits) {  // of a whole float32 below 2^32; 0 for what is not finite
    Number x = float32(bits);
    if (x.kind != Kind::finite) return 0;
    std::int64_t n = x.exponent < 0 ? x.significand >> -x.exponent : x.significand << x.exponent;
    return x.negative ? -n : n;
}

inline std::int64_t placed32(Word bits) {  // the order of numbers, both zeros alike
    std::int64_t magnitude = std::int64_t(bits & ~SIGN32);
    return bits & SIGN32 ? -magnitude : magnitude;
}

struct Sum {  // an exact sum of natural numbers times powers of two
    static constexpr int guard = 96;
    std::array<Word, 24> limbs{};
    void add(Word x, int at) {
        Wide carry = Wide(x) << ((at + guard) % 32);
        for (std::size_t i = std::size_t(at + guard) / 32; carry; i++) {
            carry += limbs[i];
            limbs[i] = Word(carry & 0xFFFFFFFF);
            carry >>= 32;
        }
    }
    Word mean(Word count, int unit) const {  // of the sum times 2^unit, rounded once
        std::array<Word, 24> quotient{};
        Word rest = 0;
        for (std::size_t i = limbs.size(); i-- > 0;) {
            Word part = rest << 32 | limbs[i];
            quotient[i] = part / count, rest = part % count;
        }
        std::size_t top = quotient.size() - 1;
        while (top > 2 && quotient[top] == 0) top--;
        Wide significand = Wide(quotient[top]) << 64 | Wide(quotient[top - 1]) << 32 | quotient[top - 2];
        bool lost = rest != 0;
        for (std::size_t i = 0; i + 2 < top; i++) lost |= quotient[i] != 0;
        return round32(false, significand | lost, unit - guard + 32 * int(top - 2));
    }
};

inline Word root32(Word bits) {  // fl(sqrt(.)) of a float32 that is not negative
    Number x = float32(bits);
    if (x.kind != Kind::finite || x.zero()) return bits;
    int shift = 60 + (x.exponent & 1);
    Wide square = Wide(x.significand) << shift, root = 0;
    for (int bit = 62; bit >= 0; bit--) {
        Wide next = root | Wide(1) << bit;
        if (next * next <= square) root = next;
    }
    return round32(false, 2 * root + (root * root != square), (x.exponent - shift) / 2 - 1);
}

struct Tensor4 {
    Matrix codes;
    Word scale;
};

inline Tensor4 sawb(const Matrix& x) {  // N26.1
    Sum squares, magnitudes;
    Word count = 0, largest = 0;
    for (Word bits : x.words) {
        Number n = float32(bits);
        if (n.kind != Kind::finite) {
            count += WRONG("N26.1/finite");
            continue;
        }
        count++;
        largest = std::max(largest, bits & ~SIGN32);
        if (n.zero()) continue;
        squares.add(n.significand * n.significand, 2 * (n.exponent + 149));
        magnitudes.add(n.significand, n.exponent + 149);
    }
    Word clip = 0;
    if (count) {
        Word root = root32(squares.mean(count, -298)), mean = magnitudes.mean(count, -149);
        clip = add(multiply(ratio32(121, 10), root), multiply(ratio32(122, 10), mean) ^ SIGN32);
        bool positive = clip > 0 && clip < INF32;
        if (!positive && !WRONG("N26.1/clip")) clip = largest;
    }
    Word scale = divide(multiply(whole32(2), clip), whole32(READ("N26.1", 15, 16)));
    Tensor4 out{Matrix(x.rows, x.columns), scale};
    for (std::size_t i = 0; i < x.words.size(); i++) {
        bool zero = (x.words[i] & ~SIGN32) == 0 && !WRONG("N26.1/zero");
        out.codes.words[i] = zero ? 0 : encode(format("INT4"), float32(divide(x.words[i], scale)));
    }
    return out;
}

struct Grouped {
    Matrix codes, scales, more;  // zero points as float32, or places that are kept
};

inline Word within_fifteen(Word bits) {  // no NaN
    if (bits & SIGN32) return 0;
    return std::min(bits, whole32(15));
}

inline void affine_group(const Matrix& x, std::size_t first, std::size_t group, bool efficient, Grouped& out) {
    Word u = 0, v = 0;
    bool any = false;
    for (std::size_t i = first; i < first + group; i++) {
        Word bits = x.words[i];
        if (is_nan32(bits)) continue;
        if ((bits & ~SIGN32) == 0 && !WRONG("N26.3/zero")) bits = 0;
        if (!any || placed32(bits) < placed32(u)) u = bits;
        if (!any || placed32(bits) > placed32(v)) v = bits;
        any = true;
    }
    Word spread = add(v, u ^ SIGN32), fifteen = whole32(READ("N26.2", 15, 16)), s, z;
    bool late = efficient != WRONG("N26.2/bound");
    Word least = efficient ? ratio32(1, 10000) : ratio32(1, 100000);
    if (late) spread = divide(spread, fifteen);
    s = is_nan32(spread) ? least : std::max(spread, least);
    if (!late) s = divide(s, fifteen);
    if (efficient) {
        if (!WRONG("N26.3/most")) s = std::min(s, whole32(10000));
        z = nearest32(divide(u ^ SIGN32, s));
        if (WRONG("N26.3")) z = within_fifteen(z);
    } else {
        z = nearest32(divide(u, s)) ^ SIGN32;
        z = is_nan32(z) ? 0 : READ("N26.2/zero", within_fifteen(z), z);
    }
    for (std::size_t i = first; i < first + group; i++) {
        Word placed = add(nearest32(divide(x.words[i], s)), z);
        out.codes.words[i] = is_nan32(placed) ? READ("N26.2/nan", 15, 0) : Word(integer_of(within_fifteen(placed)));
    }
    out.scales.words[first / group] = s, out.more.words[first / group] = z;
}

inline Grouped affine(const Matrix& x, std::size_t group, bool efficient) {  // N26.2, N26.3
    Grouped out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns / group), Matrix(x.rows, x.columns / group)};
    for (std::size_t first = 0; first < x.words.size(); first += group) affine_group(x, first, group, efficient, out);
    return out;
}

inline Grouped keep_two(const Matrix& x, std::size_t group) {  // N26.5
    Grouped out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns / group), Matrix(x.rows * (x.columns / group), 2)};
    auto magnitude = [&](std::size_t i) {
        Word size = x.words[i] & ~SIGN32;
        return size > INF32 ? READ("N26.5/nan", Word(0), size) : size;
    };
    for (std::size_t first = 0; first < x.words.size(); first += group) {
        std::vector<std::size_t> order(group);
        std::iota(order.begin(), order.end(), first);
        if (WRONG("N26.5/order")) std::reverse(order.begin(), order.end());
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
        Word s = std::max(magnitude(order[2]), ratio32(1, 1000000)), seven = whole32(7);
        for (std::size_t i = first; i < first + group; i++) {
            bool kept = (i == order[0] || i == order[1]) && !WRONG("N26.5/kept");
            Word early = multiply(x.words[i], divide(seven, s)), late = divide(multiply(x.words[i], seven), s);
            out.codes.words[i] = kept ? 0 : encode(format("INT4"), float32(READ("N26.5", late, early)));
        }
        out.scales.words[first / group] = s;
        for (std::size_t n = 0; n < 2; n++) out.more.words[2 * (first / group) + n] = order[n] - first;
    }
    return out;
}

struct Qat {
    Matrix codes, values;
    int bits;
};

inline void qat_vector(const Matrix& x, std::size_t first, std::size_t count, bool symmetric, Qat& out) {
    Word a = 0, u = 0, v = 0;
    bool any = false, spoiled = false;
    auto place = [](Word bits) { return 2 * placed32(bits) - (bits == SIGN32); };  // -0 below +0
    for (std::size_t i = first; i < first + count; i++) {
        Word bits = x.words[i];
        spoiled |= is_nan32(bits);
        if (is_nan32(bits)) continue;
        a = std::max(a, bits & ~SIGN32);
        if (!any || place(bits) < place(u)) u = bits;
        if (!any || place(bits) > place(v)) v = bits;
        any = true;
    }
    if (spoiled && !WRONG("N26.8/nan")) a = u = v = NAN32;
    Word small = ratio32(1, 1000000), s = divide(whole32((Word(1) << (out.bits - 1)) - 1), add(a, small));
    Word d = add(add(v, u ^ SIGN32), ratio32(1, 100000000)), n = whole32((Word(1) << out.bits) - 1);
    for (std::size_t i = first; i < first + count; i++) {
        Word from = add(x.words[i], u ^ SIGN32), code, value;
        if (symmetric) {
            code = nearest32(multiply(x.words[i], s));
            value = divide(code, READ("N26.8", add(s, small), s));
        } else {
            code = nearest32(READ("N26.8/asymmetric", multiply(divide(from, d), n), multiply(from, divide(n, d))));
            value = add(multiply(divide(code, n), d), u);
        }
        out.codes.words[i] = Word(integer_of(code)) & 0xFFFFFFFF, out.values.words[i] = value;
    }
}

inline Qat llm_qat(const Matrix& x, int bits, bool symmetric, bool layerwise) {  // N26.8
    Qat out{Matrix(x.rows, x.columns), Matrix(x.rows, x.columns), bits};
    if (layerwise && !WRONG("N26.8/layerwise")) qat_vector(x, 0, x.words.size(), symmetric, out);
    else
        for (std::size_t row = 0; row < x.rows; row++) qat_vector(x, row * x.columns, x.columns, symmetric, out);
    return out;
}
