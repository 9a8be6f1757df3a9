// mma.m16n8k16 of bfloat16 as clause N19.2 has it, and ldmatrix: steps of a whole warp.
#pragma once

#include <cstdint>

namespace emulation {

// The registers of a thread: rows lane / 4 and eight further of a and c, column lane / 4 of b, two numbers a word.
struct Tensors {
    uint32_t a[4], b[2], c[4];
};
void tensor_step(Tensors& own);

// ldmatrix.x4: four matrices of eight rows of eight 16-bit numbers, whose rows the threads name; two numbers each, of a
// row or, transposed, of a column.
void load_matrices(uint64_t own, uint32_t (&words)[4], bool transposed);

}  // namespace emulation
