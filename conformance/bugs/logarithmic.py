"""Wrong rules of logarithmic FP4 (N23): other maxima and steps, words read otherwise, bounds of levels elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refnum import softfloat
from refnum.arrays import float32_bits, pack_nibbles, unpack_nibbles
from refnum.division import divide
from refnum.logarithmic import _levels, _luq_codes, _step
from refnum.logarithmic_tables import THRESHOLDS, threshold_bits

from ..cases.case import Case
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

ONE, FRACTION = np.uint32(0x3F800000), np.uint32(0x7FFFFF)
MOST = np.uint32((1 << 23) - 1)
Levels = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Quotients (float32 bits) and both words -> magnitude codes."""


def _bits(case: Case) -> np.ndarray:
    return float32_bits(np.ascontiguousarray(case.inputs["x"]))


def _words(case: Case) -> list[np.ndarray]:
    return [case.inputs[name].astype(np.uint32) for name in ("r_under", "r_log")]


def _coded(case: Case, golden: Outputs, levels: np.ndarray) -> Outputs:
    """Magnitude codes of finite numbers other than zero with their signs; the golden codes of all others."""
    bits = _bits(case)
    codes = levels | np.where(levels > 0, bits >> np.uint32(31) << np.uint32(3), np.uint32(0))
    ordinary = ((bits & MAGNITUDE) > 0) & ((bits & MAGNITUDE) < INF)
    codes = np.where(ordinary, codes, unpack_nibbles(golden["packed"]))
    return {**golden, "packed": pack_nibbles(codes.astype(np.uint8))}


def _quotients(case: Case, golden: Outputs) -> np.ndarray:
    return divide(_bits(case) & MAGNITUDE, golden["alpha"].view(np.uint32))


def with_levels(levels: Levels) -> Rule:
    """Return the rule of a kernel that takes levels otherwise."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        return _coded(case, golden, levels(_quotients(case, golden), *_words(case)))

    return rule


def kept_on_equal(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The least level is kept where r / 2**24 <= a, as the published code has it."""
    exact = np.ldexp(np.minimum(a, ONE).view(np.float32).astype(np.float64), 24)
    return np.where(a < ONE, (r <= exact).astype(np.uint32), _levels(a, r, q))


