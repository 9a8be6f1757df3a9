/* MXFP4 dequantiser with a plain C interface; it needs nothing of refnum. */
#include <stdint.h>

/* float32 bits of an E2M1 code times 2^(scale - 127); every product is exact, and a NaN scale gives NaN. */
static uint32_t decode(unsigned code, unsigned scale) {
    static const int exponent[8] = {0, -1, 0, 0, 1, 1, 2, 2}, half[8] = {0, 0, 0, 1, 0, 1, 0, 1};
    const uint32_t sign = (uint32_t)(code & 8) << 28, magnitude = code & 7;
    if (scale == 255) return 0x7FC00000;
    if (magnitude == 0) return sign;
    const int field = (int)scale + exponent[magnitude]; /* exponent field of the product */
    if (field > 254) return sign | 0x7F800000;
    const uint32_t significand = 0x800000 | (uint32_t)half[magnitude] << 22;
    return sign | (field > 0 ? (uint32_t)field << 23 | (significand & 0x7FFFFF) : significand >> (1 - field));
}

/* dtype is the place of the choice: 0 float32, 1 bfloat16. 0: done; 1: this case is not supported. */
int dequantize(const uint8_t *packed, const uint8_t *scales, int64_t rows, int64_t bytes, int32_t dtype, void *values) {
    if (dtype > 1) return 1;
    for (int64_t i = 0; i < rows * bytes * 2; i++) {
        const uint32_t bits = decode(packed[i / 2] >> 4 * (i % 2) & 15, scales[i / 32]);
        if (dtype == 0) ((uint32_t *)values)[i] = bits;
        else ((uint16_t *)values)[i] = (uint16_t)(bits >> 16);
    }
    return 0;
}

/* A function without a status: 16 bytes of codes and a scale byte become 17 bytes, block by block of a row. */
void pack(const uint8_t *packed, const uint8_t *scales, int64_t rows, int64_t blocks, uint8_t *payload) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < 17 * blocks; i++)
            payload[17 * blocks * row + i] =
                i < 16 * blocks ? packed[16 * blocks * row + i] : scales[blocks * row + i - 16 * blocks];
}
