// Gradients of SwiGLU on bfloat16 [M, H] (clause N11).
//
// CTAs stay: each keeps the windows of silu and sigmoid in shared memory and takes row after row, four elements a
// thread at a time. The sum over a row is a binary tree of neighbours, which is the padded tree: +0 stands for what is
// behind the row's end, and as many levels are added as H needs. A thread adds two levels, a warp five, and one warp
// the next eight, of a segment, while the others go on; the segments of a row are added at its end.
#include "memory.cuh"
#include "swiglu.cuh"

#ifndef BLOCKS  // CTAs a multiprocessor holds at once
#define BLOCKS 4
#endif
#ifndef AHEAD  // whether a chunk is read while the one before is worked on
#define AHEAD 1
#endif

namespace refnum {

constexpr int WINDOW = 11, CHUNK = 4, WARPS = THREADS / 32;
constexpr uint32_t LEAF_LEVELS = 7, SEGMENT_LEVELS = 8, LEAVES = 1u << SEGMENT_LEVELS;  // leaves of 128 elements

// The one parameter (gpu/ops/swiglu.py has its mirror). Strides are in bytes.
struct GradientArguments {
    const uint8_t *grad, *gate, *up, *prob;
    uint8_t *dgate, *dup, *dprob;
    const uint32_t* table;  // all gates: silu, then sigmoid
    offset_t grad_stride, gate_stride, up_stride, prob_stride, h;
    uint32_t rows, turns, levels;  // rows; chunks a thread and row; levels of the sum of a row
};

// Four elements as they are read: float32 or bfloat16 grads.
template <bool wide>
struct Quad {
    uint32_t grad[wide ? 4 : 2], gate[2], up[2], prob;
};

// Elements of `bytes` each, `count` of four: zeros behind them.
template <int bytes>
__device__ __forceinline__ void read_some(const uint8_t* p, offset_t count, uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint32_t one = 0;
        if (i < count) load<bytes>(p + i * bytes, false, &one);
        if (bytes == 4) words[i] = one;
        else words[i / 2] = i & 1 ? words[i / 2] | one << 16 : one;
    }
}

template <bool wide, bool weighted, bool aligned>
__device__ __forceinline__ void read(const GradientArguments& a, offset_t row, offset_t first, Quad<wide>& in) {
    constexpr int bytes = wide ? 4 : 2;
    const uint8_t *grad = a.grad + row * a.grad_stride + first * bytes, *gate = a.gate + row * a.gate_stride + 2 * first,
                  *up = a.up + row * a.up_stride + 2 * first;
    const offset_t count = first < a.h ? a.h - first : 0;
    in = {};
    if (weighted) load<4>(a.prob + row * a.prob_stride, aligned, &in.prob);
    if (!aligned) {
        read_some<bytes>(grad, count, in.grad);
        read_some<2>(gate, count, in.gate);
        read_some<2>(up, count, in.up);
        return;
    }
    if (count == 0) return;
    load<4 * bytes>(grad, true, in.grad);
    load<8>(gate, true, in.gate);
    load<8>(up, true, in.up);
}

template <bool aligned>
__device__ __forceinline__ void write(uint8_t* out, offset_t place, offset_t count, const uint32_t* bits) {
    if (aligned) {
        if (count >= CHUNK) store<16>(out + 4 * place, bits);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i < count) store<4>(out + 4 * (place + i), bits + i);
    }
}

// Adds five levels of the tree, from `first` on, over a warp's nodes; not those from `levels` on. The sum is lane 0's.
__device__ __forceinline__ uint32_t sum_of_warp(uint32_t node, uint32_t first, uint32_t levels) {
#pragma unroll
    for (uint32_t i = 0; i < 5; ++i) {
        const uint32_t other = __shfl_down_sync(~0u, node, 1u << i);
        if (first + i < levels) node = add_floats(node, other);
    }
    return node;
}

// One warp adds the tree over `count` leaves: three levels in a thread, then five over the warp.
__device__ __forceinline__ uint32_t sum_of_leaves(const uint32_t* leaves, uint32_t count, uint32_t levels) {
    uint32_t nodes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const uint32_t leaf = threadIdx.x % 32 * 8 + i;
        nodes[i] = leaf < count ? leaves[leaf] : 0;
    }
#pragma unroll
    for (int step = 0; step < 3; ++step) {
        if (LEAF_LEVELS + step >= levels) continue;
#pragma unroll
        for (int i = 0; i < 4 >> step; ++i) nodes[i] = add_floats(nodes[2 * i], nodes[2 * i + 1]);
    }
    return sum_of_warp(nodes[0], LEAF_LEVELS + 3, levels);
}

