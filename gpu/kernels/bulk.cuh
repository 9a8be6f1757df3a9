// Copies from global into shared memory that pass no registers. Each function is one instruction; the copies of a
// thread are complete after its `wait_copies`, those of other threads after a barrier behind that.
#pragma once

#include "words.cuh"

namespace refnum {

__device__ __forceinline__ uint32_t shared_address(void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 16 bytes between multiples of 16; zeros if they do not exist, and then nothing is read.
__device__ __forceinline__ void copy_16(void* to, const uint8_t* from, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// 8 bytes between multiples of 8, likewise.
__device__ __forceinline__ void copy_8(void* to, const uint8_t* from, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 8 : 0) : "memory");
}

// 4 bytes between multiples of 4, likewise.
__device__ __forceinline__ void copy_4(void* to, const uint8_t* from, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 4 : 0) : "memory");
}

__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace refnum
