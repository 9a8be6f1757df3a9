// The conversions of cuda_fp4.h and cuda_fp8.h as device code, and the FP8 instructions that Hopper has, one thread an
// element. Compiled at run time by NVRTC; no arithmetic of this project is in here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

typedef unsigned char u8;
typedef unsigned short u16;

__device__ float widen(float x) { return x; }
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(u16 x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }

#define EACH const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; if (i >= n) return

template <class T> __device__ u8 cvt_e4m3(T x) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(widen(x)));
    return static_cast<u8>(pair);
}

#define ENCODERS(NAME, T)                                                                                             \
    extern "C" __global__ void encode_e2m1_##NAME(const T* x, u8* y, long long n, int) {                              \
        EACH; y[i] = __nv_cvt_float_to_fp4(widen(x[i]), __NV_E2M1, cudaRoundNearest);                                 \
    }                                                                                                                 \
    extern "C" __global__ void encode_e4m3_##NAME(const T* x, u8* y, long long n, int saturate) {                     \
        EACH; y[i] = __nv_cvt_float_to_fp8(widen(x[i]), saturate ? __NV_SATFINITE : __NV_NOSAT, __NV_E4M3);           \
    }                                                                                                                 \
    extern "C" __global__ void encode_e8m0_##NAME(const T* x, u8* y, long long n, int mode) {                         \
        EACH;                                                                                                         \
        y[i] = __nv_cvt_float_to_e8m0(widen(x[i]), mode & 1 ? __NV_SATFINITE : __NV_NOSAT,                            \
                                      mode & 2 ? cudaRoundZero : cudaRoundPosInf);                                    \
    }                                                                                                                 \
    extern "C" __global__ void cvt_e4m3_##NAME(const T* x, u8* y, long long n, int) {                                 \
        EACH; y[i] = cvt_e4m3(x[i]);                                                                                  \
    }
ENCODERS(float32, float)
ENCODERS(float16, __half)
ENCODERS(bfloat16, u16)

extern "C" __global__ void decode_e2m1(const u8* x, float* y, long long n, int) {
    EACH; y[i] = __half2float(__half(__nv_cvt_fp4_to_halfraw(x[i], __NV_E2M1)));
}
extern "C" __global__ void decode_e4m3(const u8* x, float* y, long long n, int) {
    EACH; y[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(x[i], __NV_E4M3)));
}
extern "C" __global__ void decode_e8m0(const u8* x, float* y, long long n, int) {
    EACH; y[i] = __bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(x[i])));
}
extern "C" __global__ void cvt_from_e4m3(const u8* x, float* y, long long n, int) {
    EACH;
    unsigned halves;
    const u16 pair = x[i];
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    y[i] = __half2float(__half(__half_raw{static_cast<u16>(halves & 0xFFFFu)}));
}