// Works on one chunk and returns its part of the sum.
template <bool wide, bool weighted, bool aligned>
__device__ __forceinline__ uint32_t gradients(const GradientArguments& a, const uint32_t* windows, offset_t row,
                                              offset_t first, const Quad<wide>& in) {
    uint32_t y[4], s[4], dgate[4], dup[4], term[4];
    silu_and_sigmoid_pairs<2>(windows, in.gate, y, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int word = i / 2;
        const uint32_t grad = wide ? in.grad[i] : i & 1 ? in.grad[word] & 0xFFFF0000u : in.grad[word] << 16;
        const uint32_t g = i & 1 ? in.gate[word] & 0xFFFF0000u : in.gate[word] << 16;
        const uint32_t u = i & 1 ? in.up[word] & 0xFFFF0000u : in.up[word] << 16;
        const SwigluGradients one = swiglu_gradients<weighted>(grad, g, u, y[i], s[i], in.prob);
        dgate[i] = one.gate;
        dup[i] = one.up;
        term[i] = one.term;  // +0 behind the row's end, where all that was read is 0
    }
    const offset_t place = row * a.h + first, count = a.h - first;
    write<aligned>(a.dgate, place, count, dgate);
    write<aligned>(a.dup, place, count, dup);
    if (a.levels == 0) return term[0];
    const uint32_t left = add_floats(term[0], term[1]);
    return a.levels == 1 ? left : add_floats(left, add_floats(term[2], term[3]));
}

// Adds a segment's sum to the row's, which is written at its end.
__device__ __forceinline__ void close(const GradientArguments& a, TreeSum& sum, offset_t row, uint32_t top, bool ends) {
    uint32_t* out = reinterpret_cast<uint32_t*>(a.dprob) + row;
    if (a.levels <= LEAF_LEVELS + SEGMENT_LEVELS) {
        *out = canonical_float(top);
        return;
    }
    sum.add(top);
    if (!ends) return;
    *out = sum.sum();
    sum.count = 0;
}

// Where a CTA is: a row, and which part of it.
struct Spot {
    offset_t row;
    uint32_t turn;

    __device__ __forceinline__ offset_t first() const { return ((offset_t)turn * THREADS + threadIdx.x) * CHUNK; }
    __device__ __forceinline__ Spot next(const GradientArguments& a) const {
        const bool ends = turn + 1 == a.turns;
        return {row + (ends ? gridDim.x : 0), ends ? 0 : turn + 1};
    }
};

template <bool wide, bool weighted, bool aligned>
__device__ __forceinline__ void backward(const GradientArguments& a) {
    typedef GateWindow<WINDOW> Window;
    __shared__ uint4 shared[2 * Window::entries / 4];
    __shared__ uint32_t leaves[weighted ? 2 : 1][weighted ? LEAVES : 1];  // of two segments, which take turns
    __shared__ TreeSum sum;
    uint32_t* windows = reinterpret_cast<uint32_t*>(shared);
    Spot spot = {blockIdx.x, 0};
    Quad<wide> in, ahead;
    if (AHEAD) read<wide, weighted, aligned>(a, spot.row, spot.first(), in);
    for (uint32_t i = 4 * threadIdx.x; i < 2 * Window::entries; i += 4 * THREADS) {
        load_vector<16>(reinterpret_cast<const uint8_t*>(a.table + Window::gate(i)), windows + i);
    }
    if (weighted && threadIdx.x == 0) sum.count = 0;
    __syncthreads();
    uint32_t segment = 0, leaf = 0;
#pragma unroll 1
    while (spot.row < a.rows) {
        const Spot here = spot;
        spot = here.next(a);
        if (!AHEAD) read<wide, weighted, aligned>(a, here.row, here.first(), in);
        else if (spot.row < a.rows) read<wide, weighted, aligned>(a, spot.row, spot.first(), ahead);
        const uint32_t term = gradients<wide, weighted, aligned>(a, windows, here.row, here.first(), in);
        if (AHEAD) in = ahead;
        if (!weighted) continue;
        const uint32_t node = sum_of_warp(term, 2, a.levels);
        if (threadIdx.x % 32 == 0) leaves[segment & 1][leaf + threadIdx.x / 32] = node;
        leaf += WARPS;
        if (leaf < LEAVES && spot.turn != 0) continue;
        __syncthreads();
        if (threadIdx.x < 32) {
            const uint32_t top = sum_of_leaves(leaves[segment & 1], leaf, a.levels);  // those behind the row are +0
            if (threadIdx.x == 0) close(a, sum, here.row, top, spot.turn == 0);
        }
        ++segment;
        leaf = 0;
    }
}

}  // namespace refnum

#define KERNEL(name, wide, weighted, aligned)                                                    \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void name(refnum::GradientArguments a) { \
        refnum::backward<wide, weighted, aligned>(a);                                            \
    }
KERNEL(swiglu_backward_float32, true, false, true)
KERNEL(swiglu_backward_float32_weighted, true, true, true)
KERNEL(swiglu_backward_bfloat16, false, false, true)
KERNEL(swiglu_backward_bfloat16_weighted, false, true, true)
KERNEL(swiglu_backward_float32_loose, true, false, false)
KERNEL(swiglu_backward_float32_weighted_loose, true, true, false)
KERNEL(swiglu_backward_bfloat16_loose, false, false, false)
KERNEL(swiglu_backward_bfloat16_weighted_loose, false, true, false)
