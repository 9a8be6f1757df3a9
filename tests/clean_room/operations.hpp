// What each operation of the vectors is: their inputs and parameters in, the matrices of their outputs out.
#pragma once
#include "methods.hpp"
#include "payload.hpp"
#include "product.hpp"
#include "swiglu.hpp"
#include "vectors.hpp"

inline Values values_of(const Array& x) {
    Values out(x.rows());
    for (std::size_t i = 0; i < x.words.size(); i++) out[i / x.columns()].push_back(input(x.dtype, x.words[i]));
    return out;
}

inline Splits splits_of(const Vector& v, std::size_t rows) {
    const Json* given = v.arguments.find("splits");
    return given && !given->null() ? Splits(shape_of(*given)) : Splits{rows};
}

inline Answers both(const Coded& c) { return {c.codes, c.scales}; }
inline Answers packed(const Coded& c) { return {pack(c.codes), c.scales}; }

inline Answers encoded(const Vector& v, const Format& f, Profile p) {
    const Array& x = v["x"];
    Words r = random_of(v);
    Matrix out(x.rows(), x.columns());
    for (std::size_t i = 0; i < x.words.size(); i++)
        out.words[i] = encode(f, input(x.dtype, x.words[i]), p, r.empty() ? 0 : r[i]);
    return {out};
}

inline Profile choices(const Vector& v) {
    Profile p;
    if (v.params.find("rounding")) p.rounding = v.text("rounding");
    if (v.params.find("ties")) p.ties = v.text("ties");
    if (v.params.find("overflow")) p.overflow = v.text("overflow");
    if (v.params.find("negative_zero")) p.negative_zero = v.text("negative_zero");
    if (v.params.find("random_bits")) p.random_bits = int(v.number("random_bits"));
    return p;
}

inline Answers scale_bytes(const Vector& v) {
    const Array& x = v["x"];
    Matrix out(x.rows(), x.columns());
    for (std::size_t i = 0; i < x.words.size(); i++)
        out.words[i] = encode_e8m0(input(x.dtype, x.words[i]), v.text("rounding"), v.number("saturate"));
    return {out};
}

inline Answers decoded(const Vector& v, const std::string& name) {
    const Json* dtype = v.params.find("dtype");
    Matrix out = v["codes"].matrix();
    for (Word& word : out.words)
        word = result(dtype ? dtype->text : "float32", name == "E8M0" ? scale_value(word) : value(format(name), word));
    return {out};
}

inline Coded quantized(const Vector& v, const Format& f) {
    return quantize_mx(values_of(v["x"]), v["x"].columns(), f, v.profile, random_of(v));
}

inline Gates gates_of(const Vector& v, Matrix& prob) {
    if (const Array* given = v.find("prob")) prob = given->matrix();
    return {v["gate"].matrix(), v["up"].matrix(), v.find("prob") ? &prob : nullptr};
}

inline Answers swiglu_quantize(const Vector& v) {
    Matrix prob;
    Values r = swiglu(gates_of(v, prob));
    std::size_t k = v["gate"].columns();
    if (v.text("to") == "mxfp4") return packed(quantize_mx(r, k, format("E2M1"), v.profile));
    return both(quantize_fp8_tiles(r, k, 1, v.profile));
}

inline Answers swiglu_gradients(const Vector& v) {
    Matrix prob;
    Gates in = gates_of(v, prob);
    Gradients found = swiglu_backward(float32_bits(v["grad"]), in);
    if (!in.prob) return {found.gate, found.up};
    return {found.gate, found.up, found.prob};
}

inline Answers rows_and_columns(const Vector& v) {
    Matrix nibbles = unpack(v["packed"].matrix()), scales = v["scales"].matrix();
    std::string mode = v.text("scale");
    Coded rows = mxfp4_to_fp8(nibbles, scales, READ("N9.10", mode, "max"));
    Coded columns = mxfp4_to_fp8_columns(nibbles, scales, splits_of(v, nibbles.rows), mode);
    return {rows.codes, rows.scales, columns.codes, columns.scales};
}

inline Answers permuted(const Vector& v, bool apart) {
    Placement at = placed(splits_of(v, 0), v.number("align"));
    Matrix rows = permute_pad(v["payload"].matrix(), v["row_map"].words, at);
    if (!apart) return {rows, row_of(at.offset)};
    Coded c = parted(rows, WRONG("N12.5/permute_unpack"));
    return {c.codes, c.scales, row_of(at.offset)};
}

