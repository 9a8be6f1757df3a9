"""Explain one element: every step of the model in exact values, from its bits to its code.

The steps are worked out on exact rationals, apart from the vectorised model; the code they end in is compared
with the model's own, and a difference is an AssertionError: an explanation never contradicts the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .arguments import require_integer, row_splits
from .arrays import BLOCK, TILE, float32_bits, require_codes, unpack_nibbles
from .blocks import quantize_mx, quantize_mxfp4
from .codec import value
from .columns import fp8_columns, mxfp4_columns, mxfp4_to_fp8_columns
from .errors import ArgumentError, shown
from .estimators_explained import dge_steps, occ_steps
from .formats import E2M1, E4M3, FP32, get_format, magnitude_value
from .hadamard_explained import rotate_quantize_steps, rotate_steps
from .layouts import scales_from_layout
from .logarithmic_explained import LOGARITHMIC
from .nvfp4_explained import dequantize_steps, quantize_steps
from .product_steps import PRODUCTS, product_steps
from .profiles import Profile, get_profile
from .recast import fp8_to_mxfp4, mxfp4_to_fp8
from .scalar_steps import SCALARS, scalar_steps
from .steps import Step, check_rounding, code_step, fields, round_steps, rule_steps, show
from .stepwise import STEPWISE
from .swiglu import swiglu
from .swiglu_explained import gated_steps
from .tetrajet_explained import tetrajet_steps
from .tiles import quantize_fp8_tiles, tile_count


@dataclass(frozen=True)
class Explanation:
    """The steps for one element. `str()` prints them as a table; `code` and `scale` are the results.

    Of a scalar conversion `code` is the code, or the bits of the float, and `scale` is None. `outputs` has the bits of
    each output at the place by name, for operations whose results are floats, counts or truth values, or several;
    `code` is the first of them.
    """

    operation: str
    profile: str
    index: tuple[int, ...]
    steps: tuple[Step, ...]
    code: int
    scale: int | None
    outputs: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(len(step.name) for step in self.steps)
        head = f"{self.operation}  profile {self.profile}  element {list(self.index)}"
        return "\n".join([head, *(f"  {s.name:<{width}}  {s.text}  ({s.clause})" for s in self.steps)])


def explain(operation: str, case: Any, index: int | tuple[int, ...]) -> Explanation:
    """Explain how one input element becomes its code.

    operation: one of `EXPLAINED`. case: a mapping of the golden function's arguments by name (arrays and
    parameters, `profile` included), or an object with `inputs`, `params` and `profile`. index: (row, column) of
    the element in [M, K], an array of the two, or its flat index; of a scalar conversion any index, of a matrix product
    the result's in [M, N]. Raises
    ArgumentError for what it cannot explain, and what the golden function raises: DtypeError, ShapeError, ScaleError,
    ProfileError.
    """
    if not isinstance(operation, str) or operation not in EXPLAINED:
        raise ArgumentError(
            f"operation {shown(operation)} cannot be explained; the {len(EXPLAINED)} that can be are those of "
            "refnum.explanation.EXPLAINED"
        )
    arguments, profile = _arguments(case)
    try:
        return EXPLAINED[operation](operation, arguments, profile, index)
    except KeyError as missing:
        raise ArgumentError(f"explain {operation}: argument {missing} is missing from the case") from None


def _arguments(case: Any) -> tuple[dict[str, Any], Profile]:
    if isinstance(case, Mapping):
        arguments = dict(case)
        return arguments, get_profile(arguments.pop("profile", "HOPPER"))
    parts = [getattr(case, name, None) for name in ("params", "inputs", "profile")]
    if not all(isinstance(part, Mapping) for part in parts[:2]):
        raise ArgumentError(f"case is {shown(case)}; allowed is a mapping of arguments by name, or a case of them")
    return {**parts[0], **parts[1]}, get_profile(parts[2])  # type: ignore[dict-item, arg-type]


def _place(shape: tuple[int, ...], index: int | tuple[int, int]) -> tuple[int, int]:
    rows, columns = shape
    if isinstance(index, (tuple, list)) or (isinstance(index, np.ndarray) and index.ndim):
        if len(index) != 2:
            raise ArgumentError(f"index is {shown(index)}; allowed is (row, column), or one integer")
        row, column = (require_integer("an index", i, 0) for i in index)
    else:
        row, column = divmod(require_integer("index", index, 0), columns or 1)
    if not (row < rows and column < columns):
        raise ArgumentError(f"index {index} is outside the array of shape {tuple(shape)}")
    return row, column


def _scalar(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N1 and N2: a float becomes a code, or a code a float, each by itself."""
    at = _anywhere(np.shape(arguments["x" if "x" in arguments else "codes"]), index)
    steps, code = scalar_steps(operation, arguments, at)
    return Explanation(operation, profile.name, at, tuple(steps), code, None)


