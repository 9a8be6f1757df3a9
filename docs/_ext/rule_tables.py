"""Tables of scale rules, special values, profiles and exactness, computed from `refnum` (N3, N4, N8, N10, N14)."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
from value_tables import Table, code, show

import refnum
from refnum.tensor_core import INSTRUCTIONS

RULES = ("floor", "ceil", "even", "rceil")
AMAX = [
    ("1", 0x3F800000), ("1.5", 0x3FC00000), ("3", 0x40400000), ("3 + 1 ulp", 0x40400001), ("3.5 - 1 ulp", 0x405FFFFF),
    ("3.5", 0x40600000), ("6", 0x40C00000), ("6 + 1 ulp", 0x40C00001), ("7", 0x40E00000), ("448", 0x43E00000),
    ("2^-100 - 1 ulp", 0x0D7FFFFF), ("(1.5 + 1 ulp) x 2^-125", 0x01400001), ("2^-127", 0x00400000),
    ("2^-149", 0x00000001), ("1.75 x 2^127", 0x7F600000), ("largest float32", 0x7F7FFFFF), ("0", 0),
]  # fmt: skip
"""amax as float32: the table published in the study of FP4 training methods, then the edges where libraries err."""


def _block(bits: list[int]) -> np.ndarray:
    block = np.zeros((1, 32), np.uint32)
    block[0, : len(bits)] = bits
    return block.view(np.float32)


def scales(element: str = "E2M1") -> Table:
    """The scale byte of each rule on amax values where the rules part."""
    rows = []
    for text, bits in AMAX:
        row = [text, code(bits, 8)]
        for rule in RULES:
            profile = refnum.HOPPER.replace(name=rule, scale_rule=rule)
            row.append(f"`{int(refnum.quantize_mx(_block([bits]), element, profile)[1][0, 0])}`")
        rows.append(row)
    return Table(["amax", "float32 bits", *(f"`{r}`" for r in RULES)], rows)


SPECIAL = [
    ("all +0", [0, 0]), ("all zero, first -0", [0x80000000, 0]), ("+Inf, 1.0", [0x7F800000, 0x3F800000]),
    ("-Inf, 1.0", [0xFF800000, 0x3F800000]), ("NaN, 1.0", [0x7FC00000, 0x3F800000]),
    ("+Inf, NaN", [0x7F800000, 0x7FC00000]), ("-2^-149, 1.0", [0x80000001, 0x3F800000]),
]  # fmt: skip


def specials() -> Table:
    """Byte and first two codes of special MX blocks under every deterministic profile (N4)."""
    rows = []
    for profile in refnum.PROFILES.values():
        if profile.rounding == "stochastic":
            continue
        row = [f"`{profile.name}`"]
        for _, bits in SPECIAL:
            packed, scale = refnum.quantize_mxfp4(_block(bits), profile)
            first = int(packed[0, 0])
            row.append(f"`{int(scale[0, 0])}: {first & 15:X} {first >> 4:X}`")
        rows.append(row)
    return Table(["profile", *(text for text, _ in SPECIAL)], rows)


def tile_specials() -> Table:
    """Byte and first two codes of special FP8 tiles (N4.4, N4.5)."""
    rows = []
    for text, bits in [*SPECIAL, ("NaN with the sign set, 600", [0xFFC00000, 0x44160000])]:
        block = np.zeros((1, 128), np.uint32)
        block[0, : len(bits)] = bits
        codes, scale = refnum.quantize_fp8_tiles(block.view(np.float32))
        rows.append([text, f"`{int(scale[0, 0])}`", " ".join(code(int(c)) for c in codes[0, :2])])
    return Table(["first two elements, the rest +0", "byte", "first two codes"], rows)


def profiles() -> Table:
    """Every profile of N14, field by field."""
    rows = []
    for p in refnum.PROFILES.values():
        floor = "-" if p.amax_floor is None else code(p.amax_floor, 8)
        rounding = p.rounding if p.rounding != "stochastic" else f"stochastic, {p.random_bits} bits"
        rows.append([f"`{p.name}`", f"`{p.scale_rule}`", rounding, p.ties, p.overflow, p.negative_zero,
                     f"`{p.zero_scale}`", f"`{p.nonfinite}`", floor])  # fmt: skip
    header = ["profile", "scale", "rounding", "ties", "overflow", "-0", "zero block", "non-finite", "amax floor"]
    return Table(header, rows)


def profile_sources() -> Table:
    """What each profile models, and where it was read."""
    return Table(["profile", "what it is", "source"],
                 [[f"`{p.name}`", p.description, p.source] for p in refnum.PROFILES.values()])  # fmt: skip


def exactness() -> Table:
    """E4M3 code of each E2M1 magnitude at distance 0..16, the inexact ones marked (N8.4)."""
    rows = []
    for distance in range(17):
        packed, scale = _two_blocks(200, 200 - distance)
        codes, byte = refnum.mxfp4_to_fp8(packed, scale)
        row, exact = [str(distance)], True
        for magnitude in range(1, 8):
            element = int(codes[0, 32 + magnitude])
            wanted = _value("E2M1", magnitude) * Fraction(2) ** (200 - distance - int(byte[0, 0]))
            same = _value("E4M3", element) == wanted
            exact &= same
            row.append(code(element) + ("" if same else " *"))
        rows.append([*row, "yes" if exact else "no"])
    return Table(["distance", *(show(refnum.value("E2M1", m)) for m in range(1, 8)), "all exact"], rows)


def _two_blocks(first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """A block of sixes under one byte, and a block holding codes 0..15 under another."""
    codes = np.concatenate([np.full(32, 7), np.arange(32) % 16]).astype(np.uint8)
    packed = (codes[0::2] | codes[1::2] << 4)[None, :]
    return packed, np.array([[first, second]], np.uint8)


def _value(fmt: str, value: int) -> Fraction:
    exact = refnum.value(fmt, value)
    assert isinstance(exact, Fraction)
    return exact


def fp8_scales() -> Table:
    """The block exponent t of N7.3 for each run of E4M3 amax codes, in the integer form."""
    rows, start = [], 1
    exponents = [_fp8_exponent(amax) for amax in range(1, 127)]
    for amax in range(1, 127):
        if amax == 126 or exponents[amax] != exponents[amax - 1]:
            span = f"{code(start)}..{code(amax)}" if amax > start else code(start)
            least, largest = show(_value("E4M3", start)), show(_value("E4M3", amax))
            rows.append([span, f"{least} .. {largest}", str(exponents[amax - 1])])
            start = amax + 1
    return Table(["largest code in the block", "values", "t"], rows)


def _fp8_exponent(amax: int) -> int:
    codes = np.zeros((1, 32), np.uint8)
    codes[0, 0] = amax
    return int(refnum.fp8_to_mxfp4(codes, np.array([[127]], np.uint8))[1][0, 0]) - 127


def underflow() -> Table:
    """rne against te at each shift k: codes that differ, and the largest error in units of 2^-9 (N10)."""
    rows = []
    codes = np.zeros((2, 128), np.uint8)
    codes[0, 0] = 0x7E
    codes[1, :127] = np.arange(127)
    for k in [*range(9), 10, 12, 14, 16, 20]:
        scale = np.array([[200], [200 - k]], np.uint8)
        both = [refnum.fp8_columns(codes, scale, underflow=mode)[0][:127, 1] for mode in ("rne", "te")]
        row = [str(k), str(int((both[0] != both[1]).sum()))]
        for got in both:
            errors = [abs(_value("E4M3", int(g)) - _value("E4M3", c) / 2**k) * 512 for c, g in enumerate(got)]
            row.append(f"{float(max(errors)):.6g}")
        rows.append(row)
    return Table(["k", "codes of 127 that differ", "largest error of `rne`", "largest error of `te`"], rows)


def e8m0_conversions() -> Table:
    """float32 to E8M0 under each rounding (N1.5)."""
    inputs = [0x00000000, 0x00000001, 0x00400000, 0x00400001, 0x005FFFFF, 0x00600000, 0x00800001, 0x3F800001,
              0x3FC00000, 0x40400000, 0x7F000001, 0x7F400000, 0x7F800000, 0x7FC00000, 0xBF800000]  # fmt: skip
    modes = [(r, s) for r in ("up", "down", "nearest") for s in (False, True)]
    rows = []
    for bits in inputs:
        x = np.array([bits], np.uint32).view(np.float32)
        rows.append([code(bits, 8), *(f"`{int(refnum.encode_e8m0(x, r, s)[0])}`" for r, s in modes)])
    return Table(["float32 bits", *(f"{r}{', saturating' if s else ''}" for r, s in modes)], rows)


def philox() -> Table:
    """Known answers of Philox4x32-10 (N13)."""
    cases = [((0,) * 4, (0, 0)), ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2),
             ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))]  # fmt: skip
    rows = []
    for counter, key in cases:
        words = refnum.philox.philox4x32(counter, key)
        rows.append([" ".join(f"{int(w):08x}" for w in group) for group in (counter, key, words)])
    return Table(["counter", "key", "output"], [[f"`{cell}`" for cell in row] for row in rows])


STREAM = {"seed": 2026, "stream": 3, "step": 9}
"""The stream that N13 prints."""


def stream() -> Table:
    """The first blocks of one stream, as words and as bytes (N13.2)."""
    words = refnum.philox.random_words(8, **STREAM)
    octets = refnum.philox.random_bytes(32, **STREAM)
    key = ", ".join(f"{name} {value}" for name, value in STREAM.items())
    rows = [["of", key]]
    for block in range(2):
        rows.append([f"words {4 * block} to {4 * block + 3}", _hexadecimal(words[4 * block : 4 * block + 4], 8)])
        rows.append([f"bytes {16 * block} to {16 * block + 15}", _hexadecimal(octets[16 * block : 16 * block + 16], 2)])
    return Table(["", "stream"], rows)


def stream_bits() -> Table:
    """The random bits of the first elements of that stream for several K (N13.3)."""
    rows = []
    for bits in (8, 1, 4, 12, 16, 24):
        drawn = refnum.philox.random_bits(8, bits, **STREAM)
        rows.append([str(bits), _hexadecimal(drawn, -(-bits // 4))])
    return Table(["K", "bits of elements 0 to 7"], rows)


def _hexadecimal(words: np.ndarray, digits: int) -> str:
    return "`" + " ".join(f"{int(word):0{digits}x}" for word in words) + "`"


def silu_digests() -> Table:
    """SHA-256 of both functions over all bfloat16 inputs, and of the file that holds one after the other (N11.1)."""
    gates = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    both = {"silu": refnum.swiglu.silu(gates), "sigmoid": refnum.swiglu.sigmoid(gates)}
    parts = {name: bits.astype("<u4").tobytes() for name, bits in both.items()}
    parts["silu, then sigmoid: the file"] = b"".join(parts.values())
    return Table(["results", "SHA-256"], [[name, f"`{hashlib.sha256(p).hexdigest()}`"] for name, p in parts.items()])


def levels() -> Table:
    """The levels of agreement (N16), in the harness's own words."""
    from refnum.conformance.cases.levels import LEVELS

    return Table(["level", "what is compared"], [[f"`{name}`", text] for name, text in LEVELS.items()])


