"""The inputs of the matrix: one fixed set an operation, in rows that do not depend on each other, the plainest first.

A row is one block, one tile, one number or one code. The first row that differs is therefore already a small
counter-example: the plain rows hold two numbers that are not zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from refnum.arrays import float32_bits
from refnum.formats import get_format

from ...cases.corners import updates
from ...cases.draw.factors import factors
from ...cases.levels import classify
from ...subjects.peers import survey

FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True)
class Rows:
    """Inputs of one variant.

    inputs: name -> array whose first axis is the row. classes: letter index of each row (N17).

    keys: what a `Difference` speaks of -> its unsigned pattern for each row: `x`, `amax`, `codes`, `scales`,
    `zero_block`, the scale byte of a tile that has a block of zeros, else 0, `minus_zero`, 1 where a row has a -0, or
    `gradient`.
    """

    inputs: Mapping[str, np.ndarray]
    classes: np.ndarray
    keys: Mapping[str, np.ndarray]

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.classes.size)

    def row(self, index: int) -> dict[str, np.ndarray]:
        """Return the inputs of one row."""
        return chosen(self.inputs, np.array([index]))


def select(given: Rows, rows: np.ndarray) -> Rows:
    """Return some of the rows, by a mask or by numbers."""
    keys = {name: key[rows] for name, key in given.keys.items()}
    return Rows(chosen(given.inputs, rows), given.classes[rows], keys)


SHARED = ("tensor_amax", "factors")
"""Inputs and outputs that all rows of a call have in common."""


def chosen(given: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of some rows, by a mask or by numbers."""
    return {name: array if name in SHARED else array[rows] for name, array in given.items()}


_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_TOPS = (4.0, 5.0, 6.0, 7.0, 7.5, 7.9375)
_BITS = 1 << 31


def _beside(values: tuple[float, ...]) -> np.ndarray:
    """Values, one ulp below and above, both signs: float32 bits; zero only as +0 and -0."""
    bits = np.array(values, np.float32).view(np.uint32).astype(np.int64)
    near = np.concatenate([bits + step for step in (0, -1, 1)])
    near = np.unique(np.maximum(near, 0))
    return np.concatenate([near, near | _BITS]).astype(np.uint32)


@functools.cache
def plain(width: int) -> np.ndarray:
    """Blocks with a maximum between 4 and 8 (or 256 and 512), one companion, and zeros: float32 [N, width]."""
    rows = [np.zeros((1, 2), np.uint32)]
    for scale in (1.0, 64.0) if width == 128 else (1.0,):
        tops = _beside(tuple(top * scale for top in _TOPS))
        tops = tops[tops < _BITS]
        companions = _beside(tuple(sorted({*_MIDPOINTS, *_VALUES})))
        pairs = np.stack(np.meshgrid(tops, companions, indexing="ij"), -1).reshape(-1, 2)
        top, companion = (pairs[:, index].view(np.float32) for index in (0, 1))
        rows.append(pairs[np.abs(companion) <= top])
    pairs = np.concatenate(rows)
    blocks = np.zeros((len(pairs), width), np.uint32)
    blocks[:, :2] = pairs
    return blocks.view(np.float32)


