"""The page of one mismatch: where it is, what went in, what was expected and observed, and the rule that decides.

Everything on the page is text made from integers, so that it can be stored in a report and printed anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import refnum
from refnum.arrays import unpack_nibbles
from refnum.codec import value
from refnum.errors import RefnumError
from refnum.explanation import EXPLAINED
from refnum.formats import Format, get_format

from ..cases import crop
from ..cases.case import Case, plain
from ..cases.draw.bits import float_bits
from ..cases.entry import Output, is_random
from ..cases.geometry import block_shape, column_block, spread
from ..cases.operation import OPERATIONS, outputs_of
from ..reports.number import number_text
from ..verdicts.compare import coded_outputs, differences
from ..verdicts.kinds import Kind, places_of

LOOKED_AT = 64
"""Elements among which one is looked for whose input is not zero."""
_FLOATS = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}


def page(
    case: Case,
    golden: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    level: int,
    kind: Kind | None = None,
) -> dict[str, Any]:
    """Return an element that differs at `level`, of a kind if one does, with all that decides it.

    It is the first of those whose codes differ; where only the scale does, the first whose input is not zero. Empty
    when nothing differs.
    """
    wrong = differences(case, golden, observed, level)
    found = _chosen(case, golden, observed, wrong, kind)
    if found is None:
        return {}
    output, index = found
    sides = [_side(output, case, arrays, index) for arrays in (golden, observed)]
    steps = rule_steps(case, source_index(output, case, index))
    return {
        "output": output.name,
        "index": list(index),
        "place": _place(output, case, index),
        "differing": {key: f"{int(mask.sum())} of {mask.size}" for key, mask in wrong.items() if mask.any()},
        "input": _inputs(output, case, index),
        "scale": _scales(output, case, golden, observed, index),
        "expected": sides[0],
        "observed": sides[1],
        "differs": _bits_apart(output, case, sides),
        "rule": deciding_step(steps, output.name),
        "steps": steps,
        "params": plain(case.params),
    }


def telling_element(
    case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray], level: int
) -> tuple[int, ...] | None:
    """Return the input element of the page of a mismatch; None if nothing differs or no element decides it."""
    found = _chosen(case, golden, observed, differences(case, golden, observed, level), None)
    return None if found is None else source_index(found[0], case, found[1])


def _chosen(
    case: Case,
    golden: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    wrong: Mapping[str, np.ndarray],
    kind: Kind | None,
) -> tuple[Output, tuple[int, ...]] | None:
    name = next((name for name in sorted(wrong, key=lambda n: n == "scales") if wrong[name].any()), "")
    if not name:
        return None
    chosen = wrong[name]
    if kind is not None and (places := places_of(case, golden, observed, kind)) is not None and places.any():
        name, chosen = kind.output, places
    output = next(output for output in outputs_of(case) if output.name == name)
    return output, _telling(output, case, (golden[name], observed[name]), chosen)


def _telling(output: Output, case: Case, sides: tuple[np.ndarray, np.ndarray], wrong: np.ndarray) -> tuple[int, ...]:
    codes = [unpack_nibbles(side) if output.kind == "packed" else side for side in sides]
    places = [tuple(int(i) for i in place) for place in np.argwhere(wrong & (codes[0] != codes[1]))[:1]]
    places = places or [tuple(int(i) for i in place) for place in np.argwhere(wrong)[:LOOKED_AT]]
    nonzero = (at for at in places if any(int(entry["bits"], 16) for entry in _inputs(output, case, at)[:1]))
    return next(nonzero, places[0])


def rule_steps(case: Case, where: tuple[int, ...] | None) -> list[dict[str, str]]:
    """Return the golden model's own explanation of an input element, step by step; empty where it has none."""
    if where is None or case.operation not in EXPLAINED:
        return []
    if crop.of_experts(case):
        case, row = crop.expert_at(case, where[0])
        where = row, *where[1:]
    try:
        return [
            {"name": step.name, "text": step.text, "clause": step.clause}
            for step in refnum.explain(case.operation, case, where).steps
        ]
    except (RefnumError, AssertionError, IndexError) as error:  # a page without a rule is better than no page
        return [{"name": "explanation", "text": f"failed: {error}", "clause": ""}]


def deciding_step(steps: list[dict[str, str]], output: str) -> str:
    """Return the step that decides: for a code its rounding, for a scale byte the scale rule, else the output's own."""
    of_code = ("rounding", "special", "recode", "value", "slope", "edge")
    steps = [*(step for step in reversed(steps) if step["name"] == output), *steps]
    for name in (output, *(("special", "scale exponent", "recode") if output == "scales" else of_code)):
        for step in steps:
            if step["name"] == name:
                return f"{step['text']} ({step['clause']})"
    return ""


