"""Cases of explanations: numbers, codes and scales, families of operations that are explained by their own steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import refnum as R
from refnum.nvfp4 import ORDERS

Index = int | tuple[int, ...]
Case = tuple[str, dict[str, Any], Index]

AROUND = np.array([
    [7, 1.25, -0.3, 0.0, -0.0, 5.6, 1.75, 2.5, *[0.125] * 24, *[4.0] * 3, -2.5, *[0.7] * 28],
    [*[0.0] * 32, np.inf, 1.5, -2.0**-3, *[0] * 29],
    [np.nan, 1.5, *[2.0**-140] * 30, 2.0**-140, -(2.0**-141), *[0] * 30],
    [*[1.9375 * 2.0**127, 2.0**126], *[1] * 30, 3 * 2.0**-120, *[-(2.0**-121)] * 31],
], np.float32)  # fmt: skip
WAVE = (((np.arange(130)[:, None] * 131 + np.arange(160) * 17) % 61 - 30) / 8).astype(np.float32)
WAVE = np.ldexp(WAVE, np.arange(130)[:, None] * 5 % 11 - np.arange(160) // 32 * 3 % 7)
WAVE[129, 130] = 40000.0  # above all of the tiles beside it
WAVE[40:72, 33], WAVE[3, 128:], WAVE[7, 64:96] = 0, 2.0**-7, 0
CODES, TILES = R.quantize_fp8_tiles(WAVE)
PACKED, SCALES = R.quantize_mxfp4(WAVE)
HURT, HURT_SCALES = CODES.copy(), SCALES.copy()
HURT[0, 0], HURT[1, 2], HURT_SCALES[2, 1] = 0x7F, 0xFF, 255
SCALARS = np.array(
    [2.5, np.nan, np.inf, -np.inf, 3 * 2.0**126, 0, -0.0, 2.0**-149, -7, 500, 0.3, 1.5, 1.375], np.float32
)
NARROW = np.array([0.1, -2.25, 3.0, 5.0], np.float32)


def quantisers() -> Iterator[Case]:
    for profile in ("HOPPER", "OCP", "CEIL", "EVEN", "DEEPGEMM", "MICROXCALING", "MODELOPT"):
        for index in ((0, 1), (0, 2), 34, (3, 33)):
            yield "quantize_mxfp4", {"x": AROUND, "profile": profile}, index
    for index in ((0, 0), (0, 4), (0, 3), (1, 0), (1, 32), (1, 33), (2, 0), (2, 1), (2, 32), (2, 33), (3, 0), (3, 2)):
        yield "quantize_mxfp4", {"x": AROUND}, index
    yield "quantize_mxfp4", {"x": AROUND, "profile": "RECIPE"}, (2, 32)
    for index in ((1, 32), (1, 33)):
        yield "quantize_mxfp4", {"x": AROUND, "profile": "TE"}, index
    for index in ((0, 2), (0, 6)):
        yield "quantize_mxfp4", {"x": AROUND, "profile": "STOCHASTIC", "philox": (1, 2, 3)}, index
    yield "quantize_mx", {"x": AROUND, "element": "MXINT8", "profile": "CEIL"}, (3, 0)
    for element in ("E3M2", "E2M3", "E4M3", "E5M2", "MXINT8"):
        for profile in ("EVEN", "HOPPER"):
            yield "quantize_mx", {"x": AROUND, "element": element, "profile": profile}, (0, 2)
    for index in ((0, 0), (129, 131), (3, 130), (72, 33)):
        yield "quantize_fp8_tiles", {"x": WAVE}, index
        yield "quantize_fp8_tiles", {"x": WAVE, "tile": (128, 128)}, index
    yield "quantize_fp8_tiles", {"x": np.repeat(AROUND, 2, axis=1)}, (1, 66)
    yield "quantize_fp8_tiles", {"x": WAVE}, (129, 5)  # the tile beside it holds a larger number
    yield "quantize_mxfp4", {"x": AROUND, "profile": "OCP"}, 0  # beyond the largest value, below the next of its kind
    odd = np.full((1, 32), 0.5, np.float32)
    odd.view(np.uint32)[0, 3] = 0x3F800001  # an odd last bit
    yield "quantize_mxfp4", {"x": odd}, 3
    least = np.full((1, 128), 0x38D1B717, np.uint32).view(np.float32)
    yield "quantize_fp8_tiles", {"x": least, "profile": "DEEPGEMM"}, 0  # at the floor of amax: nothing is raised


def recasts() -> Iterator[Case]:
    places: tuple[Index, ...] = ((0, 0), (1, 2), (2, 40), (50, 33), (129, 159), (3, 129), (7, 70))
    for index in places:
        yield "fp8_to_mxfp4", {"codes": HURT, "scales": TILES}, index
        for mode in ("max", "amax"):
            yield "mxfp4_to_fp8", {"packed": PACKED, "scales": HURT_SCALES, "scale": mode}, index
        yield "mxfp4_to_fp8_columns", {"packed": PACKED, "scales": HURT_SCALES, "splits": [70, 60]}, index
        yield "mxfp4_to_fp8_rows_columns", {"packed": PACKED, "scales": HURT_SCALES}, index
        yield "mxfp4_columns", {"packed": PACKED, "scales": HURT_SCALES, "splits": [70, 60]}, index
        for mode in ("te", "rne"):
            yield "fp8_columns", {"codes": HURT, "scales": TILES, "splits": [70, 60], "underflow": mode}, index
    yield "fp8_to_mxfp4", {"codes": HURT, "scales": TILES}, (0, 1)  # beside a NaN
    codes, bytes_ = np.full((128, 128), 0x19, np.uint8), np.full((128, 1), 120, np.uint8)
    bytes_[5] = 123  # three binades above the rows beside it, whose exponent field is 3
    yield "fp8_columns", {"codes": codes, "scales": bytes_, "underflow": "te"}, (0, 0)
    yield "mxfp4_to_fp8", {"packed": PACKED, "scales": np.full_like(SCALES, 254)}, (1, 3)


def scalars() -> Iterator[Case]:
    for index in range(SCALARS.size):
        yield "encode_e2m1", {"x": SCALARS, "scale_byte": 128}, index
        yield "encode_e4m3", {"x": SCALARS, "overflow": "nan"}, (index,)
        for rounding in ("up", "down", "nearest"):
            yield "encode_e8m0", {"x": SCALARS, "rounding": rounding, "saturate": rounding == "down"}, index
    yield "encode_e2m1", {"x": SCALARS, "scale_byte": 255}, 0
    yield "encode_e4m3", {"x": SCALARS}, 2
    for code in (0, 3, 9):
        yield "decode_e2m1", {"codes": np.arange(16, dtype=np.uint8)}, code
    for code in (0x80, 0x7F, 0x39):
        yield "decode_e4m3", {"codes": np.arange(256, dtype=np.uint8).reshape(16, 16), "dtype": "bfloat16"}, code
        yield "decode_e8m0", {"codes": np.arange(256, dtype=np.uint8)}, code
    yield "decode_e8m0", {"codes": np.array([255], np.uint8)}, 0
    yield "encode_e8m0", {"x": SCALARS, "rounding": "up", "saturate": True}, 4


def nvfp4() -> Iterator[Case]:
    for variant in ("TE", "TE_2_8", "TORCHAO", "MODELOPT", "FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE"):
        yield "quantize_nvfp4", {"x": WAVE[:32], "variant": variant}, (17, 37)
    x = WAVE[:32].copy()
    x[0, :3] = np.nan, np.inf, -0.0
    for index in ((0, 0), (0, 1), (0, 2), (20, 20)):
        yield "quantize_nvfp4", {"x": x, "tile": (16, 16)}, index
    yield "quantize_nvfp4", {"x": x, "philox": (1, 2, 3)}, (3, 3)
    yield "quantize_nvfp4", {"x": np.full((1, 16), np.nan, np.float32)}, 3
    packed, scales, amax = R.quantize_nvfp4(WAVE[:32], tile=(16, 16))
    squares = {"packed": packed, "scales": scales, "tensor_amax": amax, "tile": (16, 16)}
    yield "dequantize_nvfp4", squares, (17, 37)
    odd = np.full((1, 16), 1.1, np.float32)
    odd.view(np.uint32)[0, :2] = 0x40533333, 0x7F800001
    for index in (0, 1, 2):
        yield "quantize_nvfp4", {"x": odd}, index
    packed, scales, amax = R.quantize_nvfp4(WAVE[:32])
    packed[0, :2] = 0x80, 0x19
    for index in (0, 1, 2, 3, 200):
        yield "dequantize_nvfp4", {"packed": packed, "scales": scales, "tensor_amax": amax}, index
    laid = R.layouts.scales_to_layout(scales, "swizzled")
    yield "dequantize_nvfp4", {"packed": packed, "scales": laid, "tensor_amax": amax, "layout_in": "swizzled"}, 0
    for order in ORDERS:
        for dtype in ("float32", "bfloat16"):
            yield "dequantize_nvfp4", {"packed": packed, "scales": scales, "tensor_amax": amax, "order": order,
                                       "dtype": dtype}, (17, 37)  # fmt: skip


def rotations() -> Iterator[Case]:
    x = WAVE[:40, :32].copy()
    x[0, 0], x[1, 5], x[2, 5:7] = np.nan, -np.inf, (np.inf, -np.inf)
    x[3, :16] = [2.0**127] * 8 + [1.5 * 2.0**127] * 8
    x[4, :16], x[5, :16] = [1] * 15 + [2.0**-10], 2.0**-149
    x[6, :16] = [2.0**-126, *[2.0**-140] * 15]
    x[7, :16], x[8, :16], x[9, :16] = 1.9 * 2.0**127, [4, *[0] * 15], [-(2.0**127)] * 16
    x[10, :16] = [1, *[0] * 14, -1]
    for order in ("exact", "sequential"):
        for index in ((7, 0), (8, 0), (9, 0), (10, 0), (10, 15)):
            for dtype in ("float32", "bfloat16"):
                yield "hadamard16", {"x": x, "order": order, "dtype": dtype, "signs": 0}, index
        for index in ((0, 1), (1, 1), (1, 5), (2, 3), (3, 0), (4, 0), (5, 0), (6, 3), (7, 20)):
            for dtype in ("float32", "bfloat16"):
                yield "hadamard16", {"x": x, "order": order, "dtype": dtype}, index
        yield "hadamard16", {"x": x, "order": order, "axis": 0, "signs": 0x1234}, (37, 9)
        yield "hadamard_quantize_nvfp4", {"x": x, "order": order, "axis": 0}, (37, 9)
        yield "hadamard_quantize_nvfp4", {"x": x, "order": order}, (9, 20)
    yield "hadamard16", {"x": -np.zeros((1, 16), np.float32)}, 3
    yield "hadamard16", {"x": np.full((1, 16), 0x7F800001, np.uint32).view(np.float32)}, 3  # the smallest NaN


def tetrajet() -> Iterator[Case]:
    x = WAVE[:64, :64].copy()
    x[0, :32], x[1, 3], x[2, 40] = 0, np.nan, -0.0
    x.view(np.uint32)[34, 33] = 0x4E000001
    for index in ((0, 3), (1, 2), (2, 40), (33, 40), (34, 33)):
        yield "quantize_tetrajet", {"x": x}, index
        yield "quantize_tetrajet", {"x": x, "axis": 0, "rule": "microscaling", "ties": "away"}, index
        yield "q_ema", {"w": x, "ema": np.roll(x, 1, axis=1), "rule": "exact"}, index
    yield "quantize_tetrajet", {"x": x, "ratio": "float32", "philox": (3, 4, 5)}, (33, 40)


def logarithmic() -> Iterator[Case]:
    x = np.array([[0.01, -0.02, 1.0, -3.0, 64.0, 0.0, np.inf, np.nan, 40.0, 1e-6, 0.5, -1.5]], np.float32)
    words = np.arange(12, dtype=np.uint32)[None] * np.uint32(600011) % np.uint32(1 << 23)
    case = {"x": x, "r_under": words, "r_log": words[:, ::-1].copy(), "tensor_amax": np.array([64], np.float32)}
    for index in range(12):
        yield "luq", case, index
    yield "luq", {**case, "step": "power_of_two", "divisor": 16}, 3
    near = np.array([[-0.0, 2.0**-149, 1 - 2.0**-24, 0.5, 1.5, 1.25, 1.0000001, 0.75]], np.float32)
    under = np.array([[0, 0, 0, 1 << 23, 0, 0, 0, (3 << 22) - 1]], np.uint32)
    log = np.array([[0, 0, 0, 0, 1 << 22, (3 << 21) - 1, 1, 0]], np.uint32)
    edge = {"x": near, "r_under": under, "r_log": log, "tensor_amax": np.array([64], np.float32)}
    for index in range(8):
        yield "luq", edge, index
    yield "luq", {**edge, "x": near * np.float32(2.0**126), "tensor_amax": np.array([2.0**-140], np.float32)}, 4
    for index in (0, 3, 5, 6):
        for threshold in ("midpoint", "0.4", "log"):
            yield "radix4", {"x": x, "n0": -4, "phase": "odd", "threshold": threshold}, index
    packed, alpha = R.luq(**case)
    yield "dequantize_luq", {"packed": packed, "alpha": alpha, "dtype": "bfloat16"}, 3
    for index in (4, 5):
        yield "dequantize_luq", {"packed": packed, "alpha": alpha}, index
    yield "dequantize_radix4", {"packed": packed, "n0": -4}, 8
    yield "radix4", {"x": x, "n0": -40, "phase": "odd", "threshold": "0.4"}, 0
    yield "dequantize_radix4", {"packed": np.tile(packed, (2, 1)), "n0": -4}, 14


def estimators() -> Iterator[Case]:
    x = np.array([0.125, -0.3, 7, -7, 0.25, np.nan, np.inf, 2.6, -4.5, 6, 1e-30, 5.0001, 0, -0.0],
                 np.float32).reshape(2, 7)  # fmt: skip
    for index in range(14):
        for compat in ("paper", "ms-amp"):
            yield "dge", {"x": x, "compat": compat}, index
    yield "dge", {"x": x, "k": 1, "target": "bfloat16"}, 1
    yield "dge", {"x": x, "k": 2, "cap": 100, "target": "bfloat16"}, 1
    yield "dge", {"x": x, "k": 16, "cap": 0.125}, (1, 2)
    yield "dge", {"x": np.nextafter(x, np.float32(9))}, 9  # just above 6
    y = np.arange(60, dtype=np.float32).reshape(6, 10) * 7 % 61 - 30
    y[1, 2] = np.nan
    for axis in ("tensor", "token", "channel"):
        for index in ((0, 4), (1, 2), (1, 3), (5, 0)):
            yield "occ", {"x": y, "axis": axis, "alpha": (4, 5)}, index
    for index in ((0, 4), (1, 2), (1, 3)):
        yield "occ", {"x": y.astype(R.arrays.BFLOAT16), "axis": "token"}, index
    yield "occ", {"x": np.tile(y[2:4], (1, 6))}, (0, 4)
    yield "occ", {"x": y, "alpha": (1, 1)}, (0, 4)
    yield "occ", {"x": np.where(y > 0, np.float32(np.inf), y)[2:], "alpha": (4, 5)}, (1, 1)  # a threshold is Inf


def products() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0x20, 0x50, (2, 70), np.uint8) | rng.integers(0, 2, (2, 70), np.uint8) << 7 for _ in range(2))
    a[1, 5], a[0, 40:] = 0x7F, 0
    row = {"a_scales": np.array([[130], [120]], np.uint8), "b_scales": np.array([[127], [125]], np.uint8)}
    for order in ("promote128", "promote32", "chain"):
        yield "matmul_fp8", {"a": a, "b": b, "order": order}, (0, 1)
    yield "matmul_fp8", {"a": a, "b": b, **row, "out": "bfloat16", "b_format": "E5M2"}, (0, 0)
    for index in ((1, 1), 2):
        yield "matmul_fp8", {"a": a, "b": b}, index
    long = rng.integers(0x20, 0x50, (1, 200), np.uint8)
    blocks = {"a_scales": np.array([[130, 127]], np.uint8), "b_scales": np.array([[127, 125]], np.uint8)}
    yield "matmul_fp8", {"a": long, "b": long, **blocks}, 0
    yield "matmul_fp8", {"a": long, "b": long, "order": "split2"}, 0
    for seed in range(6):  # of more than 64 terms those of the step that loses the most
        few = np.random.default_rng(seed).integers(0x08, 0x70, (1, 128), np.uint8)
        few[0, 32 * (seed % 4) : 32 * (seed % 4) + 32] = 0x70
        yield "matmul_fp8", {"a": few, "b": few, "order": "chain"}, 0
    for special in (0x7F, 0x38):
        lossless = np.full((1, 128), 0x38, np.uint8)
        lossless[0, 100] = special
        yield "matmul_fp8", {"a": lossless, "b": lossless, "order": "promote32"}, 0
    for sides in (([0x7C], [0x00]), ([0x7C], [0x38]), ([0x7C, 0xFC], [0x38, 0x38])):
        left, right = (np.array([side], np.uint8) for side in sides)
        yield "matmul_fp8", {"a": left, "b": right, "a_format": "E5M2"}, 0
    wide = (rng.standard_normal((2, 20)) * np.ldexp(1.0, rng.integers(-9, 9, (2, 20)))).astype(R.arrays.BFLOAT16)
    yield "matmul_bf16", {"a": wide, "b": wide}, (0, 1)


FIRST = (quantisers, recasts, scalars, nvfp4, rotations, tetrajet, logarithmic, estimators, products)
