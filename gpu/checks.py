"""What the launchers check before a kernel runs: dtypes, shapes, profiles, splits, `out`. NumPy arrays only.

The golden model has its own checks; the two share no code, only the named errors.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError, UnsupportedError, shown
from refnum.profiles import Profile

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BLOCK, TILE = 32, 128
TILES = ((1, TILE), (TILE, TILE))
MOST = (1 << 31) - 1
"""Largest count of rows or tokens, and alignment: what a kernel counts with 32 bits."""
KINDS = {np.dtype(np.float32): 0, BFLOAT16: 1, np.dtype(np.uint16): 1, np.dtype(np.float16): 2}
"""Input dtype -> `FloatKind` of the headers; uint16 holds bfloat16 bits."""
OUTPUTS = {"float32": (0, np.dtype(np.float32)), "bfloat16": (1, BFLOAT16)}
RULES = {"rceil": 0, "floor": 1, "ceil": 2, "even": 3}
LAYOUTS = ("bytes", "float32", "gemm_float32", "packed_ue8m0", "swizzled")
"""Storage layouts of scales (N6.5) in the order of `ScaleLayout` of the headers."""
BOOLS = (bool, np.bool_)
TEXTS = (str, bytes, bytearray, memoryview, Mapping)
"""What can be indexed and is no sequence of numbers to a reader."""
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
    """128-element tiles that cover n elements; the last may be short."""
    return -(-n // TILE)


def layout_of(rows: int, columns: int, layout: str) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of the storage of [rows, columns] E8M0 bytes in a layout (N6.2)."""
    high, quads = -(-rows // 4) * 4, -(-columns // 4)
    float32 = np.dtype(np.float32)
    stored: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "bytes": ((rows, columns), np.dtype(np.uint8)),
        "float32": ((rows, columns), float32),
        "gemm_float32": ((columns, high), float32),
        "packed_ue8m0": ((quads, high), np.dtype(np.int32)),
        "swizzled": ((tiles(rows) * quads * 512,), np.dtype(np.uint8)),
    }
    return stored[layout]


def plain(x: Any) -> bool:
    """Whether it is a NumPy array all of whose elements count: one with a mask is none."""
    return isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray | np.matrix)


def called(x: Any) -> Any:
    """Return what an error calls it: the dtype of a NumPy array, the type of anything else."""
    return x.dtype if plain(x) else type(x).__name__


def matrix(name: str, x: Any, multiple: int) -> tuple[int, int]:
    """Return the shape of a 2-D NumPy array whose last axis is a multiple of `multiple`."""
    if not plain(x):
        raise DtypeError(f"{name} is a {type(x).__name__}; the host build takes NumPy arrays")
    if x.ndim != 2 or x.shape[1] % multiple:
        raise ShapeError(f"{name} has shape {x.shape}; allowed is [rows, n] with n a multiple of {multiple}")
    return int(x.shape[0]), int(x.shape[1])


def floats(name: str, x: Any) -> tuple[int, int]:
    """Return the shape of an [M, K] input of a quantiser."""
    shape = matrix(name, x, BLOCK)
    if x.dtype not in KINDS:
        hint = ": round float64 to float32 yourself" if x.dtype == np.float64 else ""
        raise DtypeError(
            f"{name} has dtype {x.dtype}; allowed are float32, bfloat16, float16 and uint16 (bfloat16 bits){hint}"
        )
    return shape


def codes(name: str, x: Any, multiple: int) -> tuple[int, int]:
    """Return the shape of a uint8 array of codes."""
    shape = matrix(name, x, multiple)
    if x.dtype != np.uint8:
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is uint8")
    return shape


def scales(x: Any, shape: tuple[int, int]) -> None:
    """Raise unless `x` is the uint8 array of E8M0 bytes of this shape."""
    if not plain(x):
        raise DtypeError(f"scales is a {type(x).__name__}; the host build takes NumPy arrays")
    if x.dtype != np.uint8:
        raise ScaleError(f"scales has dtype {x.dtype}; allowed is uint8, one E8M0 byte a scale: convert it first")
    if x.shape != shape:
        raise ShapeError(f"scales has shape {x.shape}; these codes need {shape}")


