// Payloads and their permutation by expert (clause N12): bytes are moved, and one weighted sum is made.
#include "common.hpp"

#include "../kernels/payload.cuh"

using namespace refnum;

extern "C" {

void refnum_quantize_mxfp4(int, const void*, int64_t, int, int, int, uint8_t*, uint8_t*);
void refnum_fp8_to_mxfp4(const uint8_t*, const uint8_t*, int64_t, int64_t, int, int, uint8_t*, uint8_t*);

// Rows of floats or of FP8 tiles, quantised straight into the two parts of a payload row.
void refnum_quantize_payload(int kind, const void* x, int64_t rows, int64_t blocks, int rule, int satfinite,
                             int zero_byte, uint8_t* out) {
    const int64_t bytes = blocks * BLOCK * (kind == FLOAT32 ? 4 : 2);
    for (int64_t r = 0; r < rows; ++r) {
        uint8_t* row = out + r * blocks * PAYLOAD_UNIT;
        const void* in = static_cast<const uint8_t*>(x) + r * bytes;
        refnum_quantize_mxfp4(kind, in, blocks, rule, satfinite, zero_byte, row, row + blocks * PAYLOAD_CODES);
    }
}

void refnum_fp8_to_payload(const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t blocks, int rule,
                           int zero_byte, uint8_t* out) {
    const int64_t k = blocks * BLOCK;
    for (int64_t r = 0; r < rows; ++r) {
        uint8_t* row = out + r * blocks * PAYLOAD_UNIT;
        refnum_fp8_to_mxfp4(codes + r * k, scales + r * tiles(k), 1, k, rule, zero_byte, row,
                            row + blocks * PAYLOAD_CODES);
    }
}

void refnum_pack_payload(const uint8_t* packed, const uint8_t* scales, int64_t rows, int64_t blocks, uint8_t* out) {
    for (int64_t r = 0; r < rows; ++r) {
        uint8_t* row = out + r * blocks * PAYLOAD_UNIT;
        std::memcpy(row, packed + r * blocks * PAYLOAD_CODES, (size_t)(blocks * PAYLOAD_CODES));
        std::memcpy(row + blocks * PAYLOAD_CODES, scales + r * blocks, (size_t)blocks);
    }
}

void refnum_unpack_payload(const uint8_t* payload, int64_t rows, int64_t blocks, uint8_t* packed, uint8_t* scales) {
    for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* row = payload + r * blocks * PAYLOAD_UNIT;
        std::memcpy(packed + r * blocks * PAYLOAD_CODES, row, (size_t)(blocks * PAYLOAD_CODES));
        std::memcpy(scales + r * blocks, row + blocks * PAYLOAD_CODES, (size_t)blocks);
    }
}

void refnum_permute_pad(const uint8_t* payload, int64_t width, const int64_t* row_map, const int64_t* splits,
                        int64_t experts, int64_t align, uint8_t* out, int64_t* offsets) {
    int64_t start = 0, taken = 0;
    for (int64_t e = 0; e < experts; ++e) {
        const int64_t rows = splits[e], padded = (int64_t)padded_rows((uint64_t)rows, (uint64_t)align);
        offsets[e] = start;
        for (int64_t r = 0; r < rows; ++r) {
            std::memcpy(out + (start + r) * width, payload + row_map[taken + r] * width, (size_t)width);
        }
        std::memset(out + (start + rows) * width, 0, (size_t)((padded - rows) * width));
        start += padded;
        taken += rows;
    }
}

void refnum_permute_unpack(const uint8_t* payload, int64_t blocks, const int64_t* row_map, const int64_t* splits,
                           int64_t experts, int64_t align, uint8_t* packed, uint8_t* scales, int64_t* offsets) {
    const int64_t codes = blocks * PAYLOAD_CODES;
    int64_t start = 0, taken = 0;
    for (int64_t e = 0; e < experts; ++e) {
        const int64_t rows = splits[e], padded = (int64_t)padded_rows((uint64_t)rows, (uint64_t)align);
        offsets[e] = start;
        for (int64_t r = 0; r < rows; ++r) {
            const uint8_t* row = payload + row_map[taken + r] * blocks * PAYLOAD_UNIT;
            std::memcpy(packed + (start + r) * codes, row, (size_t)codes);
            std::memcpy(scales + (start + r) * blocks, row + codes, (size_t)blocks);
        }
        std::memset(packed + (start + rows) * codes, 0, (size_t)((padded - rows) * codes));
        std::memset(scales + (start + rows) * blocks, 0, (size_t)((padded - rows) * blocks));
        start += padded;
        taken += rows;
    }
}

// `seen` (one byte a token) and `out` come in as zeros. Rows are met in expert order, which is each token's order.
void refnum_unpermute(int kind, const void* rows, int64_t width, const int64_t* row_map, const int64_t* splits,
                      int64_t experts, int64_t align, const uint32_t* weights, int64_t tokens, uint8_t* seen,
                      uint32_t* out) {
    int64_t start = 0, taken = 0;
    for (int64_t e = 0; e < experts; ++e) {
        for (int64_t r = 0; r < splits[e]; ++r, ++taken) {
            const int64_t token = row_map[taken];
            uint32_t* sums = out + token * width;
            for (int64_t i = 0; i < width; ++i) {
                const uint32_t x = float_at(rows, kind, (start + r) * width + i);
                sums[i] = weighted_sum(sums[i], weights ? weights[taken] : FLOAT_ONE, x, !seen[token]);
            }
            seen[token] = 1;
        }
        start += (int64_t)padded_rows((uint64_t)splits[e], (uint64_t)align);
    }
    for (int64_t i = 0; i < tokens * width; ++i) out[i] = canonical_float(out[i]);
}

}  // extern "C"
