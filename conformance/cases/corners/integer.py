"""Corners of the integer quantisers (N26): ties and ends of each code at every scale, scales beside their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, Format

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .estimators import _content
from .floats import SPECIALS
from .nvfp4 import narrowed

Corner = tuple[Any, ...]
SHAPES = ((0, 5), (5, 0), (1, 1), (1, 2), (3, 7), (33, 67), (1, 4097), (64, 512))
GROUPED_SHAPES = ((0, 32), (1, 32), (3, 96), (33, 160), (1, 7168))
GROUPS = (8, 16, 64, 128, 256)
"""Groups beside those of the variants."""
EXPONENTS = (-140, -126, -30, -21, -17, -4, 0, 3, 9, 13, 14, 60, 122)
"""Powers of two that are scales: beyond both of their bounds, and where products overflow or are subnormal."""
SPREADS = (0x3727C5AC, 0x3AC49BA6, 0x48127C00)
"""float32 bits of 1e-5, of 15e-4 and of 15e4: the spreads at which a scale meets its bounds."""

CLOSE = (
    (0x401A7584, 0x3FA376CE),
    (0x4013F1CE, 0x3F9C91DE),
    (0x3FDB7A1E, 0x3F6845CA),
    (0x3FC196AD, 0x3F4CDFF7),
    (0x3FD00003, 0x3EC00000),
    (0x3FD00001, 0x3EC00000),
    (0x3FD00001, 0x3EC00000, 0x00800000, 0),
    (0x20020000, 0x1E700000),
    (0x1C800000, 0x107FFFFF, 0x047E8000, 0x007FFFFF),
)
"""float32 bits of tensors: roots of mean squares less than 2^-20 of a step above a tie, means at ties, one of which
2^-126 raises, a mean square that is subnormal, and a mean that is below a tie by half of 2^-126."""


def _laid(values: np.ndarray, fmt: Format, columns: int) -> np.ndarray:
    """Values as rows of so many columns in an input format, bfloat16 by its upper half; filled up with zeros."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)
    padded = np.concatenate([flat, np.zeros(-len(flat) % columns, np.uint32)])
    return as_float(narrowed(padded.reshape(-1, columns), fmt), fmt)


def _beside(values: np.ndarray, step: int) -> np.ndarray:
    """Each number between its two neighbours in the input format, [..., 3]."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.int64)
    near = bits[..., None] + step * np.array([-1, 0, 1])
    return np.where(bits[..., None] & 0x7FFFFFFF, near, bits[..., None]).astype(np.uint32).view(np.float32)


def stepped(pins: tuple[float, ...], fmt: Format, width: int = 32) -> np.ndarray:
    """Groups of pins and, amid them, every half step from -9 to 16 and its neighbours, at every scale, [n, width]."""
    values = _beside(np.arange(-18, 33) / 2, 1 if fmt is FP32 else 1 << 16).reshape(-1)
    room = width - len(pins)
    values = np.resize(values, (-(-len(values) // room), room)).astype(np.float64)
    blocks = np.concatenate([values[:, :1], np.tile(pins, (len(values), 1)), values[:, 1:]], axis=1)
    with np.errstate(over="ignore"):
        return np.concatenate([np.ldexp(blocks, k) for k in EXPONENTS]).astype(np.float32)


def sawb(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Shapes; tensors that are alike, of zeros, without a finite number, whose mean square overflows or is lost."""
    fmt = target_of(operation, params).input
    for number, shape in enumerate(SHAPES):
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(_content(shape, number, fmt), fmt)}
    zeros: np.ndarray = np.zeros((4, 6), word(fmt))
    zeros[::2, ::3] = 1 << fmt.bits - 1
    yield "zeros of both signs", {"x": as_float(zeros, fmt)}
    for value in (1.0, 3.0, 2.0**-130, 2.0**-75, 2.0**63, 3.0 * 2.0**126):
        yield f"{value:g} alone", {"x": _laid(np.array([value, -value] * 4), fmt, 4)}
        yield f"{value:g} beside zeros", {"x": _laid(np.array([value] + [0] * 39), fmt, 8)}
    for name, code in (("NaN", fmt.nan_code), ("Inf", fmt.inf_code)):
        yield f"{name} alone", {"x": as_float(np.full((2, 3), code, word(fmt)), fmt)}
        spoiled = _content((16, 33), 5, fmt)
        spoiled[::3, ::5] = code
        yield f"{name} amid numbers", {"x": as_float(spoiled, fmt)}
    for bits in CLOSE:
        yield (
            f"{len(bits)} numbers, the first 0x{bits[0]:08X}",
            {"x": as_float(narrowed(np.array([bits], np.uint32), fmt), fmt)},
        )
    special: np.ndarray = np.array(SPECIALS[fmt], word(fmt))
    yield "special values", {"x": as_float(np.resize(special, (len(special), len(special))), fmt)}
    bell = np.arange(-200, 201, dtype=np.float64)
    for power in (-20, 0, 20):
        yield f"a bell times 2^{power}", {"x": _laid(np.ldexp(bell * abs(bell) / 4e4, power), fmt, 401)}


