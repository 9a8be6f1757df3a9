// Row-wise MXFP4 -> column-wise E4M3 (clause N9). A CTA has 128 rows or a strip of them, a warp 32
// columns of a segment.
#include "mxfp4_to_fp8_spans.cuh"

namespace refnum {

template <bool amax>
__device__ __forceinline__ void mxfp4_to_fp8_columns(const ColumnArguments& a) {
    typedef typename ShapeOf<amax>::Tile Tile;
    __shared__ Tile tiles[1 + AHEAD];
    __shared__ typename ShapeOf<amax>::Tables tables[WARPS];
    __shared__ Kept<amax> kept;
    const ColumnTile tile = column_tile<TALL>(a);
    if (tile.rows == 0) return;
    walk_rows(a, tile, tiles, kept, [&](const Segment& now, Tile& rows) {
        turn_groups<amax, false>(a, tile, now, rows, tables[threadIdx.x / 32], kept);
    });
}

#if SPANS
__device__ __forceinline__ void mxfp4_to_fp8_columns_spans(const ColumnArguments& a) {
    __shared__ WindowTile rows[RING];
    __shared__ Found found[WARPS];
    const ColumnTile tile = column_tile<TALL>(a);
    if (tile.rows == 0) return;
    turn_strip(a, tile, rows, found[threadIdx.x / 32], [](WindowTile&, int32_t) {});
}
#endif

}  // namespace refnum

// Compilers after 13.2 need more registers for `max` than five CTAs leave a thread, and would spill.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ > 1302 && BLOCKS == 5
#define HELD 4
#else
#define HELD BLOCKS
#endif
extern "C" __global__ __launch_bounds__(refnum::WORKERS, HELD) void mxfp4_to_fp8_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(refnum::WORKERS, BLOCKS) void mxfp4_to_fp8_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
#if SPANS
    refnum::mxfp4_to_fp8_columns_spans(a);
#else
    refnum::mxfp4_to_fp8_columns<true>(a);
#endif
}
