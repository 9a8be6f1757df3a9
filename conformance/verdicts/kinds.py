"""Kinds of difference: for which class of input, in which output, and in what way an answer differs.

Facts, and no guesses: a kind is read off the bytes of both sides. Codes of a block whose scale is wrong follow from the
scale, so only the scale counts there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.codec import value
from refnum.formats import get_format

from ..cases.case import Case
from ..cases.entry import OPAQUE, Output
from ..cases.geometry import spread
from ..cases.levels import CLASSES, NO_LEVEL, input_classes
from ..cases.operation import outputs_of

Arrays = Mapping[str, np.ndarray]
NAN_CODES, ZERO, PAYLOAD, SIGN, NAN, INFINITE = (
    "codes under a NaN scale",
    "sign of zero",
    "NaN payload",
    "sign",
    "NaN",
    "Inf",
)
LARGER, SMALLER, MAGNITUDE, BYTES = "larger", "smaller", "magnitude", "bytes"
NEEDED = {NAN_CODES: 1, ZERO: 2, PAYLOAD: 3}
"""Way of differing -> the lowest level of agreement that ignores it (N16); none does for the others."""
WAYS = (NAN_CODES, ZERO, PAYLOAD, SIGN, NAN, INFINITE, LARGER, SMALLER, MAGNITUDE, BYTES)
NUMBER = {way: np.uint8(number) for number, way in enumerate(WAYS, 1)}


class Kind(NamedTuple):
    """One kind of difference. letter: the class of the input block (N17), or of what is expected where there is none.

    output: its name. way: one of WAYS.
    """

    letter: str
    output: str
    way: str

    @property
    def level(self) -> int:
        """The lowest level of agreement that ignores the difference."""
        return NEEDED.get(self.way, NO_LEVEL)

    def __str__(self) -> str:
        return f"class {self.letter}, {self.output}: {self.way}"


def kinds_of(case: Case, golden: Arrays, observed: Arrays) -> dict[Kind, int]:
    """Return every kind of difference of one answer with the number of items (elements, scale bytes) that bear it."""
    found: dict[Kind, int] = {}
    for name, (ways, letters) in _maps(case, golden, observed).items():
        wrong = ways > 0
        both = ways[wrong].astype(np.int64) * len(CLASSES) + letters[wrong]
        for pair, count in enumerate(np.bincount(both)):
            if count:
                way, letter = divmod(pair, len(CLASSES))
                found[Kind(CLASSES[letter], name, WAYS[way - 1])] = int(count)
    return found


def places_of(case: Case, golden: Arrays, observed: Arrays, kind: Kind) -> np.ndarray | None:
    """Return where in its output, unpacked, an answer bears a kind of difference; None where it has no such output."""
    maps = _maps(case, golden, observed)
    if kind.output not in maps:
        return None
    ways, letters = maps[kind.output]
    return np.asarray((ways == NUMBER[kind.way]) & (letters == CLASSES.index(kind.letter)))


def _maps(case: Case, golden: Arrays, observed: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for each output the way of each item, an index into WAYS plus one or 0, and the index of its class."""
    outputs = outputs_of(case)
    classes = input_classes(case)
    maps: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for number, output in enumerate(outputs):
        left, right, scale = golden[output.name], observed[output.name], None
        if output.kind in ("codes", "packed"):
            scale = next((other for other in outputs[number:] if other.kind == "scales"), None)
        if output.kind == "packed":
            left, right = unpack_nibbles(left), unpack_nibbles(right)
        if np.array_equal(left, right):
            continue
        ways = _ways(output, case, left, right)
        letters = _letters(output, case, left)
        if scale is not None:
            wide, other = (spread(output.block, case, side[scale.name], left.shape) for side in (golden, observed))
            nan = wide == 255
            ways = np.where(nan & (left != right), NUMBER[NAN_CODES], ways)
            ways = np.where(wide != other, np.uint8(0), ways)
            letters = np.where(nan, np.uint8(CLASSES.index("N")), letters)
        if classes is not None:  # of a quantiser: every output has the blocks of its input
            letters = classes if output.kind == "scales" else spread(output.block, case, classes, left.shape)
        maps[output.name] = ways, letters
    return maps


def _ways(output: Output, case: Case, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the way of every item, WAYS' index plus one; 0 where both sides are equal."""
    if output.kind in OPAQUE:
        ways = np.full(left.shape, NUMBER[BYTES], np.uint8)
    elif output.kind == "scales":
        ways = np.where(right > left, NUMBER[LARGER], NUMBER[SMALLER])
        ways = np.where((left == 255) != (right == 255), NUMBER[NAN], ways)
    else:
        one, other = _parts(output, case, left), _parts(output, case, right)
        ways = np.where((one.rank == other.rank) & (one.sign != other.sign), NUMBER[SIGN], NUMBER[MAGNITUDE])
        for way, chosen in (
            (INFINITE, one.infinite != other.infinite),
            (ZERO, one.zero & other.zero),
            (NAN, one.nan != other.nan),
            (PAYLOAD, one.nan & other.nan),
        ):
            ways[chosen] = NUMBER[way]
    return np.where(left != right, ways, np.uint8(0)).astype(np.uint8)


def _letters(output: Output, case: Case, left: np.ndarray) -> np.ndarray:
    """Return the class of what is expected, for outputs whose input has no class of its own."""
    letters = np.zeros(left.shape, np.uint8)
    if output.kind == "scales":
        letters[left == 255] = CLASSES.index("N")
    elif output.kind not in OPAQUE:
        parts = _parts(output, case, left)
        for letter, chosen in (("Z", parts.zero), ("I", parts.infinite), ("N", parts.nan)):
            letters[chosen] = CLASSES.index(letter)
    return letters


class _Parts(NamedTuple):
    """What codes mean. rank: of the magnitude, equal for equal ones."""

    nan: np.ndarray
    infinite: np.ndarray
    zero: np.ndarray
    sign: np.ndarray
    rank: np.ndarray


def _parts(output: Output, case: Case, codes: np.ndarray) -> _Parts:
    if output.kind != "values":
        return _Parts(*(table[codes] for table in _tables(output.format(case.params))))
    sign, infinity = (1 << 31, 0x7F800000) if codes.itemsize == 4 else (1 << 15, 0x7F80)
    bits = codes.astype(np.int64)
    rank = bits & (sign - 1)
    return _Parts(rank > infinity, rank == infinity, rank == 0, bits & sign, rank)


@functools.cache
def _tables(name: str) -> tuple[np.ndarray, ...]:
    """Return the parts of every byte read as a code of a format."""
    fmt = get_format(name)
    exact = [value(fmt, code) for code in range(1 << fmt.bits)]
    magnitudes = [x.lstrip("+-") if isinstance(x, str) else abs(x) for x in exact]
    tables = [np.zeros(256, kind) for kind in (bool, bool, bool, bool, np.int64)]
    for code, (x, magnitude) in enumerate(zip(exact, magnitudes, strict=True)):
        parts = (x == "nan", magnitude == "inf", x == 0, str(x).startswith("-"), magnitudes.index(magnitude))
        for table, part in zip(tables, parts, strict=True):
            table[code] = part
    return tuple(tables)
