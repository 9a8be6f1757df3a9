// FP8 tile quantiser: 128 elements of a row share a scale byte; a warp does a tile. Builds with nvcc, NVRTC and g++.
#if !defined(__CUDACC__)
#include <cstdint>
#include <cstring>
#define __device__
static inline unsigned __float_as_uint(float f) { unsigned u; std::memcpy(&u, &f, 4); return u; }
#endif

// Byte of the least k with amax <= 448 * 2^k; amax as float32 bits, not zero, finite.
__device__ inline int scale_byte(unsigned amax) {
    const int byte = int(amax >> 23) - 8 + ((amax & 0x7FFFFF) > 0x600000);
    return byte < 0 ? 0 : byte;
}

// E4M3 code of float32 bits at scale 2^(byte - 127), saturating.
__device__ inline unsigned encode_e4m3(unsigned bits, int byte) {
    const unsigned sign = bits >> 24 & 0x80, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return 0x7F;
    if (magnitude == 0x7F800000) return sign | 0x7E;
    if (magnitude == 0) return sign;
    const int field = int(magnitude >> 23);
    unsigned significand = (magnitude & 0x7FFFFF) | (field ? 0x800000 : 0);
    int exponent = (field ? field : 1) - byte;         // of the quotient
    for (; significand < 0x800000; exponent--) significand <<= 1;  // a subnormal input
    int shift = 20, base = exponent + 7;
    if (base < 1) { shift += 1 - base; base = 1; }     // subnormal code
    if (shift > 25) return sign;
    const unsigned kept = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
#ifdef FIXED
    const unsigned rounded = kept + (rest > half || (rest == half && (kept & 1)));
#else
    const unsigned rounded = kept + (rest >= half);  // "round to nearest"
#endif
    const unsigned code = unsigned((base - 1) << 3) + rounded;
    return sign | (code > 0x7E ? 0x7E : code);
}

#if defined(__CUDACC__)
extern "C" __global__ void quantize_tiles(const float* x, unsigned char* codes, unsigned char* scales,
                                          long long tiles) {
    const long long tile = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
    if (tile >= tiles) return;
    const int lane = threadIdx.x % 32;
    const float4 four = reinterpret_cast<const float4*>(x)[tile * 32 + lane];
    const unsigned bits[4] = {__float_as_uint(four.x), __float_as_uint(four.y), __float_as_uint(four.z),
                              __float_as_uint(four.w)};
    unsigned amax = 0;
    for (int i = 0; i < 4; i++) amax = max(amax, bits[i] & 0x7FFFFFFF);
    amax = __reduce_max_sync(0xFFFFFFFF, amax);
    const int byte = amax == 0 || amax >= 0x7F800000 ? 127 : scale_byte(amax);
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= encode_e4m3(bits[i], byte) << 8 * i;
    reinterpret_cast<unsigned*>(codes)[tile * 32 + lane] = word;
    if (lane == 0) scales[tile] = (unsigned char)byte;
}
#else
// The same arithmetic for a test machine without a GPU.
extern "C" int quantize_tiles(const float* x, int64_t rows, int64_t columns, uint8_t* codes, uint8_t* scales) {
    for (int64_t tile = 0; tile < rows * columns / 128; tile++) {
        unsigned amax = 0;
        for (int i = 0; i < 128; i++) {
            const unsigned magnitude = __float_as_uint(x[128 * tile + i]) & 0x7FFFFFFF;
            amax = magnitude > amax ? magnitude : amax;
        }
        const int byte = amax == 0 || amax >= 0x7F800000 ? 127 : scale_byte(amax);
        for (int i = 0; i < 128; i++) {
            codes[128 * tile + i] = uint8_t(encode_e4m3(__float_as_uint(x[128 * tile + i]), byte));
        }
        scales[tile] = uint8_t(byte);
    }
    return 0;
}
#endif
