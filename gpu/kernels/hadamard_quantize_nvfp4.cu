// Float [M, K] -> NVFP4 of its rotated groups, and the largest magnitude of the rotated matrix (clause N22.6).
#include "gathered_codes.cuh"
#include "rotated_codes.cuh"

namespace refnum {

// The tensor's scale, and the factor of each code of a block's scale, which the CTA shares: as it is, and for lanes.
struct Factors {
    TensorScale tensor;
    int order, rotation;
    uint32_t *of, bound;
    CodeThread thread;
    bool ties;
    __device__ __forceinline__ Factors(const RotationArguments& a, uint32_t* table)
        : order(a.order), rotation(a.rotation), of(table), thread(code_thread(table + NVFP4_CODES)), ties(false) {
        const uint32_t amax = tensor_maximum(a.amax ? __ldg(a.amax) : *a.out_amax);
        tensor = tensor_scale(amax, a.order);
        for (uint32_t code = threadIdx.x; code < NVFP4_CODES; code += THREADS) {
            of[code] = block_factor(code, tensor, order);
            of[NVFP4_CODES + code] = lane_factor(of[code], ties);
        }
        if (a.amax && blockIdx.x == 0 && threadIdx.x == 0) *a.out_amax = amax;
        ties = __syncthreads_or(ties);
        // What the least number times the least factor of its groups must reach: the numbers of a group add up to four
        // times its largest sum at most, which the order of additions asks for.
        bound = kept(a.rotation == ROTATION_EXACT ? LEAST_SHARE : multiply_floats(LEAST_SHARE, FLOAT_FOUR));
    }
    // The codes of a tile from its sums, rounded or not: `put(n, codes of the group 8n + lane / 4)`, and the code of
    // the scale of the group 8 * (lane % 4) + lane / 4. Where their sizes do not prove the sums right, `decided(share)`
    // is asked, of the thread's least number times the least factor of its groups. Returns whether that can be, the
    // same in all threads.
    template <bool ties, class Sums, class Decided, class Put>
    __device__ __forceinline__ bool quantize_sums(const Fragments& w, const Sums& sums, uint32_t& code,
                                                  const Decided& decided, const Put& put) const {
        const uint32_t most = own_maximum(thread, sums);
        code = block_code(most, tensor, order);
        const uint32_t factor = get_word(thread.factors + 4 * code);
        uint32_t factors[4], power = least_power(w);
#pragma unroll
        for (int n = 0; n < 4; ++n) factors[n] = __shfl_sync(~0u, factor, n, 4);
        const uint32_t first = smaller_of_two(factors[0], factors[1]), second = smaller_of_two(factors[2], factors[3]);
        const uint32_t least = smaller_of_two(first, second);
        const bool large = multiply_floats(most, factor) >= HALF_SEVEN;
        const uint32_t share = multiply_floats(power, least);
        const bool wide = CUT == NEAR || share < bound;
        if (__any_sync(~0u, large || wide)) {
            if (__any_sync(~0u, large)) return false;
            if (!decided(share)) return false;
        }
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            const uint32_t codes = codes_of_two<ties>(sums, n, factors + n);
            put(n, (uint16_t)codes);
            put(n + 1, (uint16_t)(codes >> 16));
        }
        return true;
    }
    // Whether the sums of a tile are right, by this thread's numbers that `own(words)` gives.
    template <class Own>
    __device__ __forceinline__ bool decide(const TileSums& sums, const Own& own) const {
        uint32_t words[GROUP / 2];
        own(words);
        return sums_decide(rotation, words, sums);
    }
    // A rotated group -> two packed words; returns the code of its scale.
    __device__ __forceinline__ uint32_t quantize(const uint32_t* words, uint32_t* packed) const {
        bool odd = false;
        const uint32_t most = nvfp4_maximum<BFLOAT16>(words, odd);
        const uint32_t code = block_code(most, tensor, order), factor = of[code];
        nvfp4_block<BFLOAT16>(words, factor, odd || is_odd_factor(factor), packed);
        return code;
    }
};

