"""Wrong rules of the block scale: another rule, another arithmetic, a lost clamp."""

from __future__ import annotations

import math

import numpy as np

import refnum
from refnum.arrays import float32_bits
from refnum.codec import encode_bits

from ..cases.case import Case
from .tools import (
    INF,
    MAGNITUDE,
    Outputs,
    amax_of,
    blocks_of,
    changed,
    codes_of,
    edited,
    element_format,
    quantiser_block,
    requantise,
    rescaled,
    row,
    to_bfloat16,
    under,
    with_codes,
)


def other_scale_rule(case: Case, golden: Outputs) -> Outputs | None:
    """Another scale rule."""
    rule = "floor" if refnum.get_profile(case.profile).scale_rule != "floor" else "rceil"
    return under(case, scale_rule=rule)


def by_log2(case: Case, golden: Outputs) -> Outputs | None:
    """The exponent is floor(log2f(amax)), the logarithm rounded to float32."""

    def rule(e, f, fmt):
        logs = [
            float(np.float32(int(a) + math.log2(1 + int(b) / 2**23)))
            for a, b in zip(e.reshape(-1), f.reshape(-1), strict=True)
        ]
        base = np.reshape([math.floor(v) for v in logs], e.shape).astype(int) - fmt.emax
        if refnum.get_profile(case.profile).scale_rule == "floor":
            return base
        near = f >= 0x7FFFF0
        return np.where(near & (base > e - fmt.emax), base + 1, right(case, e, f, fmt))

    return rescaled(case, golden, rule)


def right(case, e, f, fmt):
    """Return the exponent of the rule that the profile names."""
    return np.asarray(
        refnum.scales.scale_exponent(
            refnum.get_profile(case.profile).scale_rule, fmt, e.astype(np.int32), f.astype(np.uint32)
        )
    )


def log2_of_quotient(case: Case, golden: Outputs) -> Outputs | None:
    """ceil(log2f(amax / m)) with the quotient and the logarithm in float32; floor under a floor rule."""

    def rule(e, f, fmt):
        out = []
        for a, b in zip(e.reshape(-1).tolist(), f.reshape(-1).tolist(), strict=True):
            quotient = float(np.float32((1 + b / 2**23) / float(fmt.max_value)))
            log = float(np.float32(a + math.log2(quotient)))
            out.append(math.ceil(log))
        return np.reshape(out, e.shape).astype(int)

    return rescaled(case, golden, rule)


def reciprocal_high(case: Case, golden: Outputs) -> Outputs | None:
    """amax times a float32 reciprocal of m that is one step high, rounded up to a power of two."""

    def rule(e, f, fmt):
        rcp = np.nextafter(np.float32(1) / np.float32(float(fmt.max_value)), np.float32(1))
        product = ((1 + f / 2**23).astype(np.float32) * rcp).astype(np.float32)
        mantissa, exponent = np.frexp(product)
        return e + exponent - (mantissa == 0.5)

    return rescaled(case, golden, rule)


def boundary_inclusive(case: Case, golden: Outputs) -> Outputs | None:
    """At the very significand where the rule steps, it steps the other way."""
    profile = refnum.get_profile(case.profile)
    if row(case).main == "codes":
        low = case.inputs["codes"].reshape(case.inputs["codes"].shape[0], -1, 32) & 0x7F
        amax = low.max(axis=-1)
        at = ((amax & 7) == 4) & (amax > 8)
        values = refnum.dequantize_fp8_tiles(case.inputs["codes"], case.inputs["scales"])
        byte = (golden["scales"] + at).astype(np.uint8)
        codes = encode_bits(
            refnum.E2M1, float32_bits(values), np.repeat(byte, 32, axis=1).astype(np.int32) - 127, profile
        )
        return with_codes(golden, codes, byte)

    def rule(e, f, fmt):
        steps = {
            "rceil": fmt.max_fraction23,
            "ceil": 0,
            "floor": -1,
            "even": (1 << 23) - (1 << (22 - fmt.mantissa_bits)),
        }
        k = right(case, e, f, fmt)
        if profile.scale_rule == "even":
            return np.where(f == steps["even"], k - 1, k)
        if profile.scale_rule == "floor":
            return np.where(f == 0, k - 1, k)
        return np.where(f == steps[profile.scale_rule], k + 1, k)

    return rescaled(case, golden, rule)


