"""Element and scale formats as facts (clause N1). Reading `FORMATS` is reading the format table.

Decoding and encoding (`refnum.codec`, `refnum.rounding`) are generic over these facts: adding a format adds
one entry here and nothing else.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

from .errors import ProfileError, shown


@dataclass(frozen=True)
class Format:
    """The facts of one format of at most 32 bits.

    A *magnitude code* is the code without its sign bit; magnitudes are in the order of their values.
    For `kind == "float"` a magnitude code splits into an exponent field and `mantissa_bits` fraction bits:
    field 0 holds zero and the subnormals, field e > 0 the value `(1 + fraction) * radix**(e - bias)`.
    For `kind == "scale"` (E8M0) every code is a power of two, and there is no zero and no sign.
    For `kind == "integer"` a code is two's complement times `2**-fraction_bits`.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    """Magnitude code of the largest finite value."""
    nan_code: int | None = None
    """Canonical magnitude code of NaN, or None where the format has none."""
    inf_code: int | None = None
    """Magnitude code of infinity, or None."""
    radix: int = 2
    kind: str = "float"
    fraction_bits: int = 0
    min_code: int | None = None
    """Integer formats: the most negative integer that the encoder produces."""
    source: str = ""

    @property
    def signed(self) -> bool:
        """Whether the format has a sign bit. Only E8M0 has none."""
        return self.kind != "scale"

    @property
    def bits(self) -> int:
        """Width of a code in bits: sign + exponent + mantissa."""
        return int(self.signed) + self.exponent_bits + self.mantissa_bits

    @property
    def sign_mask(self) -> int:
        """The sign bit of a code, or 0 for an unsigned format."""
        return 1 << (self.bits - 1) if self.signed else 0

    @functools.cached_property
    def max_value(self) -> Fraction:
        """The largest finite value, exact: `m` of clause N3."""
        return magnitude_value(self, self.max_code)

    @functools.cached_property
    def emax(self) -> int:
        """floor(log2(max_value)), from integers: OCP's `emax_elem`."""
        return self.max_value.numerator.bit_length() - self.max_value.denominator.bit_length()

    @functools.cached_property
    def max_fraction23(self) -> int:
        """Fraction of `max_value / 2**emax`, minus one, in units of 2**-23 (1.5 -> 0x400000, 1.75 -> 0x600000)."""
        ratio = self.max_value / Fraction(2) ** self.emax - 1
        return int(ratio * 2**23)


def magnitude_value(fmt: Format, magnitude: int) -> Fraction:
    """Return the exact value of one finite magnitude code of `fmt` (clause N1)."""
    two = Fraction(2)
    if fmt.kind == "scale":
        return two ** (magnitude - fmt.bias)
    if fmt.kind == "integer":
        return magnitude / two**fmt.fraction_bits
    field = magnitude >> fmt.mantissa_bits
    fraction = Fraction(magnitude & ((1 << fmt.mantissa_bits) - 1), 1 << fmt.mantissa_bits)
    if field == 0:
        return fraction * Fraction(fmt.radix) ** (1 - fmt.bias)
    return (1 + fraction) * Fraction(fmt.radix) ** (field - fmt.bias)


_OCP_MX = "OCP Microscaling Formats (MX) v1.0"
_IEEE = "IEEE 754-2019"

#        name        exponent mantissa bias  max code
E2M1 = Format("E2M1", 2, 1, 1, 0x7, source=f"{_OCP_MX}, 5.3.3")
E3M0 = Format("E3M0", 3, 0, 3, 0x7, source="Sun et al., NeurIPS 2020 (zero and seven powers of two); bias ours")
FP4_RADIX4 = Format("FP4_RADIX4", 3, 0, 3, 0x7, radix=4, source="Sun et al., NeurIPS 2020, [1,3,0]; bias ours")
E2M3 = Format("E2M3", 2, 3, 1, 0x1F, source=f"{_OCP_MX}, 5.3.2")
E3M2 = Format("E3M2", 3, 2, 3, 0x1F, source=f"{_OCP_MX}, 5.3.2")
E4M3 = Format("E4M3", 4, 3, 7, 0x7E, nan_code=0x7F, source=f"{_OCP_MX}, 5.3.1; OCP OFP8 (E4M3, 'fn')")
E5M2 = Format("E5M2", 5, 2, 15, 0x7B, nan_code=0x7F, inf_code=0x7C, source=f"{_OCP_MX}, 5.3.1; OCP OFP8")
E8M0 = Format("E8M0", 8, 0, 127, 0xFE, nan_code=0xFF, kind="scale", source=f"{_OCP_MX}, 5.4.1")
BF16 = Format("BF16", 8, 7, 127, 0x7F7F, nan_code=0x7FC0, inf_code=0x7F80, source="float32 without its low 16 bits")
FP16 = Format("FP16", 5, 10, 15, 0x7BFF, nan_code=0x7E00, inf_code=0x7C00, source=f"{_IEEE}, binary16")
FP32 = Format("FP32", 8, 23, 127, 0x7F7FFFFF, nan_code=0x7FC00000, inf_code=0x7F800000, source=f"{_IEEE}, binary32")
INT4 = Format("INT4", 0, 3, 0, 0x7, kind="integer", min_code=-8, source="two's complement, -8..7")
MXINT8 = Format(
    "MXINT8", 0, 7, 0, 0x7F, kind="integer", fraction_bits=6, min_code=-127,
    source=f"{_OCP_MX}, 5.3.4; symmetric, -2 is decoded but never produced",
)  # fmt: skip

FORMATS: dict[str, Format] = {
    f.name: f for f in (E2M1, E3M0, FP4_RADIX4, E2M3, E3M2, E4M3, E5M2, E8M0, BF16, FP16, FP32, INT4, MXINT8)
}

MX_ELEMENTS: dict[str, Format] = {f.name: f for f in (E2M1, E2M3, E3M2, E4M3, E5M2, MXINT8)}
"""Element formats of the MX block formats: MXFP4, MXFP6 (both), MXFP8 (both), MXINT8."""


def get_format(fmt: Format | str, among: dict[str, Format] | None = None) -> Format:
    """Return the format of that name; a Format is returned as it is.

    among: name -> format, the table to look in; `FORMATS` unless given.
    Raises ProfileError naming the known formats, for a Format that differs from the table's of its name too.
    """
    table = FORMATS if among is None else among
    if not isinstance(table, dict):
        raise ProfileError(f"among is {shown(among)}; allowed is a table of formats by name")
    name = fmt.name if isinstance(fmt, Format) else fmt
    if not isinstance(name, str) or name not in table:
        raise ProfileError(f"format {shown(name)} is not known here; known are {', '.join(map(str, table))}")
    if isinstance(fmt, Format) and fmt != table[name]:
        raise ProfileError(f"format {name} differs from the one known here; give a format of the table, or its name")
    return table[name]
