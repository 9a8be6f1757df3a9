"""Explain one number that comes of a code under a scale byte (clauses N5.3, N5.4 and N6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import BLOCK, TILE, unpack_nibbles
from .blocks import dequantize_mx, dequantize_mxfp4
from .codec import value
from .float_steps import Chain, Explained, Place, Room, agreed, of, result_bits, taken
from .formats import E2M1, E4M3, E8M0, Format, get_format
from .layouts import scales_from_layout
from .softfloat import INF, NAN
from .steps import code_step, fields, show
from .tiles import dequantize_fp8_tiles

_INF, _NAN = int(INF), int(NAN)


def _mxfp4(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "packed scales", "dtype layout_in")
    result, codes = dequantize_mxfp4(**given), unpack_nibbles(given["packed"])
    return _steps("N5.3", E2M1, int(codes[at]), _byte(given, codes.shape, 1, BLOCK, at), result, at)


def _mx(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "codes scales", "element dtype")
    result, fmt = dequantize_mx(**given), get_format(given.get("element", "E2M1"))
    return _steps("N5.3", fmt, int(given["codes"][at]), _byte(given, given["codes"].shape, 1, BLOCK, at), result, at)


def _tiles(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "codes scales", "tile dtype layout_in")
    result, (tall, wide) = dequantize_fp8_tiles(**given), given.get("tile", (1, TILE))
    byte = _byte(given, given["codes"].shape, int(tall), int(wide), at)
    return _steps("N6.4", E4M3, int(given["codes"][at]), byte, result, at)


def _byte(given: Mapping[str, Any], shape: tuple[int, ...], tall: int, wide: int, at: Place) -> int:
    """The scale byte of an element, whatever the layout of the scales."""
    stored, layout = given["scales"], given.get("layout_in", "bytes")
    plain = scales_from_layout(stored, layout, -(-shape[0] // tall), -(-shape[1] // wide))
    return int(plain[at[0] // tall, at[1] // wide])


def _steps(clause: str, fmt: Format, code: int, byte: int, result: Any, at: Place) -> Explained:
    chain, narrow = Chain(clause), np.dtype(result.dtype).itemsize == 2
    exact, sign = value(fmt, code), fmt.kind == "float" and bool(code & fmt.sign_mask)
    chain.say("element", f"{fmt.name} code {fields(fmt, code)}", "N1")
    chain.steps.append(code_step(fmt, code))
    chain.say("scale byte", f"{byte}, {'NaN' if byte == 255 else 'scale ' + show(value(E8M0, byte))}")
    if byte != 255 and isinstance(exact, Fraction):
        scale = Fraction(2) ** (byte - 127)
        bits = chain.round("values", exact * scale, sign << 31, f"{show(exact, sign)} * 2^{byte - 127}", narrow)
    else:
        nan = byte == 255 or exact == "nan"
        bits = chain.result("values", _NAN if nan else _INF | sign << 31, result.dtype)
    return chain.steps, agreed({"values": bits}, values=result_bits(result, at))


DEQUANTISED: Room = {
    "dequantize_mxfp4": (of("packed"), _mxfp4),
    "dequantize_mx": (of("codes"), _mx),
    "dequantize_fp8_tiles": (of("codes"), _tiles),
}