def code_text(fmt: Format, code: int) -> dict[str, str]:
    """Return a code as hex bits, as fields (sign, exponent, mantissa) and as a value."""
    digits = -(-fmt.bits // 4)
    return {"bits": f"0x{code:0{digits}X}", "fields": _fields(fmt, code), "value": value_text(fmt, code)}


def value_text(fmt: Format, code: int) -> str:
    """Return the exact value of a code in short: a decimal, or significand times a power of two."""
    exact = value(fmt, code)
    if isinstance(exact, str):
        return exact
    negative = exact < 0 or (exact == 0 and fmt.kind == "float" and bool(code & fmt.sign_mask))
    return ("-" if negative else "") + number_text(abs(exact))


def _fields(fmt: Format, code: int) -> str:
    text = f"{code:0{fmt.bits}b}"
    if fmt.kind != "float":
        return text
    exponent_bits = fmt.bits - 1 - fmt.mantissa_bits
    return " ".join(filter(None, (text[0], text[1 : 1 + exponent_bits], text[1 + exponent_bits :])))


def _format(output: Output, case: Case, array: np.ndarray) -> Format | None:
    if output.kind == "values":
        return get_format("FP32" if array.itemsize == 4 else "BF16")
    name = output.format(case.params)
    return get_format(name) if name else None


def _side(output: Output, case: Case, arrays: Mapping[str, np.ndarray], index: tuple[int, ...]) -> dict[str, str]:
    array = arrays[output.name]
    array = unpack_nibbles(array) if output.kind == "packed" else array
    fmt = _format(output, case, array)
    code = int(array[index])
    if fmt is None:
        return {"bits": f"0x{code:02X}", "fields": "", "value": str(code)}
    return code_text(fmt, code)


def _place(output: Output, case: Case, index: tuple[int, ...]) -> str:
    """Return the place in the words of the field: row, block and lane, or output column and block."""
    if len(index) != 2:
        return "element " + ", ".join(map(str, index))
    row, last = index
    if output.kind == "scales":
        return f"row {row} block {last}"
    if output.block.startswith("column"):
        return f"input row {last} column {row} (output [{row}, {last}])"
    if not output.block:
        return f"row {row} column {last}"
    tall, wide = block_shape(output.block, case)
    tile = "tile" if wide == 128 else "block"
    inside = f" row {row % tall}" if tall > 1 else ""
    return f"row {row} {tile} {last // wide}{inside} lane {last % wide}"


def source_index(output: Output, case: Case, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index of the input element that an output element comes from; None where there is none."""
    if OPERATIONS[case.operation].scalar:
        return index
    if len(index) != 2 or output.kind == "bytes":
        return None
    if output.kind == "scales":
        coded = next((codes for codes, scales in coded_outputs(case) if scales is output), None)
        if coded is None:
            return None
        tall, wide = block_shape(coded.block, case)
        if coded.block.startswith("column"):
            rows = next(iter(case.inputs.values())).shape[0]
            inside = np.flatnonzero(column_block(case, wide, rows) == index[0])
            return (int(inside[0]), index[1]) if inside.size else None
        return _largest(case, index[0] * tall, index[1] * wide, tall, wide)
    down = OPERATIONS[case.operation].family == "hadamard" and case.params["axis"] == 0
    if (group := _group(output, case)) != (1, 1):
        row, column = index[::-1] if down else index
        tall, wide = group[::-1] if down else group
        return _largest(case, row * tall, column * wide, tall, wide) if tall else None
    turned = output.block.startswith("column") or (down and output.kind != "values")
    row, column = index[::-1] if turned else index
    return None if down and row >= len(case.inputs["x"]) else (row, column)  # it completes a group


def _group(output: Output, case: Case) -> tuple[int, int]:
    """Return the rows and columns of elements that one item of a result stands for, none of a threshold."""
    if output.name == "thresholds":
        return 0, 0
    if output.name == "outer":
        return 1, 128
    if output.name not in ("scales", "zeros"):
        return 1, 1
    if output.kind == "codes":  # of E4M3
        return int(case.params.get("tile", (1, 1))[0]), 16
    return 1, int(case.params.get("group", 1))


def _largest(case: Case, row: int, column: int, tall: int, wide: int) -> tuple[int, int]:
    """Return the place of a block's largest float, NaN above all, which decides its scale; else of the first."""
    array = next(iter(case.inputs.values()))
    if array.ndim != 2 or array.dtype.name not in _FLOATS:
        return row, column
    bits = float_bits(np.ascontiguousarray(array[row : row + tall, column : column + wide]))
    at = divmod(int(np.argmax(bits & (np.iinfo(bits.dtype).max >> 1))), bits.shape[1])
    return row + at[0], column + at[1]


def _inputs(output: Output, case: Case, index: tuple[int, ...]) -> list[dict[str, str]]:
    """Return bits and value of every input that this output element reads directly."""
    where = source_index(output, case, index)
    if where is None or OPERATIONS[case.operation].routed or OPERATIONS[case.operation].family == "product":
        return []
    rows = []
    for name, array in case.inputs.items():
        text = _input(name, array, case, where)
        if text:
            rows.append({"name": name, **text})
    return rows


def _width(array: np.ndarray, case: Case) -> int:
    """Elements of a row that one number of an array stands for: a group of those under a float scale."""
    return max(1, crop.shape(case)[1] // max(1, array.shape[1]))


def _input(name: str, array: np.ndarray, case: Case, where: tuple[int, ...]) -> dict[str, str] | None:
    if OPERATIONS[case.operation].scalar:
        return _scalar_input(name, array, case, where)
    row, column = where
    if name == "scales" and array.ndim == 2 and array.dtype == np.uint8:
        tall, wide = case.params.get("tile", (1, OPERATIONS[case.operation].reads.width))
        scale = "E4M3" if OPERATIONS[case.operation].kinds.get(name) == "codes" else "E8M0"
        return code_text(get_format(scale), int(array[row // tall, column // wide]))
    if name == "packed":
        return code_text(OPERATIONS[case.operation].reads.format(case.params), int(unpack_nibbles(array)[row, column]))
    if name == "codes":
        return code_text(OPERATIONS[case.operation].reads.format(case.params), int(array[row, column]))
    if name == "factors":
        return None  # scalars of the whole step, which have no place
    if array.dtype.name in _FLOATS:
        place = (0,) if array.shape == (1,) else (row,) if array.ndim == 1 else (row, column // _width(array, case))
        return code_text(get_format(_FLOATS[array.dtype.name]), int(float_bits(np.ascontiguousarray(array))[place]))
    if array.ndim == 2 and (is_random(name) or OPERATIONS[case.operation].kind(name) == "index"):
        return {"bits": f"0x{int(array[row, column]):02X}", "fields": "", "value": str(int(array[row, column]))}
    return None


def _scalar_input(name: str, array: np.ndarray, case: Case, where: tuple[int, ...]) -> dict[str, str] | None:
    if name == "codes":
        return code_text(OPERATIONS[case.operation].reads.format(case.params), int(array[where]))
    if array.dtype.name in _FLOATS:
        bits = float_bits(np.array(array, order="C"))  # of no axes too
        return code_text(get_format(_FLOATS[array.dtype.name]), int(bits[where]))
    return {"bits": f"0x{int(array[where]):02X}", "fields": "", "value": str(int(array[where]))}


def _scales(
    output: Output,
    case: Case,
    golden: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    index: tuple[int, ...],
) -> dict[str, str]:
    """Return the scale of this element's block on both sides, for outputs that have one."""
    scale = dict(coded_outputs(case)).get(output)
    if scale is None:
        return {}
    sides = {}
    for side, arrays in (("expected", golden), ("observed", observed)):
        codes = arrays[output.name]
        shape = (codes.shape[0], codes.shape[1] * (2 if output.kind == "packed" else 1))
        byte = int(spread(output.block, case, arrays[scale.name], shape)[index])
        sides[side] = f"0x{byte:02X} ({value_text(get_format('E8M0'), byte)})"
    return sides


def _bits_apart(output: Output, case: Case, sides: list[dict[str, str]]) -> str:
    """Return which fields differ: sign, exponent, mantissa bits by number."""
    left, right = (int(side["bits"], 16) for side in sides)
    apart = left ^ right
    name = output.format(case.params)
    if output.kind == "values":
        name = "FP32" if len(sides[0]["bits"]) == 10 else "BF16"
    fmt = get_format(name) if name else None
    if not apart:
        return "same code; the values differ by the scale"
    if fmt is None or fmt.kind != "float":
        bits = [str(bit) for bit in range(32) if apart >> bit & 1]
        return f"bit{'s' * (len(bits) > 1)} {', '.join(bits)} differ{'s' * (len(bits) == 1)}"
    words = []
    if apart & fmt.sign_mask:
        words.append("sign")
    mantissa = [str(bit) for bit in range(fmt.mantissa_bits) if apart >> bit & 1]
    if (apart & ~fmt.sign_mask) >> fmt.mantissa_bits:
        words.append("exponent")
    if mantissa:
        words.append(f"mantissa bit{'s' if len(mantissa) > 1 else ''} {', '.join(mantissa)}")
    return " and ".join(words) + (" differ" if len(words) > 1 or len(mantissa) > 1 else " differs")
