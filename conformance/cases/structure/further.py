"""Levels beyond the tables of factors: widths in an operation's own unit, arguments that its variants have one of, both
sides of a product, arrays of any axes, random bits where no profile gives them, tokens that all experts take, matrices
without rows or columns, any two layouts together.

Each row is asked of some variant (`plan.shared_rows`), and all of the first one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refnum.nvfp4_scales import VARIANTS
from refnum.profiles import HOPPER, PROFILES

from ..draw.products import scale_kinds
from ..layouts import IN, OUT, PLAIN
from ..operation import OPERATIONS
from .blank import LEVELS
from .covering import Row
from .factors import ANY_AXES, CASTS, LINE_INPUTS, PRODUCTS, RAGGED, ROUTED, UNSIGNED
from .mixed import CLASSES, LOOSE

BOTH_SIDES = (
    (200, 512, 192), (129, 160, 130), (66, 33, 65), (257, 128, 129), (96, 640, 72), (300, 96, 520), (65, 257, 127),
    (520, 64, 300), (72, 2080, 80), (136, 1056, 144), (255, 17, 384), (384, 32, 256), (1540, 4, 1668), (641, 3, 2049),
    (20, 8224, 33), (33, 4128, 68), (5, 40, 8200), (2, 17, 16392), (1, 5, 65544),
)  # fmt: skip
"""Rows, terms and columns of products of several tiles along both sides, the tiles whole and in part, below and beyond
one wave of 132 processors; of small sides and many terms; and of the most columns."""
EXPERT_SIDES = (
    (3, 129, 32, "none", 33, 130), (2, 300, 200, "none", 160, 257), (5, 128, 64, "first", 256, 192),
    (4, 65, 1, "last", 1057, 129), (3, 17, 3, "middle", 4128, 9), (300, 2, 1, "none", 33, 3),
    (1030, 1, 1, "every other", 17, 5), (9, 256, 128, "every other", 128, 130), (8, 33, 2, "all but one", 2080, 33),
)  # fmt: skip
"""Experts, rows of the longest, rows before it, empty experts, terms and columns of products of experts."""
WHOLE_EXPERTS = ((3, 64), (4, 128), (9, 32))
"""Experts of a product, and rows of each but for the last, which has none: whole tiles for all."""
SCALES = (("block", "square"), ("row", "row"), ("tensor", "tensor"), ("block", "block"), ("square", "square"),
          ("none", "row"), ("square", "block"), ("row", "tensor"), ("block", "none"), ("row", "block"))  # fmt: skip
"""Kinds of scales of both operands of a product, in turn; an order without blocks has rows in the place of both."""
SCALED_AS = ("bytes", "float32", "float32 beside bytes")
"""What scales are given as: both as E8M0 bytes, both as float32 that are no powers of two, or those of `a` alone."""
EVERY_EXPERT = ((2, 33), (4, 8), (3, 129), (8, 64), (5, 1), (65, 7))
"""Experts, and tokens, each of which all experts take."""
SHUFFLED = ((1, 67), (5, 130), (9, 300), (33, 1025))
"""Experts, and tokens, each of which is taken once, in any order."""
AXES = ("vector", "row", "column", "cube", "tall cube", "four axes")
AXES_ELEMENTS = (1, 7, 67, 1000, 4099)
CAST_ELEMENTS = (8200, 40_002, 262_152)
"""Forms of an array whose axes are free, and its elements: those of a step, and of a scalar cast."""
STORED_AXES, STORED_ELEMENTS = ("vector", "cube", "tall cube", "four axes"), 2520
STORED = ("element gap", "transposed", "reversed rows", "reversed columns", "row gap", "broadcast columns")
"""Forms of an array, and its elements, beside storages that forms of a matrix alone would not tell apart."""
RANDOM_SHAPES = ((1, 32), (3, 96), (33, 160), (17, 1056), (64, 128), (130, 64), (257, 96), (1025, 32), (2049, 32),
                 (1, 8224), (9, 2080))  # fmt: skip
"""Rows and columns beside random bits of each kind."""
OWN_UNITS: Mapping[str, int] = {
    "quantize_nvfp4": 16, "dequantize_nvfp4": 16, "hadamard16": 16, "hadamard_quantize_nvfp4": 16, "luq": 2,
    "dequantize_luq": 2, "radix4": 2, "dequantize_radix4": 2,
}  # fmt: skip
"""Operation -> the number that its columns are a multiple of, where the tables have multiples of 32."""
OWN_WIDTHS, OWN_ROWS = (1, 3, 5, 7, 9, 13, 17, 33, 65, 129, 513), (1, 2, 3, 17, 33, 65, 129, 300)
"""Units of a row of which no even number stands, and rows beside them."""
OWN_AREA = 1 << 15
"""Elements of the largest case of these."""

GROUPS, GROUP_COUNTS = (16, 64, 128, 256), (1, 2, 3)
"""Elements of a group along a row that are not the variants', and groups of a row."""
ARGUMENTS: Mapping[str, tuple[Row, ...]] = {
    **{name: tuple({"group": group, "columns": group * count} for group in GROUPS for count in GROUP_COUNTS)
       for name in ("int4_affine", "efficient_qat", "int4_keep_two")},
    "dequantize_int4": tuple({"group": group, "columns": group * count}
                             for group in (1, 3, *GROUPS) for count in (1, 3, 5)),
    "occ": tuple({"alpha": alpha, "columns": columns} for alpha in ("1/1", "1/2", "9/10", "999/1000")
                 for columns in (7, 33, 128)),
    "out_control": tuple({"share": share, "columns": columns} for share in ("0/1", "1/1", "1/2", "129/640", "1/128")
                         for columns in (129, 300, 640)),
    "q_ema": (*({"average": "float32", "columns": columns} for columns in (96, 160, 1056)),
              *({"ratio": "float32", "columns": columns} for columns in (32, 160, 1056))),
    "hadamard_quantize_nvfp4": tuple({"variant": variant, "columns": 32 + 16 * place}
                                     for place, variant in enumerate(VARIANTS)),
    "luq": tuple({f"{name}.dtype": "uint64" for name in names}
                 for names in (("r_under",), ("r_log",), ("r_under", "r_log"))),
    "dge": tuple({"k": k, "columns": 33} for k in (2, 3, 4, 7, 8, 15)),
    "encode_e2m1": tuple({"scale_byte": byte, "columns": 33} for byte in (2, 31, 64, 101, 125, 129, 190, 253)),
}  # fmt: skip
"""Operation -> levels of arguments, and dtypes, that its variants have one of or none, each beside many rows."""
LARGEST = ("first", "last", "end of the first row", "begin of the last row")
LARGEST_SHAPES = ((33, 160), (300, 96), (1025, 32), (65, 1056))
"""Where the largest element of a tensor stands, alone, and the shapes of tensors of which one statistic is taken."""
OF_TENSORS: tuple[Row, ...] = tuple(
    {"largest": LARGEST[(place + turn) % len(LARGEST)], "rows": rows, "columns": columns}
    for turn in range(2)
    for place, (rows, columns) in enumerate(LARGEST_SHAPES)
)
WHOLE: Mapping[str, tuple[Row, ...]] = {
    **{name: tuple({**row, "tensor_amax": "absent"} for row in OF_TENSORS)
       for name in ("quantize_nvfp4", "hadamard_quantize_nvfp4", "luq")},
    **dict.fromkeys(("sawb", "llm_qat", "occ"), OF_TENSORS),
    "llm_fp4": tuple({"maxval": "of rows", "rows": rows, "columns": columns}
                     for rows, columns in ((2, 33), (17, 160), (33, 1), (65, 96), (129, 64), (300, 33), (1025, 5))),
    "dequantize_int4": tuple({"group": "none", "zeros": zeros, "rows": rows, "columns": columns}
                             for zeros in ("given", "absent")
                             for rows, columns in ((2, 33), (33, 160), (65, 96), (300, 33), (1025, 5))),
}  # fmt: skip
"""Operation -> levels of whole cases, of which no part has a part of the answer: it hangs on all elements, or an input
has a number for each row, or one for all."""

