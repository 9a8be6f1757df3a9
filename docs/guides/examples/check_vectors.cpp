// Judges a C++ MXFP4 quantiser with the frozen vectors: includes the exported headers, compares bytes, needs no Python.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "refnum_quantize_mxfp4_HOPPER.h"

// The kernel under test: x is a row-major matrix of values; all steps are exact in double.
static void quantize(const std::vector<double>& x, std::vector<uint8_t>& packed, std::vector<uint8_t>& scales) {
    static const double midpoint[7] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0};
    packed.assign(x.size() / 2, 0);
    scales.assign(x.size() / 32, 0);
    for (size_t block = 0; block < scales.size(); block++) {
        const double* lane = &x[32 * block];
        double amax = 0;
        bool finite = true;
        for (int i = 0; i < 32; i++) {
            finite = finite && std::isfinite(lane[i]);
            amax = std::fmax(amax, std::fabs(lane[i]));
        }
        int exponent = 0;
        const double significand = finite ? std::frexp(amax, &exponent) : 0;
        const int k = exponent - 3 + (significand > 0.75);  // least k with amax <= 6 * 2^k
        const int byte = amax == 0 ? 0 : k < -127 ? 0 : k + 127;
        scales[block] = finite ? byte : 255;
        for (int i = 0; finite && i < 32; i++) {
            const double q = std::ldexp(std::fabs(lane[i]), 127 - byte);
            int code = 0;
            for (int m = 0; m < 7; m++) code += q > midpoint[m] || (q == midpoint[m] && m % 2);  // ties to even
            code |= std::signbit(lane[i]) ? 8 : 0;
            packed[16 * block + i / 2] |= code << 4 * (i % 2);
        }
    }
}

static double value(const refnum_array& x, size_t i) {
    const bool wide = !std::strcmp(x.dtype, "float32");
    const uint32_t bits = wide ? ((const uint32_t*)x.data)[i] : (uint32_t)((const uint16_t*)x.data)[i] << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

int main() {
    int judged = 0, wrong = 0;
    for (size_t v = 0; v < refnum_quantize_mxfp4_HOPPER_count; v++) {
        const refnum_vector& vector = refnum_quantize_mxfp4_HOPPER[v];
        const refnum_array& x = vector.inputs[0];
        if (!std::strcmp(x.dtype, "float16")) continue;  // this kernel takes float32 and bfloat16
        std::vector<double> values(x.count);
        for (size_t i = 0; i < x.count; i++) values[i] = value(x, i);
        std::vector<uint8_t> packed, scales;
        quantize(values, packed, scales);
        const bool same = !std::memcmp(packed.data(), vector.outputs[0].data, packed.size()) &&
                          !std::memcmp(scales.data(), vector.outputs[1].data, scales.size());
        if (!same) std::printf("wrong: %s  %s  (hunts: %s)\n", vector.id, vector.comment, vector.flags);
        judged++;
        wrong += !same;
    }
    std::printf("%d vectors, %d wrong\n", judged, wrong);
    return wrong != 0 || judged == 0;
}
