"""Checks of plain arguments: choices, dtypes of results, profiles, keys, splits and counts; and the facts behind them.

The golden model has its own checks; the two share no code, only the named errors.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from refnum.errors import ArgumentError, ShapeError, UnsupportedError, shown
from refnum.profiles import Profile

BFLOAT16, FLOAT32, UINT8 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.uint8)
BLOCK, TILE = 32, 128
TILES = ((1, TILE), (TILE, TILE))
UNIT = BLOCK // 2 + 1
"""Payload bytes of one MX block: 16 of codes and one of scale."""
MOST = (1 << 31) - 1
"""The largest count of rows or tokens, and the largest alignment: a kernel counts them in 32 bits."""
KINDS = {np.dtype(np.float32): 0, BFLOAT16: 1, np.dtype(np.uint16): 1, np.dtype(np.float16): 2}
"""Input dtype -> `FloatKind` of the headers; uint16 holds bfloat16 bits."""
OUTPUTS = {"float32": (0, np.dtype(np.float32)), "bfloat16": (1, BFLOAT16)}
RULES = {"rceil": 0, "floor": 1, "ceil": 2, "even": 3}
LAYOUTS = ("bytes", "float32", "gemm_float32", "packed_ue8m0", "swizzled")
"""Storage layouts of scales (N6.5) in the order of `ScaleLayout` of the headers."""
BOOLS = (bool, np.bool_)
INTEGERS = frozenset(np.dtype(letter).type for letter in "bBhHiIlLqQ")
TEXTS = (str, bytes, bytearray, memoryview, Mapping)
"""Types that can be indexed and are not accepted as a sequence of integers."""
SUPPORTED: dict[str, tuple[object, ...]] = {
    "scale_rule": tuple(RULES),
    "rounding": ("nearest",),
    "ties": ("even",),
    "overflow": ("saturate",),
    "negative_zero": ("keep",),
    "nonfinite": ("nosat", "satfinite"),
    "amax_floor": (None,),
}
"""Profile field -> the values the kernels have; `zero_scale` may be any byte."""


def tiles(n: int) -> int:
    """Return the number of 128-element tiles that cover n elements; the last may be short."""
    return -(-n // TILE)


def layout_of(rows: int, columns: int, layout: str) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of the storage of [rows, columns] E8M0 bytes in a layout (N6.2)."""
    if layout == "bytes":
        return (rows, columns), UINT8
    high, quads = -(-rows // 4) * 4, -(-columns // 4)
    stored: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "float32": ((rows, columns), FLOAT32),
        "gemm_float32": ((columns, high), FLOAT32),
        "packed_ue8m0": ((quads, high), np.dtype(np.int32)),
        "swizzled": ((tiles(rows) * quads * 512,), UINT8),
    }
    return stored[layout]


