"""From a row of levels to a case: its inputs, their values, its parameters, and the form in which it is called."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from refnum.arrays import TILE, pack_nibbles, unpack_nibbles
from refnum.codec import decode_table
from refnum.formats import E2M1, E4M3, get_format
from refnum.nvfp4 import NVFP4_BLOCK
from refnum.tiles import tile_count

from ..case import FORM, Case
from ..draw.bits import as_float
from ..draw.factors import factors, positive
from ..draw.products import COLUMNS, scale_kinds, scales_of_kind, terms_for
from ..entry import UNNAMED_PARAMS, WORDS
from ..layouts import IN, OUT
from ..operation import OPERATIONS
from ..recipes.inputs import TOPS
from ..recipes.random_bits import by_key, key_of, with_random_bits
from . import grouped, values
from .blank import blanked
from .covering import Level, Row, shape_of
from .factors import CASTS, GROUPED, PRODUCTS, RAGGED, ROUTED
from .near_ties import near_ties
from .ragged import drawn, row_map, splits
from .special import planted, planted_terms
from .uniform import uniform

PLAIN_LEVELS: Mapping[str, tuple[Level, ...]] = {
    "storage": ("contiguous",), "address": (0,), "dtype": ("bfloat16", "int32", "uint8"), "sequence": ("tuple",),
    "splits": ("list", "None"), "profile": ("object",), "scalars": ("plain",), "out": (), "padding": ("zero",),
    "row_map.dtype": ("int32",),
}  # fmt: skip
"""A factor of form, or the end of one -> levels at which a call is made in the plain form."""
LARGEST = np.float32(16)
"""Magnitude about which the maximum of a tensor lies where it is given: that of the largest elements."""
LARGER = 4096
"""Magnitude that no other element has, of a tensor whose largest element stands alone."""
NUMBERS = ("scale_byte", "signs", "n0", "k", "cap")
"""Arguments that are numbers, and levels of a row."""
RANDOM_BITS = 8
"""Random bits of an element where no profile says how many."""
MOST_BESIDE = 1 << 15
"""Elements of the first operand of a product up to which the other one has up to 16 rows; 5 beside larger ones."""
SHORT_KEY = 5
"""Of so many keyed cases one has a Philox key without an offset, which is 0 then (N13.5)."""


def build(operation: str, profile: str, params: Mapping[str, Any], row: Row, seed: int) -> Case:
    """Return the case of a row of levels; the same row and seed give the same case."""
    more: dict[str, Any]
    more = {name: int(row[name]) for name in NUMBERS if name in row}
    more |= {name: row[name] for name in UNNAMED_PARAMS if name in row}
    more |= {name: [int(part) for part in str(row[name]).split("/")] for name in ("alpha", "share") if name in row}
    if "group" in row and "group" in params:
        more["group"] = int(row["group"])
    if "near ties" in row:
        inputs = near_ties(str(params["to"]))
    elif operation in CASTS:
        inputs = _cast(operation, params, row, seed)
    elif operation in ROUTED:
        inputs, more = _routed(operation, params, row, seed)
    elif operation in RAGGED:
        inputs, more = _ragged(operation, row, seed)
    elif operation in GROUPED and not grouped.MARKS.isdisjoint(row):
        inputs, more = grouped.inputs(operation, params, row, seed)
    else:
        inputs = _matrix(operation, params, row, seed)
    inputs, more = _drawn_words(operation, {**params, **row}, inputs, more, seed)
    form = form_of(row)
    if not holds(inputs.get("row_map"), str(form.get("row_map.dtype", "int32"))):
        del form["row_map.dtype"]
    if operation in PRODUCTS:
        inputs = planted_terms(params, inputs, seed) if row.get("classes") == "special" else inputs
    elif row.get("classes") == "special" or "uniform" in row:
        inputs = planted(operation, params, inputs, seed)
    if "blank" in row:
        inputs = blanked(operation, params, inputs, str(row["blank"]))
    profile = str(row.get("under", profile))
    inputs = with_random_bits(operation, profile, inputs, seed)
    if "uniform" in row:
        inputs = uniform(operation, params, inputs, str(row["uniform"]))
    inputs = {name: _broadcast(array, str(form.get(f"{name}.storage", ""))) for name, array in inputs.items()}
    label = "structure: " + ", ".join(f"{name} {level}" for name, level in row.items())
    fixed = {name: value for name, value in params.items() if name != "splits"}
    fixed |= {name: row[name] for name in (IN, OUT) if name in row}
    parameters = {**fixed, **more, **({FORM: form} if form else {})}
    case = by_key(Case(operation, profile, parameters, inputs, None, label), seed)
    if seed % SHORT_KEY == 1 and "philox" in case.params:
        case = case.with_inputs({}, {"philox": case.params["philox"][:3]})
    return case


def _drawn_words(
    operation: str, levels: Mapping[str, Any], inputs: dict[str, np.ndarray], more: dict[str, Any], seed: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return inputs and parameters with the random bits that levels give: a byte for each code, or a Philox key."""
    if levels.get("philox") == "given":
        return inputs, {**more, "philox": key_of(seed, RANDOM_BITS)}
    if levels.get("rbits") != "given":
        return inputs, more
    rows, columns = inputs["x"].shape
    if operation.startswith("hadamard") and levels["axis"] == 0:  # codes are those of the transpose
        rows, columns = columns, -(-rows // NVFP4_BLOCK) * NVFP4_BLOCK
    return {**inputs, "rbits": (values.noise(rows, columns, seed + 5) >> np.uint32(24)).astype(np.uint8)}, more


def holds(row_map: np.ndarray | None, dtype: str) -> bool:
    """Whether a dtype holds every token of a row map."""
    return row_map is None or not row_map.size or int(row_map.max()) <= np.iinfo(dtype).max


def form_of(row: Mapping[str, Level]) -> dict[str, Level]:
    """Return the levels of a row that say how a call is made and are not plain."""
    found = {}
    for name, level in row.items():
        plain = _plain_levels(name)
        if plain is not None and level not in plain:
            found[name] = level
    return found


@functools.cache
def _plain_levels(name: str) -> Collection[Level] | None:
    """Return the plain levels of a factor of form, None for any other factor."""
    return PLAIN_LEVELS.get(name, PLAIN_LEVELS.get(name.rpartition(".")[2]))


def whole_shape(operation: str, row: Mapping[str, Level]) -> tuple[int, int]:
    """Return rows and columns of an operation's matrix, the columns raised to a multiple of its unit."""
    (rows, columns), unit = shape_of(row), OPERATIONS[operation].unit or 1
    return rows, -(-columns // unit) * unit


def _broadcast(array: np.ndarray, storage: str) -> np.ndarray:
    """Return data that a broadcast storage can hold: all rows, or all columns, alike."""
    if not array.size or not array.ndim or not storage.startswith("broadcast"):
        return array
    one = array[:1] if storage == "broadcast rows" and array.ndim > 1 else array[..., :1]
    return np.ascontiguousarray(np.broadcast_to(one, array.shape))


def _matrix(operation: str, params: Mapping[str, Any], row: Row, seed: int) -> dict[str, np.ndarray]:
    names, shape = OPERATIONS[operation].inputs, whole_shape(operation, row)
    if names[0] == "x":
        block = tuple(params.get("tile", (1, 32)))
        x = values.floats(values.FORMATS[params["input"]], shape, seed, (block[0], block[1]))
        if "largest" in row:
            place = {"first": 0, "last": -1, "end of the first row": shape[1] - 1, "begin of the last row": -shape[1]}
            x.reshape(-1)[place[str(row["largest"])]] = x.dtype.type(-LARGER if seed % 2 else LARGER)
        words = {name: WORDS[name] for name in names if name in WORDS}
        drawn = {name: values.noise(*shape, seed + len(name)) >> np.uint32(32 - words[name]) for name in words}
        given = row.get("tensor_amax") == "given"
        maximum = {"tensor_amax": LARGEST * np.abs(values.vector(1, seed))} if given else {}
        if "maxval" in names:
            each = shape[0] if row.get("maxval") == "of rows" else 1
            maximum["maxval"] = np.resize(np.roll(TOPS, -seed), each)
        return {"x": x, **drawn, **maximum}
    if "form of the array" in row:
        shape = (1, int(row["elements"]))
    if "factors" in names:
        fp32 = values.FORMATS["float32"]
        step = {name: values.floats(fp32, shape, seed + place, (1, 32)) for place, name in enumerate(names[:4])}
        step = _formed(step, row)
        return {**step, "v": positive(step["v"]), "factors": factors(operation, seed)}
    if operation == "osci_reset":
        return _weights(params, shape, seed)
    if OPERATIONS[operation].family == "oscillation":
        return _formed(_oscillation(names, params, shape, seed), row)
    if names == ("w", "ema"):
        kinds = {"w": params["input"], "ema": str(row.get("average", params["input"]))}
        return {
            name: values.floats(values.FORMATS[kinds[name]], shape, seed + place, (1, 32))
            for place, name in enumerate(names)
        }
    if "gate" in names:
        return _swiglu(names, row, shape, seed)
    if names == ("a", "b"):
        return _factors(operation, params, row, shape, seed)
    if names == ("payload",):
        return {"payload": values.opaque((shape[0], shape[1] // 32 * 17), seed)}
    if operation == "pack_payload":
        return {"packed": values.opaque((shape[0], shape[1] // 2), seed),
                "scales": values.opaque((shape[0], shape[1] // 32), seed + 1)}  # fmt: skip
    if operation == "dequantize_int4":
        return _float_scales(shape, row, seed)
    return _coded(operation, params, shape, np.arange(shape[0]), seed)


def _formed(arrays: dict[str, np.ndarray], row: Row) -> dict[str, np.ndarray]:
    """Return arrays of one row in the form that a level gives them; as they are where none does."""
    if "form of the array" not in row:
        return arrays
    shape = _cast_shape(str(row["form of the array"]), int(row["elements"]))
    return {name: np.resize(array, shape) for name, array in arrays.items()}


def _oscillation(
    names: tuple[str, ...], params: Mapping[str, Any], shape: tuple[int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return numbers, and whole numbers by which many elements are due."""
    kind = values.FORMATS[params["input"]]
    found = {name: values.floats(kind, shape, seed + 2 * place, (1, 32)) for place, name in enumerate(names)
             if name in ("dist_w", "dist_q", "total", "grad", "norms")}  # fmt: skip
    if "period" in names:
        counts = (values.noise(*shape, seed + place) >> np.uint32(27 + place) for place in range(2))
        found |= {name: count.astype(np.int32) + least for least, (name, count) in
                  enumerate(zip(("count", "period"), counts, strict=True))}  # fmt: skip
    return {name: found[name] for name in names}


def _weights(params: Mapping[str, Any], shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """Return codes with both scales, and weights near their numbers, to half of them away."""
    coded = _coded("dequantize_tetrajet_v2", {}, shape, np.arange(shape[0]), seed)
    levels, scales = (np.asarray(decode_table(fmt), np.uint32).view(np.float32) for fmt in (E2M1, E4M3))
    wide = np.repeat(scales[coded["scales"]] * np.repeat(coded["outer"], 8, axis=1), 16, axis=1)
    bits = (levels[unpack_nibbles(coded["packed"])] * wide).view(np.uint32)
    bits ^= values.noise(*shape, seed + 5) >> np.uint32(10)
    fmt = values.FORMATS[params["input"]]
    return {"w": as_float((bits >> np.uint32(32 - fmt.bits)).astype(f"u{fmt.bits // 8}"), fmt), **coded}


def _float_scales(shape: tuple[int, int], row: Row, seed: int) -> dict[str, np.ndarray]:
    """Return codes of four bits with float32 scales of groups of 32 and, where they are given, zero points."""
    group = row.get("group", 32)
    grid = (1,) if group == "none" else (shape[0], max(1, shape[1] // int(group)))
    scales = values.vector(math.prod(grid), seed).reshape(grid)
    found = {"codes": values.nibbles(shape, seed), "scales": scales}
    if row.get("zeros", "given") == "given":
        whole = values.nibbles((1, math.prod(grid)), seed + 1).reshape(grid)
        found["zeros"] = whole if seed % 3 else whole.astype(np.float32) - np.float32(4)
    return found


def _factors(
    operation: str, params: Mapping[str, Any], row: Row, shape: tuple[int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return both operands of a product of 1 to 16 columns, or as many as a level says.

    They are bfloat16, or finite codes with scales of one kind each.
    """
    few = COLUMNS[seed % (5 if math.prod(shape) <= MOST_BESIDE else 3)]
    order, wide = str(params["order"]), int(row.get("columns of the product", few))
    kinds, k = scale_kinds(order)[1:], terms_for(order, shape[1])
    if OPERATIONS[operation].main == "values":
        sides = {"a": (shape[0], k), "b": (wide, k)}
        return {
            name: values.floats(values.FORMATS["bfloat16"], side, seed + place, (1, 32))
            for place, (name, side) in enumerate(sides.items())
        }
    inputs: dict[str, np.ndarray] = {}
    for place, (name, side) in enumerate((("a", shape[0]), ("b", wide))):
        inputs[name] = values.finite_fp8(str(params[f"{name}_format"]), (side, k), seed + place)
        scales = values.scale_bytes(np.arange(side), np.arange(tile_count(k)), seed + place, 120)
        kind = str(row.get(f"scales of {name}", kinds[(seed + 2 * place) % len(kinds)]))
        if kind == "none" or row.get(f"{name}_scales") == "absent":
            continue
        inputs[f"{name}_scales"] = values.scales_as(scales_of_kind(scales, kind).copy(), name, row, seed)
    return inputs


def _coded(
    operation: str, params: Mapping[str, Any], shape: tuple[int, int], group: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Return codes and scales; group: index of the column block of each row, whose scales lie apart."""
    rows, columns = shape
    if operation == "dequantize_nvfp4":
        grid = np.arange(-(-rows // params["tile"][0])), np.arange(columns // 16)
        scales = values.scale_bytes(*grid, seed, 40, 2)
        packed = pack_nibbles(values.nibbles(shape, seed))
        return {"packed": packed, "scales": scales, "tensor_amax": values.vector(1, seed)}
    if operation == "dequantize_tetrajet_v2":
        scales = values.scale_bytes(np.arange(rows), np.arange(columns // 16), seed, 40, 2)
        outer = values.vector(rows * columns // 128, seed).reshape(rows, columns // 128)
        return {"packed": pack_nibbles(values.nibbles(shape, seed)), "scales": scales, "outer": outer}
    if operation in ("dequantize_luq", "dequantize_radix4"):
        alpha = {"alpha": values.vector(1, seed)} if operation == "dequantize_luq" else {}
        return {"packed": pack_nibbles(values.nibbles(shape, seed)), **alpha}
    if "packed" in OPERATIONS[operation].inputs:
        codes = values.nibbles(shape, seed)
        if operation in RAGGED:
            codes = values.lower_columns(codes, 4, seed)
        inputs = {"packed": pack_nibbles(codes)}
        block = np.arange(columns // 32)
        if operation.startswith("dequantize"):
            return {**inputs, "scales": values.scale_bytes(np.arange(rows), block, seed)}
        near = 3 if operation == "mxfp4_columns" else 5
        low = (np.arange(rows)[:, None] + 2 * block[None, :]) % near
        wide = block if operation in RAGGED else block // 4
        return {**inputs, "scales": values.scale_bytes(group, wide, seed, 100, 2) + low.astype(np.uint8)}
    if operation == "dequantize_mx":
        codes = values.codes_below(get_format(params["element"]).bits, shape, seed)
        return {"codes": codes, "scales": values.scale_bytes(np.arange(rows), np.arange(columns // 32), seed)}
    tall, wide_tile = params.get("tile", (1, TILE))
    grid = np.arange(-(-rows // tall)), np.arange(-(-columns // wide_tile))
    scales = values.scale_bytes(grid[0] if operation not in RAGGED else group, grid[1], seed)
    if operation in RAGGED:
        scales = scales + ((np.arange(rows)[:, None] + 2 * grid[1][None, :]) % 3).astype(np.uint8)
    codes = values.fp8(shape, seed)
    return {"codes": values.lower_columns(codes, 8, seed) if operation in RAGGED else codes, "scales": scales}


def _swiglu(names: tuple[str, ...], row: Row, shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    bfloat16 = values.FORMATS["bfloat16"]
    inputs = {name: values.floats(bfloat16, shape, seed + place, (1, 32)) for place, name in enumerate(names)}
    if row.get("grad") == "float32":
        inputs["grad"] = values.floats(values.FORMATS["float32"], shape, seed, (1, 32))
    if row.get("prob", "given") == "given":
        inputs["prob"] = values.vector(shape[0], seed)
    return inputs


def _ragged(operation: str, row: Row, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    counts = _counts(operation, row, seed)
    rows, tall = sum(counts), 32 if operation == "mxfp4_columns" else TILE
    given = [rows] if row.get("splits") == "None" else counts
    columns = shape_of(row)[1] if "form shape" in row else int(row["columns"])
    inputs = _coded(operation, {}, (rows, columns), _groups(given, tall), seed)
    return inputs, {} if row.get("splits") == "None" else {"splits": counts}


def _counts(operation: str, row: Row, seed: int) -> list[int]:
    even = OPERATIONS[operation].even_rows
    if row.get("taken") == "every expert":
        return [int(row["tokens"])] * int(row["experts"])
    if "rows of each" in row:
        return [int(row["rows of each"])] * int(row["experts"])
    if row.get("taken") == "shuffled":
        return drawn(f"experts {row['experts']}", int(row["tokens"]), 1, 1, seed, even)
    if "drawn" in row and "form shape" not in row:
        align = int(row.get("align", 32)) if operation in ROUTED else 1
        return drawn(str(row["drawn"]), int(row["drawn rows"]), int(row["columns"]), align, seed, even)
    if "form shape" not in row:
        return splits(row, even) or []
    rows = shape_of(row)[0]
    first = rows // 3 & ~1
    rest = rows - first
    return [first, 0, rest + rest % 2 if even else rest]


def _groups(counts: list[int], tall: int) -> np.ndarray:
    """Return the index of the column block of every row; blocks restart at every expert."""
    rows = np.array(counts, np.int64)
    blocks = -(-rows // tall)
    own = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    return own // tall + np.repeat(np.cumsum(blocks) - blocks, rows)


def _routed(
    operation: str, params: Mapping[str, Any], row: Row, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    counts = _counts(operation, row, seed)
    rows, columns = shape_of(row) if "form shape" in row else (int(row["tokens"]), int(row["columns"]))
    align = int(row.get("align", params.get("align", 32)))
    routed = sum(counts)
    taken = row_map(str(row.get("taken", "scattered")), rows, routed)
    more: dict[str, Any] = {"splits": counts, "align": align}
    if operation != "unpermute":
        width = columns if "form shape" not in row else columns // 32 * 17
        return {"payload": values.opaque((rows, width), seed), "row_map": taken}, more
    padded = sum(-(-count // align) * align for count in counts)
    kind = values.FORMATS[str(row.get("values", "bfloat16"))]
    inputs = {"rows": values.floats(kind, (padded, columns), seed), "row_map": taken}
    if row.get("weights", "given") == "given":
        inputs["weights"] = values.vector(routed, seed)
    return inputs, {**more, "tokens": rows}


def _cast(operation: str, params: Mapping[str, Any], row: Row, seed: int) -> dict[str, np.ndarray]:
    count = int(row.get("elements", 1))
    matrix = "form shape" in row or "rows" in row
    shape = shape_of(row) if matrix else _cast_shape(str(row.get("form of the array", "row")), count)
    count = int(np.prod(shape))
    if OPERATIONS[operation].main == "values":
        flat = values.floats(values.FORMATS[params["input"]], (1, count), seed, (1, 8))
        return {"x": flat.reshape(shape)}
    bits = {"decode_e2m1": 4, "decode_e4m3": E4M3.bits}.get(operation, 8)
    return {"codes": values.codes_below(bits, shape, seed)}


def _cast_shape(form: str, count: int) -> tuple[int, ...]:
    shapes: dict[str, tuple[int, ...]] = {
        "vector": (count,), "row": (1, count), "column": (count, 1), "matrix": (3, -(-count // 3)),
        "cube": (2, 3, -(-count // 6)), "tall cube": (9, 2, -(-count // 18)),
        "four axes": (3, 1, 2, -(-count // 6)), "scalar": (),
    }  # fmt: skip
    return shapes[form]