def _grouped(operation: str, params: Mapping[str, Any], pins: tuple[float, ...]) -> Iterator[Corner]:
    fmt = target_of(operation, params).input
    for number, shape in enumerate(GROUPED_SHAPES):
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(_content(shape, number, fmt), fmt)}
    yield "half steps at every scale", {"x": _laid(stepped(pins, fmt), fmt, 160)}
    special: np.ndarray = np.array(SPECIALS[fmt], word(fmt))
    spoiled = _content((2 * len(special), 64), 3, fmt)
    for place in range(len(spoiled)):
        spoiled[place, place % 64 :: 7 if place % 2 else 41] = special[place // 2]
    yield "special values amid numbers", {"x": as_float(spoiled, fmt)}
    yield "special values alone", {"x": as_float(np.repeat(special[:, None], 32, axis=1), fmt)}
    mixed = np.resize(special, (len(special), 32 * (len(special) + 1)))
    yield "special values beside each other", {"x": as_float(mixed, fmt)}
    ends = _beside(np.array(SPREADS, np.uint32).view(np.float32), 1 if fmt is FP32 else 1 << 16).reshape(-1, 1)
    for base in (0.0, -1.0, 0.4):
        wide = np.concatenate([np.full_like(ends, base) * ends, ends * np.float32(1 + base)] * 16, axis=1)
        yield f"spreads beside the bounds of a scale, from {base:g} of them", {"x": _laid(wide, fmt, 96)}
    for group in GROUPS:
        x = as_float(_content((5, 2 * group), group, fmt), fmt)
        yield f"groups of {group}", {"x": x}, {"group": group}
        yield f"half steps in groups of {group}", {"x": _laid(stepped(pins, fmt, group), fmt, group)}, {"group": group}


def int4_affine(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Half steps between -4 and 11, so that the zero point is 4; special values; bounds; other groups."""
    yield from _grouped(operation, params, (-4.0, 11.0))
    fmt = target_of(operation, params).input
    for least in (-40.0, -15.0, -7.5, -0.5, 0.0, 0.5, 7.0, 1e6):
        line = _beside(np.linspace(least, least + 15, 31), 1 if fmt is FP32 else 1 << 16)
        x = _laid(np.concatenate([line[:, 1].reshape(1, -1), line[:1, :1]], axis=1), fmt, 32)
        yield f"fifteen steps from {least:g}", {"x": x}
    far = _beside(np.ldexp(np.float32(1e-4), np.arange(20, 26)), 1 if fmt is FP32 else 1 << 16).reshape(-1, 1)
    for sign in (1, -1):
        x = _laid(np.repeat(far * np.float32(sign), 32, axis=1), fmt, 96)
        yield f"numbers alike, {sign} by 2^20 to 2^25 of the least scale", {"x": x}


efficient_qat = int4_affine


def int4_keep_two(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Half steps below a third number of 7; equal magnitudes in every order of places; other groups."""
    yield from _grouped(operation, params, (40.0, -33.0, 7.0))
    fmt = target_of(operation, params).input
    equal = np.ones((32, 32))
    number = np.arange(32)
    equal[number, number], equal[number, (5 * number + 3) % 32] = -2, 2
    equal[::4, 7] = 3
    yield "equal magnitudes", {"x": _laid(equal, fmt, 64)}
    tiny = np.zeros((6, 32))
    tiny[:, :3] = 1
    tiny[:, 2] = [0, 1e-6, 9.5e-7, 1.1e-6, -5e-7, 2.0**-140]
    yield "a third magnitude beside the least scale", {"x": _laid(tiny, fmt, 32)}
    bare = np.zeros((4, 32))
    bare[:, 5], bare[0, 9], bare[1, 9], bare[2, 3:30:26] = np.nan, 1, 2.0**-100, [-1, 1]
    yield "NaN amid zeros", {"x": _laid(bare, fmt, 32)}


def llm_qat(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """The tensors of `sawb`; half steps of each width between fixed ends; vectors of NaN, of Inf, of zeros."""
    yield from sawb(operation, params)
    fmt = target_of(operation, params).input
    for bits in range(2, 9):
        most = (1 << bits - 1) - 1 if params["symmetric"] else (1 << bits) - 1
        steps = np.arange(-2 * most if params["symmetric"] else 0, 2 * most + 1) / 2
        line = _beside(steps, 1 if fmt is FP32 else 1 << 16).reshape(1, -1)
        for power in (-20, -3, 0, 6, 40):
            x = _laid(np.ldexp(np.minimum(line, np.float32(most)), power), fmt, line.size)
            yield f"half steps of {bits} bits times 2^{power}", {"x": x}, {"bits": bits}
    rows = np.resize(np.array([1, -2, 0.5, 3]), (8, 4))
    rows[1, 2], rows[2, 0], rows[3, 3], rows[4], rows[5] = np.nan, np.inf, -np.inf, 0, -0.0
    rows[6, :2] = np.nan, np.inf
    yield "rows of NaN, of Inf, of zeros", {"x": _laid(rows, fmt, 4)}


SCALES = np.array([0x3F800000, 0x3E4CCCCD, 0x3DAAAAAB, 0x00400001, 1, 0x7E000000, 0x7F7FFFFF, 0xBF99999A, 0, 1 << 31,
                   0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001], np.uint32)  # fmt: skip
"""float32 bits of scales that round, overflow, lose bits, are negative, or are no numbers."""


def dequantize_int4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every code under scales of every kind, in two's complement and with zero points of both dtypes; groupings."""
    codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(SCALES), 16))
    scales = np.repeat(SCALES[:, None], 16, axis=1).view(np.float32)
    whole: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(SCALES), 1))
    strange = np.array([0.5, -0.0, 0, 1e9, -7, np.nan, np.inf, -np.inf, 16777217, 1e-40, 15, 8, 3.25, -1, 2, 7])
    far = np.resize(strange, (len(SCALES), 16)).astype(np.float32)
    for label, zeros in (("no zero points", {}), ("zero points", {"zeros": whole}), ("strange ones", {"zeros": far})):
        yield f"every code and scale, {label}", {"codes": codes, "scales": scales, **zeros}
    mixed = (np.arange(7 * 96) * 11 % 16).astype(np.uint8).reshape(7, 96)
    for groups in (1, 2, 3, 48, 96):
        part = (np.arange(7 * groups).reshape(7, groups) + 1.5).astype(np.float32)
        yield f"{groups} groups of a row", {"codes": mixed, "scales": part}
        yield (
            f"{groups} groups of a row, zero points",
            {"codes": mixed, "scales": part, "zeros": mixed[:, :groups].copy()},
        )
    yield "one scale", {"codes": mixed, "scales": np.array([0.3], np.float32)}
    yield (
        "one scale and zero point",
        {"codes": mixed, "scales": np.array([0.3], np.float32), "zeros": mixed[0, :1].copy()},
    )
    for shape in GROUPED_SHAPES:
        grid = shape[0], shape[1] // 32
        some = (np.arange(shape[0] * shape[1]) * 7 % 16).astype(np.uint8).reshape(shape)
        size = (np.arange(grid[0] * grid[1]) % 23 + 0.7).astype(np.float32).reshape(grid)
        yield f"shape {shape[0]}x{shape[1]}", {"codes": some, "scales": size, "zeros": some[:, : grid[1]].copy()}