NO_COLUMNS = ("swiglu_backward", *sorted(PRODUCTS))
"""Operations that take no matrix without columns (N0.9, N19.1)."""
EMPTY = ((0, 160), (0, 8224), (0, 0), (5, 0), (129, 0), (65_537, 0))
EMPTY_EXPERTS: tuple[Row, ...] = (
    {"columns": 0}, {"empty experts": "all", "columns": 0}, {"empty experts": "all", "experts": 1},
)  # fmt: skip
"""Rows and columns of matrices without elements (N0.9), and levels of such matrices of experts."""
SWAPPED = ((64, 128), (128, 64), (256, 32), (32, 256))
"""Shapes that follow each other: as many elements in other rows, the rows of one the columns of the next."""
PAIRED_LAYOUTS = ((129, 160), (33, 1056), (4, 128))
"""Rows and columns beside every two layouts, and beside a layout under every profile."""
BLANK = ((33, 416), (129, 544))
"""Rows and columns of matrices with zeros in whole tiles or rows, or with one special element."""
BLANK_OF_ALL = ("last alone", "first alone", "NaN last", "Inf last")
"""Levels that decide a statistic of the whole tensor."""
APART = (("odd ones", 40, 33, 3), ("1024 first", 1027, 130, 0), ("odd ones", 5, 300, 129), ("all but one", 63, 130, 0),
         ("all but one", 64, 33, 0))  # fmt: skip
