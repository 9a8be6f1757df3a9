"""The CUDA kernel of tiles.cu, compiled and launched by CuPy."""

import os
from pathlib import Path

import cupy

from refnum.conformance import implements

FLAGS = ("--std=c++17",) + (("-DFIXED",) if os.environ.get("FIXED") else ())
KERNEL = cupy.RawModule(code=(Path(__file__).parent / "tiles.cu").read_text(), options=FLAGS, backend="nvrtc")


@implements("quantize_fp8_tiles", name="tiles_cuda", profile="HOPPER", arrays="cupy", dtypes=["float32"], columns=128)
def quantize_fp8_tiles(x):
    rows, columns = x.shape
    x = cupy.ascontiguousarray(x)
    if x.data.ptr % 16:
        raise ValueError("x must start at a multiple of 16 bytes: four floats are loaded at once")
    codes = cupy.empty((rows, columns), cupy.uint8)
    scales = cupy.empty((rows, columns // 128), cupy.uint8)
    tiles = scales.size
    if tiles:
        KERNEL.get_function("quantize_tiles")((-(-tiles // 8),), (256,), (x, codes, scales, tiles))
    return codes, scales
