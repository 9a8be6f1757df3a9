// MXFP4 dequantiser for a GPU with a plain C interface; it needs nothing of refnum. Pointers are device pointers.
#include <cuda_runtime.h>
#include <stdint.h>

// float32 bits of an E2M1 code times 2^(scale - 127); every product is exact, and a NaN scale gives NaN.
__device__ uint32_t decode(unsigned code, unsigned scale) {
    const int exponent = code & 6 ? (int)(code >> 1 & 3) - 1 : -1, half = code & 1 && code & 6;
    const uint32_t sign = (uint32_t)(code & 8) << 28;
    if (scale == 255) return 0x7FC00000;
    if ((code & 7) == 0) return sign;
    const int field = (int)scale + exponent;  // exponent field of the product
    if (field > 254) return sign | 0x7F800000;
    const uint32_t significand = 0x800000 | (uint32_t)half << 22;
    return sign | (field > 0 ? (uint32_t)field << 23 | (significand & 0x7FFFFF) : significand >> (1 - field));
}

__global__ void decode_all(const uint8_t *packed, const uint8_t *scales, int64_t count, int wide, void *values) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const uint32_t bits = decode(packed[i / 2] >> 4 * (i % 2) & 15, scales[i / 32]);
        if (wide) ((uint32_t *)values)[i] = bits;
        else ((uint16_t *)values)[i] = (uint16_t)(bits >> 16);
    }
}

__global__ void pack_all(const uint8_t *packed, const uint8_t *scales, int64_t rows, int64_t blocks, uint8_t *payload) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, width = 17 * blocks;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * width; i += step) {
        const int64_t row = i / width, place = i % width;
        payload[i] = place < 16 * blocks ? packed[16 * blocks * row + place] : scales[blocks * row + place - 16 * blocks];
    }
}

static int blocks_of(int64_t count) { return (int)((count + 255) / 256 < 4096 ? (count + 255) / 256 : 4096); }

// dtype is the place of the choice: 0 float32, 1 bfloat16. 0: launched; 1: this case is not supported; else an error.
extern "C" int dequantize(const uint8_t *packed, const uint8_t *scales, int64_t rows, int64_t bytes, int32_t dtype,
                          void *values, void *stream) {
    const int64_t count = rows * bytes * 2;
    if (dtype > 1) return 1;
    if (count == 0) return 0;
    decode_all<<<blocks_of(count), 256, 0, (cudaStream_t)stream>>>(packed, scales, count, dtype == 0, values);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}

// A function without a status: 16 bytes of codes and a scale byte become 17 bytes of a row.
extern "C" void pack(const uint8_t *packed, const uint8_t *scales, int64_t rows, int64_t blocks, uint8_t *payload) {
    if (rows * blocks) pack_all<<<blocks_of(17 * rows * blocks), 256>>>(packed, scales, rows, blocks, payload);
}
