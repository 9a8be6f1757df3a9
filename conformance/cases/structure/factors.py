"""Factors of structure and their levels, literal, by family: what a kernel may depend on besides the values.

A level of a shape is a number; a level of the form of a call is a word, and its first level is the plain form.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..operation import OPERATIONS
from .covering import Level, Table

BESIDE_POWERS = tuple(sorted({(1 << power) * half // 2 + step for power in range(6, 14) for half in (2, 3)
                              for step in (-1, 0, 1)}))  # fmt: skip
"""Powers of two from 64, one and a half of them, and their neighbours: rows, columns and blocks, each beside as many of
the other as there is room for."""
ROWS = (
    *range(1, 66), 72, 80, 100, 111, 112, 126, 130, 144, 160, 200, 224, 300, 320, 447, 500, 640, 896, 1000, 1280, 1792,
    2560, 3000, 4098, 5000, *BESIDE_POWERS[3:-6],
)  # fmt: skip
"""Rows of a matrix, each asked once: around powers of two, of every small residue, beyond 4,096."""
BLOCKS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 28, 31, 32, 33, 34, 35, 36, 40, 44,
    45, 47, 48, 56, 63, 64, 65, 66, 67, 68, 72, 80, 88, 90, 92, 112, 127, 128, 129, 130, 131, 160, 192, 224, 225, 255,
    256, 257, 258, 259, 260, 320, 448, 511, 512, 513, 514, 516, 576, 896,
)  # fmt: skip
"""Blocks of 32 columns, each asked once: all residues of 128, 256 and 512 below, at and beyond 8 and 64 tiles."""
PAIRED_ROWS = (1, 2, 3, 5, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 256, 257, 513, 2049)
PAIRED_BLOCKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 15, 33, 34, 36, 45, 46, 65, 90, 130, 257)
"""Rows and blocks of which every pair is asked that is no larger than `PAIRED`."""
SINGLE, PAIRED = 1 << 18, 1 << 16
"""Elements of the largest case of `ROWS` and `BLOCKS`, and of a pair of them."""
EXTREMES = ((8191, 96), (8192, 96), (8193, 32), (9999, 64), (16384, 32), (16385, 64), (32769, 32), (65535, 32),
            (65537, 64), (65664, 32), (131073, 32), (1, 65536), (3, 65568), (2, 65600), (1, 65632), (5, 65664),
            (2, 131104), (1, 262176), (17, 32800), (129, 8224), (130, 4160), (257, 2880), (1025, 2080), (320, 320),
            (2304, 544), (32768, 32), (65536, 32), (2, 32768), (4, 65536), (1, 131072), (16896, 32),
            (18944, 32))  # fmt: skip
"""Rows and columns beyond 8,192 rows, beyond 65,536 rows or columns, and large in both; a square; sides, and elements,
that are nothing in so many bits; as many tiles of 128 rows as an H200 has processors, 132, and a B200, 148."""
SPECIAL = (131073, 32)
"""The one of these that has special elements, NaN among them."""
LOOSE_EXTREMES = ((8193, 3), (16385, 2), (65537, 1), (1, 65537), (2, 32769), (33, 4097), (1, 131073), (131073, 1),
                  (262145, 1), (321, 321), (32768, 1), (65536, 1), (131072, 1))  # fmt: skip
TALL = (16_900, 160)
"""Rows and columns of more tiles of 128 than two waves of 132 processors have, several along both sides."""
MANY = ((1025, 1024), (3, 700_003), (600_001, 2), TALL)
"""Rows and columns of a scalar cast of more than 2^20 elements, and of more than 2^21."""
MILLION = (1040, 1056)
"""Rows and columns of more than 2^20 elements, of the operations whose other cases are smaller."""
HUGE = ((131073, 64), (262145, 32), (1, 1 << 20), (3, 2097184), (2344, 7168), (4097, 4128))
"""Rows and columns of level exhaustive; one has more elements than float32 counts one by one."""
LOOSE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 34, 48, 63, 64, 65, 66, 96, 100, 127, 128, 129, 130,
         132, 160, 191, 192, 255, 256, 257, 258, 320, 384, 511, 512, 513, 640, 1000, 1023, 1024, 1025, 1408,
         2880, 4100, 5120, 7168, *BESIDE_POWERS[27:], 16384, 16388)  # fmt: skip
"""Columns of the operations that take any number of them."""
PAIRED_LOOSE = (1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33, 64, 65, 96, 127, 128, 129, 160, 257, 384, 1025, 2049)

PRODUCT_COLUMNS = (*range(1, 67), *BESIDE_POWERS[3:-9])
"""Rows of `b`, and so columns of a product: its tiles of 8 to 256 columns, whole and in part."""
PRODUCT_SIDES = ((3, 33), (17, 128), (1, 160), (66, 17))
WIDE_SIDES = ((3, 33), (2, 128), (1, 160), (17, 17))
"""Rows and terms of products of these numbers of columns, by turns; and of more than 512."""

EXPERTS = (*range(1, 10), 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, *BESIDE_POWERS[1:27], 160, 300,
           1100)  # fmt: skip
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 34, 47, 48, 63, 64, 65, 66, 95, 96, 97, 126, 127, 128, 129,
           130, 160, 192, 255, 256, 257, 258, 300, 640, 4100, 6000, *BESIDE_POWERS[15:-8])  # fmt: skip
"""Rows of the longest expert."""
PAIRED_EXPERTS = (1, 2, 3, 8, 9, 33, 129, 257, 1025)
PAIRED_LENGTHS = (1, 2, 31, 32, 33, 128, 129, 257, 384, 1025)
PAIRED_BEFORE = (0, 1, 2, 16, 31, 32, 33, 127, 128, 130)
BEFORE = (0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 130)
"""Rows of the experts before the longest: where it begins."""
EMPTY = ("none", "first", "last", "middle", "two in a row", "three first", "33 in a row", "every other", "all but one",
         "130 first", "130 last", "all")  # fmt: skip
PAIRED_EMPTY = ("none", "first", "last", "middle", "two in a row", "every other", "all but one")
"""Which experts have no row."""
NARROW = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33, 34, 35, 44, 65)
"""Blocks of 32 columns of a ragged case."""
TOKENS = (1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 64, 100, 127, 128, 129, 255, 256, 257, 300, 511, 513, 1000, 1023, 1025,
          2049, 4097)  # fmt: skip
PAIRED_TOKENS = (1, 2, 7, 33, 64, 129, 257, 1025)
TAKEN = ("in order", "scattered", "backwards", "last alone", "first alone", "eight each", "33 of one", "few of many")
"""How a row map takes tokens."""
ALIGNS = (32, 16, 128, 1, 2, 3, 4, 7, 8, 17, 24, 31, 33, 48, 64, 100, 127, 129, 256, 512, 640, 1024)
PAIRED_ALIGNS = (32, 16, 128, 1, 3, 8, 100)
WIDTHS = (17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 272, 289, 544, 561, 1105, 1530)
PAIRED_WIDTHS = (17, 34, 51, 68, 136, 221, 272, 561)
"""Payload bytes: 17 a block."""
COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 255, 256, 257, 511, 512,
          513, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8193, 16385, 32768, 32769, 65535,
          65536, 65537, 99999, 131072, 131073, 262144, 262147, 1 << 20)  # fmt: skip
"""Elements of a scalar cast in one axis."""
CAST_SHAPES = ("vector", "row", "column", "matrix", "cube", "tall cube", "four axes", "scalar")

STORAGES = ("contiguous", "row gap", "odd rows", "element gap", "transposed", "reversed rows", "reversed columns",
            "every other row", "broadcast rows", "broadcast columns", "broadcast columns of whole rows",
            "read-only")  # fmt: skip
LINES = ("contiguous", "element gap", "reversed columns", "broadcast columns", "read-only")
"""Storages of arrays of one axis."""
ADDRESSES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 127)
"""Bytes beyond a multiple of 128; rounded down to whole elements."""
OUTS = ("contiguous", "row gap", "odd rows", "element gap", "transposed", "reversed rows", "every other row")
APART_OUTS = ("gap in the first", "gap in the others")
"""Storages of `out` of several arrays, of which one or all but one lie close."""
INTEGERS = ("int32", "int64", "int16", "uint16", "uint32", "uint64", "int8", "uint8")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SPLITS = ("list", "tuple", "int64 array", "int32 array", "uint32 array", "numpy integers", "strided array",
          "uint64 array", "narrow array", "narrow signed array", "reversed array", "read-only array",
          "range")  # fmt: skip
"""Sequences of counts: a narrow array has the least dtype that holds them, a range is one where they are in step."""
SCALARS = ("plain", "numpy", "omitted", "narrow")
"""Arguments that are no arrays: Python's, NumPy's, left out where they are at their default, and NumPy's of the least
dtype that holds them, in which `align - 1` or a product may overflow."""
FORM_SHAPES = ("33x160", "5x288", "1x32", "129x96", "64x128", "1x2880", "130x64", "257x32", "4x1056", "3x96", "7x64",
               "10x32", "31x160", "63x128", "96x64", "127x32", "192x160", "2x6144", "2x8224", "20x2048", "1025x32",
               "2048x32")  # fmt: skip

LINE_INPUTS = frozenset({"prob", "weights", "row_map", "tensor_amax", "alpha", "maxval", "factors"})
ROUTED = frozenset(name for name, row in OPERATIONS.items() if row.routed)
RAGGED = frozenset(name for name, row in OPERATIONS.items() if row.ragged) - ROUTED
PRODUCTS = frozenset(name for name, row in OPERATIONS.items() if row.family == "product")
GROUPED = frozenset(name for name, row in OPERATIONS.items() if row.grouped)
CASTS = frozenset(name for name, row in OPERATIONS.items() if row.scalar)
ANY_AXES = CASTS | {name for name, row in OPERATIONS.items() if row.any_axes}
"""Operations whose one input has any axes, or any but the last."""
UNBLOCKED = frozenset(name for name, row in OPERATIONS.items() if row.block == 1) - CASTS
"""Operations on matrices that have no blocks."""


def shape_table(operation: str, paired: bool) -> Table:
    """Return the factors of an operation's shapes: all levels, or those of which every pair is asked."""
    if operation in CASTS:
        return {"elements": COUNTS} if not paired else {"form of the array": CAST_SHAPES, "elements": COUNTS[1:26:3]}
    if operation in RAGGED or operation in ROUTED:
        return _ragged_table(operation, paired)
    given = [
        name
        for name in ("prob", "tensor_amax", "zeros", "a_scales", "b_scales")
        if name in OPERATIONS[operation].optional
    ]
    optional: dict[str, tuple[Level, ...]] = dict.fromkeys(given, ("given", "absent"))
    if operation == "swiglu_backward":
        columns = PAIRED_LOOSE if paired else LOOSE[::-1]
        return {"rows": PAIRED_ROWS if paired else ROWS, "columns": columns, **optional, "grad": FLOATS}
    if operation in PRODUCTS | UNBLOCKED:
        return {"rows": PAIRED_ROWS if paired else ROWS, "columns": PAIRED_LOOSE if paired else LOOSE[::-1], **optional}
    blocks = tuple(32 * count for count in (PAIRED_BLOCKS if paired else BLOCKS[::-1]))
    return {"rows": PAIRED_ROWS if paired else ROWS, "columns": blocks, **optional}