def _anywhere(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    """Return the place of an element in an array of any shape, from its indices or its flat index."""
    try:
        given = np.unravel_index(int(index), shape) if np.ndim(index) == 0 else index
        at = tuple(int(i) for i in given)
        if len(at) != len(shape) or any(not 0 <= i < length for i, length in zip(at, shape, strict=True)):
            raise IndexError(at)
    except (IndexError, ValueError, TypeError) as error:
        raise ArgumentError(f"index {shown(index)} is outside the array of shape {tuple(shape)}") from error
    return at


def _quantize(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    x = arguments["x"]
    random = {name: arguments[name] for name in ("rbits", "philox") if name in arguments}
    if operation == "quantize_fp8_tiles":
        fmt, tile = E4M3, arguments.get("tile", (1, 128))
        codes, scales = quantize_fp8_tiles(x, tile, profile)
        row, column = _place(x.shape, index)
        code, byte = int(codes[row, column]), int(scales[row // tile[0], column // TILE])
        rows = slice(row // tile[0] * tile[0], (row // tile[0] + 1) * tile[0])
        columns = slice(column // TILE * TILE, (column // TILE + 1) * TILE)
        unit = f"tile {tile[0]}x{tile[1]}"
    else:
        fmt = E2M1 if operation == "quantize_mxfp4" else get_format(arguments.get("element", "E2M1"))
        codes, scales = quantize_mx(x, fmt, profile, **random)
        if operation == "quantize_mxfp4":
            codes = unpack_nibbles(quantize_mxfp4(x, profile, **random)[0])
        row, column = _place(x.shape, index)
        code, byte = int(codes[row, column]), int(scales[row, column // BLOCK])
        rows, columns = slice(row, row + 1), slice(column // BLOCK * BLOCK, (column // BLOCK + 1) * BLOCK)
        unit = f"block {column // BLOCK}"
    bits = float32_bits(x)
    own = int(bits[row, column])
    exact = value(FP32, own)
    steps = [Step("element", f"bits 0x{own:08X}, value {show(exact, bool(own >> 31))}", "N0")]
    members = bits[rows, columns] & np.uint32(0x7FFFFFFF)
    largest = int(members.max())
    at = np.unravel_index(int(members.argmax()), members.shape)
    amax = value(FP32, largest)
    where = (int(at[0]) + rows.start, int(at[1]) + columns.start)
    lane = f", lane {where[1] % BLOCK}" if unit.startswith("block") else ""
    steps.append(Step("amax", f"{show(amax)} at [{where[0]}, {where[1]}] in {unit}{lane}", "N3"))
    if isinstance(amax, str) or amax == 0:
        kind = "zero" if amax == 0 else "NaN" if amax == "nan" else "Inf"
        policy = f" (zero_scale {profile.zero_scale})" if amax == 0 else f" (nonfinite {profile.nonfinite})"
        block = f"block: byte {byte}{policy}" if unit.startswith("block") else f"tile: byte {byte}"
        steps.append(Step("special", f"{'an' if kind == 'Inf' else 'a'} {kind} {block}", "N4"))
        if isinstance(exact, Fraction) and exact and byte != 255:  # its neighbours are special, it is rounded as ever
            steps += round_steps(fmt, exact / Fraction(2) ** (byte - 127), bool(own >> 31), profile, code)
        else:
            steps.append(code_step(fmt, code))
    else:
        more, expected = rule_steps(profile, fmt, amax)
        assert expected == byte, f"the model's byte {byte} is not the rule's {expected}"
        assert isinstance(exact, Fraction)
        quotient = exact / Fraction(2) ** (byte - 127)
        check_rounding(fmt, quotient, profile, code)
        steps += more + round_steps(fmt, quotient, bool(own >> 31), profile, code)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, byte)


def _recast(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N7 to N10: an input code under an input byte becomes an output code under an output byte."""
    source, target = _RECASTS[operation]
    first = "codes" if source is E4M3 else "packed"
    given, unit = arguments[first], TILE if source is E4M3 else BLOCK
    require_codes(first, given, BLOCK if source is E4M3 else BLOCK // 2)
    count = tile_count(given.shape[1]) if source is E4M3 else given.shape[1] * 2 // BLOCK
    scales = scales_from_layout(arguments["scales"], arguments.get("layout_in", "bytes"), given.shape[0], count)
    out_codes, out_scales, mode = _run_recast(operation, arguments, given, scales, profile)
    codes = given if source is E4M3 else unpack_nibbles(given)
    row, column = _place(codes.shape, index)
    own, row_byte = int(codes[row, column]), int(scales[row, column // unit])
    if operation in ("fp8_to_mxfp4", "mxfp4_to_fp8", "mxfp4_to_fp8_rows_columns"):  # of both layouts, the row's
        code, byte = int(out_codes[row, column]), int(out_scales[row, column // (BLOCK if target is E2M1 else TILE)])
    else:
        tall = BLOCK if target is E2M1 else TILE
        code, byte = int(out_codes[column, row]), int(out_scales[_segment(arguments, codes, row, tall), column])
    exact = value(source, own)
    scaled = exact if isinstance(exact, str) or row_byte == 255 else exact * Fraction(2) ** (row_byte - 127)
    text = f"{source.name} code {fields(source, own)}, value {show(exact, bool(own & source.sign_mask))}"
    steps = [Step("element", f"{text}, under scale byte {row_byte}", "N1")]
    clause = _CLAUSES[operation]
    if row_byte == 255 or (isinstance(scaled, str) and mode != "te"):
        steps += [Step("special", "a NaN code or a NaN scale: the result is NaN", clause), code_step(target, code)]
        return Explanation(operation, profile.name, (row, column), tuple(steps), code, byte)
    if byte != 255 and operation == "fp8_to_mxfp4":
        steps += _fp8_block_steps(codes[row], row_byte, column // BLOCK, profile)
    how = f"mode {mode}: " if mode else ""
    steps.append(Step("recode", f"{how}byte {row_byte} -> {byte}: value x 2^{row_byte - byte}", clause))
    if byte == 255:
        steps += [Step("special", "the block holds NaN", "N4"), code_step(target, code)]
        return Explanation(operation, profile.name, (row, column), tuple(steps), code, byte)
    if mode == "te" or isinstance(scaled, str):
        steps += [Step("rounding", _te_step(own, byte - row_byte), clause), code_step(target, code)]
    else:
        quotient = scaled / Fraction(2) ** (byte - 127)
        check_rounding(target, quotient, profile, code)
        steps += round_steps(target, quotient, bool(own & source.sign_mask), profile, code)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, byte)


def _te_step(code: int, lowered: int) -> str:
    """What N10.5 does to the fields of an E4M3 code, NaN included; `lowered` is its k."""
    field = code >> 3 & 15
    if field == 0:
        return "exponent field 0: code 0x00, sign and fraction dropped"
    below = ", below 1: 0" if field - lowered < 1 else ""
    return f"exponent field {field} - {lowered} = {field - lowered}{below}, sign and fraction bits kept"


def _fp8_block_steps(codes: Any, tile_byte: int, block: int, profile: Profile) -> list[Step]:
    """Scale steps of N7 for a finite block: its amax from magnitude codes, then N3."""
    members = codes[block * BLOCK : (block + 1) * BLOCK] & np.uint8(0x7F)
    largest = int(members.max())
    amax = magnitude_value(E4M3, largest) * Fraction(2) ** (tile_byte - 127)
    place = f"code 0x{largest:X} in block {block}, lane {int(members.argmax())}"
    steps = [Step("amax", f"{show(amax)}, {place}", "N3")]
    if amax == 0:
        return [*steps, Step("special", f"a zero block: byte {profile.zero_scale}", "N4")]
    return steps + rule_steps(profile, E2M1, amax)[0]


def _run_recast(operation: str, arguments: dict[str, Any], given: Any, scales: Any, profile: Profile) -> Any:
    splits = arguments.get("splits")
    if operation == "fp8_to_mxfp4":
        packed, out = fp8_to_mxfp4(given, scales, profile)
        return unpack_nibbles(packed), out, ""
    if operation == "fp8_columns":
        mode = arguments.get("underflow", "rne")
        return *fp8_columns(given, scales, splits, mode), mode
    if operation == "mxfp4_columns":
        mode = arguments.get("scale", "amax")
        packed, out = mxfp4_columns(given, scales, splits, mode)
        return unpack_nibbles(packed), out, mode
    mode = arguments.get("scale", "max")
    if operation in ("mxfp4_to_fp8", "mxfp4_to_fp8_rows_columns"):
        return *mxfp4_to_fp8(given, scales, mode), mode
    return *mxfp4_to_fp8_columns(given, scales, splits, mode), mode


def _segment(arguments: dict[str, Any], codes: Any, row: int, tall: int) -> int:
    """Index of the column block that holds a row; blocks restart at every split."""
    before = 0
    for start, stop in row_splits(arguments.get("splits"), codes.shape[0]):
        if start <= row < stop:
            return before + (row - start) // tall
        before += -(-(stop - start) // tall)
    raise ArgumentError(f"row {row} is in no split")


def _product(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N19: a row of `a` and a row of `b` become a result; the index is the result's."""
    row, column = _place((np.shape(arguments["a"])[0], np.shape(arguments["b"])[0]), index)
    steps, bits = product_steps(operation, arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), bits, None)


def _nvfp4(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N21: an element of a block of 16 under the scale of its block and the maximum of its tensor."""
    back = operation == "dequantize_nvfp4"
    rows, columns = np.shape(arguments["packed" if back else "x"])
    row, column = _place((rows, columns * 2 if back else columns), index)
    steps, code, scale = (dequantize_steps if back else quantize_steps)(arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, scale)


def _tetrajet(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N24: an element of a block of 32 along a row or a column."""
    row, column = _place(np.shape(arguments["w" if operation == "q_ema" else "x"]), index)
    steps, code, scale = tetrajet_steps(operation, arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, scale)


def _logarithmic(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N23: an element by its random word, or by the bounds of the levels; a code by its level."""
    back = operation.startswith("dequantize")
    rows, columns = np.shape(arguments["packed" if back else "x"])
    row, column = _place((rows, columns * 2 if back else columns), index)
    steps, code = LOGARITHMIC[operation](arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, None)


def _rotation(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N22: what stands at an element's place after the rotation of its group, and its code."""
    row, column = _place(np.shape(arguments["x"]), index)
    if operation == "hadamard16":
        steps, code = rotate_steps(arguments, row, column)
        return Explanation(operation, profile.name, (row, column), tuple(steps), code, None)
    steps, code, scale = rotate_quantize_steps(arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, scale)


def _dge(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N25.1 to N25.3: a number by its place in an interval."""
    at = _anywhere(np.shape(arguments["x"]), index)
    steps, code = dge_steps(arguments, at)
    return Explanation(operation, profile.name, at, tuple(steps), code, None)


def _occ(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N25.4: a number between the thresholds of its vector."""
    row, column = _place(np.shape(arguments["x"]), index)
    steps, code = occ_steps(arguments, row, column)
    return Explanation(operation, profile.name, (row, column), tuple(steps), code, None)


def _swiglu(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N11.2: what the gate leaves, and its code under the scale of its tile or block."""
    at = _place(np.shape(arguments["gate"]), index)
    given: dict[str, Any] = {name: arguments[name] for name in ("gate", "up", "prob") if name in arguments}
    inner = "quantize_mxfp4" if arguments.get("to", "fp8") == "mxfp4" else "quantize_fp8_tiles"
    steps, _ = gated_steps(given, at)
    told = _quantize(inner, {"x": swiglu(**given)}, profile, at)
    first, *rest = told.steps
    more = (*steps, replace(first, name="r"), *rest)
    return replace(told, operation=operation, steps=more)


def _joined(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """N12.5: a code and a scale byte, and where they stand in a payload row."""
    told = (_quantize if "x" in arguments else _recast)(_JOINED[operation], arguments, profile, index)
    columns, (row, column) = np.shape(arguments["x" if "x" in arguments else "codes"])[1], told.index
    scale = f"the scale byte {told.scale} is byte {columns // 2 + column // BLOCK}"
    nibble = f"{'upper' if column % 2 else 'lower'} nibble of byte {column // 2}"
    step = Step("payload", f"of row {row}: the code is the {nibble}, {scale}", "N12.1")
    return replace(told, operation=operation, steps=(*told.steps, step))


def _by_outputs(operation: str, arguments: dict[str, Any], profile: Profile, index: Any) -> Explanation:
    """An element by float32 operations, each of them a step, to the bits of each output at its place."""
    shape, steps_of = STEPWISE[operation]
    at = _anywhere(shape(arguments), index)
    steps, found = steps_of(arguments, at)
    return Explanation(operation, profile.name, at, tuple(steps), next(iter(found.values())), None, found)


_JOINED = {"quantize_payload": "quantize_mxfp4", "fp8_to_payload": "fp8_to_mxfp4"}
_RECASTS = {
    "fp8_to_mxfp4": (E4M3, E2M1),
    "mxfp4_to_fp8": (E2M1, E4M3),
    "mxfp4_to_fp8_columns": (E2M1, E4M3),
    "mxfp4_to_fp8_rows_columns": (E2M1, E4M3),
    "mxfp4_columns": (E2M1, E2M1),
    "fp8_columns": (E4M3, E4M3),
}
_CLAUSES = {
    "fp8_to_mxfp4": "N7",
    "mxfp4_to_fp8": "N8",
    "mxfp4_to_fp8_columns": "N9",
    "mxfp4_to_fp8_rows_columns": "N9",
    "mxfp4_columns": "N9",
    "fp8_columns": "N10",
}
EXPLAINED = {
    **dict.fromkeys(("quantize_mxfp4", "quantize_mx", "quantize_fp8_tiles"), _quantize),
    **dict.fromkeys(_RECASTS, _recast),
    **dict.fromkeys(SCALARS, _scalar),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(("quantize_nvfp4", "dequantize_nvfp4"), _nvfp4),
    **dict.fromkeys(("quantize_tetrajet", "q_ema"), _tetrajet),
    **dict.fromkeys(LOGARITHMIC, _logarithmic),
    **dict.fromkeys(("hadamard16", "hadamard_quantize_nvfp4"), _rotation),
    **dict.fromkeys(STEPWISE, _by_outputs),
    **dict.fromkeys(_JOINED, _joined),
    "swiglu_quantize": _swiglu,
    "dge": _dge,
    "occ": _occ,
}
"""Operation -> the function that explains it."""
