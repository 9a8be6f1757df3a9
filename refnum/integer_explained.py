"""Explain one element of an integer quantiser: its scale, its zero point and its code, by float32 operations (N26)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import float32_bits
from .exact_means import FIRST, SECOND
from .float_steps import (
    Chain,
    Explained,
    Place,
    Room,
    agreed,
    bits_at,
    float_text,
    is_above,
    is_finite,
    is_nan,
    number,
    of,
    order_of,
    result_bits,
    taken,
)
from .formats import INT4
from .integer import (
    _LEAST_KEPT,
    _LEAST_SCALE,
    _LEAST_SPREAD,
    _MOST_SCALE,
    dequantize_int4,
    efficient_qat,
    int4_affine,
    int4_keep_two,
    sawb,
)
from .steps import code_step, fields

_MAGNITUDE, _SIGN = 0x7FFFFFFF, 0x80000000
_FIFTEEN, _SEVEN, _TWO = 0x41700000, 0x40E00000, 0x40000000


def _row(arguments: Mapping[str, Any], row: int) -> list[int]:
    return [int(bits) for bits in float32_bits(np.ascontiguousarray(arguments["x"]))[row]]


def _units(magnitude: int) -> int:
    """A finite magnitude in units of 2**-149."""
    field = magnitude >> 23
    return (magnitude & 0x7FFFFF | 0x800000) << field - 1 if field else magnitude


@functools.lru_cache  # of every element that is explained of one tensor
def _sums(magnitudes: bytes) -> tuple[int, int, int]:
    """How many float32 magnitudes are finite, their sum and that of their squares, in units of 2**-149 and 2**-298."""
    finite = [_units(bits) for bits in np.frombuffer(magnitudes, np.uint32).tolist() if is_finite(bits)]
    return len(finite), sum(finite), sum(x * x for x in finite)


def _sawb(arguments: Mapping[str, Any], at: Place) -> Explained:
    codes, scales = sawb(**taken(arguments, "x"))
    chain, own = Chain("N26.1"), bits_at(arguments["x"], at)
    chain.element(x=own)
    every = float32_bits(np.ascontiguousarray(arguments["x"])).reshape(-1) & np.uint32(_MAGNITUDE)
    clip, (count, total, squares) = 0, _sums(every.tobytes())
    if count:
        square = chain.round("mean square", Fraction(squares, count << 298))
        spread = chain.multiply("12.1 * root", chain.root("root", square), int(FIRST))
        mean = chain.round("mean magnitude", Fraction(total, count << 149))
        clip = chain.subtract("clip", spread, chain.multiply("12.2 * mean", mean, int(SECOND)))
        if not 0 < clip < 0x7F800000:
            clip = max(bits for bits in every.tolist() if is_finite(bits))
            chain.say("clip", f"not positive and finite: the largest finite magnitude {float_text(clip)}")
    else:
        chain.say("clip", "no element is finite: 0")
    scale = chain.divide("scale", chain.multiply("clip * 2", clip, _TWO), _FIFTEEN)
    code = 0
    if own & _MAGNITUDE:
        code = chain.encode("rounding", INT4, chain.divide("x / scale", own, scale))
    else:
        chain.say("rounding", "a zero has the code 0")
    chain.steps.append(code_step(INT4, code))
    found = {"codes": code, "scale": scale}
    return chain.steps, agreed(found, codes=int(codes[at]), scale=result_bits(scales, (0,)))


def _group(arguments: Mapping[str, Any], at: Place) -> tuple[Chain, list[int], int]:
    """Return a chain with its first step, the bits of the element's group, and the number of that group in its row."""
    size, chain = int(arguments["group"]), Chain("N26.2")
    group = at[1] // size
    chain.element(x=bits_at(arguments["x"], at))
    return chain, _row(arguments, at[0])[group * size : (group + 1) * size], group


def _ends(chain: Chain, members: list[int]) -> tuple[int, int]:
    """The least element and fl(largest - least); NaN does not count."""
    counted = [0 if bits == _SIGN else bits for bits in members if not is_nan(bits)] or [0]
    least, most = min(counted, key=order_of), max(counted, key=order_of)
    chain.say("group", f"of {len(members)}, from {float_text(least)} to {float_text(most)}")
    return least, chain.subtract("largest - least", most, least)


def _bound(chain: Chain, name: str, bits: int, least: int) -> int:
    """A number, but at least another; NaN becomes that."""
    if is_nan(bits) or is_above(least, bits):
        chain.say(name, f"at least {float_text(least)}")
        return least
    return bits


def _affine_code(chain: Chain, own: int, scale: int, zero: int) -> int:
    placed = chain.add("placed", chain.whole("rounding", chain.divide("x / scale", own, scale)), zero)
    code = 15 if is_nan(placed) or is_above(placed, _FIFTEEN) else 0 if placed & _SIGN else int(number(placed))
    chain.say("codes", f"{'NaN gives 15' if is_nan(placed) else f'within 0 and 15: {code}'}")
    return code


