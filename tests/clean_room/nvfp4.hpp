// N21: NVFP4, a float32 operation at a time.
#pragma once
#include "arithmetic.hpp"
#include "matrix.hpp"

constexpr Word LARGEST32 = 0x7F7FFFFF, ONE32 = 0x3F800000, SIX32 = 0x40C00000;

inline bool is_nan32(Word a) { return (a & ~SIGN32) > INF32; }

inline Word divide(Word a, Word b) {
    Number x = float32(a), y = float32(b);
    Word sign = x.negative != y.negative ? SIGN32 : 0;
    if (is_nan32(a) || is_nan32(b)) return NAN32;
    if (x.kind == Kind::infinite) return y.kind == Kind::infinite ? NAN32 : INF32 | sign;
    if (y.kind == Kind::infinite) return sign;
    if (y.zero()) return x.zero() ? NAN32 : INF32 | sign;
    if (x.zero()) return sign;
    Wide wide = Wide(x.significand) << 60;
    Wide quotient = wide / y.significand;
    bool rest = quotient * y.significand != wide;
    return round32(sign != 0, quotient << 1 | Wide(rest), x.exponent - y.exponent - 61);
}

inline Word whole32(int n) { return round32(false, Wide(n), 0); }
inline Word least_of(Word a, Word b) { return is_nan32(a) ? b : std::min(a, b); }  // of magnitudes
inline Word clamped32(Word a, int exponent) {
    return is_nan32(a) ? a : std::min(std::max(a, round32(false, 1, exponent)), whole32(448));
}

inline Word to_e4m3(Word a) { return encode(format("E4M3"), float32(a)); }
inline Word of_e4m3(Word code) {
    Number x = value(format("E4M3"), code);
    if (x.kind == Kind::nan) return NAN32;
    return x.zero() && x.negative ? SIGN32 : round32(x.negative, x.significand, x.exponent);
}

struct Nvfp4Scale {
    Word code, factor;
    bool divides;
    Word operator()(Word x) const { return divides ? divide(x, factor) : multiply(x, factor); }
};

inline Word tensor_quotient(int top, Word t) {  // W of N21.3
    Word found = least_of(divide(whole32(top), t), LARGEST32);
    if (t == 0) return READ("N21.3/whole", ONE32, found);
    return found == 0 ? ONE32 : found;
}

inline Nvfp4Scale under(Word code, Word w) {
    return {code, least_of(divide(ONE32, multiply(of_e4m3(code), divide(ONE32, w))), LARGEST32), false};
}

inline std::vector<Nvfp4Scale> nvfp4_scales(std::string variant, Word b, Word t) {  // N21.3
    if (variant == "TE" && WRONG("N21.3")) variant = "TE_2_8";
    if (variant == "TE_2_8" && WRONG("N21.3/TE_2_8")) variant = "TE";
    Word sixth = divide(b, SIX32);
    if (variant == "TORCHAO" || variant == "MODELOPT") {
        Word g = divide(t, whole32(2688));
        if (variant == "TORCHAO") {
            Word code = to_e4m3(clamped32(divide(sixth, g), READ("N21.3/TORCHAO", -6, -9)));
            return {{code, divide(divide(ONE32, g), of_e4m3(code)), false}};
        }
        Word p = divide(b, multiply(SIX32, g));
        Word code = to_e4m3(clamped32(p == 0 ? ONE32 : p, -9)), factor = multiply(of_e4m3(code), g);
        if (WRONG("N21.3/MODELOPT")) return {{code, divide(ONE32, factor), false}};
        return {{code, factor, true}};
    }
    if (variant == "TE" || variant == "TE_2_8") {
        Word w = tensor_quotient(2688, t);
        Word p = variant == "TE" ? multiply(b, multiply(w, divide(ONE32, SIX32))) : multiply(sixth, w);
        Word code = to_e4m3(least_of(p, LARGEST32));
        return {under(code == 0 ? READ("N21.3/underflow", Word(0), Word(1)) : code, w)};
    }
    Word w = tensor_quotient(READ("N21.3/FOUR_OVER_SIX", 1536, 2688), t), p = multiply(sixth, w);
    Word larger = multiply(p, round32(false, 3, -1));
    return {under(to_e4m3(least_of(p, whole32(448))), w), under(to_e4m3(least_of(larger, whole32(448))), w)};
}

inline Word nvfp4_code(Word y, const Words& random, std::size_t place) {  // N21.4, N21.6
    if (is_nan32(y)) return READ("N21.4", Word(7), Word(0));
    Profile p;
    bool drawn = !random.empty() && !WRONG("N21.6");
    if (drawn) p.rounding = "stochastic";
    return encode(format("E2M1"), float32(y), p, drawn ? random[place] : 0);
}