FLOATS = ("bfloat16", "float32")


def _ragged_table(operation: str, paired: bool) -> Table:
    table: dict[str, tuple[Level, ...]] = {
        "experts": PAIRED_EXPERTS if paired else EXPERTS,
        "rows of an expert": PAIRED_LENGTHS if paired else LENGTHS[::-1],
        "rows before it": PAIRED_BEFORE if paired else BEFORE,
        "empty experts": PAIRED_EMPTY if paired else EMPTY,
    }
    if operation in RAGGED:
        narrow = NARROW[::2] if paired else NARROW
        return {**table, "columns": tuple(32 * count for count in narrow), "splits": ("list", "None")}
    if operation == "unpermute":
        columns: tuple[Level, ...] = PAIRED_LOOSE[::3] if paired else tuple(count for count in LOOSE if count < 1025)
    else:
        columns = PAIRED_WIDTHS if paired else WIDTHS
    table |= {"columns": columns, "tokens": PAIRED_TOKENS if paired else TOKENS, "taken": TAKEN}
    table["align"] = PAIRED_ALIGNS if paired else ALIGNS
    return {**table, **({"weights": ("given", "absent"), "values": FLOATS} if operation == "unpermute" else {})}


def form_table(operation: str, inputs: Mapping[str, str], into_out: bool = False) -> Table:
    """Return the factors of the form of a call; the first level of each is the plain one.

    inputs: name of each array -> its dtype. into_out: of calls that give `out`.
    """
    row = OPERATIONS[operation]
    table: dict[str, tuple[Level, ...]] = {"form shape": FORM_SHAPES}
    if into_out:
        outs = OUTS + (APART_OUTS if len(row.outputs) > 1 else ())
        table |= {"out": outs, "out.address": ADDRESSES, "out.sequence": ("tuple", "list")}
        return table | {f"{name}.storage": ("contiguous", "row gap", "transposed") for name in inputs}
    for name, dtype in inputs.items():
        table[f"{name}.storage"] = LINES if name in LINE_INPUTS else STORAGES
        table[f"{name}.address"] = ADDRESSES
        if dtype == "bfloat16":
            table[f"{name}.dtype"] = ("bfloat16", "uint16")
        elif name == "row_map":
            table[f"{name}.dtype"] = INTEGERS
        elif name == "rbits" or (operation.startswith("decode_") and name == "codes"):
            table[f"{name}.dtype"] = UNSIGNED
    if operation in RAGGED or operation in ROUTED:
        table["splits"] = SPLITS
    if row.profiled:
        table["profile"] = ("object", "name", "copy")
    return {**table, "scalars": SCALARS}