// Along rows.
template <int kind, bool flat, bool ties>
__device__ __forceinline__ void code_rows(const RotationArguments& a, const Rows<kind, flat>& rows,
                                          const Factors& factors) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t first = (uint64_t)blockIdx.x * (THREADS * UNROLL) + (threadIdx.x - lane);
    const uint64_t own = first + 8 * (lane % 4) + lane / 4;  // the group whose scale this thread finds
    uint8_t *out = settled(a.out + first * 8 + 2 * lane), *out_scales = settled(a.out_scales + own);
    const auto taken = [&](uint32_t behind, const TileThread& tile, const Fragments& w, const TileSums& sums) {
        const auto decided = [&](uint32_t) {
            return factors.decide(sums, [&](uint32_t* words) { get_group(tile.own, words); });
        };
        const auto put = [&](int n, uint16_t codes) {
            *reinterpret_cast<uint16_t*>(out + 8 * behind + 64 * n) = codes;
        };
        uint32_t code;
        if (!factors.quantize_sums<ties>(w, sums, code, decided, put)) return false;
        if (LAYOUT_OUT == BYTES) {
            out_scales[behind] = (uint8_t)code;
        } else {
            const Place<flat> place = place_of<flat>(a, own + behind);
            lay_scale(a.out_scales, a.rows, a.columns, (offset_t)place.row, place.column, code);
        }
        return true;
    };
    const auto found = [&](const Place<flat>& place, const uint32_t* words) {
        uint32_t packed[2];
        const uint32_t code = factors.quantize(words, packed);
        store<8>(a.out + place.number * 8, packed);
        if (LAYOUT_OUT != BYTES) lay_scale(a.out_scales, a.rows, a.columns, (offset_t)place.row, place.column, code);
        else a.out_scales[place.number] = (uint8_t)code;
    };
    rows.rotated(taken, found);
}
template <int kind, bool flat>
__device__ __forceinline__ void quantize_rows(const RotationArguments& a) {
    __shared__ uint32_t table[2 * NVFP4_CODES];
    __shared__ uint4 tiles[CTA_VECTORS<AHEAD>];
    const Rows<kind, flat> rows(a, tiles);  // their copies are on the way while the table is made
    const Factors factors(a, table);
    if (kind == BFLOAT16 && factors.ties) code_rows<kind, flat, true>(a, rows, factors);
    else code_rows<kind, flat, false>(a, rows, factors);
}

// Down columns.
template <int kind, bool ties>
__device__ __forceinline__ void code_columns(const RotationArguments& a, const Corner<kind>& corner, const uint4* tiles,
                                             const Factors& factors, Gathered<kind>& gathered) {
    const auto found = [&](uint32_t group, uint32_t column, const uint32_t* words) {
        uint32_t packed[2];
        gathered.scales[column][group] = (uint8_t)factors.quantize(words, packed);
        gathered.codes[group][column] = make_uint2(packed[0], packed[1]);
    };
    if constexpr (kind == BFLOAT16) {
        const uint32_t lane = threadIdx.x % WARP;
        const auto taken = [&](uint32_t group, uint32_t column, const OwnColumn& own, const Fragments& w,
                               const TileSums& sums) {
            RoundedSums rounded;
            round_sums(sums, rounded);
            // The sums are found again where they are asked for, so that they take no registers until then.
            const auto decided = [&](uint32_t share) {
                TileSums again;
                own.sums(again);
                const bool open = CUT == NEAR || factors.rotation != ROTATION_EXACT ||
                                  multiply_floats(share, FLOAT_FOUR) < factors.bound || some_halfway(again);
                return !__any_sync(~0u, open) || factors.decide(again, own);
            };
            uint16_t* out = reinterpret_cast<uint16_t*>(&gathered.codes[group][column]) + lane;
            const auto put = [&](int n, uint16_t codes) { out[32 * n] = codes; };
            uint32_t code;
            if (!factors.quantize_sums<ties>(w, rounded, code, decided, put)) return false;
            gathered.scales[column + 8 * (lane % 4) + lane / 4][group] = (uint8_t)code;
            return true;
        };
        if (a.aligned) return squares_rotated(a, corner, tiles, taken, found);
    }
    columns_rotated<kind>(a, corner, tiles, found);
}
template <int kind>
__device__ __forceinline__ void quantize_columns(const RotationArguments& a) {
    __shared__ uint32_t table[2 * NVFP4_CODES];
    __shared__ uint4 tiles[DOWN_VECTORS<kind>];
    __shared__ Gathered<kind> gathered;
    const Corner<kind> corner(a);
    start_columns(a, corner, tiles);  // on the way while the table is made
    const Factors factors(a, table);
    if (kind == BFLOAT16 && factors.ties) code_columns<kind, true>(a, corner, tiles, factors, gathered);
    else code_columns<kind, false>(a, corner, tiles, factors, gathered);
    put_gathered(a, corner, gathered);
}

