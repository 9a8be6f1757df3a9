"""Larger tensors, made by integer arithmetic on Philox words: mixed matrices and ragged MoE columns."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from refnum.philox import random_bytes, random_words

from ..draft import Draft

SEED = 0x7265666E756D
MOE = [0, 130, 2, 64, 0, 60]
"""Rows of six experts: two empty, one past a 128-row block, one of exactly two MX blocks."""


def _words(stream: int, rows: int, columns: int) -> np.ndarray:
    return random_words(rows * columns, SEED, stream).reshape(rows, columns)


def mixed_bits(stream: int, rows: int, columns: int) -> np.ndarray:
    """Return float32 bits u32 [rows, columns]; the kind of a row goes round eight distributions.

    0 any bits, 1 near one, 2 two mantissa bits (ties), 3 tiny, 4 mostly zeros, 5 one outlier a block, 6 huge,
    7 every block another binade.
    """
    w = _words(stream, rows, columns)
    sign, mantissa, field = w & np.uint32(0x80000000), w & np.uint32(0x7FFFFF), (w >> np.uint32(23)) & np.uint32(255)
    lane = np.arange(columns, dtype=np.uint32)[None, :]
    near = np.uint32(120) + field % np.uint32(10)
    kinds = (
        w & np.uint32(0x7FFFFFFF),
        near << 23 | mantissa,
        near << 23 | (mantissa & np.uint32(0x600000)),
        (field % np.uint32(9)) << 23 | mantissa,
        np.where(w % np.uint32(4) == 0, near << 23 | mantissa, 0),
        (np.where(lane % 32 == w[:, :1] % np.uint32(32), near + np.uint32(20), near)) << 23 | mantissa,
        (np.uint32(245) + field % np.uint32(10)) << 23 | mantissa,
        (near + (lane // 32 * 5) % 24) << 23 | mantissa,
    )
    out = np.zeros_like(w)
    for kind, pattern in enumerate(kinds):
        out[kind::8] = pattern[kind::8].astype(np.uint32)
    return out | sign


def float_matrix(stream: int, rows: int, columns: int) -> np.ndarray:
    """Return the mixed matrix as float32."""
    return mixed_bits(stream, rows, columns).view(np.float32)


def bfloat_matrix(stream: int, rows: int, columns: int) -> np.ndarray:
    """Return the mixed matrix cut to bfloat16."""
    return (mixed_bits(stream, rows, columns) >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)


def scale_bytes(stream: int, rows: int, columns: int, centre: int = 120, spread: int = 12) -> np.ndarray:
    """Return scale bytes around a centre; one in 64 is 255, one in 64 is 0."""
    w = _words(stream, rows, columns)
    byte = np.uint32(centre) + (w >> np.uint32(8)) % np.uint32(spread)
    byte = np.where(w % np.uint32(64) == 0, np.uint32(255), byte)
    return np.where(w % np.uint32(64) == 1, np.uint32(0), byte).astype(np.uint8)


def fp8_codes(stream: int, rows: int, columns: int) -> np.ndarray:
    """Return E4M3 codes: any byte in the first of eight rows, else finite ones; every sixteenth row is zeros."""
    codes = random_bytes(rows * columns, SEED, stream).reshape(rows, columns)
    finite = np.where((codes & 0x7F) == 0x7F, codes ^ 1, codes).astype(np.uint8)
    finite[0::8] = codes[0::8]
    finite[11::16] &= 0x80
    return finite


def packed_codes(stream: int, rows: int, columns: int) -> np.ndarray:
    """Return packed E2M1 codes u8 [rows, columns / 2]; one MX block in eight is all zeros."""
    codes = random_bytes(rows * columns // 2, SEED, stream).reshape(rows, columns // 32, 16)
    empty = _words(stream + 1, rows, columns // 32) % np.uint32(8) == 0
    return np.where(empty[..., None], codes & 0x88, codes).astype(np.uint8).reshape(rows, columns // 2)


def every_half(dtype: np.dtype) -> np.ndarray:
    """Return all 65,536 patterns of a 16-bit type as [2048, 32]."""
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(2048, 32).view(dtype)


def quantizer(stream: int, bfloat: bool = False) -> Iterator[Draft]:
    """One mixed matrix 64 x 256."""
    x = bfloat_matrix(stream, 64, 256) if bfloat else float_matrix(stream, 64, 256)
    yield Draft(
        {"x": x},
        flags=("TAIL_OR_LATER_BATCH", "E8M0_MODE", "OUTPUT_NOT_WRITTEN"),
        tensor=True,
        comment="mixed rows of eight distributions, 64 x 256",
    )


def every_pattern() -> Iterator[Draft]:
    """All bfloat16 and all float16 patterns in sequence."""
    for dtype in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)):
        yield Draft(
            {"x": every_half(dtype)},
            tensor=True,
            flags=("TAIL_OR_LATER_BATCH",),
            comment=f"every {dtype.name} pattern in sequence",
        )


def tiles() -> Iterator[Draft]:
    """Both tile shapes on matrices whose last tiles are short."""
    yield Draft(
        {"x": float_matrix(21, 64, 288)},
        {"tile": [1, 128]},
        tensor=True,
        flags=("TAIL_OR_LATER_BATCH",),
        comment="mixed rows, 64 x 288",
    )
    rows = mixed_bits(22, 160 * 8, 288)[1::8]  # one kind only: a NaN in most tiles would hide the rest
    yield Draft(
        {"x": np.ascontiguousarray(rows).view(np.float32)},
        {"tile": [128, 128]},
        tensor=True,
        flags=("TILE_GEOMETRY", "TAIL_OR_LATER_BATCH"),
        comment="160 x 288 near one",
    )


def fp8_rows() -> Iterator[Draft]:
    """Random FP8 tiles 64 x 288."""
    yield Draft(
        {"codes": fp8_codes(31, 64, 288), "scales": scale_bytes(32, 64, 3)},
        tensor=True,
        flags=("TAIL_OR_LATER_BATCH", "PAD_STRIDE", "OUTPUT_NOT_WRITTEN"),
        comment="random codes, 64 x 288",
    )


def mxfp4_rows(mode: str) -> Iterator[Draft]:
    """Random MXFP4 64 x 288."""
    yield Draft(
        {"packed": packed_codes(41, 64, 288), "scales": scale_bytes(43, 64, 9)},
        {"scale": mode},
        tensor=True,
        flags=("RECIPE_ZERO_FULL_SCALE", "TAIL_OR_LATER_BATCH", "OUTPUT_NOT_WRITTEN"),
        comment="random codes, 64 x 288",
    )


def mxfp4_moe(mode: str, recipe: tuple[str, ...] = ()) -> Iterator[Draft]:
    """Random MXFP4 of six experts."""
    yield Draft(
        {"packed": packed_codes(51, sum(MOE), 96), "scales": scale_bytes(53, sum(MOE), 3)},
        {"scale": mode, "splits": MOE},
        tensor=True,
        flags=("RAGGED_BLOCK_RESTART", "TAIL_OR_LATER_BATCH", *recipe),
        comment=f"experts of {MOE} rows, K = 96",
    )


def fp8_moe(underflow: str) -> Iterator[Draft]:
    """Random FP8 of six experts."""
    yield Draft(
        {"codes": fp8_codes(61, sum(MOE), 160), "scales": scale_bytes(62, sum(MOE), 2)},
        {"underflow": underflow, "splits": MOE},
        tensor=True,
        flags=("RAGGED_BLOCK_RESTART", "UNDERFLOW_KEEPS_MANTISSA"),
        comment=f"experts of {MOE} rows, K = 160",
    )


def _tame(stream: int, rows: int, columns: int, exponents: int = 8) -> np.ndarray:
    w = _words(stream, rows, columns)
    field = np.uint32(130 - exponents) + (w >> np.uint32(23)) % np.uint32(exponents)
    return ((w & np.uint32(0x807FFFFF)) | field << np.uint32(23)).astype(np.uint32)


def _cut(words: np.ndarray) -> np.ndarray:
    return (words >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)


def swiglu(to: str) -> Iterator[Draft]:
    """Gates and ups near one with routing probabilities, 48 x 256."""
    prob = (_words(73, 48, 1)[:, 0] >> np.uint32(9) | np.uint32(0x3E800000)).view(np.float32)
    yield Draft(
        {"gate": _cut(_tame(71, 48, 256)), "up": _cut(_tame(72, 48, 256)), "prob": prob},
        {"to": to},
        tensor=True,
        flags=("SWIGLU_BF16_INTERMEDIATE", "SWIGLU_PROB_IGNORED"),
        comment="48 x 256 near one, routing probabilities",
    )


def swiglu_back() -> Iterator[Draft]:
    """Gradients, gates and ups near one, 32 x 200."""
    prob = (_words(84, 32, 1)[:, 0] >> np.uint32(9) | np.uint32(0x3E800000)).view(np.float32)
    yield Draft(
        {
            "grad": _tame(81, 32, 200).view(np.float32),
            "gate": _cut(_tame(82, 32, 200)),
            "up": _cut(_tame(83, 32, 200)),
            "prob": prob,
        },
        tensor=True,
        flags=("FMA_CONTRACTION", "SUM_ORDER"),
        comment="32 x 200 near one",
    )


def moe_rows() -> Iterator[Draft]:
    """A dispatch of 96 tokens to six experts, payload of K = 96."""
    row_map = (_words(91, 1, sum(MOE))[0] % np.uint32(96)).astype(np.int32)
    yield Draft(
        {"payload": random_bytes(96 * 51, SEED, 92).reshape(96, 51), "row_map": row_map},
        {"splits": MOE, "align": 32},
        tensor=True,
        flags=("PADDING_NOT_ZERO", "ROW_MAP_INVERTED"),
        comment=f"96 tokens to experts of {MOE} rows",
    )


def moe_combine() -> Iterator[Draft]:
    """The way back of 96 tokens with float32 weights."""
    row_map = (_words(91, 1, sum(MOE))[0] % np.uint32(96)).astype(np.int32)
    rows = sum(-(-m // 32) * 32 for m in MOE)
    weights = (_words(94, 1, sum(MOE))[0] >> np.uint32(9) | np.uint32(0x3E000000)).view(np.float32)
    yield Draft(
        {"rows": _cut(_tame(93, rows, 64)), "row_map": row_map, "weights": weights},
        {"splits": MOE, "tokens": 96, "align": 32},
        tensor=True,
        flags=("FMA_CONTRACTION", "SUM_ORDER"),
        comment=f"96 tokens from experts of {MOE} rows",
    )


def stochastic() -> Iterator[Draft]:
    """One mixed matrix with eight random bits an element."""
    yield Draft(
        {"x": bfloat_matrix(13, 64, 256), "rbits": random_bytes(64 * 256, SEED, 14).reshape(64, 256)},
        tensor=True,
        flags=("STOCHASTIC_BITS_IGNORED",),
        comment="mixed rows with random bits, 64 x 256",
    )
