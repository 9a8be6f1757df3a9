// CUDA's words for an emulated kernel: read before every kernel file. An intrinsic that is not here does not compile.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>

#include "engine.hpp"
#include "ptx.hpp"

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__ inline
#define __constant__ static
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __restrict__

#define threadIdx (::emulation::place.thread)
#define blockIdx (::emulation::place.block)
#define blockDim (::emulation::place.block_size)
#define gridDim (::emulation::place.grid)

// Makes the function that the engine calls for kernel `name`.
#define EMULATED_ENTRY(name)                                                                            \
    extern "C" __attribute__((visibility("default"))) void emulated_##name(const void* arguments) {    \
        ::emulation::start(name, arguments);                                                             \
    }
namespace emulation {
template <class Arguments>
inline void start(void (*kernel)(Arguments), const void* arguments) {
    kernel(*static_cast<const Arguments*>(arguments));
}

template <class To, class From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a register keeps its size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
template <class T>
inline uint64_t widened(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "warp-wide operations exchange words of 4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return same_bits<uint32_t>(value);
    else return same_bits<uint64_t>(value);
}
template <class T>
inline T narrowed(uint64_t value) {
    if constexpr (sizeof(T) == 4) return same_bits<T>((uint32_t)value);
    else return same_bits<T>(value);
}
// The value of lane `from` among `width` lanes, or the caller's own where `from` is outside.
template <class T>
inline T shuffle(uint32_t mask, T value, int from, int width, bool inside) {
    Seen seen;
    meet(Meeting::SHUFFLE, mask, widened(value), seen);
    const int self = (int)lane(), first = self / width * width;
    return inside ? narrowed<T>(seen[(first + from) & 31]) : value;
}
template <class T, class F>
inline T reduce(uint32_t mask, T value, F combine) {
    Seen seen;
    meet(Meeting::REDUCE, mask, widened(value), seen);
    bool some = false;
    T all = value;
    for (int i = 0; i < 32; ++i) {
        if (!(mask >> i & 1)) continue;
        all = some ? combine(all, narrowed<T>(seen[i])) : narrowed<T>(seen[i]);
        some = true;
    }
    return all;
}
inline uint32_t votes(Meeting kind, uint32_t mask, bool vote) {
    Seen seen;
    meet(kind, mask, vote, seen);
    uint32_t all = 0;
    for (int i = 0; i < 32; ++i) all |= (mask >> i & 1 ? (uint32_t)(seen[i] & 1) : 0u) << i;
    return all;
}
template <class T>
inline T loaded(const T* p) {
    check((uintptr_t)p, sizeof(T), Access::LOAD, true);
    T value;
    copy(&value, p, sizeof value);
    return value;
}
template <class T>
inline void stored(T* p, T value) {
    check((uintptr_t)p, sizeof(T), Access::STORE, true);
    copy(p, &value, sizeof value);
}
template <class T, class F>
inline T atomic(T* p, F change) {
    check((uintptr_t)p, sizeof(T), Access::ATOMIC, true);
    T old, next;
    copy(&old, p, sizeof old);
    next = change(old);
    copy(p, &next, sizeof next);
    return old;
}
template <class F>
inline uint32_t by_halves(uint32_t a, uint32_t b, F f) {
    return (uint32_t)(uint16_t)f((uint16_t)a, (uint16_t)b) | (uint32_t)(uint16_t)f((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
}
}  // namespace emulation

// Vectors: aligned to their size, so that the compiler's own check sees a misaligned one.
#define EMULATED_VECTORS(type, name)                                          \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                   \
    struct name##3 { type x, y, z; };                                          \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }           \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATED_VECTORS(unsigned char, uchar)
EMULATED_VECTORS(unsigned short, ushort)
EMULATED_VECTORS(unsigned int, uint)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(unsigned long long, ulonglong)
EMULATED_VECTORS(long long, longlong)

// Memory.
template <class T> inline T __ldg(const T* p) { return emulation::loaded(p); }
template <class T> inline T __ldcs(const T* p) { return emulation::loaded(p); }
template <class T> inline T __ldcg(const T* p) { return emulation::loaded(p); }
template <class T> inline void __stcs(T* p, T value) { emulation::stored(p, value); }
template <class T> inline void __stcg(T* p, T value) { emulation::stored(p, value); }
template <class T, class U> inline T atomicAdd(T* p, U v) { return emulation::atomic(p, [=](T old) { return (T)(old + (T)v); }); }
template <class T, class U> inline T atomicMax(T* p, U v) { return emulation::atomic(p, [=](T old) { return old > (T)v ? old : (T)v; }); }
template <class T, class U> inline T atomicMin(T* p, U v) { return emulation::atomic(p, [=](T old) { return old < (T)v ? old : (T)v; }); }
template <class T, class U> inline T atomicOr(T* p, U v) { return emulation::atomic(p, [=](T old) { return (T)(old | (T)v); }); }
template <class T, class U> inline T atomicAnd(T* p, U v) { return emulation::atomic(p, [=](T old) { return (T)(old & (T)v); }); }
template <class T, class U> inline T atomicExch(T* p, U v) { return emulation::atomic(p, [=](T) { return (T)v; }); }
template <class T, class U, class V> inline T atomicCAS(T* p, U was, V v) { return emulation::atomic(p, [=](T old) { return old == (T)was ? (T)v : old; }); }
inline size_t __cvta_generic_to_shared(const void* p) { return emulation::shared_address(p); }
inline void __threadfence() {}
inline void __threadfence_block() {}

// Barriers and exchanges.
inline void __syncthreads() { emulation::barrier(); }
inline int __syncthreads_count(int vote) { return (int)emulation::barrier(vote != 0); }
inline int __syncthreads_or(int vote) { return emulation::barrier(vote != 0) != 0; }
inline int __syncthreads_and(int vote) { return emulation::barrier(vote == 0) == 0; }
inline void __syncwarp(uint32_t mask = ~0u) {
    emulation::Seen seen;
    emulation::meet(emulation::Meeting::SYNC, mask, 0, seen, true);
}
template <class T> inline T __shfl_sync(uint32_t mask, T v, int from, int width = 32) { return emulation::shuffle(mask, v, from & (width - 1), width, true); }
template <class T> inline T __shfl_xor_sync(uint32_t mask, T v, int d, int width = 32) {
    const int self = (int)emulation::lane() % width;
    return emulation::shuffle(mask, v, self ^ d, width, (self ^ d) < width);
}
template <class T> inline T __shfl_up_sync(uint32_t mask, T v, unsigned d, int width = 32) {
    const int self = (int)emulation::lane() % width;
    return emulation::shuffle(mask, v, self - (int)d, width, self >= (int)d);
}
template <class T> inline T __shfl_down_sync(uint32_t mask, T v, unsigned d, int width = 32) {
    const int self = (int)emulation::lane() % width;
    return emulation::shuffle(mask, v, self + (int)d, width, self + (int)d < width);
}
inline uint32_t __ballot_sync(uint32_t mask, int vote) { return emulation::votes(emulation::Meeting::BALLOT, mask, vote != 0); }
inline int __any_sync(uint32_t mask, int vote) { return emulation::votes(emulation::Meeting::ANY, mask, vote != 0) != 0; }
inline int __all_sync(uint32_t mask, int vote) { return emulation::votes(emulation::Meeting::ALL, mask, vote == 0) == 0; }
template <class T> inline T __reduce_max_sync(uint32_t mask, T v) { return emulation::reduce(mask, v, [](T a, T b) { return a > b ? a : b; }); }
template <class T> inline T __reduce_min_sync(uint32_t mask, T v) { return emulation::reduce(mask, v, [](T a, T b) { return a < b ? a : b; }); }
template <class T> inline T __reduce_add_sync(uint32_t mask, T v) { return emulation::reduce(mask, v, [](T a, T b) { return (T)(a + b); }); }
template <class T> inline T __reduce_or_sync(uint32_t mask, T v) { return emulation::reduce(mask, v, [](T a, T b) { return (T)(a | b); }); }
template <class T> inline T __reduce_and_sync(uint32_t mask, T v) { return emulation::reduce(mask, v, [](T a, T b) { return (T)(a & b); }); }
inline uint32_t __activemask() { emulation::fail("__activemask: which lanes run together is not defined"); }

// Words.
inline uint32_t __float_as_uint(float x) { return emulation::same_bits<uint32_t>(x); }
inline int __float_as_int(float x) { return emulation::same_bits<int>(x); }
inline float __uint_as_float(uint32_t x) { return emulation::same_bits<float>(x); }
inline float __int_as_float(int x) { return emulation::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulation::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulation::same_bits<double>(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline uint32_t __brev(uint32_t x) {
    uint32_t out = 0;
    for (int i = 0; i < 32; ++i) out |= (x >> i & 1) << (31 - i);
    return out;
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) { return emulation::byte_permute(low, high, selector & 0x7777); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t n) { return (uint32_t)((((uint64_t)high << 32 | low) << (n & 31)) >> 32); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t n) { return (uint32_t)(((uint64_t)high << 32 | low) >> (n & 31)); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }
inline uint32_t __vmaxu2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return x > y ? x : y; }); }
inline uint32_t __vminu2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return x < y ? x : y; }); }
inline uint32_t __vmaxs2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return (int16_t)x > (int16_t)y ? x : y; }); }
inline uint32_t __vmins2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return (int16_t)x < (int16_t)y ? x : y; }); }
inline uint32_t __vadd2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return x + y; }); }
inline uint32_t __vsub2(uint32_t a, uint32_t b) { return emulation::by_halves(a, b, [](uint16_t x, uint16_t y) { return x - y; }); }
inline uint32_t __vimax3_u16x2(uint32_t a, uint32_t b, uint32_t c) { return __vmaxu2(__vmaxu2(a, b), c); }
inline uint32_t __vimin3_s16x2(uint32_t a, uint32_t b, uint32_t c) { return __vmins2(__vmins2(a, b), c); }
inline uint32_t __vimin3_u16x2(uint32_t a, uint32_t b, uint32_t c) { return __vminu2(__vminu2(a, b), c); }
// a + b wraps in its 16 bits, as the instruction's does.
inline uint32_t __viaddmax_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) { return __vmaxs2(__vmaxs2(__vadd2(a, b), c), 0); }
inline uint32_t __viaddmin_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) { return __vmaxs2(__vmins2(__vadd2(a, b), c), 0); }
inline uint32_t __viaddmax_s16x2(uint32_t a, uint32_t b, uint32_t c) { return __vmaxs2(__vadd2(a, b), c); }
inline uint32_t __viaddmax_u16x2(uint32_t a, uint32_t b, uint32_t c) { return __vmaxu2(__vadd2(a, b), c); }
inline uint32_t __viaddmin_u16x2(uint32_t a, uint32_t b, uint32_t c) { return __vminu2(__vadd2(a, b), c); }
inline uint32_t __viaddmax_u32(uint32_t a, uint32_t b, uint32_t c) { return a + b > c ? a + b : c; }
inline uint32_t __viaddmin_u32(uint32_t a, uint32_t b, uint32_t c) { return a + b < c ? a + b : c; }
inline float __fmul_rn(float a, float b) { return emulation::cuda_nan(a * b); }
inline float __fadd_rn(float a, float b) { return emulation::cuda_nan(a + b); }
inline float __fsub_rn(float a, float b) { return emulation::cuda_nan(a - b); }
inline float __fdiv_rn(float a, float b) { return emulation::cuda_nan(a / b); }
inline float __double2float_rn(double x) { return (float)x; }
inline float __double2float_rz(double x) {
    const float nearest = (float)x;
    return __builtin_fabs((double)nearest) > __builtin_fabs(x) ? __builtin_nextafterf(nearest, 0) : nearest;
}

#define EMULATED_MINMAX(A, B, R)                                    \
    inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; } \
    inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }
EMULATED_MINMAX(int, int, int)
EMULATED_MINMAX(unsigned, unsigned, unsigned)
EMULATED_MINMAX(int, unsigned, unsigned)
EMULATED_MINMAX(unsigned, int, unsigned)
EMULATED_MINMAX(long, long, long)
EMULATED_MINMAX(unsigned long, unsigned long, unsigned long)
EMULATED_MINMAX(long long, long long, long long)
EMULATED_MINMAX(unsigned long long, unsigned long long, unsigned long long)
