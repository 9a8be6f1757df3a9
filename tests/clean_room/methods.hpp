// The operations of training methods, N21 to N26: the inputs of a vector in, the matrices of its outputs out.
#pragma once
#include "estimators.hpp"
#include "hadamard.hpp"
#include "integer.hpp"
#include "llm_fp4.hpp"
#include "logarithmic.hpp"
#include "nvfp4.hpp"
#include "oscillation.hpp"
#include "tetrajet.hpp"
#include "tetrajet_v2.hpp"
#include "updates.hpp"
#include "vectors.hpp"

using Answers = std::vector<Matrix>;  // in the order of the outputs in the table of `operations.hpp`

inline Matrix float32_bits(const Array& x) {  // float32, or bfloat16 widened
    Matrix out = x.matrix();
    if (x.dtype == "bfloat16")
        for (Word& word : out.words) word <<= 16;
    return out;
}

inline Words random_of(const Vector& v) {
    const Array* given = v.find("rbits");
    return given ? given->words : Words{};
}

inline Matrix row_of(const Words& words) {
    Matrix out(1, words.size());
    out.words = words;
    return out;
}

inline Matrix wide_bits(const Array& x) {  // as float32, exact
    Matrix out = float32_bits(x);
    if (x.dtype != "float16") return out;
    for (Word& word : out.words) {
        Number n = input(x.dtype, word);
        Word sign = n.negative ? SIGN32 : 0;
        word = n.kind == Kind::nan ? NAN32 : n.kind == Kind::infinite ? INF32 | sign : n.zero() ? sign
               : round32(n.negative, n.significand, n.exponent);
    }
    return out;
}

inline Answers to_nvfp4(const Vector& v) {
    const Array* given = v.find("tensor_amax");
    std::size_t tall = v.params["tile"].items[0].number;
    const Word* amax = given ? &given->words[0] : nullptr;
    Nvfp4 found = quantize_nvfp4(wide_bits(v["x"]), v.text("variant"), amax, tall, random_of(v));
    return {pack(found.codes), found.scales, row_of({found.maximum})};
}

inline Answers from_nvfp4(const Vector& v) {
    std::size_t tall = v.params["tile"].items[0].number;
    Word amax = v["tensor_amax"].words[0];
    return {dequantize_nvfp4(unpack(v["packed"].matrix()), v["scales"].matrix(), amax, v.text("order"), tall,
                             v.text("dtype"))};
}

inline Word signs_of(const Vector& v) { return v.arguments.find("signs") ? Word(v.number("signs")) : 0xD7E8; }

inline Answers rotated(const Vector& v) {
    return {hadamard16(wide_bits(v["x"]), signs_of(v), int(v.number("axis")), v.text("order"), v.text("dtype"))};
}

inline Answers rotated_codes(const Vector& v) {
    const Array* given = v.find("tensor_amax");
    const Word* amax = given ? &given->words[0] : nullptr;
    int axis = int(v.number("axis"));
    Nvfp4 found = hadamard_nvfp4(wide_bits(v["x"]), signs_of(v), axis, v.text("order"), amax, random_of(v));
    return {pack(found.codes), found.scales, row_of({found.maximum})};
}

inline Answers to_tetrajet(const Vector& v) {
    bool along = v.number("axis") == 1 || WRONG("N24.1"), average = v.operation == "q_ema";
    TetraJet found = average ? q_ema(wide_bits(v["w"]), wide_bits(v["ema"]), along, v.text("rule"))
                             : quantize_tetrajet(wide_bits(v["x"]), along, v.text("rule"), v.text("ties"),
                                                 v.text("ratio"), random_of(v));
    return {pack(found.codes), found.scales};
}

inline Answers to_tetrajet_v2(const Vector& v) {
    bool noisy = !v.params["seed"].null();
    TetraJet2 found = quantize_tetrajet_v2(wide_bits(v["x"]), noisy, noisy ? Word(v.number("seed")) : 0);
    return {pack(found.codes), found.scales, found.outer};
}

inline Answers from_tetrajet_v2(const Vector& v) {
    return {dequantize_tetrajet_v2(unpack(v["packed"].matrix()), v["scales"].matrix(), v["outer"].matrix(),
                                   v.text("dtype"))};
}

inline Answers to_luq(const Vector& v) {
    const Array* given = v.find("tensor_amax");
    Luq found = luq(wide_bits(v["x"]), v["r_under"].words, v["r_log"].words, v.number("divisor"),
                    given ? &given->words[0] : nullptr, v.text("step"));
    return {pack(found.codes), row_of({found.alpha})};
}

inline Answers from_luq(const Vector& v) {
    return {dequantize_luq(unpack(v["packed"].matrix()), v["alpha"].words[0], v.text("dtype"))};
}

inline Answers to_radix4(const Vector& v) {
    return {pack(radix4(wide_bits(v["x"]), grid_of(v.number("n0"), v.text("phase"), v.text("threshold"))))};
}