inline Word e2m1_bits(Word code) {
    Number x = value(format("E2M1"), code);
    return x.zero() ? (x.negative ? SIGN32 : 0) : round32(x.negative, x.significand, x.exponent);
}

struct Nvfp4Block {  // rows of 16 float32, the rows that there are
    std::vector<Words> rows;
    Word maximum() const {  // N21.2
        Word most = 0;
        for (const Words& row : rows)
            for (Word bits : row) {
                if (is_nan32(bits) && !WRONG("N21.2")) continue;
                most = std::max(most, bits & ~SIGN32);
            }
        return is_nan32(most) ? NAN32 : most;
    }
    std::size_t tall = 1;
    Word error(const Nvfp4Scale& scale, Word t, bool squares) const {  // N21.5
        Words sums;
        for (Words row : rows) {
            if (WRONG("N21.5/order")) std::reverse(row.begin(), row.end());
            Word total = 0;
            for (Word x : row) {
                Word v = multiply(multiply(e2m1_bits(nvfp4_code(scale(x), {}, 0)), of_e4m3(scale.code)), t);
                Word d = add(divide(v, whole32(1536)), x ^ SIGN32);
                total = add(total, squares ? multiply(d, d) : is_nan32(d) ? d : d & ~SIGN32);
            }
            sums.push_back(total);
        }
        return sums.size() > 1 || tall > 1 ? tree(sums) : sums[0];
    }
    static Word tree(Words sums) {
        if (WRONG("N21.5/tree")) {
            Word total = 0;
            for (Word each : sums) total = add(total, each);
            return total;
        }
        sums.resize(16);
        for (std::size_t half = 8; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; i++) sums[i] = add(sums[i], sums[i + half]);
        return sums[0];
    }
};

struct Nvfp4 {
    Matrix codes, scales;
    Word maximum;
};

inline Word magnitude_given(Word bits) { return is_nan32(bits) ? 0 : READ("N21.2/sign", bits & ~SIGN32, bits); }

inline Nvfp4 quantize_nvfp4(const Matrix& x, const std::string& variant, const Word* given, std::size_t tall,
                            const Words& random) {
    if (tall == 16 && WRONG("N21.1")) tall = 1;
    Nvfp4 out{Matrix(x.rows, x.columns), Matrix(runs(x.rows, tall), x.columns / 16), 0};
    for (Word bits : x.words)
        if (!is_nan32(bits)) out.maximum = std::max(out.maximum, bits & ~SIGN32);
    if (given) out.maximum = magnitude_given(*given);
    for (std::size_t i = 0; i < out.scales.rows; i++)
        for (std::size_t j = 0; j < out.scales.columns; j++) {
            Nvfp4Block block;
            block.tall = tall;
            for (std::size_t r = i * tall; r < std::min(x.rows, (i + 1) * tall); r++)
                block.rows.emplace_back(&x.words[r * x.columns + 16 * j], &x.words[r * x.columns + 16 * j] + 16);
            std::vector<Nvfp4Scale> found = nvfp4_scales(variant, block.maximum(), out.maximum);
            Nvfp4Scale scale = found[0];
            if (found.size() > 1) {
                bool squares = variant == "FOUR_OVER_SIX_MSE" && !WRONG("N21.5/squares");
                Word e[2] = {block.error(found[0], out.maximum, squares), block.error(found[1], out.maximum, squares)};
                bool numbers = !is_nan32(e[0]) && !is_nan32(e[1]);
                if (numbers && READ("N21.5", e[1] < e[0], e[1] <= e[0])) scale = found[1];
            }
            out.scales.at(i, j) = scale.code;
            for (std::size_t r = 0; r < block.rows.size(); r++)
                for (std::size_t c = 0; c < 16; c++) {
                    std::size_t place = (i * tall + r) * x.columns + 16 * j + c;
                    out.codes.words[place] = nvfp4_code(scale(x.words[place]), random, place);
                }
        }
    return out;
}

inline Matrix dequantize_nvfp4(const Matrix& codes, const Matrix& scales, Word given, const std::string& order,
                               std::size_t tall, const std::string& dtype) {  // N21.7
    Matrix out(codes.rows, codes.columns);
    Word t = magnitude_given(given);
    for (std::size_t r = 0; r < codes.rows; r++)
        for (std::size_t c = 0; c < codes.columns; c++) {
            Word s = of_e4m3(scales.at(r / tall, c / 16));
            Word product = multiply(s, divide(t, whole32(2688)));
            Word inverse = divide(ONE32, whole32(order == "four_over_six" ? 1536 : 2688));
            Word te = multiply(multiply(s, t), inverse);
            Word bits = multiply(e2m1_bits(codes.at(r, c)), order == "product" ? READ("N21.7", product, te) : te);
            if (dtype == "float32") out.at(r, c) = bits;
            else out.at(r, c) = READ("N21.7/bfloat16", result(dtype, float32(bits)), bits >> 16);
        }
    return out;
}
