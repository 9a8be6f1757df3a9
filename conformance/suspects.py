"""The table of wrong rules that real kernels have followed: what each would give for a case.

Each suspect is one literal entry: the id of its note, one line, the operations it may strike, and a function
(case, golden outputs) -> the outputs that the wrong rule gives, or None where it does not apply. They are made
from the golden model with one thing wrong; they serve diagnosis and the controls, never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import float32_bits

from .case import Case
from .compare import unpack
from .geometry import spread
from .operation import OPERATIONS, as_bits, outputs_of, run_golden

Bits = Mapping[str, np.ndarray]
Wrong = Callable[[Case, Bits], "Bits | None"]

QUANTISERS = ("quantize_*", "fp8_to_mxfp4", "swiglu_quantize")
FROM_FLOATS = ("quantize_*",)
TO_FP8 = ("mxfp4_to_fp8", "mxfp4_to_fp8_columns")
ENCODERS = ("encode_e2m1", "encode_e4m3")


@dataclass(frozen=True)
class Suspect:
    """One wrong rule."""

    id: str
    words: str
    operations: tuple[str, ...]
    wrong: Wrong


def _coded(case: Case) -> Any:
    return next((output for output in outputs_of(case) if output.kind in ("codes", "packed")), None)


def _pack(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)


def _recoded(change: Callable[[Case, np.ndarray, Bits], np.ndarray | None]) -> Wrong:
    """Make a wrong rule that changes the (unpacked) codes of an output and leaves its scales alone."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = _coded(case)
        if output is None:
            return None
        codes = unpack(golden[output.name]) if output.kind == "packed" else golden[output.name]
        changed = change(case, codes, golden)
        if changed is None:
            return None
        return {**golden, output.name: _pack(changed) if output.kind == "packed" else changed}
    return wrong


def _profile(**changes: Any) -> Wrong:
    """Make a wrong rule that is the golden model under a profile with some fields changed."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        if not OPERATIONS[case.operation].profiled:
            return None
        own = refnum.get_profile(case.profile)
        return run_golden(case, own.replace(name=f"{own.name}/wrong", **changes))
    return wrong


def _param(name: str, value: Any) -> Wrong:
    """Make a wrong rule that is the golden model with another value of a parameter."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        if name not in case.params or case.params[name] == value:
            return None
        return run_golden(case.with_inputs(params={name: value}))
    return wrong


def _inputs(change: Callable[[np.ndarray], np.ndarray | None]) -> Wrong:
    """Make a wrong rule that is the golden model on changed float32 bits of `x`; the result is widened."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        changed = change(float32_bits(np.ascontiguousarray(case.inputs["x"])))
        if changed is None:
            return None
        return run_golden(case.with_inputs({"x": changed.astype(np.uint32).view(np.float32)}))
    return wrong


def _elements(change: Callable[[np.ndarray, np.ndarray], np.ndarray], **profile: Any) -> Wrong:
    """Make a wrong rule for MX quantisers: golden scales, elements rounded from changed float32 bits.

    change: (float32 bits, scale byte of every element) -> float32 bits.
    """
    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = _coded(case)
        if "x" not in case.inputs or output is None or not output.block:
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        wide = spread(output.block, case, golden["scales"], bits.shape)
        own = refnum.get_profile(case.profile)
        own = own.replace(name=f"{own.name}/wrong", **profile)
        exponent = wide.astype(np.int32) - 127
        fmt = refnum.get_format(output.format(case.params))
        codes = refnum.encode(fmt, change(bits, wide).astype(np.uint32).view(np.float32), exponent, own)
        codes = np.where(wide == 255, np.uint8(0), codes)
        return {**golden, output.name: _pack(codes) if output.kind == "packed" else codes}
    return wrong


def _through(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return float32 bits rounded to a narrower float and widened again (double rounding)."""
    def change(bits: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return bits.view(np.float32).astype(dtype).astype(np.float32).view(np.uint32)
    return change


def _flush(bits: np.ndarray) -> np.ndarray:
    return np.where(bits & 0x7F800000, bits, bits & 0x80000000)


def _no_nan(bits: np.ndarray) -> np.ndarray | None:
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, bits & 0x80000000, bits) if nan.any() else None


