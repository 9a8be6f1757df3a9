"""Value tables of the oracle (clause N1): every code of every format, written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

Exact = Fraction | str
NAN, POS_INF, NEG_INF, NEG_ZERO = "nan", "+inf", "-inf", "-0"

# Value tables: magnitudes in code order, in units of the smallest one; one binade a line.
# fmt: off
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12)
_E3M0 = (0, 1, 2, 4, 8, 16, 32, 64)
_RADIX4 = (0, 1, 4, 16, 64, 256, 1024, 4096)
_E2M3 = (
    0, 1, 2, 3, 4, 5, 6, 7,
    8, 9, 10, 11, 12, 13, 14, 15,
    16, 18, 20, 22, 24, 26, 28, 30,
    32, 36, 40, 44, 48, 52, 56, 60,
)
_E3M2 = (
    0, 1, 2, 3,
    4, 5, 6, 7,
    8, 10, 12, 14,
    16, 20, 24, 28,
    32, 40, 48, 56,
    64, 80, 96, 112,
    128, 160, 192, 224,
    256, 320, 384, 448,
)
_E4M3 = (
    0, 1, 2, 3, 4, 5, 6, 7,
    8, 9, 10, 11, 12, 13, 14, 15,
    16, 18, 20, 22, 24, 26, 28, 30,
    32, 36, 40, 44, 48, 52, 56, 60,
    64, 72, 80, 88, 96, 104, 112, 120,
    128, 144, 160, 176, 192, 208, 224, 240,
    256, 288, 320, 352, 384, 416, 448, 480,
    512, 576, 640, 704, 768, 832, 896, 960,
    1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920,
    2048, 2304, 2560, 2816, 3072, 3328, 3584, 3840,
    4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680,
    8192, 9216, 10240, 11264, 12288, 13312, 14336, 15360,
    16384, 18432, 20480, 22528, 24576, 26624, 28672, 30720,
    32768, 36864, 40960, 45056, 49152, 53248, 57344, 61440,
    65536, 73728, 81920, 90112, 98304, 106496, 114688, 122880,
    131072, 147456, 163840, 180224, 196608, 212992, 229376,
)
_E5M2 = (
    0, 1, 2, 3,
    4, 5, 6, 7,
    8, 10, 12, 14,
    16, 20, 24, 28,
    32, 40, 48, 56,
    64, 80, 96, 112,
    128, 160, 192, 224,
    256, 320, 384, 448,
    512, 640, 768, 896,
    1024, 1280, 1536, 1792,
    2048, 2560, 3072, 3584,
    4096, 5120, 6144, 7168,
    8192, 10240, 12288, 14336,
    16384, 20480, 24576, 28672,
    32768, 40960, 49152, 57344,
    65536, 81920, 98304, 114688,
    131072, 163840, 196608, 229376,
    262144, 327680, 393216, 458752,
    524288, 655360, 786432, 917504,
    1048576, 1310720, 1572864, 1835008,
    2097152, 2621440, 3145728, 3670016,
    4194304, 5242880, 6291456, 7340032,
    8388608, 10485760, 12582912, 14680064,
    16777216, 20971520, 25165824, 29360128,
    33554432, 41943040, 50331648, 58720256,
    67108864, 83886080, 100663296, 117440512,
    134217728, 167772160, 201326592, 234881024,
    268435456, 335544320, 402653184, 469762048,
    536870912, 671088640, 805306368, 939524096,
    1073741824, 1342177280, 1610612736, 1879048192,
    2147483648, 2684354560, 3221225472, 3758096384,
)
# fmt: on


@dataclass(frozen=True)
class Table:
    """One format: `values[code]` for every code, and what encoding needs beside it."""

    values: tuple[Exact, ...]
    sign: int
    """The sign bit of a code; 0 where the format has none or is two's complement."""
    overflow: Fraction
    """The magnitude that would follow the largest one: what rounds to it overflows."""
    emax: int = 0
    mantissa_bits: int = 0
    nan: int | None = None
    inf: int | None = None
    lowest: Fraction | None = None
    """Two's complement formats: the lowest value that is ever produced."""

    @cached_property
    def maximum(self) -> Fraction:
        """The largest finite value."""
        return max(v for v in self.values if isinstance(v, Fraction))


def _signed(units: Sequence[int], unit: Fraction, overflow: int, special: Sequence[str] = (), **facts: Any) -> Table:
    half: list[Exact] = [k * unit for k in units]
    negative: list[Exact] = [NEG_ZERO, *(-k * unit for k in units[1:])]
    flipped = [NEG_INF if s == POS_INF else s for s in special]
    values = (*half, *special, *negative, *flipped)
    return Table(values, len(values) // 2, overflow * unit, **facts)


_TWO = Fraction(2)
TABLES: dict[str, Table] = {
    "E2M1": _signed(_E2M1, _TWO**-1, 16, emax=2, mantissa_bits=1),
    "E3M0": _signed(_E3M0, _TWO**-2, 128, emax=4, mantissa_bits=0),
    "FP4_RADIX4": _signed(_RADIX4, _TWO**-4, 16384, emax=8, mantissa_bits=0),
    "E2M3": _signed(_E2M3, _TWO**-3, 64, emax=2, mantissa_bits=3),
    "E3M2": _signed(_E3M2, _TWO**-4, 512, emax=4, mantissa_bits=2),
    "E4M3": _signed(_E4M3, _TWO**-9, 245760, (NAN,), emax=8, mantissa_bits=3, nan=0x7F),
    "E5M2": _signed(_E5M2, _TWO**-16, 4294967296, (POS_INF, NAN, NAN, NAN), emax=15, mantissa_bits=2,
                    nan=0x7F, inf=0x7C),
    "E8M0": Table((*(_TWO ** (b - 127) for b in range(255)), NAN), 0, _TWO**128, nan=0xFF),
    "MXINT8": Table(tuple(Fraction(c - 256 if c > 127 else c, 64) for c in range(256)), 0, Fraction(2),
                    mantissa_bits=6, lowest=Fraction(-127, 64)),
    "INT4": Table(tuple(Fraction(c - 16 if c > 7 else c) for c in range(16)), 0, Fraction(8), emax=2,
                  lowest=Fraction(-8)),
}  # fmt: skip
