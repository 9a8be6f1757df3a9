// N27.6 and N27.7: what a step of Adam, SPAM or Stable-SPAM does at a weight, its scalars given.
#pragma once
#include "integer.hpp"

struct Weight {
    Word w, m, v;
};

inline Word minus32(Word a) { return a ^ SIGN32; }
inline bool above32(Word a, Word b) { return !is_nan32(a) && !is_nan32(b) && placed32(a) > placed32(b); }
inline Word square_root32(Word a) {
    if (is_nan32(a) || (a & SIGN32 && a != SIGN32)) return NAN32;
    return a == SIGN32 ? a : root32(a);
}

// fl(fl(a x) + fl(b y)), or read wrongly with the second product not rounded.
inline Word averaged32(Word a, Word x, Word b, Word y) {
    if (WRONG("N27.1")) return fused(multiply(a, x), b, y);
    return add(multiply(a, x), multiply(b, y));
}

inline void moments(Weight& at, Word g, const Word* f) {  // N27.2, 2
    at.m = averaged32(at.m, f[0], g, f[1]);
    at.v = averaged32(at.v, f[2], multiply(g, g), f[3]);
}

inline void moved(Weight& at, Word rate, Word below, Word old) {
    Word first = READ("N27.2/moment", at.m, old);
    at.w = add(at.w, minus32(multiply(rate, divide(first, below))));
}

inline Weight adam(Word g, Weight at, const Word* f) {  // N27.2
    Word old = at.m, decay = f[0], root = f[5], eps = f[6];
    at.w = READ("N27.2", multiply(at.w, decay), at.w);
    moments(at, g, f + 1);
    Word late = add(divide(square_root32(at.v), root), eps);
    Word below = READ("N27.2/eps", late, divide(add(square_root32(at.v), eps), root));
    moved(at, f[7], below, old);
    return at;
}

inline Weight spam(Word g, Weight at, const Word* f, bool clip, bool reset, bool decay) {  // N27.3, N27.7
    if (reset && !WRONG("N27.3/reset")) at.m = at.v = 0;
    if (clip) {
        Word u = multiply(at.v, f[0]);
        if (above32(multiply(g, g), u)) {
            Word root = square_root32(u);
            g = is_nan32(root) ? root : READ("N27.3", (root & ~SIGN32) | (g & SIGN32), root);
        }
    }
    Word old = at.m, rest = f[7], before = at.w;
    moments(at, g, f + 1);
    moved(at, f[6], add(square_root32(at.v), f[5]), old);
    if (decay) at.w = add(at.w, minus32(multiply(rest, READ("N27.3/decay", at.w, before))));
    return at;
}

inline Weight stable_spam(Word g, Weight at, const Word* f, const std::string& forget) {  // N27.4, N27.6
    bool before = forget == READ("N27.6", "before", "after"), after = forget == READ("N27.6", "after", "before");
    if (before) at.m = at.v = 0;
    if (above32(g & ~SIGN32, f[1]))
        g = READ("N27.4/limit", multiply(divide(g, f[2]), f[1]), (f[1] & ~SIGN32) | (g & SIGN32));
    if (above32(f[3], 0) && !WRONG("N27.4")) g = multiply(divide(g, f[3]), f[4]);
    const Word rest[8] = {f[0], f[5], f[6], f[7], f[8], f[9], f[10], f[11]};
    at = adam(g, at, rest);
    if (after) at.m = at.v = 0;
    return at;
}
