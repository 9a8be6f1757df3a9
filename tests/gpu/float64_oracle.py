"""An oracle for the host build that shares nothing with the model: float64 value tables and thresholds.

Every value an operation meets is a short significand times 2**e with |e| < 300, so float64 holds it exactly, a
product with a power of two is exact, and a comparison decides. Nothing here is fast or clever.
"""

import ml_dtypes
import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127])
EMAX = {"E2M1": 2, "E4M3": 8}
LARGEST = {"E2M1": 6.0, "E4M3": 448.0}
MANTISSA = {"E2M1": 1, "E4M3": 3}
TABLE = {"E2M1": E2M1, "E4M3": E4M3}


def two(k):
    """2**k as float64, exact, k an integer array."""
    return np.ldexp(1.0, np.asarray(k, dtype=np.int64))


def magnitude_code(fmt, v):
    """Nearest code of non-negative finite v, ties to the even code, saturating."""
    table = TABLE[fmt]
    middle = (table[:-1] + table[1:]) / 2
    below, at = np.searchsorted(middle, v, "left"), np.searchsorted(middle, v, "right")
    # v on a midpoint: `below` counts the midpoints under it, so its neighbours are codes below and below + 1
    return np.where(at > below, below + (below & 1), below)


def encode(fmt, v):
    """Codes of finite v with the sign bit of v on top."""
    sign = np.signbit(v).astype(np.int64) << {"E2M1": 3, "E4M3": 7}[fmt]
    return (magnitude_code(fmt, np.abs(v)) | sign).astype(np.uint8)


def decode(fmt, codes):
    """float64 values; E4M3's NaN is NaN."""
    top = {"E2M1": 8, "E4M3": 128}[fmt]
    codes = np.asarray(codes).astype(np.int64)
    table = np.append(TABLE[fmt], np.nan) if fmt == "E4M3" else TABLE[fmt]
    return np.where(codes & top, -1.0, 1.0) * table[codes & (top - 1)]


def scale_byte(fmt, amax, rule="rceil"):
    """Byte of N3 for positive finite amax, by comparison with powers of two."""
    fraction, exponent = np.frexp(amax)  # amax = fraction * 2**exponent, fraction in [0.5, 1)
    floor = exponent - 1 - EMAX[fmt]
    if rule == "floor":
        k = floor
    elif rule == "ceil":
        k = floor + (fraction != 0.5)
    elif rule == "even":
        k = floor + (2 * fraction >= 2 - 2.0 ** -(MANTISSA[fmt] + 1))
    else:
        k = np.where(amax <= LARGEST[fmt] * two(floor), floor, floor + 1)
    return np.clip(k + 127, 0, 254).astype(np.int64)


def unpack(packed):
    out = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), np.uint8)
    out[..., 0::2], out[..., 1::2] = packed & 15, packed >> 4
    return out


def pack(codes):
    return codes[..., 0::2] | codes[..., 1::2] << 4


def quantize_block(v, rule="rceil", nonfinite="nosat", zero_scale=0):
    """One 32-element block of float64 values -> (codes, byte), N4 and N5."""
    amax = np.max(np.abs(v)) if not np.isnan(v).any() else np.nan
    if np.isnan(amax) or (np.isinf(amax) and nonfinite == "nosat"):
        return np.zeros(v.size, np.uint8), 255
    if amax == 0:
        return encode("E2M1", v), zero_scale
    byte = 254 if np.isinf(amax) else int(scale_byte("E2M1", amax, rule))
    finite = np.where(np.isinf(v), 0, v) / two(byte - 127)
    return encode("E2M1", np.where(np.isinf(v), np.copysign(6.0, v), finite)), byte