def _affine(arguments: Mapping[str, Any], at: Place) -> Explained:
    codes, scales, zeros = int4_affine(**taken(arguments, "x group"))
    chain, members, group = _group(arguments, at)
    least, spread = _ends(chain, members)
    scale = chain.divide("scales", _bound(chain, "spread", spread, int(_LEAST_SPREAD)), _FIFTEEN)
    whole = chain.whole("least / scale, whole", chain.divide("least / scale", least, scale)) ^ _SIGN
    zero = 0 if whole & _SIGN else int(number(min(whole, _FIFTEEN)))
    chain.say("zeros", f"the negative of it within 0 and 15{', NaN 0' if is_nan(whole) else ''}: {zero}")
    code = _affine_code(chain, bits_at(arguments["x"], at), scale, chain.round("zero point", Fraction(zero)))
    found = {"codes": code, "scales": scale, "zeros": zero}
    at_group = at[0], group
    return chain.steps, agreed(
        found, codes=int(codes[at]), scales=result_bits(scales, at_group), zeros=int(zeros[at_group])
    )


def _efficient(arguments: Mapping[str, Any], at: Place) -> Explained:
    codes, scales, zeros = efficient_qat(**taken(arguments, "x group"))
    chain, members, group = _group(arguments, at)
    chain.clause = "N26.3"
    least, spread = _ends(chain, members)
    scale = _bound(chain, "scales", chain.divide("scales", spread, _FIFTEEN), int(_LEAST_SCALE))
    if is_above(scale, int(_MOST_SCALE)):
        scale = int(_MOST_SCALE)
        chain.say("scales", f"at most {float_text(scale)}")
    zero = chain.whole("zeros", chain.divide("-least / scale", least ^ _SIGN, scale))
    code = _affine_code(chain, bits_at(arguments["x"], at), scale, zero)
    golden = {name: result_bits(one, (at[0], group)) for name, one in (("scales", scales), ("zeros", zeros))}
    return chain.steps, agreed({"codes": code, "scales": scale, "zeros": zero}, codes=int(codes[at]), **golden)


def _keep_two(arguments: Mapping[str, Any], at: Place) -> Explained:
    codes, scales, kept = int4_keep_two(**taken(arguments, "x group"))
    chain, members, group = _group(arguments, at)
    chain.clause = "N26.5"
    sizes = [0 if is_nan(bits) else bits & _MAGNITUDE for bits in members]
    first, second, third = sorted(range(len(sizes)), key=lambda place: (-sizes[place], place))[:3]
    chain.say("kept", f"places {first} and {second} of {len(sizes)}: {float_text(sizes[first])} and "
              f"{float_text(sizes[second])}")  # fmt: skip
    assert [first, second] == kept[at[0], group].tolist(), "the model keeps other elements"
    chain.say("scales", f"the largest of the others {float_text(sizes[third])}")
    scale, own, code = _bound(chain, "scales", sizes[third], int(_LEAST_KEPT)), bits_at(arguments["x"], at), 0
    if at[1] - group * len(members) in (first, second):
        chain.say("rounding", "none: the element is kept, its code is 0")
    else:
        code = chain.encode("rounding", INT4, chain.divide("7 x / scale", chain.multiply("7 x", own, _SEVEN), scale))
    chain.steps.append(code_step(INT4, code))
    found = {"codes": code, "scales": scale}
    return chain.steps, agreed(found, codes=int(codes[at]), scales=result_bits(scales, (at[0], group)))


def _back(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "codes scales", "zeros")
    result, (codes, scales) = dequantize_int4(**given), (np.asarray(given[name]) for name in ("codes", "scales"))
    place = (0,) if scales.shape == (1,) else (at[0], at[1] * scales.shape[1] // codes.shape[1])
    chain, code, scale = Chain("N26.4"), int(codes[at]), bits_at(scales, place)
    if given.get("zeros") is None:
        chain.say("element", f"INT4 code {fields(INT4, code)} under {float_text(scale)}", "N1")
        level = chain.round("q", Fraction(code - 16 * (code > 7)))
    else:
        chain.say("element", f"code {code} of 0 to 15 under {float_text(scale)}", "N1")
        zero = bits_at(np.asarray(given["zeros"]).astype(np.float32), place)
        level = chain.subtract("q - zero point", chain.round("q", Fraction(code)), zero)
    bits = chain.multiply("values", level, scale)
    return chain.steps, agreed({"values": bits}, values=result_bits(result, at))


INTEGER: Room = {
    "sawb": (of("x"), _sawb),
    "int4_affine": (of("x"), _affine),
    "efficient_qat": (of("x"), _efficient),
    "int4_keep_two": (of("x"), _keep_two),
    "dequantize_int4": (of("codes"), _back),
}
