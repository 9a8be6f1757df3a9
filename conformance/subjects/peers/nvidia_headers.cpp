// A thin door to the conversions of NVIDIA's cuda_fp4.h, cuda_fp6.h and cuda_fp8.h as the host compiler sees them.
// It adds loops over arrays and the textbook block quantiser; every conversion is the headers' own.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

namespace {

enum Input { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };
enum Target { E2M1 = 0, E2M3 = 1, E3M2 = 2, E4M3 = 3, E5M2 = 4, E8M0 = 5 };

// How to convert: `zero` rounds toward zero instead of nearest (E8M0: instead of up), `saturate` is __NV_SATFINITE,
// `nearest` rounds E8M0 to nearest, which older headers do not offer.
struct Mode {
    bool zero, saturate, nearest;
    explicit Mode(int bits) : zero(bits & 1), saturate(bits & 2), nearest(bits & 4) {}
    cudaRoundMode element() const { return zero ? cudaRoundZero : cudaRoundNearest; }
    cudaRoundMode scale() const { return nearest ? cudaRoundNearest : zero ? cudaRoundZero : cudaRoundPosInf; }
    __nv_saturation_t range() const { return saturate ? __NV_SATFINITE : __NV_NOSAT; }
};

float as_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t as_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof x);
    return bits;
}

template <Target target>
uint8_t convert(float x, Mode mode) {
    if constexpr (target == E2M1) return __nv_cvt_float_to_fp4(x, __NV_E2M1, mode.element());
    if constexpr (target == E2M3) return __nv_cvt_float_to_fp6(x, __NV_E2M3, mode.element());
    if constexpr (target == E3M2) return __nv_cvt_float_to_fp6(x, __NV_E3M2, mode.element());
    if constexpr (target == E4M3) return __nv_cvt_float_to_fp8(x, mode.range(), __NV_E4M3);
    if constexpr (target == E5M2) return __nv_cvt_float_to_fp8(x, mode.range(), __NV_E5M2);
    return __nv_cvt_float_to_e8m0(x, mode.range(), mode.scale());
}

template <Target target>
uint8_t convert(__nv_bfloat16_raw x, Mode mode) {
    if constexpr (target == E2M1) return __nv_cvt_bfloat16raw_to_fp4(x, __NV_E2M1, mode.element());
    if constexpr (target == E2M3) return __nv_cvt_bfloat16raw_to_fp6(x, __NV_E2M3, mode.element());
    if constexpr (target == E3M2) return __nv_cvt_bfloat16raw_to_fp6(x, __NV_E3M2, mode.element());
    if constexpr (target == E4M3) return __nv_cvt_bfloat16raw_to_fp8(x, mode.range(), __NV_E4M3);
    if constexpr (target == E5M2) return __nv_cvt_bfloat16raw_to_fp8(x, mode.range(), __NV_E5M2);
    return __nv_cvt_bfloat16raw_to_e8m0(x, mode.range(), mode.scale());
}

template <Target target>
uint8_t convert(__half_raw x, Mode mode) {
    if constexpr (target == E2M1) return __nv_cvt_halfraw_to_fp4(x, __NV_E2M1, mode.element());
    if constexpr (target == E2M3) return __nv_cvt_halfraw_to_fp6(x, __NV_E2M3, mode.element());
    if constexpr (target == E3M2) return __nv_cvt_halfraw_to_fp6(x, __NV_E3M2, mode.element());
    if constexpr (target == E4M3) return __nv_cvt_halfraw_to_fp8(x, mode.range(), __NV_E4M3);
    if constexpr (target == E5M2) return __nv_cvt_halfraw_to_fp8(x, mode.range(), __NV_E5M2);
    return __nv_cvt_float_to_e8m0(__internal_halfraw_to_float(x), mode.range(), mode.scale());
}

// Calls `body` with the target as a compile-time constant.
template <typename Body>
int dispatch(int target, Body body) {
    switch (target) {
        case E2M1: body.template operator()<E2M1>(); return 0;
        case E2M3: body.template operator()<E2M3>(); return 0;
        case E3M2: body.template operator()<E3M2>(); return 0;
        case E4M3: body.template operator()<E4M3>(); return 0;
        case E5M2: body.template operator()<E5M2>(); return 0;
        case E8M0: body.template operator()<E8M0>(); return 0;
        default: return 1;
    }
}