def floor_of_quotient(case: Case, golden: Outputs) -> Outputs | None:
    """floor(log2(amax / m)): one binade too small for half of all blocks."""

    def rule(e, f, fmt):
        return e - fmt.emax - (f < fmt.max_fraction23)

    return rescaled(case, golden, rule)


def emax_not_subtracted(case: Case, golden: Outputs) -> Outputs | None:
    """The exponent of the element format is not subtracted."""
    return rescaled(case, golden, lambda e, f, fmt: right(case, e, f, fmt) + max(fmt.emax, 1))


def mantissa_mask(case: Case, golden: Outputs) -> Outputs | None:
    """The mantissa is tested under the mask 0x4FFFFF."""

    def rule(e, f, fmt):
        return right(case, e, f & 0x4FFFFF, fmt)

    return rescaled(case, golden, rule)


def amax_narrowed(case: Case, golden: Outputs) -> Outputs | None:
    """The block maximum is rounded to bfloat16 before the scale rule."""
    size = quantiser_block(case)
    if size is None:
        return None
    narrow = to_bfloat16(amax_of(case))
    fake = edited(case, x=np.repeat(narrow, size, axis=1).view(np.float32))
    return requantise(case, golden, answer_scales(fake))


def answer_scales(case):
    """Return the golden scales of a case whose inputs were edited."""
    return changed(case, input="float32")["scales"]