inline Answers summed(const Vector& v) {
    const Array* weights = v.find("weights");
    Placement at = placed(splits_of(v, 0), v.number("align"));
    Words w = weights ? weights->words : Words{};
    return {unpermute(float32_bits(v["rows"]), v["row_map"].words, at, w, v.number("tokens"))};
}

inline Answers philox_words(const Vector& v) {
    Matrix counter = v["counter"].matrix(), out(counter.rows, 4);
    const Words& key = v["key"].words;
    for (std::size_t r = 0; r < counter.rows; r++) {
        Counter c = philox({{counter.at(r, 0), counter.at(r, 1), counter.at(r, 2), counter.at(r, 3)}}, key[0], key[1]);
        for (std::size_t i = 0; i < 4; i++) out.at(r, i) = c.word[i];
    }
    return {out};
}

inline std::vector<std::vector<Operand>> operands(const Array& x, const std::string& name) {
    std::vector<std::vector<Operand>> out(x.rows());
    for (std::size_t i = 0; i < x.words.size(); i++)
        out[i / x.columns()].push_back(operand(format(name), x.words[i]));
    return out;
}

struct Factors {  // of one product: operands and their scales, null where there are none
    const Array *a, *b, *scales[2];
};

inline Matrix product_of(const Vector& v, const Factors& given) {  // N19.1
    bool fp8 = v.operation == "matmul_fp8";
    std::string left = fp8 ? v.text("a_format") : "BF16", right = fp8 ? v.text("b_format") : "BF16";
    if (WRONG("N19.1")) right = left;
    Matrix scales[2], out(given.a->rows(), given.b->rows());
    Product p{operands(*given.a, left), operands(*given.b, right), {}, {}, instruction(fp8)};
    ProductScales* own[] = {&p.a_scales, &p.b_scales};
    for (int n = 0; n < 2; n++)
        if (const Array* items = given.scales[n]) {
            scales[n] = items->matrix();
            *own[n] = {&scales[n], items->dtype == "uint8", n == 0 ? out.rows : out.columns};
        }
    Order order = order_of(v.text("order"), given.a->columns());
    for (std::size_t i = 0; i < out.rows; i++)
        for (std::size_t j = 0; j < out.columns; j++)
            out.at(i, j) = product_result(v.text("out"), product_entry(p, i, j, order));
    return out;
}

inline Array lines_of(const Array& x, std::size_t first, std::size_t count) {  // some rows of the last axis
    auto start = x.words.begin() + first * x.columns();
    return {x.dtype, {count, x.columns()}, Words(start, start + count * x.columns())};
}

inline Answers multiplied(const Vector& v) {
    Factors whole{&v["a"], &v["b"], {v.find("a_scales"), v.find("b_scales")}};
    if (whole.b->shape.size() < 3) return {product_of(v, whole)};
    std::size_t experts = whole.b->shape[0], each = whole.b->shape[1], first = 0, matrix = 0;
    Matrix out(whole.a->rows(), each);
    out.words.clear();
    Splits counts = splits_of(v, 0);
    for (std::size_t e = 0; e < experts; e++) {  // N19.8
        Array a = lines_of(*whole.a, first, counts[e]), b = lines_of(*whole.b, matrix * each, each), own[2];
        Factors given{&a, &b, {whole.scales[0], whole.scales[1]}};
        for (int n = 0; n < 2; n++)
            if (const Array* items = whole.scales[n]; items && items->words.size() > 1) {
                std::size_t lines = items->rows() / experts;
                own[n] = n == 0 ? lines_of(*items, first, counts[e])
                                : lines_of(*items, READ("N19.8/scales", e, 0) * lines, lines);
                given.scales[n] = &own[n];
            }
        for (Word word : product_of(v, given).words) out.words.push_back(word);
        first += counts[e];
        matrix += READ("N19.8/experts", 1, counts[e] > 0);
    }
    return {out};
}

struct Operation {
    const char* name;
    const char* outputs[4];  // in the order of the answers; the rest is null
    Answers (*solve)(const Vector&);
};