def written(rows: int, columns: int, layout: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the scales that an operation writes in a layout."""
    choice("layout_out", layout, LAYOUTS)
    return layout_of(rows, columns, layout)


def plain(x: Any) -> bool:
    """Return whether x is a NumPy array without a mask."""
    return isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray | np.matrix)


def choice(name: str, value: Any, allowed: Sequence[Any]) -> int:
    """Return the position of `value` among `allowed`; NumPy's integers are integers."""
    value = int(value) if isinstance(value, np.integer) else value
    for position, one in enumerate(allowed):
        if (type(value) is type(one) or isinstance(value, str)) and value == one:
            return position
    raise ArgumentError(f"{name}={shown(value)}; allowed are {', '.join(map(repr, allowed))}")


def tile_rows(tile: Any) -> int:
    """Return 1 or 128 from a tile of (1, 128) or (128, 128); `True` and `1.0` are not accepted as integers."""
    plain = isinstance(tile, tuple | list) and all(isinstance(n, int | np.integer) for n in tile)
    if plain and bool not in map(type, tile) and tuple(tile) in TILES:
        return int(tile[0])
    raise ArgumentError(f"tile={shown(tile)}; allowed are {', '.join(map(repr, TILES))}")


def output_dtype(dtype: Any) -> tuple[int, np.dtype]:
    """Return (kind, dtype) of a dequantiser's output, from a name, or from a dtype of NumPy, ml_dtypes or torch."""
    wanted = dtype if isinstance(dtype, str) else torch_name(dtype)
    for name, (kind, made) in OUTPUTS.items():
        if wanted == name or dtype is made.type or (isinstance(dtype, np.dtype) and dtype == made):
            return kind, made
    raise ArgumentError(f"dtype={shown(dtype)}; allowed are {', '.join(map(repr, OUTPUTS))}")


def torch_name(dtype: Any) -> str:
    """Return the name of a torch dtype, an empty text for anything else; torch need not be installed."""
    kind = type(dtype)
    return str(dtype).removeprefix("torch.") if (kind.__module__, kind.__name__) == ("torch", "dtype") else ""


def profile(chosen: Profile, *, stochastic: bool = False) -> None:
    """Raise UnsupportedError naming the first field of a profile that the kernels do not have."""
    for field, allowed in SUPPORTED.items():
        value = getattr(chosen, field)
        if field == "rounding" and stochastic and value == "stochastic":
            continue
        if value not in allowed:
            raise UnsupportedError(
                f"profile {chosen.name}: {field}={value!r}; the kernels have "
                f"{', '.join(map(repr, allowed))}: use the golden model"
            )
    if chosen.rounding == "stochastic" and chosen.random_bits != 8:
        raise UnsupportedError(f"profile {chosen.name}: random_bits={chosen.random_bits}; the kernels have 8")


def rules(chosen: Profile, *, stochastic: bool = False) -> tuple[int, int, int]:
    """Return the fields of `Policy` in the headers for a profile; UnsupportedError where the kernels lack it."""
    profile(chosen, stochastic=stochastic)
    return RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale


def randomness(rbits: Any, philox: Any, chosen: Profile) -> tuple[int, int, int, int] | None:
    """Return the key, None without one; raise unless stochastic rounding, and no other, has rbits or philox."""
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    given = "rbits" if philox is None else "philox"
    if (rbits is not None or philox is not None) != (chosen.rounding == "stochastic"):
        fault = "was given" if chosen.rounding != "stochastic" else "is missing"
        raise ArgumentError(
            f"{given} {fault} but profile {chosen.name} rounds {chosen.rounding}; random bits go with "
            f"stochastic rounding and only with it"
        )
    return None if philox is None else philox_key(philox)


def philox_key(value: Any) -> tuple[int, int, int, int]:
    """Return (seed, stream, step, offset) of a key of N13.5; the offset is 0 if not given."""
    if not isinstance(value, tuple | list) or len(value) not in (3, 4):
        raise ArgumentError(f"philox={shown(value)}; allowed is (seed, stream, step) or (seed, stream, step, offset)")
    numbers = []
    for name, bits, each in zip(("seed", "stream", "step", "offset"), (64, 32, 32, 62), value, strict=False):
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not 0 <= each < 1 << bits:
            raise ArgumentError(f"{name} is {shown(each)}; allowed are integers from 0 to 2**{bits} - 1")
        numbers.append(int(each))
    seed, stream, step, offset = [*numbers, 0][:4]
    if offset % BLOCK:
        raise ArgumentError(f"offset is {offset}; allowed are multiples of {BLOCK}, the first element of an MX block")
    return seed, stream, step, offset


def row_splits(splits: Any, rows: int, *, even: bool = False) -> np.ndarray:
    """Return rows per expert as int64; None is one expert of all rows."""
    given = [rows] if splits is None else row_counts(splits)
    if sum(given) != rows:
        raise ShapeError(f"splits sum to {sum(given)} but there are {rows} rows; give every row to one expert")
    if even and any(n % 2 for n in given):
        raise ShapeError(f"splits={given}; each must be even because two codes share a byte: pad the rows")
    return np.array(given, np.int64)


def padded(splits: Sequence[int], align: int) -> int:
    """Return the rows of all experts, each padded to a multiple of `align`."""
    return sum(-(-m // align) * align for m in splits)


def segments(splits: np.ndarray, tall: int) -> int:
    """Return the number of column blocks of `tall` rows; blocks restart at every split."""
    return int((-(-splits // tall)).sum())


def count(name: str, value: Any, least: int, most: int = MOST) -> int:
    """Return an argument that must be an integer from `least` to `most`; ArgumentError otherwise."""
    if (type(value) is int or type(value) in INTEGERS) and least <= value <= most:
        return int(value)
    try:
        bare = not isinstance(value, BOOLS) and not str(getattr(value, "dtype", "")).endswith("bool")
        number = operator.index(value) if bare else least - 1
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise ArgumentError(f"{name} is {shown(value)}; allowed are integers from {least} to {most}")
    return number


def row_counts(splits: Any) -> list[int]:
    """Return the host's splits, the rows of each expert, as a list; ArgumentError where one is no count."""
    if isinstance(splits, np.ndarray) and splits.ndim == 1 and splits.dtype.kind in "iu":
        given = splits.tolist()  # NumPy's own integers are read much slower
    else:
        try:
            ordered = hasattr(splits, "__getitem__") and not isinstance(splits, TEXTS)
            given = list(splits) if ordered else None
        except TypeError:  # an array without axes
            given = None
    if given is None:
        raise ArgumentError(f"splits={shown(splits)}; allowed is a sequence of integers, the rows of each expert")
    if set(map(type, given)) == {int} and min(given) >= 0 and max(given) <= MOST:
        return given
    return [count("a split", m, 0) for m in given]