"""Which experts are empty, how many there are, rows of the longest and before it, as no table has them."""
ALIKE = ((300, 2), (64, 2), (5, 96), (4, 128), (33, 32), (1024, 2), (130, 64))
"""Experts, and rows of each."""
LONG, LONG_TOKENS = {"experts": 5, "rows of each": 1 << 15}, 50_000
"""Experts of which one begins at row 2^15, one at 2^16 and one beyond, with more than 1,024 tiles together."""
LARGE, SLOW, BOTH_LARGE = 65_537, 8200, (264, 1056)
"""Rows of the least columns, more than a grid has, and rows and columns, beside each value of each parameter; fewer
rows of an operation whose model takes half a second for so many."""
LARGE_CASTS = ((70_001, 2), (3, 45_001))
LARGE_EXPERTS = ((9, 8200, 3, "first", 32), (33, 264, 3, "last", 1056), (3, 66_000, 130, "first", 32))
"""Experts, rows of the longest, rows before it, empty experts, columns."""


def own_unit(operation: str, params: Mapping[str, Any]) -> int:
    """Return the number that columns are a multiple of where that is no multiple of 32, else 0."""
    if operation.startswith("hadamard") and params.get("axis") == 0:
        return 1
    return OWN_UNITS.get(operation, 0)