inline Answers from_radix4(const Vector& v) {
    Grid grid = grid_of(v.number("n0"), v.text("phase"), "midpoint");
    return {dequantize_radix4(unpack(v["packed"].matrix()), grid, v.text("dtype"))};
}

inline Answers to_sawb(const Vector& v) {
    Tensor4 found = sawb(wide_bits(v["x"]));
    return {found.codes, row_of({found.scale})};
}

inline Answers to_affine(const Vector& v) {
    bool efficient = v.operation == "efficient_qat";
    Grouped found = affine(wide_bits(v["x"]), v.number("group"), efficient);
    if (!efficient)
        for (Word& zero : found.more.words) zero = Word(integer_of(zero)) & 0xFF;
    return {found.codes, found.scales, found.more};
}

inline Answers to_kept(const Vector& v) {
    Grouped found = keep_two(wide_bits(v["x"]), v.number("group"));
    return {found.codes, found.scales, found.more};
}

inline Answers to_qat(const Vector& v) {
    Qat found = llm_qat(wide_bits(v["x"]), int(v.number("bits")), v.number("symmetric"), v.number("layerwise"));
    return {found.codes, found.values};
}

inline Answers to_fp4(const Vector& v) {
    Fp4 found = llm_fp4(wide_bits(v["x"]), v["maxval"].words, int(v.number("exponent_bits")));
    return {found.codes, found.values};
}

inline Answers from_int4(const Vector& v) {
    const Array* given = v.find("zeros");
    Words zeros = given ? given->words : Words{};
    if (given && given->dtype == "uint8")
        for (Word& zero : zeros) zero = whole32(int(zero));
    return {dequantize_int4(v["codes"].matrix(), v["scales"].matrix(), given ? &zeros : nullptr)};
}

inline Answers stepped(const Vector& v) {
    const Matrix g = v["gradient"].matrix();
    const Words &w = v["weight"].words, &m = v["m"].words, &second = v["v"].words;
    const Word* f = v["factors"].words.data();
    Answers out(3, Matrix(g.rows, g.columns));
    for (std::size_t i = 0; i < g.words.size(); i++) {
        Weight at{w[i], m[i], second[i]};
        if (v.operation == "adam_apply") at = adam(g.words[i], at, f);
        else if (v.operation == "spam_apply")
            at = spam(g.words[i], at, f, v.number("clip"), v.number("reset"), v.number("decay"));
        else at = stable_spam(g.words[i], at, f, v.text("forget"));
        out[0].words[i] = at.w, out[1].words[i] = at.m, out[2].words[i] = at.v;
    }
    return out;
}

inline Word pair32(const Vector& v, std::string_view name) {  // a parameter (numerator, denominator), rounded once
    const Json& pair = v.params[name];
    return ratio32(int(pair.items[0].number), int(pair.items[1].number));
}

inline Answers of_distances(const Vector& v) {
    const Words &w = v["dist_w"].words, &q = v["dist_q"].words;
    bool periods = v.operation == "q_ramping";
    Word scale = pair32(v, periods ? "alpha" : "threshold");
    Matrix out = v["dist_w"].matrix();
    for (std::size_t i = 0; i < w.size(); i++)
        out.words[i] = periods ? Word(period_of(w[i], q[i], scale, v.number("beta"), v.number("most")))
                               : Word(oscillates(w[i], q[i], scale));
    return {out};
}

inline Answers ramped(const Vector& v) {
    const Matrix total = v["total"].matrix();
    const Words &count = v["count"].words, &grad = v["grad"].words, &period = v["period"].words;
    bool finite = std::all_of(grad.begin(), grad.end(), [](Word g) { return (g & ~SIGN32) < INF32; });
    Answers out(4, Matrix(total.rows, total.columns));
    for (std::size_t i = 0; i < grad.size(); i++) {
        Accumulated at = accumulated(total.words[i], count[i], grad[i], period[i], finite);
        out[0].words[i] = at.total, out[1].words[i] = at.count, out[2].words[i] = at.due, out[3].words[i] = at.mean;
    }
    return out;
}

inline Answers reset(const Vector& v) {
    const Matrix w = wide_bits(v["w"]), codes = unpack(v["packed"].matrix());
    const Words &scales = v["scales"].words, &outer = v["outer"].words;
    Word threshold = pair32(v, "threshold");
    Matrix out(w.rows, w.columns);
    for (std::size_t n = 0; n < w.words.size(); n++) {
        Word p = multiply(outer[n / 128], of_e4m3(scales[n / 16]));
        out.words[n] = near_edge(w.words[n], p, codes.words[n], threshold);
    }
    return {out};
}

inline Answers kept_in_eight_bits(const Vector& v) {
    Matrix out = v["norms"].matrix();
    const Words norms = out.words;
    const Json& share = v.params["share"];
    std::size_t count = kept_channels(share.items[0].number, share.items[1].number, out.columns);
    for (std::size_t r = 0; r < out.rows; r++) {
        Words row = channels(norms.data() + READ("N24.15/row", r, 0) * out.columns, out.columns, count);
        std::copy(row.begin(), row.end(), out.words.begin() + r * out.columns);
    }
    return {out};
}
