// Sectors of an output's columns that several CTAs have bytes of: the CTAs of a cluster join them. Device only.
//
// A segment that begins anywhere has parts of the sectors (32 bytes) at its ends. A CTA leaves them in shared memory, in the
// places of its codes, which nobody needs any more: of column c of a group, blocks 4 c and 4 c + 1 hold the first sector,
// 4 c + 2 and 4 c + 3 the last one, with zeros for bytes of others. The CTA that has a sector's first byte stores it whole, joined with
// those that follow it in the cluster. What lies in two clusters leaves by single bytes.
#pragma once

#include "mxfp4_tile.cuh"

namespace refnum {

constexpr bool JOINS = SPLIT >= 5;  // 6: trial, no ends; 7: trial, no joins
#if CLUSTER > 1 && SPLIT == 5 && __CUDA_ARCH__ >= 900 && defined(__CUDACC_RTC__)
constexpr uint32_t JOINED = CLUSTER;
__device__ __forceinline__ uint32_t place_of(const void* local, uint32_t rank) {
    uint32_t out;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"((uint32_t)__cvta_generic_to_shared(local)), "r"(rank));
    return out;
}
__device__ __forceinline__ uint32_t load_from(const uint32_t* local, uint32_t rank) {
    uint32_t out;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(out) : "r"(place_of(local, rank)) : "memory");
    return out;
}
__device__ __forceinline__ uint4 load_from(const uint4* local, uint32_t rank) {
    uint4 out;
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w) : "r"(place_of(local, rank)) : "memory");
    return out;
}
__device__ __forceinline__ void arrive_ends() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void await_ends() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#else
constexpr uint32_t JOINED = 1;
__device__ __forceinline__ uint32_t load_from(const uint32_t* local, uint32_t) { return *local; }
__device__ __forceinline__ uint4 load_from(const uint4* local, uint32_t) { return *local; }
__device__ __forceinline__ void arrive_ends() {}
__device__ __forceinline__ void await_ends() {}
#endif

// The bytes of a CTA's columns, from the first sector that it meets on.
struct Extent {
    uint32_t skew, end;

    __device__ __forceinline__ uint32_t last() const { return end / 32; }
    __device__ __forceinline__ uint32_t left() const { return end % 32; }
    __device__ __forceinline__ bool whole(uint32_t sector) const { return (sector || skew == 0) && 32 * sector + 32 <= end; }
    __device__ __forceinline__ bool first_part() const { return skew || end < 32; }
    __device__ __forceinline__ bool last_part() const { return last() && left(); }
};

// A sector of a warp's columns, its bytes from `from` to `end` from this CTA; `to`: of the first column.
template <class Tile>
__device__ __forceinline__ void join_sector(Tile& rows, const uint32_t& length, uint32_t group, uint32_t piece, uint8_t* to,
                                            offset_t stride, uint32_t from, uint32_t end) {
    const uint32_t lane = threadIdx.x % 32, column = lane / 2, half = lane % 2, rank = blockIdx.x % JOINED;
    uint4 v[2];
#pragma unroll
    for (uint32_t p = 0; p < 2; ++p) v[p] = rows.block(4 * (column + 16 * p) + piece + half, group);
#pragma unroll 1
    for (uint32_t other = rank + 1; end < 32 && other < JOINED; ++other) {
        const uint32_t more = load_from(&length, other);
        if (more == 0) break;
        end += more;
#pragma unroll
        for (uint32_t p = 0; p < 2; ++p) {
            const uint4 w = load_from(&rows.block(4 * (column + 16 * p) + half, group), other);
            v[p] = make_uint4(v[p].x | w.x, v[p].y | w.y, v[p].z | w.z, v[p].w | w.w);
        }
    }
    if (from == 0 && end >= 32) {
#pragma unroll
        for (uint32_t p = 0; p < 2; ++p) {
            const uint32_t w[4] = {v[p].x, v[p].y, v[p].z, v[p].w};
            store<16>(to + (column + 16 * p) * stride + 16 * half, w);
        }
        return;
    }
    __syncwarp();
#pragma unroll
    for (uint32_t p = 0; p < 2; ++p) rows.block(4 * (column + 16 * p) + piece + half, group) = v[p];
    __syncwarp();
    if (lane < from || lane >= end) return;
    to += lane;
#pragma unroll 4
    for (uint32_t c = 0; c < 32; ++c, to += stride) {
        *to = reinterpret_cast<const uint8_t*>(&rows.block(4 * c + piece + lane / 16, group))[lane % 16];
    }
}

// The ends of a group's columns, behind `await_ends`; `to`: the first sector of the first column.
template <class Tile>
__device__ __forceinline__ void join_ends(Tile& rows, const uint32_t& length, uint32_t group, uint8_t* to, offset_t stride,
                                          const Extent& extent) {
    if (SPLIT == 6) return;
    if (extent.first_part() && (extent.skew == 0 || blockIdx.x % JOINED == 0)) {
        join_sector(rows, length, group, 0, to, stride, extent.skew, extent.end);
    }
    if (extent.last_part()) {
        join_sector(rows, length, group, 2, to + 32 * extent.last(), stride, 0, extent.left());
    }
}

}  // namespace refnum
