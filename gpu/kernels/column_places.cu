// Where experts and their segments lie, from splits on the device: what `ColumnArguments::table` holds. One CTA of 1024.
#include "columns.cuh"
#include "splits.cuh"

namespace refnum {

// Item `e` of the splits, at most `most`; 0 if it is negative or above that.
__device__ __forceinline__ uint32_t rows_of(const ColumnArguments& a, uint32_t e, uint32_t most) {
    const uint64_t rows = index_at(a.splits, a.split_stride, e, a.split_bytes);
    return rows > most ? 0 : (uint32_t)rows;
}

// Rows beyond those of the array belong to no expert; blocks of 32 rows begin at even ones.
__device__ __forceinline__ void column_places(const ColumnArguments& a) {
    __shared__ uint64_t sums[32];
    const uint32_t rows = (uint32_t)a.m, unit = a.tall == 32 ? 2 : 1;
    int32_t *ends = a.table, *segments = ends + a.experts + 1, *at = segments + a.experts;
    uint64_t rows_before = 0, segments_before = 0;
    for (uint32_t start = 0; start < a.experts; start += 1024) {
        const uint32_t e = start + threadIdx.x;
        const uint32_t given = e < a.experts ? rows_of(a, e, rows) / unit * unit : 0;
        uint64_t all, all_segments;
        const uint64_t first = rows_before + sum_before(given, sums, all);
        const uint64_t own = first < rows ? min((uint64_t)given, rows - first) : 0;
        const uint64_t segment = segments_before + sum_before((own + a.tall - 1) / a.tall, sums, all_segments);
        if (e < a.experts) {
            ends[e] = (int32_t)min(first, (uint64_t)rows);
            segments[e] = (int32_t)segment;
        }
        rows_before += all;
        segments_before += all_segments;
    }
    const uint32_t last = (uint32_t)min(rows_before, (uint64_t)rows);
    if (threadIdx.x == 0) ends[a.experts] = (int32_t)last;
    __syncthreads();
    for (uint32_t window = threadIdx.x; window < a.windows; window += 1024) {
        uint32_t low = 0, high = a.experts;  // the first expert that ends behind the window's first row
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if ((uint32_t)ends[middle + 1] > window * a.height) high = middle;
            else low = middle + 1;
        }
        at[window] = (int32_t)low;
    }
}

}  // namespace refnum

extern "C" __global__ __launch_bounds__(1024) void column_places(const __grid_constant__ refnum::ColumnArguments a) {
    refnum::column_places(a);
}