def quantize_mxfp4(v, **choices):
    m, k = v.shape
    codes, scales = np.zeros((m, k), np.uint8), np.zeros((m, k // 32), np.uint8)
    for r in range(m):
        for b in range(k // 32):
            block = slice(32 * b, 32 * b + 32)
            codes[r, block], scales[r, b] = quantize_block(v[r, block], **choices)
    return pack(codes), scales


def quantize_tile(v, rule="rceil"):
    """One FP8 tile of float64 values, any shape -> (codes, byte), N4 and N6."""
    special = ~np.isfinite(v)
    amax = 0 if special.any() else np.max(np.abs(v), initial=0)
    byte = 127 if amax == 0 else int(scale_byte("E4M3", amax, rule))
    codes = encode("E4M3", np.where(special, np.copysign(448.0, v), np.where(special, 0, v) / two(byte - 127)))
    return np.where(np.isnan(v), 0x7F, codes), byte


def quantize_fp8_tiles(v, tall=1, rule="rceil"):
    m, k = v.shape
    codes = np.zeros((m, k), np.uint8)
    scales = np.zeros((-(-m // tall), -(-k // 128)), np.uint8)
    for r in range(0, m, tall):
        for c in range(0, k, 128):
            at = (slice(r, r + tall), slice(c, c + 128))
            codes[at], scales[r // tall, c // 128] = quantize_tile(v[at], rule)
    return codes, scales


def spread(scales, height, width, m, k):
    """A scale for each element."""
    return np.repeat(np.repeat(scales, height, axis=0), width, axis=1)[:m, :k].astype(np.int64)


def values(fmt, codes, byte):
    """Exact values under a scale byte an element; NaN under 255."""
    return np.where(byte == 255, np.nan, decode(fmt, codes) * two(np.where(byte == 255, 127, byte) - 127))


def fp8_to_mxfp4(codes, scales, **choices):
    m, k = codes.shape
    return quantize_mxfp4(values("E4M3", codes, spread(scales, 1, 128, m, k)), **choices)


def shared_fp8(codes, byte, groups):
    """E4M3 codes of MXFP4 codes with a byte each, under one tile byte an element (`groups`)."""
    v = decode("E2M1", codes) * two(np.where(byte == 255, 127, byte) - groups)
    return np.where(byte == 255, 0x7F, encode("E4M3", v)).astype(np.uint8)


def shared_byte(codes, byte, mode, fmt="E4M3"):
    """Byte for some elements together, or None: `max` of the bytes of those in a non-empty block, or `amax`."""
    part = byte != 255
    v = np.abs(decode("E2M1", codes)) * two(np.where(part, byte, 127) - 127)
    if mode == "max":
        return int(byte[part].max()) if part.any() else None
    amax = np.max(np.where(part, v, 0), initial=0)
    return int(scale_byte(fmt, amax)) if amax > 0 else None


def non_empty(codes, byte):
    """`byte`, made 255 over every 1x32 block whose magnitudes are all zero: it takes no part."""
    m, k = codes.shape
    some = (codes.reshape(m, k // 32, 32) & 7).any(axis=2)
    return np.where(np.repeat(some, 32, axis=1), byte, 255)


def mxfp4_to_fp8(packed, scales, mode="max"):
    codes = unpack(packed)
    m, k = codes.shape
    byte = spread(scales, 1, 32, m, k)
    part = non_empty(codes, byte)
    out, tiles = np.zeros((m, k), np.uint8), np.zeros((m, -(-k // 128)), np.uint8)
    for r in range(m):
        for c in range(0, k, 128):
            at = (slice(r, r + 1), slice(c, c + 128))
            shared = shared_byte(codes[at], part[at], mode)
            tile = 127 if shared is None else max(shared - 6, 0) if mode == "max" else shared
            tiles[r, c // 128], out[at] = tile, shared_fp8(codes[at], byte[at], tile)
    return out, tiles


def segments(splits, tall):
    row = 0
    for n in splits:
        for start in range(0, n, tall):
            yield slice(row + start, row + min(start + tall, n))
        row += n


def mxfp4_to_fp8_columns(packed, scales, splits, mode="max"):
    codes = unpack(packed)
    m, k = codes.shape
    byte = spread(scales, 1, 32, m, k)
    part = non_empty(codes, byte)
    out, rows = np.zeros((m, k), np.uint8), []
    for segment in segments(splits, 128):
        line = np.zeros(k, np.uint8)
        width = 32 if mode == "max" else 1
        for c in range(0, k, width):
            at = (segment, slice(c, c + width))
            shared = shared_byte(codes[at], part[at], mode)
            tile = 127 if shared is None else max(shared - 6, 0) if mode == "max" else shared
            line[c : c + width], out[at] = tile, shared_fp8(codes[at], byte[at], tile)
        rows.append(line)
    return out.T, np.array(rows, np.uint8).reshape(len(rows), k)


def mxfp4_columns(packed, scales, splits, mode="amax"):
    codes = unpack(packed)
    m, k = codes.shape
    byte = spread(scales, 1, 32, m, k)
    part = non_empty(codes, byte)
    out, rows = np.zeros((m, k), np.uint8), []
    for segment in segments(splits, 32):
        line = np.zeros(k, np.uint8)
        width = 32 if mode == "max" else 1
        for c in range(0, k, width):
            at = (segment, slice(c, c + width))
            if (byte[at] == 255).any():
                line[c : c + width] = 255
                continue
            shared = shared_byte(codes[at], part[at], mode, "E2M1")
            line[c : c + width] = shared or 0
            out[at] = encode("E2M1", decode("E2M1", codes[at]) * two(byte[at] - (shared or 0)))
        rows.append(line)
    return pack(np.ascontiguousarray(out.T)), np.array(rows, np.uint8).reshape(len(rows), k)


def lower_te(code, k):
    """The `te` rule on one code's bits, as the contract words it."""
    sign, exponent, mantissa = code & 0x80, code >> 3 & 15, code & 7
    if exponent == 0:
        return 0
    return sign | max(exponent - k, 0) << 3 | mantissa


def fp8_columns(codes, scales, splits, underflow="rne"):
    m, k = codes.shape
    out, rows = np.zeros((m, k), np.uint8), []
    for segment in segments(splits, 128):
        line = np.zeros(k, np.uint8)
        for c in range(0, k, 128):
            at = (segment, slice(c, c + 128))
            tile, row_bytes = codes[at], scales[segment, c // 128].astype(np.int64)
            takes_part = (tile & 0x7F).any(axis=1) & (row_bytes != 255)
            byte = int(row_bytes[takes_part].max()) if takes_part.any() else 127
            line[c : c + 128] = byte
            out[at] = [
                [_lower(int(code), int(own), byte, underflow) for code in row]
                for row, own in zip(tile, row_bytes, strict=True)
            ]
        rows.append(line)
    return out.T, np.array(rows, np.uint8).reshape(len(rows), k)


def _lower(code, own, byte, underflow):
    if own == 255 or (underflow == "rne" and code & 0x7F == 0x7F):
        return 0x7F
    if underflow == "te":
        return lower_te(code, max(byte - own, 0))
    return LOWERED[min(max(byte - own, 0), 40)][code]


LOWERED = [encode("E4M3", np.nan_to_num(decode("E4M3", np.arange(256))) * 2.0**-k) for k in range(41)]


def as_float64(x):
    """float64 of any float input; uint16 is bfloat16 bits."""
    with np.errstate(invalid="ignore"):
        return (x.view(ml_dtypes.bfloat16) if x.dtype == np.uint16 else x).astype(np.float64)


def float32_bits(v):
    """float32 bits of exact float64 values; 2**128 and more is Inf, NaN is 0x7FC00000."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = v.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(v), np.uint32(0x7FC00000), bits)


def bfloat16_bits(v):
    """bfloat16 bits, nearest even, of values that float32 holds."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = v.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where(np.isnan(v), np.uint16(0x7FC0), bits)