inline Matrix tiled(const Vector& v) {
    std::size_t tall = v.params["tile"].items[0].number;
    return dequantize(v["codes"].matrix(), v["scales"].matrix(), format("E4M3"), tall, 128, v.text("dtype"));
}

inline Matrix mx_values(const Vector& v, const Matrix& codes, const Format& f) {
    return dequantize(codes, v["scales"].matrix(), f, 1, 32, v.text("dtype"));
}

inline Coded tiles(const Vector& v) {
    std::size_t tall = v.params["tile"].items[0].number;
    return quantize_fp8_tiles(values_of(v["x"]), v["x"].columns(), tall, v.profile);
}

inline Coded from_fp8(const Vector& v) { return fp8_to_mxfp4(v["codes"].matrix(), v["scales"].matrix(), v.profile); }

using Convert = Coded (*)(const Matrix&, const Matrix&, const Splits&, const std::string&);

inline Answers to_columns(const Vector& v, Convert convert, const char* from, const char* mode) {
    Matrix codes = v[from].matrix();
    if (std::string(from) == "packed") codes = unpack(codes);
    return both(convert(codes, v["scales"].matrix(), splits_of(v, codes.rows), v.text(mode)));
}

inline Answers payload_of(const Coded& c, bool scales_first) { return {joined(pack(c.codes), c.scales, scales_first)}; }
inline Answers kept(const Vector& v, const char* layout) { return {stored(v["scales"].matrix(), layout)}; }

inline Answers read_scales(const Vector& v) {
    return {loaded(v["stored"].matrix(), v.text("layout"), v.number("rows"), v.number("columns"))};
}

inline Answers mxfp4_rows(const Vector& v) {
    return both(mxfp4_to_fp8(unpack(v["packed"].matrix()), v["scales"].matrix(), v.text("scale")));
}

using V = const Vector&;
inline const Format& element_of(V v) { return format(v.text("element")); }
inline Answers drawn(V v) { return {random_bits(v["keys"].matrix(), int(v.number("bits")), v.number("count"))}; }