def _sticky(bits: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Cut the bits below half a unit in the last place of E2M1, so that just above a tie looks like a tie."""
    place = ((bits >> 23) & 0xFF).astype(np.int64) - wide.astype(np.int64)
    kept = np.clip(2 + np.minimum(place, 0), 0, 23)
    return bits & ~((np.int64(1) << (23 - kept)) - 1)


def _zero_to_full(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Zeros of blocks seven or more binades below the tile's scale turn into full scale of the other sign."""
    nibbles, rows = unpack(case.inputs["packed"]), np.repeat(case.inputs["scales"], 32, axis=1)
    if case.operation.endswith("columns"):
        nibbles, rows = nibbles.T, rows.T
    shared = spread(_coded(case).block, case, golden["scales"], codes.shape).astype(np.int64) + 6
    zero = ((nibbles & 7) == 0) & (shared - rows >= 7) & (rows != 255)
    return np.where(zero, np.where(nibbles & 8, 0x7E, 0xFE), codes).astype(np.uint8) if zero.any() else None


def _empty_counts(case: Case, golden: Bits) -> Bits | None:
    """A block of zeros takes part in the maximum of the scale bytes."""
    nibbles = unpack(case.inputs["packed"])
    empty = ~(nibbles.reshape(*case.inputs["scales"].shape, 32) & 7).any(axis=2) & (case.inputs["scales"] != 255)
    if not empty.any():
        return None
    lead = np.zeros(nibbles.shape, bool)
    lead[:, ::32] = empty
    filled = np.where(lead, nibbles | 2, nibbles)
    wrong = dict(run_golden(case.with_inputs({"packed": _pack(filled)})))
    lead = lead.T if case.operation.endswith("columns") else lead
    signs = (nibbles.T if case.operation.endswith("columns") else nibbles) & 8
    wrong["codes"] = np.where(lead, signs << 4, wrong["codes"]).astype(np.uint8)
    return wrong


def _scaled_by(mode: str, rule: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    """Make a wrong rule for MX quantisers of floats: the scale byte of each finite block follows `rule`.

    mode: the scale rule that it is a faulty form of; under another one it is no suspect. rule: amax of the blocks, positive finite float32 -> scale exponents k (any integer dtype). Elements are
    rounded right at the wrong scale.
    """
    def wrong(case: Case, golden: Bits) -> Bits | None:
        output = _coded(case)
        if output.block != "row32" or refnum.get_profile(case.profile).scale_rule != mode:
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        amax = (bits & 0x7FFFFFFF).reshape(bits.shape[0], -1, 32).max(axis=2)
        ordinary = (amax > 0) & (amax < 0x7F800000)
        with np.errstate(all="ignore"):
            exponent = rule(np.where(ordinary, amax, 0x3F800000).astype(np.uint32).view(np.float32))
        byte = np.clip(np.nan_to_num(exponent, neginf=-127) + 127, 0, 254).astype(np.uint8)
        changed = {**golden, "scales": np.where(ordinary, byte, golden["scales"])}
        return _elements(lambda bits, wide: bits)(case, changed)
    return wrong


def _floor_log2(amax: np.ndarray) -> np.ndarray:
    """Return floor(log2(amax)) - 2 in float32: one too many just below a power of two."""
    return np.floor(np.log2(amax)) - 2


def _ceil_log2(amax: np.ndarray) -> np.ndarray:
    """Return ceil(log2(amax / 6)) in float32: one too few just above 1.5 times a power of two."""
    return np.ceil(np.log2(amax / np.float32(6)))


def _float_quotient(amax: np.ndarray) -> np.ndarray:
    """Return the exponent of the float32 quotient amax/6, rounded up on its fraction field; wrong where subnormal."""
    bits = (amax / np.float32(6)).view(np.uint32)
    return (bits >> 23).astype(np.int64) - 127 + ((bits & 0x7FFFFF) != 0)


def _float_quotient_down(amax: np.ndarray) -> np.ndarray:
    """Return the exponent of amax/6 rounded up in the normal range only; a subnormal quotient stays at byte 0 or 1."""
    bits = (amax / np.float32(6)).view(np.uint32)
    field, fraction = bits >> 23, bits & 0x7FFFFF
    up = (fraction != 0) & ((field != 0) | (fraction > 0x400000))
    return field.astype(np.int64) - 127 + up


def _codes_of_nan(code: int) -> Wrong:
    """Make a wrong rule for scalar encoders: every NaN input gives this code."""
    def change(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray:
        nan = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) > 0x7F800000
        return np.where(nan, np.uint8(code), codes)
    return _recoded(change)


def _zero_is_nan(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray:
    zero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) == 0
    return np.where(zero, np.uint8(255), codes)


def _scale_bytes(change: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    """Make a wrong rule that is the golden model on changed input scale bytes."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        return run_golden(case.with_inputs({"scales": change(case.inputs["scales"])}))
    return wrong


def _values(change: Callable[[Case, np.ndarray], np.ndarray | None]) -> Wrong:
    """Make a wrong rule that changes the bits of the floating-point output."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        changed = change(case, golden["values"])
        return None if changed is None else {"values": changed.astype(golden["values"].dtype)}
    return wrong


def _byte_zero_is_zero(case: Case, bits: np.ndarray) -> np.ndarray | None:
    if case.operation == "decode_e8m0":
        return np.where(case.inputs["codes"] == 0, 0, bits)
    tall, last = (1, 32) if case.operation != "dequantize_fp8_tiles" else tuple(case.params["tile"])
    wide = np.repeat(np.repeat(case.inputs["scales"], tall, axis=0), last, axis=1)[: bits.shape[0], : bits.shape[1]]
    sign = bits & (1 << (bits.itemsize * 8 - 1))
    return np.where(wide == 0, sign, bits)


def _flush_values(case: Case, bits: np.ndarray) -> np.ndarray:
    field, sign = (0x7F800000, 0x80000000) if bits.itemsize == 4 else (0x7F80, 0x8000)
    return np.where(bits & field, bits, bits & sign)


def _ff_is_number(case: Case, bits: np.ndarray) -> np.ndarray:
    infinity, quiet = (0x7F800000, 0x7FC00000) if bits.itemsize == 4 else (0x7F80, 0x7FC0)
    return np.where(bits == quiet, infinity, bits)


def _swap(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    if _coded(case).kind != "packed":
        return None
    return np.ascontiguousarray(codes.reshape(*codes.shape[:-1], -1, 2)[..., ::-1]).reshape(codes.shape)


def _split_half(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    if _coded(case).kind != "packed" or codes.shape[-1] % 32:
        return None
    halves = codes.reshape(*codes.shape[:-1], -1, 2, 16)
    return np.ascontiguousarray(np.swapaxes(halves, -1, -2)).reshape(codes.shape)


def _swap_input(case: Case, golden: Bits) -> Bits | None:
    if "packed" not in case.inputs:
        return None
    packed = case.inputs["packed"]
    return run_golden(case.with_inputs({"packed": (packed << 4 | packed >> 4).astype(np.uint8)}))


def _signless(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    fmt = refnum.get_format(_coded(case).format(case.params))
    return codes & np.uint8(fmt.sign_mask - 1) if fmt.kind == "float" else None


def _positive_zero(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    fmt = refnum.get_format(_coded(case).format(case.params))
    return np.where(codes == fmt.sign_mask, np.uint8(0), codes) if fmt.kind == "float" else None


def _wraps(case: Case, golden: Bits) -> Bits | None:
    """Values beyond the largest one wrap into the lowest codes with their sign, instead of saturating."""
    def change(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
        output = _coded(case)
        fmt = refnum.get_format(output.format(case.params))
        if "x" not in case.inputs or fmt.name != "E2M1":
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        wide = spread(output.block, case, golden["scales"], bits.shape) if output.block else np.full(bits.shape, 127)
        own = refnum.encode("E2M3", bits.view(np.float32), wide.astype(np.int32) - 127 + 1)  # 8 is in range there
        beyond = ((own & 31) > 27) & (wide != 255)
        return np.where(beyond, codes & 8, codes).astype(np.uint8) if beyond.any() else None
    return _recoded(change)(case, golden)


def _zeros(case: Case, golden: Bits) -> Bits:
    return {name: np.zeros_like(array) for name, array in golden.items()}


def _first_only(case: Case, golden: Bits) -> Bits | None:
    """Only the first row, or of a single row the first tile, is written; the rest is zero."""
    if any(array.ndim != 2 for array in golden.values()):
        return None
    result = {}
    for name, array in golden.items():
        kept = np.zeros_like(array)
        if array.shape[0] > 1:
            kept[:1] = array[:1]
        else:
            kept[:, : -(-array.shape[1] // 2)] = array[:, : -(-array.shape[1] // 2)]
        result[name] = kept
    return result


def _encode_with(**changes: Any) -> Wrong:
    """Make a wrong rule for the scalar encoders: the codec under another profile."""
    def wrong(case: Case, golden: Bits) -> Bits | None:
        fmt = "E2M1" if case.operation == "encode_e2m1" else "E4M3"
        fields = {"overflow": case.params.get("overflow", "saturate"), **changes}
        return {"codes": as_bits(refnum.encode(fmt, case.inputs["x"],
                                               profile=refnum.HOPPER.replace(name="HOPPER/wrong", **fields)))}
    return wrong


def _nan_with_sign(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    x = case.inputs.get("x")
    if x is None or refnum.get_format(_coded(case).format(case.params)).name != "E4M3":
        return None
    negative = (float32_bits(np.ascontiguousarray(x)) >> 31).astype(np.uint8)
    return np.where(codes == 0x7F, codes | negative << 7, codes).astype(np.uint8)


_TIES = (
    ("E2M1_TIES_UP", "ties are rounded away from zero, not to even", "away"),
    ("E2M1_TIES_UP", "ties are rounded up, not to even", "up"),
    ("E2M1_TIES_ZERO", "ties are rounded toward zero, not to even", "zero"),
    ("E2M1_TIES_DOWN", "ties are rounded down, not to even", "down"),
)

SUSPECTS: tuple[Suspect, ...] = (
    *(Suspect(id, words, QUANTISERS, _profile(ties=ties)) for id, words, ties in _TIES),
    *(Suspect(id, words, ENCODERS, _encode_with(ties=ties)) for id, words, ties in _TIES),
    Suspect("E2M1_STICKY_LOST", "bits below the guard bit are dropped, so just above a tie looks like a tie",
            ("quantize_mxfp4",), _elements(_sticky)),
    Suspect("E2M1_TRUNCATED", "elements are truncated, not rounded to nearest", QUANTISERS,
            _profile(rounding="toward_zero")),
    Suspect("E2M1_TRUNCATED", "elements are truncated, not rounded to nearest", ENCODERS,
            _encode_with(rounding="toward_zero")),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the floor of a float32 log2", FROM_FLOATS,
            _scaled_by("floor", _floor_log2)),
    Suspect("E8M0_EXP_BY_LOG2", "the scale exponent is the ceiling of a float32 log2", FROM_FLOATS,
            _scaled_by("rceil", _ceil_log2)),
    *(Suspect("E8M0_SUBNORMAL_IN", "the float32 quotient amax/6 is rounded wrongly where it is subnormal",
              FROM_FLOATS, _scaled_by("rceil", rule)) for rule in (_float_quotient_down, _float_quotient)),
    *(Suspect("E8M0_MODE", f"the scale follows the rule `{rule}`", QUANTISERS, _profile(scale_rule=rule))
      for rule in ("floor", "ceil", "even", "rceil")),
    *(Suspect("E8M0_MODE", f"the byte is rounded `{rounding}`", ("encode_e8m0",), _param("rounding", rounding))
      for rounding in ("up", "down", "nearest")),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 127", QUANTISERS, _profile(zero_scale=127)),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 0", QUANTISERS, _profile(zero_scale=0)),
    Suspect("ZERO_BLOCK_BYTE", "a zero block gets byte 94", QUANTISERS, _profile(zero_scale=94)),
    Suspect("INF_POLICY", "Inf in a block saturates", QUANTISERS, _profile(nonfinite="satfinite")),
    Suspect("INF_POLICY", "Inf in a block makes it a NaN block", QUANTISERS, _profile(nonfinite="nosat")),
    Suspect("AMAX_DROPS_NAN", "NaN is lost in the block maximum", FROM_FLOATS, _inputs(_no_nan)),
    Suspect("FTZ_SILENT", "subnormal inputs are flushed to zero", (*FROM_FLOATS, "encode_*"), _inputs(_flush)),
    Suspect("FTZ_SILENT", "subnormal results are flushed to zero", ("dequantize_*", "decode_*"),
            _values(_flush_values)),
    Suspect("DOUBLE_ROUNDING", "the input is rounded to bfloat16 first", (*FROM_FLOATS, "encode_*"),
            _inputs(_through(ml_dtypes.bfloat16))),
    Suspect("DOUBLE_ROUNDING", "the input is rounded to float16 first", (*FROM_FLOATS, "encode_*"),
            _inputs(_through(np.float16))),
    Suspect("DOUBLE_ROUNDING", "elements, not the maximum, are rounded to bfloat16 first", FROM_FLOATS,
            _elements(lambda bits, wide: _through(ml_dtypes.bfloat16)(bits))),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is decoded as 0.0, not 2^-127", ("dequantize_*", "decode_e8m0"),
            _values(_byte_zero_is_zero)),
    Suspect("E8M0_ZERO_IS_TINY", "byte 0 is applied as 2^-126", ("dequantize_*", "mxfp4_*", "fp8_*"),
            _scale_bytes(lambda scales: np.where(scales == 0, 1, scales).astype(np.uint8))),
    Suspect("E8M0_FF_NOT_NAN", "byte 255 is not NaN: infinity comes out", ("dequantize_*", "decode_e8m0"),
            _values(_ff_is_number)),
    Suspect("E8M0_FF_NOT_NAN", "byte 255 is taken as 254", ("dequantize_*", "mxfp4_*", "fp8_*"),
            _scale_bytes(lambda scales: np.minimum(scales, 254))),
    Suspect("ZERO_TO_FULL_SCALE", "a zero far below the tile's scale turns into full scale", TO_FP8,
            _recoded(_zero_to_full)),
    Suspect("EMPTY_BLOCK_IN_MAX", "the byte of a block of zeros takes part in the maximum", TO_FP8, _empty_counts),
    *(Suspect("SCALE_MODE", f"the shared scale follows mode `{mode}`", ("mxfp4_*",), _param("scale", mode))
      for mode in ("max", "amax")),
    Suspect("UNDERFLOW_KEEPS_MANTISSA", "underflow keeps mantissa bits instead of rounding", ("fp8_columns",),
            _param("underflow", "te")),
    Suspect("UNDERFLOW_KEEPS_MANTISSA", "underflow rounds where the published kernel keeps mantissa bits",
            ("fp8_columns",), _param("underflow", "rne")),
    Suspect("E4M3_OVERFLOW_POLICY", "overflow saturates", ("encode_e4m3",), _param("overflow", "saturate")),
    Suspect("E4M3_OVERFLOW_POLICY", "overflow gives NaN", ("encode_e4m3",), _param("overflow", "nan")),
    Suspect("E4M3_NAN_SIGN", "NaN keeps the input's sign", ("encode_e4m3", "quantize_fp8_tiles"),
            _recoded(_nan_with_sign)),
    Suspect("E4M3_NAN_SIGN", "NaN comes out as 0xFF", ("encode_e4m3",), _codes_of_nan(0xFF)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -0", ("encode_e2m1",), _codes_of_nan(8)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "NaN, which E2M1 lacks, becomes -6", ("encode_e2m1",), _codes_of_nan(15)),
    Suspect("SPECIAL_INPUT_UNDEFINED", "zero, which E8M0 lacks, becomes NaN", ("encode_e8m0",), _recoded(_zero_is_nan)),
    Suspect("OVERFLOW_WRAPS", "values beyond 6 wrap instead of saturating", ("quantize_mxfp4", "encode_e2m1"), _wraps),
    Suspect("E4M3_NEG_ZERO", "the sign of zero is lost", ("*",), _recoded(_positive_zero)),
    Suspect("SIGN_LOST", "the sign bit is masked off", ("*",), _recoded(_signless)),
    Suspect("NIBBLE_ORDER", "the two codes of a byte are swapped", ("*",), _recoded(_swap)),
    Suspect("NIBBLE_ORDER", "codes j and j+16 share a byte, not 2j and 2j+1", ("*",), _recoded(_split_half)),
    Suspect("NIBBLE_ORDER", "the two input codes of a byte are swapped", ("mxfp4_*", "dequantize_mxfp4"), _swap_input),
    Suspect("TAIL_OR_LATER_BATCH", "only the first row or tile is written", ("*",), _first_only),
    Suspect("OUTPUT_NOT_WRITTEN", "the output is all zeros", ("*",), _zeros),
)
