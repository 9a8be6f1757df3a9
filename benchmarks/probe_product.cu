// Instructions of Hopper's tensor cores on chosen operands, and a plain model of them whose rule is given as numbers:
// what benchmarks/probe_product.py compares with each other. 64 x 8 results a block, rows of 32 bytes along K.
#include <cstdint>

#ifndef PROBE_HOST  // the plain model alone is compiled for a host, to be tested there
// ------------------------------------------------------------------------------------------ instructions

__device__ __forceinline__ uint64_t descriptor(const void* p, uint32_t lead, uint32_t stride) {
    const uint64_t address = (uint64_t)__cvta_generic_to_shared(p);
    return (address & 0x3FFFF) >> 4 | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

#define WGMMA32(NAME, TYPES, TAIL)                                                                                   \
    struct NAME {                                                                                                    \
        static __device__ void run(uint32_t (&d)[4], uint64_t a, uint64_t b) {                                       \
            asm volatile("wgmma.mma_async.sync.aligned." TYPES " {%0, %1, %2, %3}, %4, %5, 1, 1, 1" TAIL ";"        \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(a), "l"(b));                          \
        }                                                                                                            \
    };
#define WGMMA16(NAME, TYPES, TAIL)                                                                                   \
    struct NAME {                                                                                                    \
        static __device__ void run(uint32_t (&d)[4], uint64_t a, uint64_t b) {                                       \
            asm volatile("wgmma.mma_async.sync.aligned." TYPES " {%0, %1}, %2, %3, 1, 1, 1" TAIL ";"                \
                         : "+r"(d[0]), "+r"(d[1]) : "l"(a), "l"(b));                                                  \
        }                                                                                                            \
    };
#define MMA32(NAME, TYPES)                                                                                           \
    struct NAME {                                                                                                    \
        static __device__ void run(uint32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {               \
            asm volatile("mma.sync.aligned." TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                  \
                         "{%0, %1, %2, %3};"                                                                          \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                            \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
        }                                                                                                            \
    };
#define MMA16(NAME, TYPES)                                                                                           \
    struct NAME {                                                                                                    \
        static __device__ void run(uint32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {               \
            asm volatile("mma.sync.aligned." TYPES " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"                 \
                         : "+r"(d[0]), "+r"(d[1])                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
        }                                                                                                            \
    };

// The two immediates of a 16-bit wgmma say that neither operand is transposed.
WGMMA32(W_E4M3_E4M3, "m64n8k32.f32.e4m3.e4m3", "")
WGMMA32(W_E4M3_E5M2, "m64n8k32.f32.e4m3.e5m2", "")
WGMMA32(W_E5M2_E4M3, "m64n8k32.f32.e5m2.e4m3", "")
WGMMA32(W_E5M2_E5M2, "m64n8k32.f32.e5m2.e5m2", "")
WGMMA32(W_BF16, "m64n8k16.f32.bf16.bf16", ", 0, 0")
WGMMA32(W_FP16, "m64n8k16.f32.f16.f16", ", 0, 0")
WGMMA16(W_E4M3_E4M3_H, "m64n8k32.f16.e4m3.e4m3", "")
WGMMA16(W_E5M2_E5M2_H, "m64n8k32.f16.e5m2.e5m2", "")
WGMMA16(W_FP16_H, "m64n8k16.f16.f16.f16", ", 0, 0")
MMA32(M_E4M3_E4M3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA32(M_E5M2_E5M2, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
MMA32(M_BF16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA32(M_FP16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA16(M_FP16_H, "m16n8k16.row.col.f16.f16.f16.f16")
MMA16(M_E4M3_E4M3_H, "m16n8k32.row.col.f16.e4m3.e4m3.f16")

// Accumulators and results are one u32 each: float32 bits, or binary16 bits where `half`.
template <bool half>
__device__ void load_accumulators(const uint32_t* c, uint32_t (&d)[4]) {
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const uint32_t* p = c + blockIdx.x * 512ull + row * 8 + column;
    d[0] = p[0], d[1] = p[1], d[2] = p[64], d[3] = p[65];
    if (half) d[0] |= d[1] << 16, d[1] = d[2] | d[3] << 16;
}
template <bool half>
__device__ void store_results(uint32_t* out, const uint32_t (&d)[4]) {
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    uint32_t* p = out + blockIdx.x * 512ull + row * 8 + column;
    p[0] = half ? d[0] & 0xFFFF : d[0], p[1] = half ? d[0] >> 16 : d[1];
    p[64] = half ? d[1] & 0xFFFF : d[2], p[65] = half ? d[1] >> 16 : d[3];
}

// Without swizzle, K-major: 8 rows x 16 bytes lie together; the two halves of K are 128 bytes apart, eight rows 256.
template <class Op, bool half>
__device__ void run_wgmma(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, uint32_t lead,
                          uint32_t stride) {
    __shared__ __align__(1024) uint32_t left[64 * 8], right[8 * 8];
    for (uint32_t i = threadIdx.x; i < 64 * 8; i += 128) {
        const uint32_t row = i / 8, word = i % 8;
        left[row / 8 * 64 + word / 4 * 32 + row % 8 * 4 + word % 4] = a[blockIdx.x * 512ull + i];
    }
    if (threadIdx.x < 64) {
        const uint32_t row = threadIdx.x / 8, word = threadIdx.x % 8;
        right[word / 4 * 32 + row * 4 + word % 4] = b[blockIdx.x * 64ull + threadIdx.x];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint32_t d[4];
    load_accumulators<half>(c, d);
    const uint64_t x = descriptor(left, lead, stride), y = descriptor(right, lead, stride);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    Op::run(d, x, y);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    store_results<half>(out, d);
}

template <class Op, bool half>
__device__ void run_mma(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out) {
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, word = threadIdx.x % 4;
    const uint32_t* p = a + blockIdx.x * 512ull + row * 8 + word;
    const uint32_t* q = b + blockIdx.x * 64ull + threadIdx.x % 32 / 4 * 8 + word;
    const uint32_t x[4] = {p[0], p[64], p[4], p[68]}, y[2] = {q[0], q[4]};
    uint32_t d[4];
    load_accumulators<half>(c, d);
    Op::run(d, x, y);
    store_results<half>(out, d);
}

#define WGMMA_KERNEL(NAME, OP, HALF)                                                                                 \
    extern "C" __global__ void NAME(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,          \
                                    uint32_t lead, uint32_t stride) {                                                \
        run_wgmma<OP, HALF>(a, b, c, out, lead, stride);                                                             \
    }
#define MMA_KERNEL(NAME, OP, HALF)                                                                                   \
    extern "C" __global__ void NAME(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,          \
                                    uint32_t, uint32_t) {                                                            \
        run_mma<OP, HALF>(a, b, c, out);                                                                             \
    }
WGMMA_KERNEL(wgmma_e4m3_e4m3, W_E4M3_E4M3, false)
WGMMA_KERNEL(wgmma_e4m3_e5m2, W_E4M3_E5M2, false)
WGMMA_KERNEL(wgmma_e5m2_e4m3, W_E5M2_E4M3, false)
WGMMA_KERNEL(wgmma_e5m2_e5m2, W_E5M2_E5M2, false)
WGMMA_KERNEL(wgmma_bf16_bf16, W_BF16, false)
WGMMA_KERNEL(wgmma_fp16_fp16, W_FP16, false)
WGMMA_KERNEL(wgmma_e4m3_e4m3_to_fp16, W_E4M3_E4M3_H, true)
WGMMA_KERNEL(wgmma_e5m2_e5m2_to_fp16, W_E5M2_E5M2_H, true)
WGMMA_KERNEL(wgmma_fp16_fp16_to_fp16, W_FP16_H, true)
MMA_KERNEL(mma_e4m3_e4m3, M_E4M3_E4M3, false)
MMA_KERNEL(mma_e5m2_e5m2, M_E5M2_E5M2, false)
MMA_KERNEL(mma_bf16_bf16, M_BF16, false)
MMA_KERNEL(mma_fp16_fp16, M_FP16, false)
MMA_KERNEL(mma_fp16_fp16_to_fp16, M_FP16_H, true)
MMA_KERNEL(mma_e4m3_e4m3_to_fp16, M_E4M3_E4M3_H, true)

#endif
// ------------------------------------------------------------------------------------------ the model, by numbers

struct Rule {
    int a, b;          // formats: 0 E4M3, 1 E5M2, 2 BF16, 3 FP16
    int terms;         // products a step
    int fraction;      // fraction bits of a term
    int kept;          // fraction bits of a result
    int to_half;       // the result is binary16, to nearest even, and so is the accumulator
    int zero;          // 0: zero terms have `zero_exponent`; 1: a zero product has the exponent of its fields
    int zero_exponent;
    int normalised;    // products in [2, 4) count with the next exponent
    int as_half;       // FP8 codes are first turned to binary16, whose exponents count
    int pairs;         // the terms of two steps alternate in pairs: k mod 4 of 0 and 1, then of 2 and 3
    int apart;         // steps start at zero, and the accumulator is added in float32 at the end
    int rounding;      // of terms: 0 toward zero, 1 to nearest even, 2 down
    int overflow;      // 0: Inf, 1: the largest finite float32
};

struct Decoded {
    int64_t significand;  // signed
    int exponent, fraction, kind;  // kind 0 finite, 1 Inf, 2 NaN
};

__device__ Decoded decode(uint32_t code, int format, int as_half) {
    const int mantissa[] = {3, 2, 7, 10}, exponents[] = {4, 5, 8, 5}, bias[] = {7, 15, 127, 15};
    const int m = mantissa[format], e = exponents[format];
    const uint32_t field = code >> m & ((1u << e) - 1), fraction = code & ((1u << m) - 1);
    const bool minus = code >> (m + e) & 1;
    Decoded d;
    d.kind = field != (1u << e) - 1 || (format == 0 && fraction != 7) ? 0 : fraction || format == 0 ? 2 : 1;
    d.significand = (int64_t)(fraction | (field ? 1u << m : 0));
    d.exponent = (int)(field ? field : 1) - bias[format];
    d.fraction = m;
    if (as_half && d.kind == 0) {  // binary16 holds every FP8 value, mostly as a normal number
        d.significand <<= 10 - m;
        d.fraction = 10;
        while (d.significand && d.significand < 1 << 10 && d.exponent > -14) d.significand <<= 1, --d.exponent;
    }
    if (minus) d.significand = -d.significand;
    return d;
}

__device__ int length_of(uint64_t x) { return 64 - __clzll((long long)x); }

// |x| * 2**shift with the rule's rounding of what falls out; |x| below 2**24
__device__ int64_t shifted(int64_t x, int shift, int rounding) {
    const int64_t magnitude = x < 0 ? -x : x;
    int64_t out;
    if (shift >= 0) out = magnitude << (shift < 38 ? shift : 38);
    else {
        const int down = -shift < 62 ? -shift : 62;
        out = magnitude >> down;
        const int64_t rest = magnitude - (out << down), half = (int64_t)1 << (down - 1);
        if (rounding == 1) out += rest > half || (rest == half && (out & 1));
        if (rounding == 2) out += x < 0 && rest != 0;
    }
    return x < 0 ? -out : out;
}

// bits of total * 2**unit
__device__ uint32_t result_of(int64_t total, int unit, const Rule& r) {
    if (total == 0) return 0;
    const uint32_t sign = total < 0;
    const uint64_t magnitude = total < 0 ? -total : total;
    const int lowest = r.to_half ? -14 : -126, bits = r.to_half ? 10 : r.kept, width = r.to_half ? 10 : 23;
    int exponent = unit + length_of(magnitude) - 1;
    exponent = exponent > lowest ? exponent : lowest;
    const int down = exponent - bits - unit;
    uint64_t kept = down > 63 ? 0 : down > 0 ? magnitude >> down : magnitude << -down;
    if (r.to_half && down > 0) {
        const uint64_t rest = down > 63 ? 0 : magnitude - (kept << down), half = 1ull << (down - 1);
        kept += down <= 63 && (rest > half || (rest == half && (kept & 1)));
    }
    const int64_t field = (int64_t)exponent - lowest;
    const uint64_t out = ((uint64_t)field << width) + (kept << (width - bits));
    if (r.to_half) return sign << 15 | (out > 0x7C00 ? 0x7C00 : (uint32_t)out);
    return sign << 31 | (out >= 0x7F800000 ? r.overflow ? 0x7F7FFFFF : 0x7F800000 : (uint32_t)out);
}

__device__ uint32_t one_step(const Rule& r, const Decoded* a, const Decoded* b, int count, uint32_t c) {
    const int width = r.to_half ? 10 : 23, bias = r.to_half ? 15 : 127, mask = r.to_half ? 31 : 255;
    const uint32_t field = c >> width & mask, fraction = c & ((1u << width) - 1);
    const bool c_minus = c >> (r.to_half ? 15 : 31) & 1;
    bool nan = field == (uint32_t)mask && fraction, plus = false, minus = false;
    if (field == (uint32_t)mask && !fraction) (c_minus ? minus : plus) = true;
    int64_t accumulator = fraction | (field ? 1u << width : 0);
    if (c_minus) accumulator = -accumulator;
    const int own = (int)(field ? field : 1) - bias;
    int top = accumulator ? own : r.zero_exponent;
    top = top > r.zero_exponent ? top : r.zero_exponent;
    for (int i = 0; i < count; ++i) {
        const int64_t p = a[i].significand * b[i].significand;
        if (a[i].kind == 2 || b[i].kind == 2 || ((a[i].kind || b[i].kind) && p == 0)) nan = true;
        else if (a[i].kind || b[i].kind) (p < 0 ? minus : plus) = true;
        int e = a[i].exponent + b[i].exponent;
        if (r.normalised && (p < 0 ? -p : p) >> (a[i].fraction + b[i].fraction + 1)) ++e;
        if ((p || r.zero) && e > top) top = e;
    }
    if (nan || (plus && minus)) return r.to_half ? 0x7FFF : 0x7FFFFFFF;
    if (plus || minus) return (r.to_half ? 0x7C00u : 0x7F800000u) | (minus ? r.to_half ? 0x8000u : 0x80000000u : 0);
    int64_t total = shifted(accumulator, own - width - top + r.fraction, r.rounding);
    for (int i = 0; i < count; ++i) {
        const int64_t p = a[i].significand * b[i].significand;
        const int e = a[i].exponent + b[i].exponent - a[i].fraction - b[i].fraction;
        if (p) total += shifted(p, e - top + r.fraction, r.rounding);
    }
    return result_of(total, top - r.fraction, r);
}

__device__ uint32_t code_at(const void* p, int format, uint64_t i) {
    return format < 2 ? ((const uint8_t*)p)[i] : ((const uint16_t*)p)[i];
}

// `count` products from `first` in steps of the rule, from the bits c
__device__ uint32_t chain(const Rule& r, const void* a, const void* b, uint64_t left, uint64_t right, int count,
                          uint32_t c) {
    Decoded x[32], y[32];
    uint32_t d = r.apart ? 0 : c;
    const int block = r.pairs ? 2 * r.terms : r.terms;
    for (int first = 0; first < count; first += block) {
        for (int part = 0; part < block / r.terms; ++part) {
            int n = 0;
            for (int i = first; i < first + block && i < count; ++i) {
                if (r.pairs && i / 2 % 2 != part) continue;
                x[n] = decode(code_at(a, r.a, left + i), r.a, r.as_half);
                y[n++] = decode(code_at(b, r.b, right + i), r.b, r.as_half);
            }
            d = one_step(r, x, y, n, d);
        }
    }
    return r.apart ? __float_as_uint(__fadd_rn(__uint_as_float(c), __uint_as_float(d))) : d;
}

// One instruction's results, in its layout: a [P, 64, 32 bytes], b [P, 8, 32 bytes], c and out [P, 64, 8].
extern "C" __global__ void predict_steps(const Rule* rule, const void* a, const void* b, const uint32_t* c, uint32_t* out,
                                         int results) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= results) return;
    const Rule r = *rule;
    const int k = r.a < 2 ? 32 : 16;
    const uint64_t row = (uint64_t)i / 8, column = (uint64_t)i / 512 * 8 + i % 8;
    out[i] = chain(r, a, b, row * k, column * k, k, c[i]);
}

struct Order {
    int k, run, part;  // terms; those of a run (0: all of a part) and of a part
    int descending;    // the parts' sums are added from the last on
    int scaling;       // 0 none; blocks of K: 1 mul, 2 fma, 3 mul twice (a, b), 4 mul twice (b, a);
                       // whole sums: 5 by the product, 6 a then b, 7 b then a; blocks: 8 mul a fma b, 9 mul b fma a
    int blocks;        // scales a row
};

__device__ float of_bits(uint32_t x) { return __uint_as_float(x); }
__device__ uint32_t to_bits(float x) { return __float_as_uint(x); }

// Chosen results of a product: a [M, K], b [N, K], scales float32 [M, blocks] and [N, blocks].
extern "C" __global__ void predict_products(const Rule* rule, const Order* order, const void* a, const void* b,
                                            const float* a_scales, const float* b_scales, const int* rows,
                                            const int* columns, uint32_t* out, int results) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= results) return;
    const Rule r = *rule;
    const Order o = *order;
    const uint64_t left = (uint64_t)rows[i] * o.k, right = (uint64_t)columns[i] * o.k;
    const int parts = (o.k + o.part - 1) / o.part, run = o.run ? o.run : o.part;
    float total = 0;
    for (int p = 0; p < parts; ++p) {
        const int start = (o.descending ? parts - 1 - p : p) * o.part;
        const int stop = start + o.part < o.k ? start + o.part : o.k;
        float sum = 0;
        for (int at = start; at < stop; at += run) {
            const int n = at + run < stop ? run : stop - at;
            const float one = of_bits(chain(r, a, b, left + at, right + at, n, 0));
            const bool whole = o.scaling == 0 || (o.scaling > 4 && o.scaling < 8);
            const float sa = whole ? 1.0f : a_scales[(uint64_t)rows[i] * o.blocks + at / 128];
            const float sb = whole ? 1.0f : b_scales[(uint64_t)columns[i] * o.blocks + at / 128];
            if (o.scaling == 1) sum = __fadd_rn(sum, __fmul_rn(one, __fmul_rn(sa, sb)));
            else if (o.scaling == 2) sum = __fmaf_rn(one, __fmul_rn(sa, sb), sum);
            else if (o.scaling == 3) sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(one, sa), sb));
            else if (o.scaling == 4) sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(one, sb), sa));
            else if (o.scaling == 8) sum = __fmaf_rn(__fmul_rn(one, sa), sb, sum);
            else if (o.scaling == 9) sum = __fmaf_rn(__fmul_rn(one, sb), sa, sum);
            else sum = o.run ? __fadd_rn(sum, one) : one;
        }
        total = p ? __fadd_rn(total, sum) : sum;
    }
    if (o.scaling > 4 && o.scaling < 8) {
        const float sa = a_scales[(uint64_t)rows[i] * o.blocks], sb = b_scales[(uint64_t)columns[i] * o.blocks];
        if (o.scaling == 5) total = __fmul_rn(total, __fmul_rn(sa, sb));
        if (o.scaling == 6) total = __fmul_rn(__fmul_rn(total, sa), sb);
        if (o.scaling == 7) total = __fmul_rn(__fmul_rn(total, sb), sa);
    }
    out[i] = to_bits(total);
}

#ifndef PROBE_HOST
__device__ uint32_t to_bfloat16(float x) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ uint32_t to_binary16(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#else
uint32_t to_bfloat16(float x) { return to_bits(x) + 0x7FFF + (to_bits(x) >> 16 & 1) >> 16; }
uint32_t to_binary16(float) { return 0; }
#endif

// What an epilogue does to finished sums x and an addend c, `kind` of 1 to 5: alpha * x + c, the same fused, fused
// beta * c + (alpha * x), alpha * x + beta * c, fused alpha * x + (beta * c); what stands in brackets is rounded. Then
// to bfloat16 or binary16 where `to` is 1 or 2.
extern "C" __global__ void predict_epilogue(int kind, int to, float alpha, float beta, const uint32_t* sums,
                                            const float* c, uint32_t* out, int results) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= results) return;
    float x = of_bits(sums[i]);
    const float add = kind ? c[i] : 0.0f;
    if (kind == 1) x = __fadd_rn(__fmul_rn(alpha, x), add);
    if (kind == 2) x = __fmaf_rn(alpha, x, add);
    if (kind == 3) x = __fmaf_rn(beta, add, __fmul_rn(alpha, x));
    if (kind == 4) x = __fadd_rn(__fmul_rn(alpha, x), __fmul_rn(beta, add));
    if (kind == 5) x = __fmaf_rn(alpha, x, __fmul_rn(beta, add));
    out[i] = to == 1 ? to_bfloat16(x) : to == 2 ? to_binary16(x) : to_bits(x);
}