def _led(width: int, sixteenths: int) -> np.ndarray:
    """Blocks led by every boundary magnitude, `sixteenths` of the 16 of each binade: float32 [N, width]."""
    amax = np.unique(survey.boundary() & np.uint32(0x7FFFFFFF))
    if sixteenths < 16:
        place = (amax.astype(np.int64) + 3 >> 19) % 16
        amax = amax[np.isin(place, (0, 8, 12, 14)) | (amax >= 0x7F800000)]
    blocks = survey.blocks_led_by(amax, min(width, 32))
    return np.tile(blocks, (1, width // 32)) if width > 32 else blocks


def _specials(width: int) -> np.ndarray:
    """Blocks with NaN, Inf or both beside finite numbers, and blocks of -0: float32 [N, width]."""
    rows = []
    for pattern in (0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000):
        for lane in (0, 15, 31) if width > 16 else (0, 15):
            block = np.zeros(width, np.uint32)
            block[:4] = np.array([1.0, -0.25, 3.0, -0.0], np.float32).view(np.uint32)
            block[lane] = pattern
            rows.append(block)
    both = rows[-1].copy()
    both[7] = 0x7FC00000
    return np.stack([*rows, both, np.full(width, _BITS, np.uint32)]).view(np.float32)


def _floats(width: int, dtype: str) -> Rows:
    x = np.concatenate([plain(width), _specials(width), _led(width, 4 if width == 128 else 16)])
    with np.errstate(all="ignore"):
        x = x.astype(FLOATS[dtype])
    if dtype != "float32":  # what the narrower type cannot tell apart is dropped, the first of each kept
        _, first = np.unique(x.view(np.uint16), axis=0, return_index=True)
        x = x[np.sort(first)]
    bits = float32_bits(np.ascontiguousarray(x))
    amax = (bits & np.uint32(0x7FFFFFFF)).max(axis=1)
    return Rows({"x": x}, classify(amax), {"amax": amax})


TENSOR_AMAX = 1000.0
"""The tensor maximum of NVFP4 rows: no power of two, so that it does not divide out."""


def _nvfp4(params: Mapping[str, Any]) -> Rows:
    """Blocks of 16: every boundary maximum for which a scale is neither zero nor above 448, and few others."""
    every = _floats(16, params["input"])
    amax = every.keys["amax"]
    least, most = np.array([TENSOR_AMAX * 2.0**-20, TENSOR_AMAX], np.float32).view(np.uint32)
    found = select(every, (amax >= least) & (amax <= most) | (amax & 0x7FFFFF == 0) | (every.classes != 0))
    minus_zero = (float32_bits(np.ascontiguousarray(found.inputs["x"])) == _BITS).any(axis=1)
    keys = {**found.keys, "minus_zero": minus_zero.astype(np.uint8)}
    return Rows({**found.inputs, "tensor_amax": np.array([TENSOR_AMAX], np.float32)}, found.classes, keys)


def _casts(dtype: str) -> Rows:
    if dtype == "float32":
        bits = survey.boundary()
        with np.errstate(all="ignore"):
            values = np.abs(bits.view(np.float32).astype(np.float64))
            away = np.abs(np.log2(np.where(values > 0, values, 1e-300)))
        order = np.argsort(np.where(np.isnan(away), np.inf, away) + (bits >> 31) * 0.25, kind="stable")
        x = bits[order].view(np.float32)
    else:
        x = survey.every(dtype)
    wide = np.ascontiguousarray(float32_bits(np.ascontiguousarray(x)))
    return Rows({"x": x}, classify(wide & np.uint32(0x7FFFFFFF)), {"x": wide})


def _codes(count: int) -> Rows:
    codes = np.arange(count, dtype=np.uint8)
    return Rows({"codes": codes}, np.zeros(count, np.uint8), {"codes": codes})


def _scales() -> np.ndarray:
    """Every scale byte, those near 127 first."""
    return np.array(sorted(range(256), key=lambda byte: (abs(byte - 127), byte)), np.uint8)


def _packed() -> Rows:
    pairs = np.array([(2 * i) | (2 * i + 1) << 4 for i in range(8)], np.uint8)
    packed = np.tile(pairs, (256, 2))
    scales = _scales()[:, None]
    return Rows({"packed": packed, "scales": scales}, np.zeros(256, np.uint8), {"scales": scales[:, 0]})


def _coded(width: int, elements: int) -> Rows:
    """Codes 0 to elements - 1 in blocks of `width`, each block under every scale byte."""
    codes = (np.arange(max(elements, width)) % elements).astype(np.uint8).reshape(-1, width)
    blocks, scales = np.tile(codes, (256, 1)), np.repeat(_scales(), len(codes))[:, None]
    keys = {"scales": scales[:, 0]}
    return Rows({"codes": blocks, "scales": scales}, np.zeros(len(blocks), np.uint8), keys)


def _tiles() -> Rows:
    """FP8 tiles to be recast: every code led by every magnitude, under scales near 127 and at both ends."""
    scales = [byte for byte in _scales() if abs(int(byte) - 127) < 4 or byte < 12 or byte > 240]
    lead = np.arange(256, dtype=np.uint8)
    lane = np.arange(128, dtype=np.uint8)
    signs = ((lane * 37 >> 3) & 1) << 7
    tiles = np.where(lane[None, :] % 32 == 0, lead[:, None], (lane[None, :] * 29 + lead[:, None]) % 127 | signs)
    tiles = np.concatenate([np.zeros((1, 128), np.uint8), tiles.astype(np.uint8)])
    codes = np.tile(tiles, (len(scales), 1))
    bytes_ = np.repeat(np.array(scales, np.uint8), len(tiles))[:, None]
    bad = ((codes & 127) == 127).any(axis=1) | (bytes_[:, 0] == 255)
    blank = ((codes & 127) == 0).reshape(-1, 4, 32).all(axis=2).any(axis=1)
    keys = {"scales": bytes_[:, 0], "codes": bad.astype(np.uint8), "zero_block": np.where(blank, bytes_[:, 0], 0)}
    return Rows({"codes": codes, "scales": bytes_}, np.where(bad, 5, 0).astype(np.uint8), keys)


def _steps(operation: str) -> Rows:
    """Weights of an optimiser's step: ordinary numbers, then pairs of every kind; the scalars of an early step."""
    parts = [updates.step((4096, 1)), *(arrays for _, arrays in updates.kinds())]
    made = {name: np.concatenate([part[name].reshape(-1, 1) for part in parts]) for name in updates.NAMES}
    bits = {name: array.view(np.uint32)[:, 0] for name, array in made.items()}
    largest = np.max([one & np.uint32(_BITS - 1) for one in bits.values()], axis=0)
    return Rows({**made, "factors": factors(operation, 0)}, classify(largest), {"gradient": bits["gradient"]})


_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Rows]] = {
    "quantize_mxfp4": lambda p: _floats(32, p["input"]),
    "quantize_mx": lambda p: _floats(32, p["input"]),
    "quantize_fp8_tiles": lambda p: _floats(128, p["input"]),
    "quantize_nvfp4": _nvfp4,
    "dequantize_mxfp4": lambda p: _packed(),
    "dequantize_mx": lambda p: _coded(32, 1 << get_format(p["element"]).bits),
    "dequantize_fp8_tiles": lambda p: _coded(128, 256),
    "fp8_to_mxfp4": lambda p: _tiles(),
    "encode_e2m1": lambda p: _casts(p["input"]),
    "encode_e4m3": lambda p: _casts(p["input"]),
    "encode_e8m0": lambda p: _casts(p["input"]),
    "dge": lambda p: _casts(p["input"]),
    "adam_apply": lambda p: _steps("adam_apply"),
    "spam_apply": lambda p: _steps("spam_apply"),
    "stable_spam_apply": lambda p: _steps("stable_spam_apply"),
    "decode_e2m1": lambda p: _codes(16),
    "decode_e4m3": lambda p: _codes(256),
    "decode_e8m0": lambda p: _codes(256),
}

OPERATIONS = tuple(_MAKERS)
"""Operations that the matrix has: those that a peer has."""


def wanted(operation: str, params: Mapping[str, Any]) -> bool:
    """Whether the matrix runs a variant: both float inputs that peers take, tiles of one row."""
    return params.get("input") in (None, "float32", "bfloat16") and params.get("tile", (1,))[0] == 1


@functools.cache
def _made(operation: str, key: tuple[tuple[str, str], ...]) -> Rows:
    return _MAKERS[operation](dict(key))


def rows(operation: str, params: Mapping[str, Any]) -> Rows:
    """Return the rows of a variant; made once."""
    if operation.startswith("quantize"):  # the same for every element format
        params = {name: value for name, value in params.items() if name != "element"}
    return _made(operation, tuple((name, value) for name, value in params.items() if name in ("input", "element")))
