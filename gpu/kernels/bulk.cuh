// Copies from global into shared memory that pass no registers. Each function is one instruction; the copies of a
// thread are complete after its `wait_copies`, those of other threads after a barrier behind that.
#pragma once

#include "words.cuh"

namespace refnum {

__device__ __forceinline__ uint32_t shared_address(void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// For copies of what other CTAs read again: L2 gives such lines up last. A whole warp makes it ahead of all branches,
// since the copies take it from a register that the warp's threads share.
__device__ __forceinline__ uint64_t keep_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// 16 bytes between multiples of 16; zeros if they do not exist, and then nothing is read.
__device__ __forceinline__ void copy_16(void* to, const uint8_t* from, bool exists) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// 8 bytes between multiples of 8, likewise, under a policy.
__device__ __forceinline__ void copy_8(void* to, const uint8_t* from, bool exists, uint64_t policy) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %2, %3;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 8 : 0), "l"(policy) : "memory");
}

// 4 bytes between multiples of 4, likewise.
__device__ __forceinline__ void copy_4(void* to, const uint8_t* from, bool exists, uint64_t policy) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2, %3;"
                 :: "r"(shared_address(to)), "l"(from), "r"(exists ? 4 : 0), "l"(policy) : "memory");
}

__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace refnum