def rounded_after(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are divided by amax/m, then the scale is rounded up to a power of two."""
    if quantiser_block(case) != 32:
        return None
    amax, blocks, fmt = amax_of(case), blocks_of(case), element_format(case)
    with np.errstate(all="ignore"):
        free = amax.view(np.float32).astype(np.float64) / float(fmt.max_value)
        quotient = (blocks.view(np.float32) / free[..., None]).astype(np.float32)
    codes = refnum.encode(fmt, np.where(np.isfinite(quotient), quotient, 0).astype(np.float32), profile=case.profile)
    keep = np.repeat((amax == 0) | (amax >= INF), 32, axis=1)
    return with_codes(golden, np.where(keep, codes_of(golden), codes.reshape(keep.shape)))


def overflow_to_nan(case: Case, golden: Outputs) -> Outputs | None:
    """A maximum that rounds up in float32 becomes Inf, and the byte 255."""
    if refnum.get_profile(case.profile).scale_rule in ("rceil", "floor", "ceil"):
        limit = 0x7F7FFFFF if refnum.get_profile(case.profile).scale_rule == "floor" else 0x7F600000
    else:
        limit = 0x7F600000
    gone = (amax_of(case) >= limit) & (amax_of(case) < INF)
    scales = np.where(gone, 255, golden["scales"])
    return with_codes(golden, np.where(np.repeat(gone, 32, axis=1), 0, codes_of(golden)), scales)


def exponent_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """The byte is cut to eight bits instead of clamped."""
    if row(case).main == "codes":
        return fp8_rescaled(case, golden, lambda k: (k + 127) & 255)
    return rescaled(case, golden, lambda e, f, fmt: right(case, e, f, fmt), clamp=False)


def fp8_rescaled(case, golden, byte_of):
    """fp8_to_mxfp4 with another byte of the exact exponent; elements at that byte."""
    exponent = fp8_exponent(case)
    values = float32_bits(refnum.dequantize_fp8_tiles(case.inputs["codes"], case.inputs["scales"]))
    zero = (case.inputs["codes"].reshape(*golden["scales"].shape, 32) & 0x7F).max(axis=-1) == 0
    keep = zero | (golden["scales"] == 255)
    byte = np.where(keep, golden["scales"], byte_of(exponent)).astype(np.uint8)
    return fp8_at(case, golden, byte, keep, values, np.repeat(byte, 32, axis=1).astype(np.int32) - 127)


def fp8_at(case, golden, byte, keep, values, exponent):
    """Encode FP8 values at given exponents; blocks in `keep` stay."""
    codes = encode_bits(refnum.E2M1, values, exponent, refnum.get_profile(case.profile))
    codes = np.where(np.repeat(keep, 32, axis=1), codes_of(golden), codes)
    return with_codes(golden, codes, byte)


def fp8_exponent(case):
    """The unclamped exponent k of every block of an FP8 tensor, from exact integers."""
    codes = case.inputs["codes"].reshape(case.inputs["codes"].shape[0], -1, 32) & 0x7F
    tile = np.repeat(case.inputs["scales"], 4, axis=1)[:, : codes.shape[1]].astype(np.int64)
    amax = np.minimum(codes.max(axis=-1), 126)
    bits = refnum.codec.decode_table(refnum.E4M3)[amax].astype(np.int64)
    e, f = (bits >> 23) - 127, bits & 0x7FFFFF
    return right(case, e, f, refnum.E2M1) + tile - 127


def clamp_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """The byte is clamped, the elements are encoded at the scale before the clamp."""
    if row(case).main == "codes":
        exponent = fp8_exponent(case)
        byte = np.clip(exponent + 127, 0, 254)
        zero = (case.inputs["codes"].reshape(*golden["scales"].shape, 32) & 0x7F).max(axis=-1) == 0
        keep = zero | (golden["scales"] == 255)
        tile = np.repeat(np.repeat(case.inputs["scales"], 4, axis=1)[:, : byte.shape[1]], 32, axis=1).astype(np.int32)
        raw = refnum.codec.decode_table(refnum.E4M3)[case.inputs["codes"]]
        shifted = np.repeat(exponent, 32, axis=1).astype(np.int32) - (tile - 127)
        return fp8_at(case, golden, np.where(keep, golden["scales"], byte).astype(np.uint8), keep, raw, shifted)
    value = amax_of(case)
    k = np.full(value.shape, 0)

    def note(e, f, fmt):
        nonlocal k
        k = right(case, e, f, fmt)
        return k

    rescaled(case, golden, note)
    return requantise(case, golden, np.clip(k + 127, 0, 254), exponent=k)


def byte_above(case: Case, golden: Outputs) -> Outputs | None:
    """No clamp at the top: 255 and beyond."""
    return fp8_rescaled(case, golden, lambda k: np.minimum(k + 127, 255))


def min_normal(case: Case, golden: Outputs) -> Outputs | None:
    """Byte 0 is applied as 2^-126."""
    if "values" in golden:
        return changed(case, scales=np.maximum(case.inputs["scales"], 1))
    return requantise(case, golden, golden["scales"], exponent=np.maximum(golden["scales"].astype(np.int32), 1) - 127)


def subnormal_quotient(case: Case, golden: Outputs) -> Outputs | None:
    """amax / m subnormal in float32: always bumped to byte 1. Scalar: every subnormal is taken as 2^-126."""
    if row(case).scalar:
        bits = float32_bits(case.inputs["x"]) & MAGNITUDE
        small = (bits != 0) & (bits < 0x800000)
        if case.params["rounding"] == "up":
            wrong = np.where(bits > 0, 1, 0)
        else:
            wrong = np.full(bits.shape, 1)
        return {"codes": np.where(small, wrong, golden["codes"]).astype(np.uint8)}
    fmt = element_format(case)
    edge = np.float32(float(fmt.max_value) * 2.0**-126).view(np.uint32)
    amax = amax_of(case)
    return requantise(case, golden, np.where(amax < edge, 1, golden["scales"]))


def floor_clamp(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum is at least 1e-4."""
    return under(case, amax_floor=0x38D1B717)


def encode_rounding(case: Case, golden: Outputs) -> Outputs | None:
    """Another rounding of the scale byte."""
    other = {"up": "nearest", "nearest": "down", "down": "up"}[case.params["rounding"]]
    return changed(case, rounding=other)


def encode_overflow(case: Case, golden: Outputs) -> Outputs | None:
    """The other overflow policy of the scale byte."""
    return changed(case, saturate=not case.params["saturate"])


def even_width_of_the_sign(case: Case, golden: Outputs) -> Outputs | None:
    """The rule `even` takes all seven bits below MXINT8's sign for fraction bits; six are."""
    if case.params["element"] != "MXINT8" or refnum.get_profile(case.profile).scale_rule != "even":
        return None
    return rescaled(case, golden, lambda e, f, fmt: e - fmt.emax + (f >= (1 << 23) - (1 << 15)))
