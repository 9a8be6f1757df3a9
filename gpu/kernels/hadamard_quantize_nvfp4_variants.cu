// Float [M, K] -> NVFP4 of its rotated groups in any order of operations, to nearest or by random bytes (clause N22.6):
// what hadamard_quantize_nvfp4.cu does not have. A thread has a whole rotated group.
#include "gathered_codes.cuh"
#include "nvfp4_table.cuh"
#include "rotated_codes.cuh"

namespace refnum {

// gpu/ops/hadamard.py has its mirror.
struct RotatedVariantArguments {
    RotationArguments rotation;
    RandomBits random;  // one byte a code
};

// A group's random bytes from memory, asked for before they are needed. `line`, `group`: its place in the result.
template <bool random>
__device__ __forceinline__ void ask_bytes(const RotatedVariantArguments& s, uint64_t line, uint32_t group,
                                          uint32_t (&drawn)[4]) {
    if (random && s.random.rounding == DRAWN) {
        load<GROUP>(s.random.bytes + line * s.random.stride + (uint64_t)group * GROUP, s.random.aligned, drawn);
    }
}
// A rotated group -> two packed words; returns the code of its scale.
template <bool random>
__device__ __forceinline__ uint32_t quantize_group(const RotatedVariantArguments& s, const SharedScale& shared,
                                                   const uint32_t* words, uint64_t line, uint32_t group,
                                                   uint32_t (&drawn)[4], uint32_t* packed) {
    uint32_t w[1][GROUP / 2];
#pragma unroll
    for (int i = 0; i < GROUP / 2; ++i) w[0][i] = words[i];
    bool odd[1];
    const uint32_t most = nvfp4_maximum<BFLOAT16>(w[0], odd[0]), code = shared.code_of<BFLOAT16, 1>(w, odd, 1, most);
    const uint64_t block = line * s.rotation.columns + group;
    shared.codes_of<BFLOAT16, random>(w[0], shared.table[code], odd[0], most, s.random, block, drawn, packed);
    return code;
}

// The thread's rotated group by way of `tile`, whose groups in shared memory are not needed any more.
__device__ __forceinline__ void gather_group(const TileThread& tile, const TileSums& sums, uint32_t* words) {
    __syncwarp();
    put_sums(tile, sums);
    __syncwarp();
    get_group(tile.own, words);
}

// Along rows.
template <int kind, bool flat, bool random>
__device__ __forceinline__ void quantize_rows(const RotatedVariantArguments& s) {
    const RotationArguments& a = s.rotation;
    __shared__ CodeNumbers table[NVFP4_CODES];
    __shared__ uint4 tiles[CTA_VECTORS<AHEAD>];
    const Rows<kind, flat> rows(a, tiles);
    const SharedScale shared(a, table);
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    const auto put = [&](const Place<flat>& place, const Place<false>& at, const uint32_t* words, uint32_t (&drawn)[4]) {
        uint32_t packed[2];
        const uint32_t code = quantize_group<random>(s, shared, words, at.row, at.column, drawn, packed);
        store<8>(a.out + place.number * 8, packed);
        if (LAYOUT_OUT != BYTES) lay_scale(a.out_scales, a.rows, a.columns, (offset_t)at.row, at.column, code);
        else a.out_scales[place.number] = (uint8_t)code;
    };
    const auto found = [&](const Place<flat>& place, const uint32_t* words) {
        const Place<false> at = place_of<false>(a, place.number);
        uint32_t drawn[4] = {};
        ask_bytes<random>(s, at.row, at.column, drawn);
        put(place, at, words, drawn);
    };
    const auto taken = [&](uint32_t behind, const TileThread& tile, const Fragments& w, const TileSums& sums) {
        uint32_t words[GROUP / 2], drawn[4] = {};
        const Place<flat> place = place_of<flat>(a, first + behind);
        const Place<false> at = place_of<false>(a, place.number);
        ask_bytes<random>(s, at.row, at.column, drawn);
        if (!sizes_decide(a.rotation, w, sums)) {
            get_group(tile.own, words);
            if (!sums_decide(a.rotation, words, sums)) return false;
        }
        gather_group(tile, sums, words);
        put(place, at, words, drawn);
        return true;
    };
    rows.rotated(taken, found);
}

// Down columns.
template <int kind, bool random>
__device__ __forceinline__ void quantize_columns(const RotatedVariantArguments& s) {
    const RotationArguments& a = s.rotation;
    __shared__ CodeNumbers table[NVFP4_CODES];
    __shared__ uint4 tiles[DOWN_VECTORS<kind>], results[kind == BFLOAT16 ? CTA_VECTORS<1> : 1];
    __shared__ Gathered<kind> gathered;
    const Corner<kind> corner(a);
    start_columns(a, corner, tiles);  // on the way while the table is made
    const SharedScale shared(a, table);
    const auto ask = [&](uint32_t group, uint32_t column, uint32_t (&drawn)[4]) {
        if (corner.column + column < a.k) ask_bytes<random>(s, corner.column + column, corner.group + group, drawn);
    };
    // Of columns behind the last too, which are zeros.
    const auto put = [&](uint32_t group, uint32_t column, const uint32_t* words, uint32_t (&drawn)[4]) {
        uint32_t packed[2];
        gathered.scales[column][group] = (uint8_t)quantize_group<random>(
            s, shared, words, corner.column + column, corner.group + group, drawn, packed);
        gathered.codes[group][column] = make_uint2(packed[0], packed[1]);
    };
    const auto found = [&](uint32_t group, uint32_t column, const uint32_t* words) {
        uint32_t drawn[4] = {};
        ask(group, column, drawn);
        put(group, column, words, drawn);
    };
    if constexpr (kind == BFLOAT16) {
        const TileThread result = own_tiles<1>(a, results);
        const auto taken = [&](uint32_t group, uint32_t column, const OwnColumn& own, const Fragments& w,
                               const TileSums& sums) {
            uint32_t words[GROUP / 2], drawn[4] = {};
            const uint32_t here = column + threadIdx.x % WARP;
            ask(group, here, drawn);
            if (!sizes_decide(a.rotation, w, sums)) {
                own(words);
                if (!sums_decide(a.rotation, words, sums)) return false;
            }
            gather_group(result, sums, words);
            put(group, here, words, drawn);
            return true;
        };
        if (a.aligned) {
            squares_rotated(a, corner, tiles, taken, found);
            return put_gathered(a, corner, gathered);
        }
    }
    columns_rotated<kind>(a, corner, tiles, found);
    put_gathered(a, corner, gathered);
}

}  // namespace refnum

#define KERNEL(name, ...)                                                           \
    extern "C" __global__ __launch_bounds__(THREADS, RESIDENT / THREADS) void name( \
        const __grid_constant__ refnum::RotatedVariantArguments s) {                \
        refnum::__VA_ARGS__(s);                                                     \
    }
#define KERNELS(name, kind, random)                              \
    KERNEL(name, quantize_rows<refnum::kind, false, random>)     \
    KERNEL(name##_flat, quantize_rows<refnum::kind, true, random>) \
    KERNEL(name##_down, quantize_columns<refnum::kind, random>)
KERNELS(rotate_variant_float32, FLOAT32, false)
KERNELS(rotate_variant_bfloat16, BFLOAT16, false)
KERNELS(rotate_variant_random_float32, FLOAT32, true)
KERNELS(rotate_variant_random_bfloat16, BFLOAT16, true)