struct Encode {
    int input;
    const void* x;
    uint8_t* codes;
    int64_t count;
    Mode mode;
    template <Target target>
    void operator()() const {
        for (int64_t i = 0; i < count; ++i) {
            if (input == FLOAT32) {
                codes[i] = convert<target>(static_cast<const float*>(x)[i], mode);
            } else if (input == BFLOAT16) {
                codes[i] = convert<target>(__nv_bfloat16_raw{static_cast<const uint16_t*>(x)[i]}, mode);
            } else {
                codes[i] = convert<target>(__half_raw{static_cast<const uint16_t*>(x)[i]}, mode);
            }
        }
    }
};

// Codes of the float32 patterns first, first + 1, ...: a sweep needs no input array.
struct Sweep {
    uint32_t first;
    uint8_t* codes;
    int64_t count;
    Mode mode;
    template <Target target>
    void operator()() const {
        for (int64_t i = 0; i < count; ++i) codes[i] = convert<target>(as_float(first + uint32_t(i)), mode);
    }
};

struct Decode {
    const uint8_t* codes;
    float* values;
    int64_t count;
    template <Target target>
    void operator()() const {
        for (int64_t i = 0; i < count; ++i) {
            const uint8_t code = codes[i];
            if constexpr (target == E2M1) {
                values[i] = __internal_halfraw_to_float(__nv_cvt_fp4_to_halfraw(code, __NV_E2M1));
            } else if constexpr (target == E2M3) {
                values[i] = __internal_halfraw_to_float(__nv_cvt_fp6_to_halfraw(code, __NV_E2M3));
            } else if constexpr (target == E3M2) {
                values[i] = __internal_halfraw_to_float(__nv_cvt_fp6_to_halfraw(code, __NV_E3M2));
            } else if constexpr (target == E4M3) {
                values[i] = __internal_halfraw_to_float(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
            } else if constexpr (target == E5M2) {
                values[i] = __internal_halfraw_to_float(__nv_cvt_fp8_to_halfraw(code, __NV_E5M2));
            } else {
                values[i] = as_float(uint32_t(__nv_cvt_e8m0_to_bf16raw(code).x) << 16);
            }
        }
    }
};

// The block quantiser a kernel author writes from these headers: scale = E8M0 of amax / maximum rounded up, element
// = conversion of x times the reciprocal of the scale. A NaN survives the maximum.
struct Quantize {
    const float* x;
    uint8_t *codes, *scales;
    int64_t blocks;
    float maximum;
    Mode mode;
    template <Target target>
    void operator()() const {
        for (int64_t block = 0; block < blocks; ++block) {
            const float* in = x + 32 * block;
            uint32_t amax = 0;
            for (int i = 0; i < 32; ++i) {
                const uint32_t magnitude = as_bits(in[i]) & 0x7FFFFFFFu;
                amax = magnitude > amax ? magnitude : amax;
            }
            const uint8_t scale = convert<E8M0>(as_float(amax) / maximum, mode);
            const float reciprocal =
                scale == 255 ? as_float(0x7FFFFFFFu) : as_float(scale == 254 ? 0x00400000u : uint32_t(254 - scale) << 23);
            scales[block] = scale;
            for (int i = 0; i < 32; ++i) codes[32 * block + i] = convert<target>(in[i] * reciprocal, Mode(2));
        }
    }
};

}  // namespace

extern "C" {

int encode(int target, int mode, int input, const void* x, uint8_t* codes, int64_t count) {
    return dispatch(target, Encode{input, x, codes, count, Mode(mode)});
}

int encode_patterns(int target, int mode, uint32_t first, uint8_t* codes, int64_t count) {
    return dispatch(target, Sweep{first, codes, count, Mode(mode)});
}

int decode(int target, const uint8_t* codes, float* values, int64_t count) {
    return dispatch(target, Decode{codes, values, count});
}

int quantize(int target, int mode, const float* x, float maximum, uint8_t* codes, uint8_t* scales, int64_t blocks) {
    return target == E8M0 ? 1 : dispatch(target, Quantize{x, codes, scales, blocks, maximum, Mode(mode)});
}

// Scales alone, for the amax patterns first, first + 1, ...
int scale_patterns(int mode, float maximum, uint32_t first, uint8_t* scales, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        scales[i] = convert<E8M0>(as_float(first + uint32_t(i)) / maximum, Mode(mode));
    }
    return 0;
}

int header_version() { return CUDART_VERSION; }

}  // extern "C"
