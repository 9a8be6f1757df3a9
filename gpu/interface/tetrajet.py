"""TetraJet (clause N24): what the kernels have of it."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError

from .. import checks
from ..checks import BLOCK, KINDS
from .call import FLOATS, U8, A, Call, Wanted

RULES = ("truncation_free", "exact", "microscaling")
TIES = ("even", "away")
RATIOS = ("bfloat16", "float32")
FLOAT32 = 0
"""`FloatKind` of the averages that go with weights of any dtype."""


class Tetrajet(NamedTuple, Generic[A]):
    """The checked arguments of TetraJet's quantiser, or of Q-EMA.

    x: floats, or weights. kind: their `FloatKind`. axis: 1 for blocks along rows, 0 for blocks down columns. rule: the
    `TetrajetRule` of the headers. away: whether ties go away from zero. random, key: of stochastic rounding.
    ema: the running averages of weights.
    """

    x: A
    kind: int
    axis: int
    rule: int
    away: bool = False
    random: A | None = None
    key: tuple[int, int, int, int] | None = None
    ema: A | None = None


def quantize_tetrajet(
    call: Call[A],
    x: Any,
    axis: int = 1,
    rule: str = "truncation_free",
    ties: str = "even",
    ratio: str = "bfloat16",
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    out: Any = None,
) -> Tetrajet[A]:
    """Quantise floats to MXFP4 as TetraJet does (N24).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K a multiple of 32.
        axis: 1 for blocks along a row, 0 for blocks down a column, the last of which may be short.
        rule: "truncation_free", "exact" or "microscaling".
        ties: "even" or "away"; not read where random bits are given.
        ratio: "bfloat16" or "float32", read by "truncation_free" alone.
        rbits: random bits [M, K]: uint8 for a kernel, any unsigned integers below 256 for the host build.
        philox: the key of a stream of random bits: (seed, stream, step) or (seed, stream, step, offset) (N13.5).
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], E8M0 bytes u8 [M, K/32], or [ceil(M/32), K] for axis 0).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view = call.floats("x", x)
    along, number = checks.count("axis", axis, 0, 1), _rule(rule, ratio)
    away = bool(checks.choice("ties", ties, TIES))
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    key = None if philox is None else checks.philox_key(philox)
    random = None if rbits is None else call.random_bits(rbits, view)
    call.outputs(out, _blocks(view, along), [view] if random is None else [view, random])
    return Tetrajet(view, KINDS[view.dtype], along, number, away, random, key)


def q_ema(
    call: Call[A],
    w: Any,
    ema: Any,
    axis: int = 1,
    rule: str = "truncation_free",
    ratio: str = "bfloat16",
    *,
    out: Any = None,
) -> Tetrajet[A]:
    """Quantise weights to the neighbour that their running average is nearer to, Q-EMA (N24.7).

    Args:
        w: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K a multiple of 32.
        ema: its running average [M, K], float32 or of the dtype of w; the kernels have no other.
        axis: 1 for blocks along a row, 0 for blocks down a column, the last of which may be short.
        rule: "truncation_free", "exact" or "microscaling".
        ratio: "bfloat16" or "float32", read by "truncation_free" alone.
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], E8M0 bytes u8 [M, K/32], or [ceil(M/32), K] for axis 0).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view = call.floats("w", w)
    average = call.look("ema", ema)
    if average.dtype not in KINDS:
        raise DtypeError(f"ema has dtype {average.dtype}; allowed are {FLOATS}")
    if average.shape != view.shape:
        raise ShapeError(f"ema has shape {average.shape}; allowed is that of w, {view.shape}")
    call.check_rows(average)
    call.check_beside(average, view)
    along, number = checks.count("axis", axis, 0, 1), _rule(rule, ratio)
    if KINDS[average.dtype] not in (KINDS[view.dtype], FLOAT32):
        raise UnsupportedError(
            f"ema has dtype {average.dtype}; the kernels have float32 and the dtype of w, {view.dtype}: convert it"
        )
    call.outputs(out, _blocks(view, along), [view, average])
    return Tetrajet(view, KINDS[view.dtype], along, number, ema=average)


def _rule(rule: Any, ratio: Any) -> int:
    """Return the `TetrajetRule` of the headers."""
    chosen, narrow = checks.choice("rule", rule, RULES), checks.choice("ratio", ratio, RATIOS)
    return chosen + 1 if chosen else narrow


def _blocks(x: A, axis: int) -> Wanted:
    """Return shapes and dtypes of codes and scales."""
    m, k = x.shape
    scales = (m, k // BLOCK) if axis else (-(-m // BLOCK), k)
    return [((m, k // 2), U8), (scales, U8)]
