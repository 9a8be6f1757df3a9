// Row-wise MXFP4 -> column-wise E4M3 (clause N9). A CTA has 128 rows, a warp 32 columns of them.
#include "mxfp4_to_fp8_tile.cuh"

namespace refnum {

template <bool amax>
__device__ __forceinline__ void mxfp4_to_fp8_columns(const ColumnArguments& a) {
    __shared__ RowsTile rows[DEEP];
    __shared__ TileTables tables[GROUPS];
    if (fetch_tiles(a, rows)) turn_tiles<amax, false>(a, rows, tables);
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_columns_max(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_columns<false>(a);
}
extern "C" __global__ __launch_bounds__(WIDE, BLOCKS) void mxfp4_to_fp8_columns_amax(
    const __grid_constant__ refnum::ColumnArguments a) {
    refnum::mxfp4_to_fp8_columns<true>(a);
}