def classes() -> Table:
    """The input classes (N17); the letter of the example is computed by the model."""
    examples = [
        ("finite, 2^-124 <= amax < 2^126", "1", 0x3F800000), ("finite, amax smaller than that", "2^-126", 0x00800000),
        ("finite, amax larger than that", "2^126", 0x7E800000), ("amax is 0", "-0", 0x80000000),
        ("an infinity, no NaN", "Inf", 0x7F800000), ("a NaN", "NaN", 0x7FC00000),
    ]  # fmt: skip
    rows = []
    for text, shown, bits in examples:
        rows.append([f"`{chr(int(refnum.block_class(_block([bits]))[0, 0]))}`", text, shown])
    return Table(["class", "the block holds", "example"], rows)


def instructions() -> Table:
    """The numbers of each instruction's step (N19.3)."""
    rows = [
        [f"`{name}`", ", ".join(facts.formats), str(facts.terms), str(facts.fraction_bits), str(facts.result_bits)]
        for name, facts in INSTRUCTIONS.items()
    ]
    return Table(["instruction", "operands", "T", "F", "R"], rows)


def scale_constants() -> Table:
    """What N3 needs of each element format; the bounds are found by trying fractions, not typed in."""
    rows = []
    for fmt in refnum.MX_ELEMENTS.values():
        bounds = [_least_fraction(fmt, rule) for rule in ("rceil", "even")]
        rows.append([f"`{fmt.name}`", show(fmt.max_value), str(fmt.emax), *(f"f >= {code(b, 6)}" for b in bounds)])
    return Table(["element", "m", "emax", "`rceil` adds 1 if", "`even` adds 1 if"], rows)


def _least_fraction(fmt: refnum.Format, rule: str) -> int:
    """The least 23-bit fraction of amax at which a rule adds 1, by bisection on the model."""
    profile = refnum.HOPPER.replace(name=rule, scale_rule=rule)
    low, high = 0, 1 << 23  # the scale at `low` is the smaller one
    while high - low > 1:
        middle = (low + high) // 2
        scale = refnum.quantize_mx(_block([0x3F800000 | middle]), fmt, profile)[1][0, 0]
        low, high = (middle, high) if scale == 127 - fmt.emax else (low, middle)
    return high