inline constexpr Operation OPERATIONS[] = {
    {"quantize_mxfp4", {"packed", "scales"}, [](V v) { return packed(quantized(v, format("E2M1"))); }},
    {"quantize_mx", {"codes", "scales"}, [](V v) { return both(quantized(v, element_of(v))); }},
    {"quantize_fp8_tiles", {"codes", "scales"}, [](V v) { return both(tiles(v)); }},
    {"dequantize_mxfp4", {"values"},
     [](V v) -> Answers { return {mx_values(v, unpack(v["packed"].matrix()), format("E2M1"))}; }},
    {"dequantize_mx", {"values"}, [](V v) -> Answers { return {mx_values(v, v["codes"].matrix(), element_of(v))}; }},
    {"dequantize_fp8_tiles", {"values"}, [](V v) -> Answers { return {tiled(v)}; }},
    {"quantize_nvfp4", {"packed", "scales", "tensor_amax"}, to_nvfp4},
    {"dequantize_nvfp4", {"values"}, from_nvfp4},
    {"hadamard16", {"values"}, rotated},
    {"hadamard_quantize_nvfp4", {"packed", "scales", "tensor_amax"}, rotated_codes},
    {"quantize_tetrajet", {"packed", "scales"}, to_tetrajet},
    {"q_ema", {"packed", "scales"}, to_tetrajet},
    {"quantize_tetrajet_v2", {"packed", "scales", "outer"}, to_tetrajet_v2},
    {"dequantize_tetrajet_v2", {"values"}, from_tetrajet_v2},
    {"luq", {"packed", "alpha"}, to_luq},
    {"dequantize_luq", {"values"}, from_luq},
    {"radix4", {"packed"}, to_radix4},
    {"dequantize_radix4", {"values"}, from_radix4},
    {"dge", {"values"}, slopes},
    {"occ", {"clamped", "residual", "thresholds"}, clamps},
    {"sawb", {"codes", "scale"}, to_sawb},
    {"int4_affine", {"codes", "scales", "zeros"}, to_affine},
    {"efficient_qat", {"codes", "scales", "zeros"}, to_affine},
    {"int4_keep_two", {"codes", "scales", "kept"}, to_kept},
    {"llm_qat", {"codes", "values"}, to_qat},
    {"dequantize_int4", {"values"}, from_int4},
    {"llm_fp4", {"codes", "values"}, to_fp4},
    {"q_ramping", {"period"}, of_distances},
    {"ramping_step", {"total", "count", "due", "mean"}, ramped},
    {"osci_reset", {"flags"}, reset},
    {"osci_reset_by_distance", {"flags"}, of_distances},
    {"out_control", {"flags"}, kept_in_eight_bits},
    {"adam_apply", {"weight", "m", "v"}, stepped},
    {"spam_apply", {"weight", "m", "v"}, stepped},
    {"stable_spam_apply", {"weight", "m", "v"}, stepped},
    {"fp8_to_mxfp4", {"packed", "scales"}, [](V v) { return packed(from_fp8(v)); }},
    {"mxfp4_to_fp8", {"codes", "scales"}, mxfp4_rows},
    {"mxfp4_to_fp8_columns", {"codes", "scales"},
     [](V v) { return to_columns(v, mxfp4_to_fp8_columns, "packed", "scale"); }},
    {"mxfp4_to_fp8_rows_columns", {"codes", "scales", "column_codes", "column_scales"}, rows_and_columns},
    {"mxfp4_columns", {"packed", "scales"}, [](V v) { return to_columns(v, mxfp4_columns, "packed", "scale"); }},
    {"fp8_columns", {"codes", "scales"}, [](V v) { return to_columns(v, fp8_columns, "codes", "underflow"); }},
    {"swiglu_quantize", {"codes|packed", "scales"}, swiglu_quantize},
    {"swiglu_backward", {"dgate", "dup", "dprob"}, swiglu_gradients},
    {"pack_payload", {"payload"},
     [](V v) -> Answers { return {joined(v["packed"].matrix(), v["scales"].matrix(), WRONG("N12.1"))}; }},
    {"unpack_payload", {"packed", "scales"}, [](V v) { return both(parted(v["payload"].matrix(), WRONG("N12.1"))); }},
    {"quantize_payload", {"payload"},
     [](V v) { return payload_of(quantized(v, format("E2M1")), WRONG("N12.5/quantize_payload")); }},
    {"fp8_to_payload", {"payload"}, [](V v) { return payload_of(from_fp8(v), WRONG("N12.5/fp8_to_payload")); }},
    {"permute_pad", {"rows", "offsets"}, [](V v) { return permuted(v, false); }},
    {"permute_unpack", {"packed", "scales", "offsets"}, [](V v) { return permuted(v, true); }},
    {"unpermute", {"values"}, summed},
    {"encode_e2m1", {"codes"}, [](V v) { return encoded(v, format("E2M1"), {}); }},
    {"encode_e4m3", {"codes"}, [](V v) { return encoded(v, format("E4M3"), choices(v)); }},
    {"encode_e8m0", {"codes"}, scale_bytes},
    {"encode_element", {"codes"}, [](V v) { return encoded(v, element_of(v), choices(v)); }},
    {"decode_e2m1", {"values"}, [](V v) { return decoded(v, "E2M1"); }},
    {"decode_e4m3", {"values"}, [](V v) { return decoded(v, "E4M3"); }},
    {"decode_e8m0", {"values"}, [](V v) { return decoded(v, "E8M0"); }},
    {"decode_element", {"values"}, [](V v) { return decoded(v, v.text("element")); }},
    {"codes_to_packed", {"packed"}, [](V v) -> Answers { return {pack(v["codes"].matrix(), v.text("order"))}; }},
    {"scales_to_gemm_float32", {"values"}, [](V v) { return kept(v, "gemm_float32"); }},
    {"scales_to_packed_ue8m0", {"words"}, [](V v) { return kept(v, "packed_ue8m0"); }},
    {"scales_to_swizzled", {"bytes"}, [](V v) { return kept(v, "swizzled"); }},
    {"scales_from_layout", {"scales"}, read_scales},
    {"philox4x32", {"words"}, philox_words},
    {"random_bits", {"rbits"}, drawn},
    {"matmul_fp8", {"values"}, multiplied},
    {"matmul_bf16", {"values"}, multiplied},
};

inline const Operation* operation_of(const Vector& v) {
    for (const Operation& operation : OPERATIONS)
        if (v.operation == operation.name) return &operation;
    return nullptr;
}