constexpr uint32_t ABOVE_ONE = 0x3F802000;  // 1 + 2**-10

// The largest magnitude of the rotated matrix, NaN left out, into out_amax: that of the sums is rounded last. A tile
// whose sums lie far enough below a maximum already known says nothing more, exact or not: sums are right to within
// 2**-15 of the largest.
struct Largest {
    const RotationArguments& a;
    uint32_t most, known;  // of this thread, and of the warp's threads and of what they saw of others
    __device__ __forceinline__ explicit Largest(const RotationArguments& of)
        : a(of), most(0), known(*reinterpret_cast<volatile uint32_t*>(of.out_amax)) {}
    template <class Own>
    __device__ __forceinline__ bool takes(const TileSums& sums, const Own& own) {
        const uint32_t here = larger_of_sums(0, sums);
        const bool below = __uint_as_float(multiply_floats(here, ABOVE_ONE)) <= __uint_as_float(known);
        if (__all_sync(~0u, below)) return true;
        uint32_t words[GROUP / 2];
        own(words);
        if (!sums_decide(a.rotation, words, sums)) return false;
        most = larger_of_two(most, here);
        known = larger_of_two(known, __reduce_max_sync(~0u, round_to_bfloat16(most) << 16));
        return true;
    }
    __device__ __forceinline__ void find(const uint32_t* words) {
        bool odd = false;
        const uint32_t found = nvfp4_maximum<BFLOAT16>(words, odd);
        most = found > most ? found : most;
    }
    // The larger of the largest magnitudes of the warp's threads, into out_amax.
    __device__ __forceinline__ void put() const {
        const uint32_t all = __reduce_max_sync(~0u, round_to_bfloat16(most) << 16);
        const auto seen = reinterpret_cast<volatile uint32_t*>(a.out_amax);
        if (threadIdx.x % WARP == 0 && all > *seen) atomicMax(a.out_amax, all);
    }
};
template <int kind, bool flat>
__device__ __forceinline__ void largest_rows(const RotationArguments& a) {
    __shared__ uint4 tiles[CTA_VECTORS<AHEAD>];
    Largest largest(a);
    const auto taken = [&](uint32_t, const TileThread& tile, const Fragments&, const TileSums& sums) {
        return largest.takes(sums, [&](uint32_t* words) { get_group(tile.own, words); });
    };
    const Rows<kind, flat> rows(a, tiles);
    rows.rotated(taken, [&](const Place<flat>&, const uint32_t* words) { largest.find(words); });
    largest.put();
}
template <int kind>
__device__ __forceinline__ void largest_columns(const RotationArguments& a) {
    __shared__ uint4 tiles[DOWN_VECTORS<kind>];
    const Corner<kind> corner(a);
    Largest largest(a);
    const auto found = [&](uint32_t, uint32_t, const uint32_t* words) { largest.find(words); };
    bool done = false;
    if constexpr (kind == BFLOAT16) {
        const auto taken = [&](uint32_t, uint32_t, const OwnColumn& own, const Fragments&, const TileSums& sums) {
            return largest.takes(sums, own);
        };
        start_columns(a, corner, tiles);
        if (a.aligned) squares_rotated(a, corner, tiles, taken, found), done = true;
    }
    if (!done) columns_rotated<kind>(a, corner, tiles, found);
    largest.put();
}

}  // namespace refnum

#define KERNEL(name, ...)                                                           \
    extern "C" __global__ __launch_bounds__(THREADS, RESIDENT / THREADS) void name( \
        const __grid_constant__ refnum::RotationArguments a) {                      \
        refnum::__VA_ARGS__(a);                                                     \
    }
#define KERNELS(name, way, kind)                        \
    KERNEL(name, way##_rows<refnum::kind, false>)       \
    KERNEL(name##_flat, way##_rows<refnum::kind, true>) \
    KERNEL(name##_down, way##_columns<refnum::kind>)
KERNELS(rotate_quantize_float32, quantize, FLOAT32)
KERNELS(rotate_quantize_bfloat16, quantize, BFLOAT16)
KERNELS(rotate_largest_float32, largest, FLOAT32)
KERNELS(rotate_largest_bfloat16, largest, BFLOAT16)
extern "C" __global__ void rotate_nothing(refnum::RotationArguments a) { *a.out_amax = 0; }
