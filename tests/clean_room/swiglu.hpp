// N11: SwiGLU forward and backward on float32 bit patterns.
#pragma once
#include "rows.hpp"
#include "silu.hpp"

struct Gates {
    Matrix gate, up;           // bfloat16 bits
    const Matrix* prob;        // float32 bits, one a row, or nothing
};

inline Values swiglu(const Gates& in) {  // N11.2
    Values out(in.gate.rows);
    for (std::size_t m = 0; m < in.gate.rows; m++)
        for (std::size_t k = 0; k < in.gate.columns; k++) {
            Word y = logistic(in.gate.at(m, k)).silu, up = in.up.at(m, k) << 16;
            bool first = in.prob && WRONG("N11.2");
            Word r = first ? multiply(multiply(y, in.prob->words[m]), up) : multiply(y, up);
            if (in.prob && !first) r = multiply(r, in.prob->words[m]);
            Number x = float32(r);
            out[m].push_back(READ("N11.2/to", x, narrowed(x)));
        }
    return out;
}

inline Word tree_sum(Words terms) {  // N11.4
    if (WRONG("N11.4")) {
        Word sum = terms[0];
        for (std::size_t i = 1; i < terms.size(); i++) sum = add(sum, terms[i]);
        return sum;
    }
    while (terms.size() > 1) {
        if (terms.size() % 2) terms.push_back(0);
        for (std::size_t i = 0; i < terms.size() / 2; i++) terms[i] = add(terms[2 * i], terms[2 * i + 1]);
        terms.resize(terms.size() / 2);
    }
    return terms[0];
}

struct Gradients {
    Matrix gate, up, prob;
};

inline Gradients swiglu_backward(const Matrix& grad, const Gates& in) {  // N11.3; grad: float32 bits
    constexpr Word ONE = 0x3F800000;
    std::size_t rows = in.gate.rows, columns = in.gate.columns;
    Gradients out{Matrix(rows, columns), Matrix(rows, columns), Matrix(1, rows)};
    for (std::size_t m = 0; m < rows; m++) {
        Words terms;
        for (std::size_t k = 0; k < columns; k++) {
            Logistic l = logistic(in.gate.at(m, k));
            Word g = in.gate.at(m, k) << 16, up = in.up.at(m, k) << 16, received = grad.at(m, k);
            Word t = add(ONE, l.sigmoid ^ SIGN32);
            Word d = multiply(l.sigmoid, add(ONE, multiply(g, t)));
            Word gp = in.prob ? multiply(received, in.prob->words[m]) : received;
            out.up.at(m, k) = multiply(gp, l.silu);
            out.gate.at(m, k) = READ("N11.3/order", multiply(multiply(gp, up), d), multiply(gp, multiply(up, d)));
            terms.push_back(multiply(READ("N11.3", received, gp), multiply(l.silu, up)));
        }
        if (in.prob) out.prob.words[m] = tree_sum(terms);
    }
    return out;
}