def word_reversed(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The upper level is taken where the word is below the fraction."""
    return _levels(a, r, MOST - q)


def one_word(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """One word serves both choices: the upper bits of the first."""
    return _levels(a, r, r >> np.uint32(1))


def words_ignored(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """To the nearest power of two, a tie up, and 0 below a half."""
    half = np.uint32(1 << 22)
    return np.where(a < ONE, (a >= np.uint32(0x3F000000)).astype(np.uint32), _levels(a, r, np.full_like(q, half)))


def not_pruned(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Numbers below the least level are 0."""
    return np.where(a < ONE, np.uint32(0), _levels(a, r, q))


def wraps(a: np.ndarray, r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Codes beyond the top level lose their highest bit: an eighth level is zero."""
    up = ((a & FRACTION) + q) >> np.uint32(23)
    above = (np.minimum(a, INF) >> np.uint32(23)) - np.uint32(126) + up
    return np.where(a >= np.uint32(0x42000000), above & np.uint32(7), _levels(a, r, q))


def by_reciprocal(case: Case, golden: Outputs) -> Outputs | None:
    """Numbers are multiplied by fl(1 / alpha)."""
    alpha = golden["alpha"].view(np.uint32)
    inverse = divide(np.full_like(alpha, ONE), alpha)
    a = softfloat.multiply(_bits(case) & MAGNITUDE, inverse)
    return _coded(case, golden, np.where(a > INF, np.uint32(0), _levels(a, *_words(case))))


def _under(case: Case, golden: Outputs, amax: np.ndarray) -> Outputs:
    """The golden answer under another maximum, float32 bits [1]."""
    alpha = _step(amax, int(case.params["divisor"]), str(case.params["step"]))
    codes = _luq_codes(_bits(case), alpha, *_words(case))
    return {**golden, "packed": pack_nibbles(codes), "alpha": alpha.view(np.float32)}


def signed_maximum(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum is that of the numbers, not of their magnitudes, as the published code has it."""
    bits = _bits(case)
    if "tensor_amax" in case.inputs or not bits.size:
        return None
    top = np.where((bits >> np.uint32(31) > 0) | (bits > INF), np.uint32(0), bits).max().reshape(1)
    return _under(case, golden, top)


def nan_in_maximum(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN counts in the maximum: the step is NaN, and all codes are that of NaN."""
    if "tensor_amax" in case.inputs or not ((_bits(case) & MAGNITUDE) > INF).any():
        return None
    nan = np.array([0x7FC00000], np.uint32).view(np.float32)
    return {"packed": np.full_like(golden["packed"], 0x77), "alpha": nan}


def maximum_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum that is given is not read."""
    bits = _bits(case) & MAGNITUDE
    if "tensor_amax" not in case.inputs:
        return None
    return _under(case, golden, np.where(bits > INF, np.uint32(0), bits).max(initial=0).astype(np.uint32).reshape(1))


def pruned_sign(case: Case, golden: Outputs) -> Outputs | None:
    """A negative number that becomes zero has the code of -0."""
    if "packed" not in golden:
        return None
    codes, bits = unpack_nibbles(golden["packed"]), _bits(case)
    lost = (codes == 0) & (bits >> np.uint32(31) > 0) & ((bits & MAGNITUDE) <= INF)
    return {**golden, "packed": pack_nibbles(np.where(lost, np.uint8(8), codes))}


def nan_as_zero(case: Case, golden: Outputs) -> Outputs | None:
    """A NaN gives the code 0."""
    if "packed" not in golden:
        return None
    bits = _bits(case)
    codes = np.where((bits & MAGNITUDE) > INF, np.uint8(0), unpack_nibbles(golden["packed"]))
    return {**golden, "packed": pack_nibbles(codes)}


def other_choice(name: str, choice: object) -> Rule:
    """Return the rule of a kernel that has another choice of a parameter."""
    return lambda case, golden: changed(case, **{name: choice}) if name in case.params else None


def _radix4(case: Case, golden: Outputs, reached: np.ndarray) -> Outputs:
    return _coded(case, golden, reached.sum(axis=0).astype(np.uint32))


def tie_up(case: Case, golden: Outputs) -> Outputs | None:
    """A number at the bound of a level belongs to it."""
    part = THRESHOLDS[str(case.params["threshold"])]
    bounds = threshold_bits(case.params["n0"], str(case.params["phase"]), part)
    least = bounds + np.uint32(case.params["threshold"] == "0.4")  # of which no bound is a float32 number
    return _radix4(case, golden, (_bits(case) & MAGNITUDE) >= least[:, None, None])


def zero_at_half(case: Case, golden: Outputs) -> Outputs | None:
    """The least level begins above a half of it, the middle of it and zero."""
    bounds = threshold_bits(case.params["n0"], str(case.params["phase"]), THRESHOLDS[str(case.params["threshold"])])
    half = threshold_bits(case.params["n0"], str(case.params["phase"]), THRESHOLDS["log"])[:1]
    return _radix4(case, golden, (_bits(case) & MAGNITUDE) > np.concatenate([half, bounds[1:]])[:, None, None])


def odd_is_half(case: Case, golden: Outputs) -> Outputs | None:
    """The levels of the phase odd are halves of powers of four, not twice those."""
    return changed(case, n0=max(int(case.params["n0"]) - 1, -63)) if case.params["phase"] == "odd" else None


def one_level_up(case: Case, golden: Outputs) -> Outputs | None:
    """The code 1 is read as the second level: values are twice, or four times, as large."""
    if "alpha" in case.inputs:
        return changed(case, alpha=case.inputs["alpha"] * np.float32(2))
    return changed(case, n0=min(int(case.params["n0"]) + 1, 57))