def beside_rows(operation: str, params: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return levels that no table has, to be asked beside many rows: widths in an operation's own unit, arguments."""
    unit = own_unit(operation, params)
    widths: list[Row] = [{"columns": unit * count} for count in OWN_WIDTHS if unit]
    return (*widths, *ARGUMENTS.get(operation, ()))


def random_inputs(operation: str) -> tuple[str, ...]:
    """Return the random inputs that a call of an operation may have whatever its profile, one of them at a time."""
    row = OPERATIONS[operation]
    return ("rbits", "philox") if "rbits" in row.optional and not row.profiled else ()


def rows(operation: str, params: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a variant; a row lacks the factors that its base has."""
    found = (_products(operation, params), _routed(operation), _axes(operation), _beside(operation, params))
    last = _empty(operation, params), _swapped(operation), _blank(operation), _apart(operation)
    return [*itertools.chain(*found, random_rows(operation), *last)]


def _blank(operation: str) -> Iterator[Row]:
    """Yield matrices that are zero in part, where an operation reads numbers; with each statistic that it may take."""
    row = OPERATIONS[operation]
    if operation in CASTS or operation in ROUTED or row.moves_only:
        return
    ragged: tuple[Row, ...] = ({"columns": 544}, {"columns": 416, "splits": "None"})
    shapes = ragged if operation in RAGGED else tuple(map(_sized, BLANK))
    for level, shape in itertools.product(LEVELS, shapes):
        yield {**shape, "blank": level}
        if "tensor_amax" in row.optional and level in BLANK_OF_ALL:
            yield {**shape, "blank": level, "tensor_amax": "absent"}


def _apart(operation: str) -> Iterator[Row]:
    """Yield experts that are empty, or alike, as no table has them."""
    if operation not in RAGGED and operation not in ROUTED:
        return
    given: Row = {"splits": "list"} if operation in RAGGED else {}
    names = ("empty experts", "experts", "rows of an expert", "rows before it")
    for levels in APART:
        yield {**given, **dict(zip(names, levels, strict=True))}
    for experts, each in (*ALIKE, *(() if OPERATIONS[operation].even_rows else ((300, 1),))):
        wide: Row = {"columns": 160} if operation in RAGGED and each % 32 == 0 else {}
        yield {**given, **wide, "experts": experts, "rows of each": each}
    narrow = 32 if operation in RAGGED else 3 if operation == "unpermute" else 17
    yield {**given, **LONG, "columns": narrow, **({"tokens": LONG_TOKENS} if operation in ROUTED else {})}


def _swapped(operation: str) -> Iterator[Row]:
    if operation not in CASTS | RAGGED | ROUTED:
        yield from map(_sized, SWAPPED)


def _sized(shape: tuple[int, int]) -> Row:
    return {"rows": shape[0], "columns": shape[1]}


def _empty(operation: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """Yield matrices without elements, each with one of as many rows, or columns, that has some right behind it."""
    if operation in RAGGED or operation in ROUTED:
        bare: list[Row] = [dict(levels) for levels in EMPTY_EXPERTS]
        bare += [{"splits": "None", **levels} for levels in EMPTY_EXPERTS[:2] if operation in RAGGED]
        bare += [{"tokens": 0, "empty experts": "all"}] if operation in ROUTED else []
        for levels in bare:
            yield levels
            yield {name: level for name, level in levels.items() if name in ("splits", "experts")}
        return
    shapes = [shape for shape in EMPTY if shape[1] or operation not in NO_COLUMNS]
    for place, (rows, columns) in enumerate(shapes):
        into = place % 3 == 0 and "out" not in OPERATIONS[operation].params
        yield {**_sized((rows, columns)), **({"out": "contiguous"} if into else {})}
        yield _sized((min(rows, 129) or 33, min(columns, 160) or 160))
    for name in ("tensor_amax", "zeros", "prob"):
        if name in OPERATIONS[operation].optional:
            yield from ({**_sized(shape), name: "absent"} for shape in shapes[::3])
    if operation in PRODUCTS:
        yield {"rows": 5, "columns": 160, "columns of the product": 0}


def large_rows(operation: str, profile: str, params: Mapping[str, Any]) -> list[Row]:
    """Return large shapes of a variant that differs in one parameter, or in the profile, from an operation's first."""
    row = OPERATIONS[operation]
    other = [name for name, values in row.params.items() if params[name] != values[0]]
    if len(other) + (profile != HOPPER.name) != 1:
        return []
    if operation in CASTS:
        return [{"rows": rows, "columns": columns} for rows, columns in LARGE_CASTS]
    if operation in RAGGED or operation in ROUTED:
        names = ("experts", "rows of an expert", "rows before it", "empty experts", "columns")
        found: list[Row] = [dict(zip(names, levels, strict=True)) for levels in LARGE_EXPERTS]
        wide = [levels if operation in RAGGED else {**levels, "columns": int(levels["columns"]) // 32 * 17}
                for levels in found]  # fmt: skip
        return wide[:2] if operation == "unpermute" else wide
    least = own_unit(operation, params) or (1 if operation in LOOSE else 32)
    shapes = [(SLOW if row.unit == 128 else LARGE, least), BOTH_LARGE, EMPTY[0]]
    shapes += [] if operation in NO_COLUMNS else [(33, 0)]
    return [_sized(shape) for shape in shapes]


def campaign_rows(operation: str, params: Mapping[str, Any], largest: int) -> list[Row]:
    """Return the rows of a variant that a campaign draws: those whose products, or elements, are no more than so many.

    largest: elements; of a product so many terms of all its sums.
    """
    if not {IN, OUT}.isdisjoint(params):
        return [row for row in of_layouts(operation, params) if "under" not in row and int(row["rows"]) < LARGE]
    if "random" in params:
        return []
    sides = ("rows", "columns", "columns of the product", "experts", "rows of an expert", "rows of each", "tokens")
    found = rows(operation, params)
    return [row for row in found if math.prod(int(row.get(name, 1)) for name in sides) <= largest]


def of_layouts(operation: str, params: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a variant with a scale layout."""
    found = [*_beside(operation, params), *(row for row in random_rows(operation) if "rbits.dtype" not in row)]
    shapes = [(LARGE, 32), BOTH_LARGE, EMPTY[0]] + ([] if operation in NO_COLUMNS else [EMPTY[3]])
    found += map(_sized, shapes)
    rounding = "stochastic" if "random" in params else "nearest"
    profiles = [name for name, one in PROFILES.items() if OPERATIONS[operation].profiled and one.rounding == rounding]
    for place, name in enumerate(profiles):
        rows, columns = PAIRED_LAYOUTS[place % len(PAIRED_LAYOUTS)]
        found.append({"rows": rows, "columns": columns, "under": name})
    return [*found, *paired_layouts(operation, params)]


def paired_layouts(operation: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """Yield each layout in the place of one of a variant, where an operation reads one and writes another."""
    row = OPERATIONS[operation]
    for name in row.layouts if len(row.layouts) > 1 else ():
        for layout in row.stored_as:
            if layout not in (PLAIN, params.get(name)):
                for rows, columns in PAIRED_LAYOUTS:
                    yield {"rows": rows, "columns": columns, name: layout}


def random_rows(operation: str) -> Iterator[Row]:
    """Yield the rows with random bits: each kind beside shapes, words of every dtype, in storages of their own."""
    names = random_inputs(operation)
    storages = ("row gap", "element gap", "transposed", "reversed rows")
    factors = (("rbits.dtype", UNSIGNED[1:]), ("rbits.storage", storages))
    turn = itertools.cycle([{}, *({name: level} for name, levels in factors for level in levels)])
    for name in names:
        for tall, wide in RANDOM_SHAPES:
            yield {"rows": tall, "columns": wide, name: "given", **(next(turn) if name == "rbits" else {})}


def _products(operation: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """Yield products on both sides, every other one of special elements too; then those of experts."""
    if operation not in PRODUCTS:
        return
    for place, (tall, terms, wide) in enumerate(BOTH_SIDES):
        sides: Row = {"rows": tall, "columns": terms, "columns of the product": wide}
        yield {**sides, **_scales(operation, params, place, SCALES), "classes": CLASSES[place % 2]}
    names = ("experts", "rows of an expert", "rows before it", "empty experts", "columns", "columns of the product")
    rows_alone = tuple(("row" if kind == "square" else kind, other) for kind, other in SCALES)
    for place, levels in enumerate(EXPERT_SIDES):
        own: Row = {**dict(zip(names, levels, strict=True)), "splits": "list"}
        yield {**own, **_scales(operation, params, place, rows_alone), "classes": CLASSES[place % 2]}
    for place, (experts, each) in enumerate(WHOLE_EXPERTS):
        whole: Row = {"experts": experts, "rows of each": each, "columns": 96, "columns of the product": 66}
        yield {**whole, "splits": "list", **_scales(operation, params, place, rows_alone)}


def _scales(operation: str, params: Mapping[str, Any], place: int, kinds: Sequence[tuple[str, str]]) -> Row:
    """Return the levels of the scales of both operands; none where they have no scales."""
    if OPERATIONS[operation].main == "values":
        return {}
    pair, known = kinds[place % len(kinds)], scale_kinds(str(params["order"]))
    one, other = (kind if kind == "none" or kind in known else "row" for kind in pair)
    return {"scales of a": one, "scales of b": other, "scales as": SCALED_AS[place // 2 % len(SCALED_AS)]}


def _beside(operation: str, params: Mapping[str, Any]) -> Iterator[Row]:
    yield from WHOLE.get(operation, ())
    for place, levels in enumerate(beside_rows(operation, params)):
        for turn in range(2):
            most = max(1, OWN_AREA // int(levels.get("columns", 1)))
            yield {"rows": min(most, OWN_ROWS[(place + 4 * turn) % len(OWN_ROWS)]), **levels}


def _routed(operation: str) -> Iterator[Row]:
    if operation not in ROUTED:
        return
    for taken, shapes in (("every expert", EVERY_EXPERT), ("shuffled", SHUFFLED)):
        for experts, tokens in shapes:
            yield {"taken": taken, "experts": experts, "tokens": tokens}
    far: Row = {"experts": 9, "rows of an expert": 130, "rows before it": 3, "empty experts": "last",
                "tokens": 70_000, "taken": "scattered", "columns": 3 if operation == "unpermute" else 17}  # fmt: skip
    yield from (far, {**far, "row_map.dtype": "int64", "tokens": 1 << 16}, {**far, "row_map.dtype": "uint32"})
    yield {"taken": "with gaps", "tokens": 1000}
    if operation == "unpermute":
        yield {"experts": 9, "rows of an expert": 40, "rows before it": 3, "empty experts": "first", "tokens": 70,
               "taken": "scattered", "columns": 4128}  # fmt: skip


def _axes(operation: str) -> Iterator[Row]:
    if "factors" in OPERATIONS[operation].inputs or operation in ANY_AXES:
        names = [name for name in OPERATIONS[operation].inputs if name not in LINE_INPUTS]
        for place, (axes, storage) in enumerate(itertools.product(STORED_AXES, STORED)):
            some = names if storage == "transposed" else names[place % len(names) :][:1]
            forms: Row = {f"{name}.storage": storage for name in some}
            yield {"elements": STORED_ELEMENTS, "form of the array": axes, **forms}
    if "factors" in OPERATIONS[operation].inputs or operation in ANY_AXES - CASTS:
        for axes, count in itertools.product(AXES, AXES_ELEMENTS):
            yield {"elements": count, "form of the array": axes}
    if operation in CASTS:
        for axes, count in itertools.product(("cube", "tall cube", "four axes", "column"), CAST_ELEMENTS):
            yield {"elements": count, "form of the array": axes}
    if operation == "swiglu_backward":
        yield {"rows": 130, "columns": 2080}
