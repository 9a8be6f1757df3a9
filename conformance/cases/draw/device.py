"""Drawing on a device in one kernel where NumPy's lines take a hundred: Philox words, bells, patterns of floats.

These are second definitions of `refnum.philox` (N13) and of `bits.assemble`, `bits.signed`, for CuPy arrays and for
the making of cases only; the golden model has none. Every function below has a plain twin in NumPy calls, which
decides: `tests/conformance/test_fused_drawing.py` compares the arithmetic as g++ compiles it and, where there is a
GPU, the kernels themselves. Whole numbers only, but for one exact conversion to float32 that NumPy does as well.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from refnum.formats import Format
from refnum.philox import Key

Array = Any

HEADER = r"""
#ifdef __CUDACC__
#define INLINE __device__ __forceinline__
INLINE unsigned float_bits(float x) { return __float_as_uint(x); }
#else
#define INLINE static inline
INLINE unsigned float_bits(float x) { unsigned b; __builtin_memcpy(&b, &x, 4); return b; }
#endif

template <class T> struct alignas(4 * sizeof(T)) Four { T lane[4]; };

/* Block b of a stream: the four words of Philox4x32-10, N13. */
INLINE void philox(unsigned long long block, unsigned long long seed, unsigned stream, unsigned step, unsigned* out) {
    unsigned x = (unsigned)block, y = (unsigned)(block >> 32), z = stream, w = step;
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    for (int turn = 0; turn < 10; ++turn) {
        unsigned long long left = (unsigned long long)x * 0xD2511F53u, right = (unsigned long long)z * 0xCD9E8D57u;
        x = (unsigned)(right >> 32) ^ y ^ k0;
        y = (unsigned)right;
        z = (unsigned)(left >> 32) ^ w ^ k1;
        w = (unsigned)left;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x; out[1] = y; out[2] = z; out[3] = w;
}

INLINE unsigned high_product(unsigned word, unsigned long long bound) {
    return (unsigned)((word * bound) >> 32);  /* bound <= 2^32 */
}

/* Four values of a bell, from the blocks of four steps. */
INLINE void bell(unsigned long long block, unsigned long long seed, unsigned stream, unsigned step, int* out) {
    int total[4] = {0, 0, 0, 0};
    for (unsigned turn = 0; turn < 4; ++turn) {
        unsigned word[4];
        philox(block, seed, stream, step + turn, word);
        for (int lane = 0; lane < 4; ++lane) total[lane] += (int)((word[lane] & 0xFFFFu) + (word[lane] >> 16));
    }
    for (int lane = 0; lane < 4; ++lane) out[lane] = ((total[lane] - 4 * 65535) * 5) >> 2;
}

/* The pattern of significand * 2^exponent: bits that do not fit are cut off, too large is the largest finite. */
INLINE unsigned assemble(unsigned significand, int exponent, int bias, int mantissa, unsigned top) {
    if (!significand) return 0;
    unsigned lifted = float_bits((float)significand), fraction = lifted & 0x7FFFFFu;
    int place = (int)(lifted >> 23) - 127 + exponent, dropped = 23 - mantissa;
    if (place + bias > (int)(top >> mantissa)) return top;
    unsigned pattern = ((unsigned)(place + bias) << mantissa) | (fraction >> dropped);
    if (place < 1 - bias) {
        int sunk = 1 - bias - place;
        pattern = (fraction | 1u << 23) >> (dropped + (sunk < 31 - dropped ? sunk : 31 - dropped));
    }
    return pattern < top ? pattern : top;
}

template <class T> INLINE void store(T* out, long long block, unsigned long long n, const T* value) {
    if (4 * (unsigned long long)block + 4 <= n) {
        Four<T> four;
        for (int lane = 0; lane < 4; ++lane) four.lane[lane] = value[lane];
        ((Four<T>*)out)[block] = four;
        return;
    }
    for (int lane = 0; 4 * (unsigned long long)block + lane < n; ++lane) out[4 * block + lane] = value[lane];
}
"""
"""The arithmetic, for nvcc and g++ alike."""

_KEY = "uint64 count, uint64 seed, uint32 stream, uint32 step"
_DRAWN = """
    unsigned word[4]; {ctype} value[4];
    philox(i, seed, stream, step, word);
    for (int lane = 0; lane < 4; ++lane) value[lane] = {expression};
    store(({ctype}*)&out[0], (long long)i, count, value);
"""
_BELL = "int value[4]; bell(i, seed, stream, step, value); store((int*)&out[0], (long long)i, count, value);"
_CTYPES = {"uint32": "unsigned", "int32": "int", "bool": "bool"}


def serves(like: Array) -> bool:
    """Whether arrays of `like`'s library are drawn here: CuPy's, on their device."""
    return type(like).__module__.partition(".")[0] == "cupy"


@functools.cache
def _kernel(inputs: str, outputs: str, body: str, name: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(inputs, outputs, body, name, preamble=HEADER)


def _fill(shape: tuple[int, ...], dtype: str, key: Key, like: Array, kernel: Any, *more: Any) -> Array:
    """A new array of a shape, four of its items a thread."""
    count = math.prod(shape)
    out = np.empty(count, dtype, like=like)
    if not count:
        return out.reshape(shape)
    kernel(np.uint64(count), np.uint64(key.seed), np.uint32(key.stream), np.uint32(key.step), *more, out,
           size=-(-count // 4))  # fmt: skip
    return out.reshape(shape)


def _drawn(dtype: str, more: str, expression: str, name: str) -> Any:
    body = _DRAWN.format(ctype=_CTYPES[dtype], expression=expression)
    return _kernel(_KEY + more, f"raw {dtype} out", body, name)


def words(shape: tuple[int, ...], key: Key, like: Array) -> Array:
    """Uniform u32: the words 0, 1, 2... of a key's step."""
    return _fill(shape, "uint32", key, like, _drawn("uint32", "", "word[lane]", "refnum_words"))


def below(bound: int, shape: tuple[int, ...], key: Key, like: Array) -> Array:
    """Uniform u32 in [0, bound), bound <= 2**32."""
    kernel = _drawn("uint32", ", uint64 bound", "high_product(word[lane], bound)", "refnum_below")
    return _fill(shape, "uint32", key, like, kernel, np.uint64(bound))


def between(low: int, high: int, shape: tuple[int, ...], key: Key, like: Array) -> Array:
    """Uniform i32 in [low, high]."""
    kernel = _drawn(
        "int32", ", uint64 bound, int32 low", "(int)high_product(word[lane], bound) + low", "refnum_between"
    )
    return _fill(shape, "int32", key, like, kernel, np.uint64(high - low + 1), np.int32(low))


def chance(in_256: int, shape: tuple[int, ...], key: Key, like: Array) -> Array:
    """Bool, true in `in_256` of 256."""
    kernel = _drawn("bool", ", uint32 level", "(word[lane] >> 24) < level", "refnum_chance")
    return _fill(shape, "bool", key, like, kernel, np.uint32(in_256))


def bell(shape: tuple[int, ...], key: Key, like: Array) -> Array:
    """The bell of `Draw.bell`, i32; takes four steps."""
    return _fill(shape, "int32", key, like, _kernel(_KEY, "raw int32 out", _BELL, "refnum_bell"))


def _facts(fmt: Format) -> tuple[Any, ...]:
    return np.int32(fmt.bias), np.int32(fmt.mantissa_bits), np.uint32(fmt.max_code)


_FACTS = "int32 bias, int32 mantissa, uint32 top"


def assemble(fmt: Format, significand: Array, exponent: Array) -> Array:
    """Patterns u32, as `bits.assemble`."""
    kernel = _kernel(f"uint32 significand, int32 exponent, {_FACTS}", "uint32 out",
                     "out = assemble(significand, exponent, bias, mantissa, top)", "refnum_assemble")  # fmt: skip
    return kernel(_as(significand, np.uint32), _as(exponent, np.int32), *_facts(fmt))


def from_integer(fmt: Format, number: Array, exponent: Array) -> Array:
    """Patterns with sign of number * 2**exponent in the format's own width, as `draw.values.from_integer`."""
    kernel = _kernel(
        f"int32 number, int32 exponent, {_FACTS}, uint32 sign", f"uint{fmt.bits} out",
        "out = assemble(number < 0 ? 0u - (unsigned)number : (unsigned)number, exponent, bias, mantissa, top)"
        " | (number < 0 ? sign : 0u)", "refnum_from_integer",
    )  # fmt: skip
    return kernel(_as(number, np.int32), _as(exponent, np.int32), *_facts(fmt), np.uint32(fmt.sign_mask))


def signed(fmt: Format, pattern: Array, negative: Array) -> Array:
    """Patterns with signs in the format's own width, as `bits.signed`."""
    kernel = _kernel("uint32 pattern, bool negative, uint32 sign", f"uint{fmt.bits} out",
                     "out = pattern | (negative ? sign : 0u)", "refnum_signed")  # fmt: skip
    return kernel(_as(pattern, np.uint32), negative, np.uint32(fmt.sign_mask))


def high_product(word: Array, bound: Array) -> Array:
    """The high half of u32 * u32, broadcast."""
    kernel = _kernel("uint32 word, uint32 bound", "uint32 out", "out = high_product(word, bound)", "refnum_high")
    return kernel(_as(word, np.uint32), _as(bound, np.uint32))


def weighted_sum(flat: Array) -> int:
    """The sum of `fuzz.bench.fingerprint` over a flat unsigned array, modulo 2**64, in one pass."""
    total = np.zeros(1, np.uint64, like=flat)
    grid = min(2048, -(-flat.size // 1024))
    if grid:
        _summing()[flat.dtype.itemsize]((grid,), (256,), (flat, np.uint64(flat.size), total))
    return int(total[0])


_SUM = r"""
template <class T> __device__ void summed(const T* x, unsigned long long n, unsigned long long* total) {
    unsigned long long sum = 0, step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n; i += step)
        sum += (unsigned)((unsigned)x[i] * (2u * (unsigned)i + 1u));
    for (int lane = 16; lane; lane >>= 1) sum += __shfl_down_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
typedef unsigned long long u64;
extern "C" __global__ void sum1(const unsigned char* x, u64 n, u64* total) { summed(x, n, total); }
extern "C" __global__ void sum2(const unsigned short* x, u64 n, u64* total) { summed(x, n, total); }
extern "C" __global__ void sum4(const unsigned* x, u64 n, u64* total) { summed(x, n, total); }
extern "C" __global__ void sum8(const u64* x, u64 n, u64* total) { summed(x, n, total); }
"""


@functools.cache
def _summing() -> dict[int, Any]:
    import cupy

    return {size: cupy.RawKernel(_SUM, f"sum{size}") for size in (1, 2, 4, 8)}


def _as(value: Array, dtype: type) -> Array:
    """An array or scalar of a dtype; no copy where it has it."""
    return value.astype(dtype, copy=False) if serves(value) else dtype(int(value))
