"""Planted kernels for a device: `refnum fuzz run FOLDER --subject tests/conformance/planted_gpu.py:ENDLESS`.

Each runs the golden model on CuPy arrays and then a raw kernel that spoils what it should: an illegal address, an
endless loop, one coverpoint, one element in a million. Each has a list of its own: an endless kernel starves its
neighbours on the same device, so it gets a campaign of its own, and a device.
"""

import functools

import refnum

SOURCE = r"""
extern "C" __global__ void illegal(const unsigned char* scales, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && scales[i] == 255) *(volatile int*)0x10 = 1;
}
extern "C" __global__ void endless(const unsigned char* scales, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    volatile const unsigned char* seen = scales;
    if (i < n) while (seen[i] == 255) { }
}
extern "C" __global__ void tie(const float* x, const unsigned char* scales, unsigned char* packed, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;   // a byte of two codes
    if (i >= n || scales[i / 16] == 255) return;
    unsigned code = packed[i];
    for (int lane = 0; lane < 2; ++lane)
        if (scalbn((double)x[2 * i + lane], 127 - scales[i / 16]) == -2.5)
            code = (code & ~(15u << 4 * lane)) | 13u << 4 * lane;
    packed[i] = code;
}
extern "C" __global__ void rare(const unsigned* x, unsigned char* packed, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int lane = 0; lane < 2; ++lane)
        if (x[2 * i + lane] * 2654435761u + 0x9E3779B9u < 4295u) packed[i] ^= 1u << 4 * lane;
}
"""


@functools.cache
def kernel(name):
    """Return a compiled planted kernel."""
    import cupy

    return cupy.RawKernel(SOURCE, name, options=("--std=c++17",))


def launch(name, count, *arguments):
    """Run one thread for each of `count` items."""
    if count:
        kernel(name)(((count + 255) // 256,), (256,), (*arguments, count))


def illegal_address(packed, scales):
    """Write to address 0x10 when a scale byte is 255."""
    launch("illegal", scales.size, scales)
    return refnum.dequantize_mxfp4(packed, scales)


def endless(packed, scales):
    """Never end when a scale byte is 255."""
    launch("endless", scales.size, scales)
    return refnum.dequantize_mxfp4(packed, scales)


def one_point(x):
    """Round -2.5 to -3 where the tie goes to -2."""
    packed, scales = refnum.quantize_mxfp4(x)
    launch("tie", packed.size, x, scales, packed)
    return packed, scales


def one_in_a_million(x):
    """Flip the lowest bit of the code of each element whose bits hash below 2^32 / 10^6."""
    packed, scales = refnum.quantize_mxfp4(x)
    launch("rare", packed.size, x, packed)
    return packed, scales


def only_float32(operation, profile, params):
    """The raw kernels read 32-bit floats; one variant of each operation will do."""
    return "" if params.get("input", params.get("dtype")) == "float32" else "takes float32"


def available():
    """Whether there is a device."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount()), "no CUDA device"
    except Exception as error:
        return False, f"CuPy cannot be used: {type(error).__name__}"


def subjects():
    """Return every planted subject."""
    parts = {"dequantize_mxfp4": (illegal_address, endless), "quantize_mxfp4": (one_point, one_in_a_million)}
    return [
        {"name": f.__name__, "operations": {operation: f}, "arrays": "cupy", "available": available,
         "supports": only_float32}
        for operation, functions in parts.items() for f in functions
    ]  # fmt: skip


ILLEGAL, ENDLESS, ONE_POINT, RARE = (
    [subject for subject in subjects() if subject["name"] == name]
    for name in ("illegal_address", "endless", "one_point", "one_in_a_million")
)
