"""What is asked of one variant: rows of levels, by amount, and their cases."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import refnum

from ..case import Case, plain
from ..layouts import IN, OUT
from ..operation import OPERATIONS
from . import factors, further, grouped
from .build import build
from .covering import Fits, Level, Row, Table, pairs, singles
from .cutting import ANOTHER_VARIANT, AT_ONCE, REFUSED
from .factors import CASTS, RAGGED, ROUTED
from .mixed import SHARES, mixed_rows, stairs
from .models import MODELS
from .ragged import splits
from .uniform import levels

AMOUNTS = ("smoke", "brief", "full", "exhaustive")
"""How much is asked: a few rows; every level of the shapes; every pair of them, extremes and forms too; huge ones."""
SMOKE = 6
CALLS = ("twice", REFUSED, ANOTHER_VARIANT, AT_ONCE, REFUSED, ANOTHER_VARIANT)
"""How a row is called, in turn: twice, after a call that must be refused, or of another variant, or twice at once."""
MIXED = {"full": 200, "brief": 10, "all brief": 120, "keyed": 60, "layout": 50, "layout brief": 8}
"""Amount -> mixed rows of a variant; parts of fields hold most pairs, see `fields`."""
DEAR = {"swiglu_backward": 16, "occ": 8, "swiglu_quantize": 2, "unpermute": 8, "matmul_fp8": 8, "matmul_bf16": 8,
        "quantize_nvfp4": 8, "hadamard16": 8, "hadamard_quantize_nvfp4": 8, "quantize_tetrajet": 4, "q_ema": 4,
        "luq": 4, "dge": 4, "quantize_tetrajet_v2": 8, "sawb": 4, "int4_affine": 8, "efficient_qat": 8,
        "int4_keep_two": 8, "llm_qat": 16, "llm_fp4": 8, "dequantize_int4": 2,
        "adam_apply": 16, "spam_apply": 16, "stable_spam_apply": 16, "q_ramping": 16, "ramping_step": 16,
        "osci_reset": 16, "osci_reset_by_distance": 8, "out_control": 8}  # fmt: skip
"""Operation -> by what its largest cases are smaller: the golden model needs so much longer an element."""
STEPS = (5, 7, 11, 13)
"""Of so many rows of a variant that is not the first one is asked, of as many as half of an operation's variants."""
LAYOUT_STEP, LAYOUT_BRIEF, KEYED_STEP = 4, 8, 4
"""Of so many rows of a layout, and of a key, one is judged by itself; all of them stand in fields."""
SCALE_BYTES = (0, 1, 60, 126, 127, 128, 200, 254, 255)
SUMMED = 400
"""Rows of one token at most: the golden model sums them one after the other."""
LAYOUT_ROWS = (1, 2, 3, 4, 5, 31, 32, 33, 64, 65, 97, 127, 128, 129, 130, 255, 256, 257, 385)
LAYOUT_SCALES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33)
"""Rows and columns of a matrix of scales in a layout: residues of 4 and 128, one group and several."""
RAGGED_EXTREMES = (
    (3, 8193, 5, "none", 32), (9, 66000, 130, "first", 32), (1025, 300, 129, "every other", 64),
    (2050, 2, 1, "130 first", 32), (4, 33, 3, "none", 8224), (3, 5, 0, "first", 65568), (2, 130, 0, "first", 4128),
    (3, 2304, 130, "none", 544), (3, factors.TALL[0], 130, "none", factors.TALL[1]),
)  # fmt: skip
"""Experts, rows of the longest, rows before it, empty experts, columns."""
ROUTED_EXTREMES = (
    (3, 8193, 5, "none", 34, 300), (4, 66000, 0, "first", 17, 70000), (1025, 300, 129, "every other", 51, 2000),
    (2050, 2, 1, "130 first", 34, 5), (4, 33, 3, "none", 8500, 40), (3, 5, 0, "first", 69700, 7),
    (3, 2304, 130, "none", 578, 700), (3, factors.TALL[0], 130, "none", 85, 9000),
)  # fmt: skip
"""As `RAGGED_EXTREMES`, and tokens."""


