// Blocks of TetraJet and of Q-EMA, along rows or down columns (clause N24).
#include "common.hpp"

#include "../kernels/philox.cuh"
#include "../kernels/tetrajet.cuh"

using namespace refnum;

namespace {

constexpr int WORDS = BLOCK / 2;

// Of a matrix [m, k]: the elements of a block along a row, or of one down a column, which may be short.
struct Blocks {
    int64_t m, k;
    int axis;
    int64_t lines() const { return axis ? m : k; }
    int64_t along() const { return axis ? k / BLOCK : (m + BLOCK - 1) / BLOCK; }
    int64_t place(int64_t line, int64_t block, int i) const {  // -1 behind the last row
        const int64_t at = block * BLOCK + i;
        return axis ? line * k + at : at < m ? at * k + line : -1;
    }
    int64_t scale(int64_t line, int64_t block) const { return axis ? line * (k / BLOCK) + block : block * k + line; }
};

// A block as words of its dtype, zeros behind the last row.
template <int kind>
void gather(const void* x, const Blocks& blocks, int64_t line, int64_t block, uint32_t* in) {
    for (int i = 0; i < BLOCK; ++i) {
        const int64_t place = blocks.place(line, block, i);
        if (kind == FLOAT32) in[i] = place < 0 ? 0 : word_at(x, place);
        else in[i / 2] = (i % 2 ? in[i / 2] : 0) | (place < 0 ? 0 : half_at(x, place)) << (16 * (i % 2));
    }
}

void scatter(const Blocks& blocks, int64_t line, int64_t block, const uint32_t* words, uint8_t* packed) {
    for (int i = 0; i < BLOCK; ++i) {
        const int64_t place = blocks.place(line, block, i);
        if (place >= 0) packed[place / 2] |= (uint8_t)((words[i / 8] >> (4 * (i % 8)) & 15) << (4 * (place % 2)));
    }
}

// Every block: `lanes(in, w, byte, line, block, out)` gives the codes of its words of lanes w.
template <int kind, bool averaged, class Lanes>
void each_block(const void* x, const Blocks& blocks, int rule, uint8_t* packed, uint8_t* scales, Lanes lanes) {
    std::memset(packed, 0, (size_t)(blocks.m * blocks.k / 2));
    for (int64_t line = 0; line < blocks.lines(); ++line) {
        for (int64_t block = 0; block < blocks.along(); ++block) {
            uint32_t in[PAIR_WORDS<kind> * WORDS], w[WORDS], codes[WORDS], out[4] = {};
            gather<kind>(x, blocks, line, block, in);
            const uint32_t byte = tetrajet_byte(largest_of_block<kind, WORDS>(in), tetrajet_scale(rule));
            lanes_of<kind, averaged, WORDS>(in, w);
            lanes(in, w, byte, line, block, codes);
            for (int i = 0; i < 4; ++i) out[i] = byte == NAN_BYTE ? 0 : e2m1_pack_lanes(codes + 4 * i, w + 4 * i);
            scatter(blocks, line, block, out, packed);
            scales[blocks.scale(line, block)] = (uint8_t)byte;
        }
    }
}

template <int kind>
void quantize(const void* x, const uint8_t* random, const Blocks& blocks, int rule, bool away, uint8_t* packed,
              uint8_t* scales) {
    each_block<kind, false>(x, blocks, rule, packed, scales,
                     [&](const uint32_t* in, const uint32_t* w, uint32_t byte, int64_t line, int64_t block, uint32_t* out) {
        uint32_t words[BLOCK / 4] = {};
        for (int i = 0; i < BLOCK && random; ++i) {
            const int64_t place = blocks.place(line, block, i);
            words[i / 4] |= (uint32_t)(place < 0 ? 0 : random[place]) << (8 * (i % 4));
        }
        if (random && blocks.axis) return drawn_words<kind, WORDS>(in, byte, words, out);
        const uint32_t power = drawn_power(byte);
        constexpr bool half = HALF_LANES<kind, false>;
        const LaneScale scale = lane_scale<half>(byte);
        for (int i = 0; i < WORDS; ++i) {
            uint32_t low, high;
            two_floats<kind>(in + PAIR_WORDS<kind> * i, low, high);
            const uint32_t draws = permute(words[i / 2], 0, i & 1 ? 0x4342 : 0x4140);
            const uint32_t lanes = lanes_under<half>(w[i], scale);
            out[i] = random ? drawn_lanes(low, high, power, power, draws)
                     : away ? nearest_lanes<true>(lanes) : nearest_lanes<false>(lanes);
        }
    });
}

template <int kind, int other>
void average(const void* w, const void* ema, const Blocks& blocks, int rule, uint8_t* packed, uint8_t* scales) {
    each_block<kind, true>(w, blocks, rule, packed, scales,
                     [&](const uint32_t*, const uint32_t* lanes, uint32_t byte, int64_t line, int64_t block, uint32_t* out) {
        uint32_t in[PAIR_WORDS<other> * WORDS], averages[WORDS];
        gather<other>(ema, blocks, line, block, in);
        lanes_of<other, true, WORDS>(in, averages);
        const LaneScale scale = lane_scale<false>(byte);
        for (int i = 0; i < WORDS; ++i) out[i] = averaged_lanes(lanes[i], averages[i], scale);
    });
}

}  // namespace

extern "C" {

// `random`: a byte an element, or null to round to nearest.
void refnum_quantize_tetrajet(int kind, const void* x, const uint8_t* random, int64_t m, int64_t k, int axis, int rule,
                              int away, uint8_t* packed, uint8_t* scales) {
    const Blocks blocks = {m, k, axis};
    if (kind == FLOAT32) quantize<FLOAT32>(x, random, blocks, rule, away != 0, packed, scales);
    if (kind == BFLOAT16) quantize<BFLOAT16>(x, random, blocks, rule, away != 0, packed, scales);
    if (kind == FLOAT16) quantize<FLOAT16>(x, random, blocks, rule, away != 0, packed, scales);
}

// `other`: kind of the averages, that of the weights or FLOAT32.
void refnum_q_ema(int kind, const void* w, int other, const void* ema, int64_t m, int64_t k, int axis, int rule,
                  uint8_t* packed, uint8_t* scales) {
    const Blocks blocks = {m, k, axis};
    if (kind == FLOAT32) average<FLOAT32, FLOAT32>(w, ema, blocks, rule, packed, scales);
    else if (kind == BFLOAT16 && other == kind) average<BFLOAT16, BFLOAT16>(w, ema, blocks, rule, packed, scales);
    else if (kind == BFLOAT16) average<BFLOAT16, FLOAT32>(w, ema, blocks, rule, packed, scales);
    else if (other == kind) average<FLOAT16, FLOAT16>(w, ema, blocks, rule, packed, scales);
    else average<FLOAT16, FLOAT32>(w, ema, blocks, rule, packed, scales);
}

// Bytes `offset` and on of a stream (N13.5); offset and count are multiples of 16.
void refnum_philox_bytes(uint64_t seed, uint64_t stream, uint64_t step, uint64_t offset, int64_t count, uint8_t* out) {
    const PhiloxKey key = {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)stream, (uint32_t)step};
    for (int64_t i = 0; i < count; i += PHILOX_BYTES) {
        uint32_t words[4];
        philox_block((offset + (uint64_t)i) / PHILOX_BYTES, key, words);
        std::memcpy(out + i, words, PHILOX_BYTES);
    }
}

}  // extern "C"
