"""Seeded defects of an MXFP4 quantiser, each a real one seen in the field, on a plain float64 implementation.

The plain implementation shares nothing with refnum. Blocks are float32 bits u32 [n, 32]; every step can be
replaced by a defective one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])


def amax_bits(bits):
    return (bits & 0x7FFFFFFF).max(axis=1)


def as_f32(bits):
    return np.ascontiguousarray(bits.astype(np.uint32)).view(np.float32)


def exponent_of(amax):
    """Unclamped rceil exponent from float64: exact for every float32."""
    m, e = np.frexp(as_f32(amax).astype(np.float64))  # amax = m * 2**e, m in [0.5, 1)
    return e - 3 + (m > 0.75)


def rceil_byte(amax):
    return np.clip(exponent_of(amax) + 127, 0, 254)


def scale_value(byte):
    return np.ldexp(1.0, byte.astype(int) - 127)


def nearest_even(y):
    code = np.searchsorted(MIDPOINTS, y, side="left")
    tie = np.isin(y, MIDPOINTS)
    return np.where(tie & (code % 2 == 1), code + 1, code)


def unchanged(bits):
    return bits


def sign_bit(bits, code):
    return bits >> 31


def in_order(codes, scales):
    return codes, scales


@dataclass(frozen=True)
class Quantiser:
    amax: Callable = amax_bits
    byte: Callable = rceil_byte
    scale: Callable = scale_value
    element: Callable = nearest_even
    read: Callable = unchanged
    sign: Callable = sign_bit
    nan_byte: int = 255
    inf_byte: int = 255
    zero_byte: int = 0
    finish: Callable = in_order

    def __call__(self, bits):
        bits = self.read(bits)
        amax = self.amax(bits)
        ordinary = (amax > 0) & (amax < 0x7F800000)
        byte = np.where(ordinary, self.byte(np.where(ordinary, amax, 0x3F800000)), self.zero_byte)
        byte = np.where(amax == 0x7F800000, self.inf_byte, np.where(amax > 0x7F800000, self.nan_byte, byte))
        with np.errstate(all="ignore"):
            y = np.abs(as_f32(bits).astype(np.float64)) / self.scale(np.where(byte == 255, 127, byte))[:, None]
            code = np.minimum(np.nan_to_num(self.element(y), nan=7).astype(int), 7)
        code = np.where((byte == 255)[:, None], 0, code | self.sign(bits, code) << 3)
        return self.finish(code.astype(np.uint8), byte.astype(np.uint8))


RIGHT = Quantiser()


def byte_rule(function):
    return replace(RIGHT, byte=function)


def element_rule(function):
    return replace(RIGHT, element=function)


def f32_quotient(reciprocal):
    def byte(amax):
        quotient = as_f32(amax) * as_f32(np.array([reciprocal]))[0]
        m, e = np.frexp(quotient.astype(np.float64))
        return np.clip(e - (m == 0.5) + 127, 0, 254)

    return byte


def log2_ceil(amax):
    with np.errstate(all="ignore"):
        return np.clip(np.ceil(np.log2(as_f32(amax) / np.float32(6))).astype(np.float32) + 127, 0, 254).astype(int)


def at_step(amax):
    m, e = np.frexp(as_f32(amax).astype(np.float64))
    return np.clip(e - 3 + (m >= 0.75) + 127, 0, 254)


def ceil_rule(amax):
    m, e = np.frexp(as_f32(amax).astype(np.float64))
    return np.clip(e - 3 + (m > 0.5) + 127, 0, 254)


def even_rule(amax):
    m, e = np.frexp(as_f32(amax).astype(np.float64))
    return np.clip(e - 3 + (m >= 0.875) + 127, 0, 254)


def floor_rule(amax):
    return np.clip(np.frexp(as_f32(amax).astype(np.float64))[1] - 3 + 127, 0, 254)


def floor_sixth(amax):
    return np.clip(np.frexp(as_f32(amax).astype(np.float64) / 6)[1] - 1 + 127, 0, 254)


def small_mask(amax):
    fraction = amax & 0x7FFFFF
    return np.clip((amax >> 23).astype(int) - 2 + ((fraction & 0x4FFFFF) > 0x400000), 0, 254)


def below_min(amax, byte):
    """Replace the byte where the quotient amax/6 is below 2**-126."""
    return np.where(as_f32(amax).astype(np.float64) / 6 <= 2.0**-126, byte, rceil_byte(amax))


def through(dtype, amax):
    with np.errstate(over="ignore"):
        rounded = as_f32(amax).astype(dtype).astype(np.float32).view(np.uint32)
    return rceil_byte(np.where(rounded >= 0x7F800000, 0x7F7FFFFF, np.maximum(rounded, 1)))


def one_tie(index, up):
    def element(y):
        code = nearest_even(y)
        return np.where(y == MIDPOINTS[index], index + up, code)

    return element


def no_sticky(y):
    return np.where((y > 0.25) & (y < 0.2500001), 0, nearest_even(y))


def half_floor(y):
    """|y| + 0.5 floored in float32 on the half-integer grid."""
    low = np.floor((2 * y).astype(np.float32) + np.float32(0.5)).astype(int)
    return np.where(y < 0.5, np.minimum(low, 1), nearest_even(y))


def via(dtype):
    def element(y):
        with np.errstate(over="ignore"):
            return nearest_even(y.astype(np.float32).astype(dtype).astype(np.float64))

    return element


def lane_left_out(lane):
    def amax(bits):
        magnitude = bits & 0x7FFFFFFF
        return np.delete(magnitude, lane, axis=1).max(axis=1)

    return replace(RIGHT, amax=amax)


def nan_dropped(bits):
    magnitude = bits & 0x7FFFFFFF
    return np.where(magnitude > 0x7F800000, 0, magnitude).max(axis=1)


def signed_max(bits):
    return np.where(bits >> 31, 0, bits).max(axis=1)


def flush(bits):
    return np.where((bits & 0x7FFFFFFF) < 0x00800000, bits & 0x80000000, bits)


def shifted(bits):
    return np.roll(bits.reshape(-1), 1).reshape(bits.shape)


DEFECTS = {
    "S02 ceil(log2f(amax/6))": byte_rule(log2_ceil),
    "S03 reciprocal one ulp low": byte_rule(f32_quotient(0x3E2AAAAA)),
    "S04 reciprocal one ulp high": byte_rule(f32_quotient(0x3E2AAAAC)),
    "S05 >= at 1.5": byte_rule(at_step),
    "S08 subnormal quotient always 1": byte_rule(lambda a: below_min(a, 1)),
    "S09 subnormal quotient never 1": byte_rule(lambda a: below_min(a, 0)),
    "S10 quotient flushed": byte_rule(lambda a: np.where(as_f32(a).astype(float) / 6 < 2.0**-126, 0, rceil_byte(a))),
    "S11 byte at least 1": byte_rule(lambda a: np.maximum(rceil_byte(a), 1)),
    "S12 Inf gives 254": replace(RIGHT, inf_byte=254),
    "S13 NaN ignored by max": replace(RIGHT, amax=nan_dropped),
    "S14 amax without abs": replace(RIGHT, amax=signed_max),
    "S16 amax at least 1e-4": byte_rule(lambda a: rceil_byte(np.maximum(a, 0x38D1B717))),
    "S17 zero block gives 127": replace(RIGHT, zero_byte=127),
    "S18 byte 0 as 2**-126": replace(RIGHT, scale=lambda b: scale_value(np.maximum(b, 1))),
    "S19 byte 0 as 1": replace(RIGHT, scale=lambda b: np.where(b == 0, 1.0, scale_value(b))),
    "S21 floor(amax/6)": byte_rule(floor_sixth),
    "S22 mantissa mask 0x4FFFFF": byte_rule(small_mask),
    "S23 emax not subtracted": byte_rule(lambda a: np.minimum(rceil_byte(a) + 2, 254)),
    "S24 amax through bfloat16": byte_rule(lambda a: through(ml_dtypes.bfloat16, a)),
    "S26 exponent wraps": byte_rule(lambda a: (exponent_of(a) + 127) & 0xFF),
    "S27 ceil": byte_rule(ceil_rule),
    "S28 even": byte_rule(even_rule),
    "S28 floor": byte_rule(floor_rule),
    "S29 amax through float16": byte_rule(lambda a: through(np.float16, a)),
    "E01 ties away": element_rule(lambda y: np.searchsorted(MIDPOINTS, y, side="right")),
    "E02 ties toward zero": element_rule(lambda y: np.searchsorted(MIDPOINTS, y, side="left")),
    "E07 half floored in float32": element_rule(half_floor),
    "E08 no sticky below 0.5": element_rule(no_sticky),
    "E09 through bfloat16": element_rule(via(ml_dtypes.bfloat16)),
    "E10 through float16": element_rule(via(np.float16)),
    "E11 -0 becomes +0": replace(RIGHT, sign=lambda b, c: np.where(c == 0, 0, b >> 31)),
    "E12 underflow loses the sign": replace(RIGHT, sign=lambda b, c: np.where((c == 0) & (b << 1 != 0), 0, b >> 31)),
    "E14 toward zero": element_rule(lambda y: np.searchsorted([0.5, 1, 1.5, 2, 3, 4, 6], y, side="right")),
    "E15 nibbles swapped": replace(RIGHT, finish=lambda c, b: (c.reshape(-1, 2)[:, ::-1].reshape(c.shape), b)),
    "E16 split halves": replace(RIGHT, finish=lambda c, b: (c.reshape(-1, 2, 16).swapaxes(1, 2).reshape(c.shape), b)),
    "E17 subnormal inputs flushed": replace(RIGHT, read=flush),
    "E18 sign of -0 lost, of +0 set": replace(RIGHT, sign=lambda b, c: np.where(b << 1 == 0, 1, b >> 31)),
    "E19 code 7 unreachable": element_rule(lambda y: np.minimum(nearest_even(y), 6)),
    "X01 block boundary shifted": replace(RIGHT, read=shifted),
    "X02 scale of the next block": replace(RIGHT, finish=lambda c, b: (c, np.roll(b, 1))),
    **{f"E03-E06 tie {tie} wrong": element_rule(one_tie(i, up=(i + 1) % 2)) for i, tie in enumerate(MIDPOINTS)},
    **{f"S15 lane {lane} left out": lane_left_out(lane) for lane in range(32)},
}