ORDER = (("one", 1, 1), ("another shape", 2, 2), ("one again", 1, 1), ("its shape, other data", 1, 3), ("large", 40, 4),
         ("one after large", 1, 1), ("another after large", 2, 5), ("one, other data", 1, 6))  # fmt: skip
"""Calls in a row: level, size, seed of the values."""
SEEDS = {level: seed for level, _, seed in ORDER}


@dataclass(frozen=True)
class Asked:
    """One row of levels and the case that it makes. number: its place in the stream, which seeds its values."""

    row: Row
    case: Case
    number: int


def structure_cases(
    operation: str,
    profile: str,
    params: Mapping[str, Any],
    amount: str,
    wanted: Callable[[Row], bool] = lambda row: True,
) -> Iterator[Asked]:
    """Yield what is asked of a variant in rows that are wanted, always the same and in the same order."""
    for number, row in enumerate(structure_rows(operation, profile, params, amount)):
        if not wanted(row):
            continue
        seed = SEEDS.get(str(row.get("order")), number)
        yield Asked(row, build(operation, profile, params, row, seed), number)


def structure_rows(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> list[Row]:
    """Return the rows of levels of a variant."""
    return list(_called_rows(operation, profile, json.dumps(plain(params)), amount))


@functools.lru_cache(maxsize=4)
def _called_rows(operation: str, profile: str, params: str, amount: str) -> tuple[Row, ...]:
    rows = _rows(operation, profile, json.loads(params), amount)
    if amount == "smoke":
        return tuple(rows)
    calls = itertools.cycle(CALLS)
    return tuple(row if "order" in row else {**row, "calls": call} for row, call in zip(rows, calls, strict=False))


def _rows(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> list[Row]:
    layouts = tuple(name for name in (IN, OUT) if name in params)
    whole = amount in ("full", "exhaustive")
    if layouts:
        rows = list(_layout_rows(operation, IN in layouts, tuple(params.get("tile", (1, 128)))))
        base = base_beside(operation, params)
        if not whole:
            pairs = [] if amount == "smoke" else [{**base, **row} for row in further.paired_layouts(operation, params)]
            return rows[::LAYOUT_BRIEF] + _mixed(operation, profile, params, MIXED["layout brief"]) + pairs
        apart = [{**base, **row} for row in further.of_layouts(operation, params)]
        return rows[::LAYOUT_STEP] + _mixed(operation, profile, params, MIXED["layout"]) + apart
    chosen, experts = list(_shape_rows(operation, amount)), grouped.rows(operation, params, amount)
    uniform = [] if amount == "smoke" else _uniform_rows(operation, profile, params)
    if operation == "swiglu_quantize" and amount != "smoke":
        chosen.append({"near ties": "silu and the order of products"})
    base = base_beside(operation, params)
    others = [] if amount == "smoke" else [{**base, **row} for row in further.rows(operation, params)]
    if amount == "brief":
        chosen = [{name: level for name, level in row.items() if name not in params} for row in chosen]
        of_all = (chosen, uniform, experts, others)
        shared, *rest = (shared_rows(operation, profile, params, rows) for rows in of_all)
        shared += _mixed(operation, profile, params, _brief(operation, profile, params))
        large = [{**base, **row} for row in further.large_rows(operation, profile, params)]
        return shared + list(itertools.chain(*rest, large))
    if "random" in params and whole:
        return chosen[::KEYED_STEP] + _mixed(operation, profile, params, MIXED["keyed"]) + uniform[::KEYED_STEP]
    if whole:
        chosen += _form_rows(operation, str(params.get("input", "")), _stochastic(profile, params))
        tables_of = operation, profile, *tables(operation, profile, params)
        chosen += _mixed(operation, profile, params, MIXED["full"]) + stairs(*tables_of)
        if operation == "encode_e2m1":
            chosen = [_with_scale(row, place) for place, row in enumerate(chosen)]
        chosen += _order_rows(operation)
        chosen += _model_rows(operation)
    return chosen + uniform + experts + others


def _with_scale(row: Row, place: int) -> Row:
    """Return a mixed row, one of four with a scale byte that is not the default."""
    if place % 4 or "classes" not in row:
        return row
    return {**row, "scale_byte": SCALE_BYTES[place // 4 % len(SCALE_BYTES)]}


def shared_rows(operation: str, profile: str, params: Mapping[str, Any], rows: list[Row]) -> list[Row]:
    """Return the rows of a variant that is not the first: a third of them, or fewer where more variants have others.

    Each row is asked of some variants: their steps are primes, so that variants with a parameter in common differ.
    """
    choices = [plain(choice) for choice in OPERATIONS[operation].variants()]
    own = plain({name: value for name, value in params.items() if name in OPERATIONS[operation].params})
    place = choices.index(own) if own in choices else 0
    if OPERATIONS[operation].profiled:
        place += len(choices) * list(refnum.PROFILES).index(profile.partition("+")[0])
    step = max(step for step in STEPS if step == STEPS[0] or 2 * step <= len(choices))
    return rows[place % step :: step]


def _brief(operation: str, profile: str, params: Mapping[str, Any]) -> int:
    """Return the mixed rows of a variant that is not the first: more where there are few, and under HOPPER."""
    least, shared = MIXED["brief"], MIXED["all brief"] // len(list(OPERATIONS[operation].variants()))
    return max(least, shared if profile == "HOPPER" else shared // 3)


def _stochastic(profile: str, params: Mapping[str, Any]) -> bool:
    return refnum.get_profile(profile).rounding == "stochastic" and "random" not in params


@functools.lru_cache(maxsize=64)
def _shape_rows(operation: str, amount: str) -> tuple[Row, ...]:
    base, table = base_row(operation), factors.shape_table(operation, paired=False)
    if amount != "full":
        table = {name: levels for name, levels in table.items() if name != "align"}
    dear = DEAR.get(operation, 1)
    small = amount == "smoke"
    thin = factors.SINGLE // (dear if amount == "brief" else 1)
    rows = singles(table, within(operation, factors.SINGLE // (32 if small else max(4, dear)), thin), base)
    if small:
        return tuple(rows[:: max(1, len(rows) // SMOKE)])
    if amount in ("full", "exhaustive"):
        cover = pairs if operation in RAGGED or operation in ROUTED or operation in CASTS else singles
        rows += cover(factors.shape_table(operation, paired=True), within(operation, factors.PAIRED // dear), base)
        rows += [{**base, **row} for row in _extremes(operation, amount)]
    return tuple(rows)


def base_row(operation: str) -> Row:
    """Return ordinary levels of every factor of an operation's shapes, beside which any other can be asked."""
    first = {name: levels[0] for name, levels in factors.shape_table(operation, paired=True).items()}
    ordinary: Row = {"rows": 33, "columns": 160, "experts": 9, "rows of an expert": 33, "rows before it": 3,
                     "empty experts": "last", "tokens": 40, "taken": "scattered", "elements": 67}  # fmt: skip
    if operation in ROUTED:
        ordinary["columns"] = 65 if operation == "unpermute" else 85
    if operation == "swiglu_backward":
        ordinary["columns"] = 100
    return {**first, **{name: level for name, level in ordinary.items() if name in first}}


def base_beside(operation: str, params: Mapping[str, Any]) -> Row:
    """Return the ordinary levels of the factors that no parameter of a variant is."""
    return {name: level for name, level in base_row(operation).items() if name not in params}


def _uniform_rows(operation: str, profile: str, params: Mapping[str, Any]) -> list[Row]:
    """Return ordinary shapes of which one input is one element all over, beside special elements of the others."""
    base = base_beside(operation, params)
    return [{**base, "uniform": level} for level in uniform_levels(operation, profile, params)]


def uniform_levels(operation: str, profile: str, params: Mapping[str, Any]) -> list[str]:
    """Return the name of each input and of each element that it may be all over."""
    return levels(operation, params, build(operation, profile, params, base_beside(operation, params), 0).inputs)


def within(operation: str, most: int, least_sides: int = factors.SINGLE) -> Fits:
    """Return whether a row's levels agree and its case has at most so many elements.

    least_sides: elements that it may have where one side is the least that there is.
    """

    def fits(row: Row) -> bool:
        if operation in CASTS:
            return True
        if operation not in RAGGED and operation not in ROUTED:
            thin = int(row["rows"]) == 1 or int(row["columns"]) <= 32
            return int(row["rows"]) * int(row["columns"]) <= (max(least_sides, most) if thin else most)
        counts = splits(row, OPERATIONS[operation].even_rows)
        if counts is None:
            return False
        if operation == "unpermute" and sum(counts) > SUMMED:
            spread = 1 if str(row["taken"]).endswith("alone") else int(row["tokens"])
            if sum(counts) > SUMMED * spread // 8:
                return False
        align = int(row.get("align", 32)) if operation in ROUTED else 1
        tall = max(sum(-(-count // align) * align for count in counts), int(row.get("tokens", 0)))
        return tall * int(row["columns"]) <= 2 * (factors.SINGLE if int(row["columns"]) <= 32 else most)

    return fits


def _extremes(operation: str, amount: str) -> Iterator[Mapping[str, Level]]:
    """Yield levels beyond those of the tables."""
    if operation == "encode_e2m1":
        for byte in SCALE_BYTES:
            yield {"scale_byte": byte}
    if operation in CASTS:
        yield from ({"rows": rows, "columns": 1 + 7 * rows % (67 if rows < 200 else 5)} for rows in factors.ROWS)
        widths = (*(32 * count for count in range(1, 135)), *factors.LOOSE)
        yield from ({"rows": 2 + place % 2, "columns": width} for place, width in enumerate(widths))
        yield from ({"rows": rows, "columns": columns} for rows, columns in factors.MANY)
        return
    if operation in RAGGED or operation in ROUTED:
        names = ("experts", "rows of an expert", "rows before it", "empty experts", "columns", "tokens")
        if operation == "unpermute":
            yield {"experts": 1025, "empty experts": "every other"}
            return
        for levels in RAGGED_EXTREMES if operation in RAGGED else ROUTED_EXTREMES:
            yield dict(zip(names, levels, strict=False))
        return
    if operation in factors.PRODUCTS:
        for place, wide in enumerate(factors.PRODUCT_COLUMNS):
            sides = factors.PRODUCT_SIDES if wide <= 512 else factors.WIDE_SIDES
            rows, terms = sides[place % len(sides)]
            yield {"rows": rows, "columns": terms, "columns of the product": wide}
    dear = DEAR.get(operation, 1)
    most = max(map(math.prod, factors.EXTREMES)) // dear
    shapes = [shape for shape in factors.EXTREMES if math.prod(shape) <= most]
    shapes += (factors.MILLION,) if most < math.prod(factors.MILLION) else ()
    if "factors" not in OPERATIONS[operation].inputs and operation not in factors.ANY_AXES:
        shapes.append((factors.TALL[0] // max(1, dear // 4), factors.TALL[1]))
    shapes += factors.LOOSE_EXTREMES if operation in factors.UNBLOCKED | {"swiglu_backward"} else ()
    shapes += factors.HUGE if amount == "exhaustive" else ()
    apart = {"tensor_amax": "absent", "largest": "last"} if "tensor_amax" in OPERATIONS[operation].optional else {}
    for rows, columns in shapes:
        special = {"classes": "special"} if (rows, columns) == factors.SPECIAL else {}
        yield {"rows": rows, "columns": columns, **special, **(apart if (rows, columns) == factors.MILLION else {})}


def _order_rows(operation: str) -> Iterator[Row]:
    """Yield calls that follow each other: the same again, small after large, the same shape with other data."""
    base = base_row(operation)
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    for level, size, _ in ORDER:
        yield {**base, tall: int(base[tall]) * size - size + 1, "order": level}


def _model_rows(operation: str) -> Iterator[Row]:
    """Yield the shapes of public models with few rows: each width once, each count of experts with its choice."""
    if operation in CASTS:
        return
    base = base_row(operation)
    if operation in RAGGED or operation in ROUTED:
        for model in MODELS:
            if model.experts:
                wide = model.hidden // 32 * 17 if operation in ROUTED and operation != "unpermute" else model.hidden
                rows: Row = {"experts": model.experts, "rows of an expert": model.top, "rows before it": 0,
                        "empty experts": "all but one", "columns": wide, "model": model.source}  # fmt: skip
                yield {**base, **rows}
        return
    seen: set[int] = set()
    for place, model in enumerate(MODELS):
        for width in (model.hidden, model.wide, model.expert):
            if width and width not in seen:
                seen.add(width)
                yield {**base, "rows": 1 + place % 3, "columns": width, "model": f"{model.source} {width}"}


def layout_pairs(operation: str, params: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Return (rows, blocks of 32 columns) that a variant with a layout is asked: residues of rows, and of scales."""
    rows = _layout_rows(operation, IN in params, tuple(params.get("tile", (1, 128))))
    return {(count, 1) for count in range(1, 132)} | {(int(row["rows"]), int(row["columns"]) // 32) for row in rows}


@functools.lru_cache(maxsize=64)
def _layout_rows(operation: str, reads: bool, tile: tuple[int, int]) -> tuple[Row, ...]:
    """Rows of a variant with scale layouts: residues of the rows and of the columns of scales."""
    wide = 32 if operation in ("quantize_mxfp4", "dequantize_mxfp4", "fp8_to_mxfp4") else 128
    tall = tile[0] if "fp8_tiles" in operation else 1
    columns = tuple(count * wide - (wide - 32 if count % 2 else 0) for count in LAYOUT_SCALES)
    rows = LAYOUT_ROWS if tall == 1 else tuple(count * tall - (tall - 1 if count % 2 else 0) for count in (1, 2, 3, 5))
    table = {"rows": rows, "columns": columns, **({"padding": ("zero", "garbage")} if reads else {})}
    base: Row = {"rows": rows[2], "columns": columns[4], **({"padding": "garbage"} if reads else {})}
    tall_rows: list[Row] = [{**base, "rows": count} for count in (1025, 4097)] if tall == 1 else []
    wide_rows: list[Row] = [{**base, "columns": count} for count in (2880, 8224)]
    return tuple(pairs(table, lambda row: int(row["rows"]) * int(row["columns"]) <= factors.SINGLE, base)
                 + tall_rows + wide_rows)  # fmt: skip


@functools.lru_cache(maxsize=64)
def _form_rows(operation: str, dtype: str, stochastic: bool) -> tuple[Row, ...]:
    """Rows of the forms of a call, each level beside others; then those of calls that give `out`."""
    rows: list[Row] = []
    for table in filter(None, _form_tables(operation, dtype, stochastic)):
        base = {name: levels[0] for name, levels in table.items()}
        rows += singles(table, lambda row: True, base)
    return tuple(rows)


def _mixed(operation: str, profile: str, params: Mapping[str, Any], count: int) -> list[Row]:
    """Return small shapes in calls of every form, others for every variant."""
    salt = f"{profile} {sorted(params.items())}"
    return mixed_rows(operation, salt, int(count * SHARES.get(operation, 1)), *tables(operation, profile, params))


def tables(operation: str, profile: str, params: Mapping[str, Any]) -> tuple[Table, Table, Table]:
    """Return the factors of the form of a call, of `out`, and of the shapes."""
    forms, outs = _form_tables(operation, str(params.get("input", "")), _stochastic(profile, params))
    outs = {name: levels for name, levels in outs.items() if name.startswith("out")}
    padding = {"padding": ("zero", "garbage")} if IN in params else {}
    shapes = factors.shape_table(operation, paired=False)
    if "align" in params:
        shapes = {name: levels for name, levels in shapes.items() if name != "align" or params["align"] == 32}
    if IN in params:  # whose storage repeats no row, whatever the bytes do
        storages = tuple(level for level in factors.STORAGES if not level.startswith("broadcast"))
        forms = {**forms, "scales.storage": storages}
    return {**forms, **padding}, outs, shapes


def _form_tables(operation: str, dtype: str, stochastic: bool) -> tuple[Table, Table]:
    """Return the factors of the form of a call, and of one that gives `out`, empty where none does."""
    inputs = dict.fromkeys(OPERATIONS[operation].inputs, "")
    optional = {name: "" for name in OPERATIONS[operation].optional if name != "rbits" or stochastic}
    for name in inputs:
        floating = {"x": dtype, "gate": "bfloat16", "up": "bfloat16", "grad": dtype or "bfloat16", "rows": "bfloat16"}
        inputs[name] = floating.get(name, "")
    named = {**inputs, **optional}
    into_out = {} if "out" in OPERATIONS[operation].params else factors.form_table(operation, named, into_out=True)
    return factors.form_table(operation, named), into_out