TOPS = (6.0, 5.0, 1.75, 3.5, 0.1, 7.0, 2.0**-100, 1.5 * 2.0**-100, 2.0**100, 100.0)


def _fp4_steps(top: float, fmt: Format) -> np.ndarray:
    """Numbers beside 48ths and 14ths of a largest number, halves of all steps, and beside twice of it."""
    parts = np.unique(np.concatenate([np.arange(1, 49) / 48, np.arange(1, 15) / 14, [1.5, 2]]))
    near = _beside((top * parts).astype(np.float32), 1 if fmt is FP32 else 1 << 16)
    return np.concatenate([near, -near, np.zeros((1, 3)), [[-0.0, top, -top]]])


def llm_fp4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Numbers beside every middle of two values, for largest numbers of every size; one for each row; specials."""
    fmt = target_of(operation, params).input
    for top in TOPS:
        yield f"steps under {top:g}", {"x": _laid(_fp4_steps(top, fmt), fmt, 6), "maxval": np.array([top], np.float32)}
    rows = np.stack([_fp4_steps(top, fmt).reshape(-1) for top in TOPS])
    x = _laid(rows, fmt, rows.shape[1])
    yield "steps under a number for each row", {"x": x, "maxval": np.array(TOPS, np.float32)}
    yield "steps of each row under another row's number", {"x": x, "maxval": np.array(TOPS[::-1], np.float32)}
    special: np.ndarray = np.array(SPECIALS[fmt], word(fmt))
    yield "special values", {"x": as_float(special[None], fmt), "maxval": np.array([6], np.float32)}
    for number, shape in enumerate(SHAPES):
        x = as_float(_content(shape, number, fmt), fmt)
        yield f"shape {shape[0]}x{shape[1]}", {"x": x, "maxval": np.array([6], np.float32)}
    yield (
        "a number for each of no rows",
        {"x": as_float(_content((0, 5), 1, fmt), fmt), "maxval": np.zeros(0, np.float32)},
    )