def mxfp4(packed: Any, block_scales: Any) -> tuple[int, int]:
    """Return [M, K] of an MXFP4 pair (packed u8 [M, K/2], scales u8 [M, K/32])."""
    m, half = codes("packed", packed, BLOCK // 2)
    scales(block_scales, (m, 2 * half // BLOCK))
    return m, 2 * half


def choice(name: str, value: Any, allowed: Sequence[Any]) -> int:
    """Return the position of `value` among `allowed`."""
    for position, one in enumerate(allowed):
        if (type(value) is type(one) or isinstance(value, str)) and value == one:
            return position
    raise ArgumentError(f"{name}={shown(value)}; allowed are {', '.join(map(repr, allowed))}")


def tile_rows(tile: Any) -> int:
    """Return 1 or 128 from a tile of (1, 128) or (128, 128), of integers: `True` and `1.0` are none."""
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
    """Return the name of a dtype of torch's, which need not be there; nothing of anything else."""
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


def randomness(rbits: Any, philox: Any, chosen: Profile) -> tuple[int, int, int, int] | None:
    """Return the key when the random bits come by one; raise unless they come by one way, or by none and none ask."""
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


def random_bits(rbits: Any, x: np.ndarray, chosen: Profile) -> np.ndarray | None:
    """Return rbits as uint8, or None for a profile that rounds to nearest."""
    randomness(rbits, None, chosen)
    if rbits is None:
        return None
    if not plain(rbits) or rbits.dtype.kind != "u":
        raise DtypeError(f"rbits has dtype {called(rbits)}; allowed are unsigned integers")
    if rbits.shape != x.shape:
        raise ShapeError(f"rbits has shape {rbits.shape}; allowed is that of x, {x.shape}")
    if rbits.size and int(rbits.max()) > 255:
        raise ArgumentError(f"rbits holds {int(rbits.max())}; allowed are 8 bits an element")
    return np.ascontiguousarray(rbits, dtype=np.uint8)


def row_splits(splits: Any, rows: int, *, even: bool = False) -> np.ndarray:
    """Return rows per expert as int64; None is one expert of all rows."""
    given = [rows] if splits is None else row_counts(splits)
    if sum(given) != rows:
        raise ShapeError(f"splits sum to {sum(given)} but there are {rows} rows; give every row to one expert")
    if even and any(n % 2 for n in given):
        raise ShapeError(f"splits={given}; each must be even because two codes share a byte: pad the rows")
    return np.array(given, np.int64)


def segments(splits: np.ndarray, tall: int) -> int:
    """Column blocks of `tall` rows that the splits make; they restart at every split."""
    return int((-(-splits // tall)).sum())


class Outputs:
    """The arrays that a kernel writes: fresh ones, or the caller's `out` when it fits."""

    def __init__(self, out: Any, wanted: Sequence[tuple[tuple[int, ...], Any]], inputs: Sequence[np.ndarray]) -> None:
        self._given: list[np.ndarray] | None = None
        if out is not None:
            self._given = list(out) if isinstance(out, tuple | list) else [out]
            if len(self._given) != len(wanted):
                raise ArgumentError(f"out holds {len(self._given)} arrays; allowed is {len(wanted)}")
            for number, (array, (shape, dtype)) in enumerate(zip(self._given, wanted, strict=True)):
                _fits(number, array, shape, np.dtype(dtype), inputs)
        self.arrays = (
            [np.empty(shape, dtype) for shape, dtype in wanted]
            if self._given is None
            else [given if given.flags.c_contiguous else np.empty(given.shape, given.dtype) for given in self._given]
        )

    def finish(self) -> Any:
        """Return the results: the caller's arrays when `out` was given; a tuple unless there is one."""
        results = self.arrays
        if self._given is not None:
            for given, written in zip(self._given, self.arrays, strict=True):
                if given is not written:
                    given[...] = written
            results = self._given
        return results[0] if len(results) == 1 else tuple(results)


def _fits(number: int, array: Any, shape: tuple[int, ...], dtype: np.dtype, inputs: Sequence[np.ndarray]) -> None:
    if not plain(array):
        raise DtypeError(f"out[{number}] is a {type(array).__name__}; allowed is a NumPy array")
    if array.dtype != dtype:
        raise DtypeError(f"out[{number}] has dtype {array.dtype}; allowed is {dtype}")
    if array.shape != shape:
        raise ShapeError(f"out[{number}] has shape {array.shape}; allowed is {shape}")
    if not array.flags.writeable:
        raise ArgumentError(f"out[{number}] is read-only; give an array that can be written")
    if any(np.may_share_memory(array, x) for x in inputs):
        raise ArgumentError(f"out[{number}] shares memory with an input; give storage of its own")


def count(name: str, value: Any, least: int, most: int = MOST) -> int:
    """Return an argument that must be an integer from `least` to `most`; ArgumentError otherwise."""
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
    return [count("a split", m, 0) for m in given]
