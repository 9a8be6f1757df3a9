"""Cases of explanations by float32 operations: each family of them, with NaN, infinities, zeros and ties."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from explain_cases import CODES, HURT, HURT_SCALES, PACKED, SCALES, TILES, WAVE, Case

import refnum as R


def oscillation() -> Iterator[Case]:
    pairs = [(0.01, 3.2), (0, 1), (0, 0), (-1, 2), (np.nan, 1), (np.inf, 1), (1, np.inf), (-1, -np.inf), (1e-9, 3e38),
             (-1e-8, 1), (0.3, 4.8), (2.0**-149, 2.0**-149), (1, 16), (-0.0, 3), (3e38, 2.0**-140)]  # fmt: skip
    walked, jumped = np.array(pairs, np.float32).T.copy()
    case = {"dist_w": walked, "dist_q": jumped}
    for index in range(len(pairs)):
        yield "q_ramping", case, index
        yield "osci_reset_by_distance", case, index
    yield "q_ramping", {**case, "alpha": (1, 3), "beta": 7, "most": 1000}, 0
    yield "osci_reset_by_distance", {**case, "threshold": 0.5}, 0
    total = np.array([1.5, 2.0**-149, -0.0, 3e38, 16777216, 0.1], np.float32)
    grad = np.array([0.1, 2.0**-149, -0.0, 3e38, 1, -0.1], np.float32)
    count, period = np.array([2, 5, 0, 0, 0x1FFFFFE, 0], np.int32), np.array([3, 4, 1, 1, 0x1FFFFFF, 2], np.int32)
    steps = {"total": total, "count": count, "grad": grad, "period": period}
    for index in range(6):
        yield "ramping_step", steps, index
    for special in (np.nan, -np.inf):
        yield "ramping_step", {**steps, "grad": np.array([1, 1, 1, 1, special, 1], np.float32)}, 0
    w = np.tile(WAVE[:16, :16].reshape(2, 128), (1, 2)) / np.float32(3)
    w[0, :2] = np.nan, np.inf
    packed, scales, outer = R.quantize_tetrajet_v2(w)
    weights = {"w": w, "packed": packed, "scales": scales, "outer": outer}
    for index in ((0, 0), (0, 1), (0, 30), (1, 130), (1, 141)):
        yield "osci_reset", weights, index
    yield "osci_reset", {**weights, "scales": np.zeros_like(scales), "threshold": (1, 4)}, (1, 3)
    norms = np.array([*range(300)], np.float32).reshape(2, 150) % 7
    norms[1, 4:6] = np.nan, -0.0
    for index in ((0, 6), (0, 148), (1, 4), (1, 5)):
        yield "out_control", {"norms": norms}, index
        yield "out_control", {"norms": norms, "share": (1, 2)}, index
    yield "out_control", {"norms": norms[0, :100].copy()}, 6


def two_scales() -> Iterator[Case]:
    x = np.tile(WAVE[:32, :16].reshape(4, 128), (1, 2)) / np.float32(3)
    x[0, :2], x[1, :128], x[2, 16:32], x[3, 128:144] = (np.nan, np.inf), 0, np.nan, -0.0
    x[3, 0] = 3e38
    for index in ((0, 0), (0, 1), (0, 5), (0, 200), (1, 3), (1, 140), (2, 20), (3, 130), (3, 3), (2, 77)):
        for seed in (None, 7):
            yield "quantize_tetrajet_v2", {"x": x, "seed": seed}, index
    packed, scales, outer = R.quantize_tetrajet_v2(x)
    for index in ((0, 0), (0, 5), (1, 3), (2, 20), (2, 77), (3, 0)):
        for dtype in ("float32", "bfloat16"):
            case = {"packed": packed, "scales": scales, "outer": outer / np.float32(3), "dtype": dtype}
            yield "dequantize_tetrajet_v2", case, index


def optimisers() -> Iterator[Case]:
    gradient = np.array([0.1, -3, np.nan, 1e-30, 0, -np.inf, 40, -0.3], np.float32)
    weight = np.array([1, -0.5, 2, 2.0**-140, -0.0, 1, 7, 0.1], np.float32)
    m, v = np.roll(weight, 3) / np.float32(7), np.roll(weight, 1) ** 2
    v[7] = -1  # its root is no number
    case = {"gradient": gradient, "weight": weight, "m": m, "v": v}
    adam = np.array([0.99, 0.9, 0.1, 0.999, 0.001, 0.03, 1e-8, 0.01], np.float32)
    spam = np.array([10, 0.9, 0.1, 0.999, 0.001, 1e-6, 0.01, 0.001], np.float32)
    stable = np.array([0.99, 30, 40, 50, 3, 0.9, 0.1, 0.999, 0.001, 0.03, 1e-8, 0.01], np.float32)
    for index in range(8):
        yield "adam_apply", {**case, "factors": adam}, index
        yield "spam_apply", {**case, "factors": spam}, index
        yield "stable_spam_apply", {**case, "factors": stable}, index
    yield "spam_apply", {**case, "factors": spam, "clip": False, "reset": True, "decay": True}, 6
    for forget in ("before", "after"):
        yield "stable_spam_apply", {**case, "factors": stable, "forget": forget}, 6
    stable[3] = 0
    yield "stable_spam_apply", {**case, "factors": stable}, 0


def integers() -> Iterator[Case]:
    x = WAVE[:3, :64].copy()
    x[1, 5:8], x[2, :32], x[2, 40] = (np.nan, np.inf, -0.0), 1e-9, np.nan
    for index in ((0, 1), (1, 5), (1, 6), (1, 7), (2, 3), (2, 40), (2, 50), (1, 40)):
        yield "sawb", {"x": x}, index
        for operation in ("int4_affine", "efficient_qat", "int4_keep_two"):
            yield operation, {"x": x, "group": 32}, index
        for symmetric in (True, False):
            yield "llm_qat", {"x": x, "bits": 4, "symmetric": symmetric, "layerwise": index[0] == 0}, index
        for width in (1, 2):
            yield "llm_fp4", {"x": x, "maxval": np.array([5], np.float32), "exponent_bits": width}, index
    yield "sawb", {"x": np.full((1, 4), np.nan, np.float32)}, 0
    yield "sawb", {"x": np.array([[3, 0, 0, 0, 0, 0, 0, 0]], np.float32)}, 0
    yield "sawb", {"x": np.array([[1, 1, -1, 1]], np.float32)}, 2
    yield "efficient_qat", {"x": np.array([[3e38, -3e38, 1, 2]], np.float32), "group": 4}, 2
    yield "int4_affine", {"x": np.array([[3e38, -3e38, 1, 2]], np.float32), "group": 4}, 0
    yield "int4_keep_two", {"x": np.array([[9, -8, 7, 3.5, -6.5]], np.float32), "group": 5}, 3
    yield "int4_keep_two", {"x": np.array([[9, -8, 7, 3.5, -6.5]], np.float32), "group": 5}, 1
    yield "llm_fp4", {"x": x, "maxval": np.array([5, 6, 7], np.float32)}, (2, 41)
    yield "llm_qat", {"x": np.array([[0, -0.0, 0]], np.float32), "symmetric": False}, 1
    codes, scales = np.arange(16, dtype=np.uint8).reshape(1, 16), np.array([[0.3, -2]], np.float32)
    for index in (3, 7, 8, 15):
        yield "dequantize_int4", {"codes": codes, "scales": scales}, index
        yield "dequantize_int4", {"codes": codes, "scales": scales, "zeros": np.array([[5, 2]], np.uint8)}, index
        yield "dequantize_int4", {"codes": codes, "scales": scales[0, :1]}, index


def numbers() -> Iterator[Case]:
    for index in ((0, 0), (0, 33), (2, 40), (129, 159)):
        for dtype in ("float32", "bfloat16"):
            yield "dequantize_mxfp4", {"packed": PACKED, "scales": HURT_SCALES, "dtype": dtype}, index
    laid = R.layouts.scales_to_layout(SCALES, "swizzled")
    yield "dequantize_mxfp4", {"packed": PACKED, "scales": laid, "layout_in": "swizzled"}, (129, 159)
    codes = np.tile(np.array([0x00, 0x80, 0x01, 0x7F, 0x7C, 0xFC, 0x38, 0xB9], np.uint8), (1, 4))
    for element in ("E4M3", "E5M2", "MXINT8"):
        for byte in (0, 127, 254):
            scales = np.array([[byte]], np.uint8)
            for index in (0, 1, 2, 3, 4, 5, 7):
                case = {"codes": codes, "scales": scales, "element": element}
                yield "dequantize_mx", {**case, "dtype": "bfloat16" if byte == 0 else "float32"}, index
    for index in ((0, 0), (1, 2), (129, 131)):
        yield "dequantize_fp8_tiles", {"codes": HURT, "scales": TILES}, index
    squares = np.array([[130, 120], [127, 0]], np.uint8)
    for index in ((0, 40), (129, 40), (129, 159)):
        yield "dequantize_fp8_tiles", {"codes": HURT, "scales": squares, "tile": (128, 128)}, index


def gates() -> Iterator[Case]:
    gate, up = (WAVE[first : first + 3, :96].astype(R.arrays.BFLOAT16) for first in (0, 3))
    gate[0, :3], up[1, 4] = (np.inf, -np.inf, np.nan), np.inf
    prob, grad = np.array([0.3, -1, np.nan], np.float32), WAVE[6:9, :96].copy()
    for index in ((0, 0), (0, 1), (0, 2), (1, 4), (1, 5), (2, 95), (0, 70)):
        yield "swiglu_quantize", {"gate": gate, "up": up}, index
        yield "swiglu_quantize", {"gate": gate, "up": up, "prob": prob, "to": "mxfp4"}, index
        yield "swiglu_backward", {"grad": grad, "gate": gate, "up": up}, index
        yield "swiglu_backward", {"grad": grad, "gate": gate, "up": up, "prob": prob}, index
    for index in ((0, 1), (7, 70)):
        yield "quantize_payload", {"x": WAVE}, index
        yield "fp8_to_payload", {"codes": CODES, "scales": TILES}, index
    rows, row_map = WAVE[:8, :5].copy(), np.array([2, 0, 2, 2, 0], np.int32)
    case = {"rows": rows, "row_map": row_map, "splits": [3, 2], "tokens": 4, "align": 4}
    for index in ((0, 1), (1, 1), (2, 4)):
        yield "unpermute", {**case, "weights": None}, index
        yield "unpermute", {**case, "weights": np.array([0.1, 0.2, 0.3, 0.4, -0.5], np.float32)}, index


FURTHER = (oscillation, two_scales, optimisers, integers, numbers, gates)
