"""Questions about SwiGLU with quantisation and its backward pass (N11)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from refnum import oracle
from refnum.profiles import HOPPER, Profile
from refnum.swiglu import silu

from ..draft import Draft, Questions, bfloat16, bits, float32, plain
from . import mixed

GATES = (
    0x0000,
    0x8000,
    0x3F80,
    0xBF80,
    0x4000,
    0xC000,
    0x40A0,
    0xC0A0,
    0x4170,
    0xC170,
    0x42B0,
    0xC2B0,
    0xC2C8,
    0x0001,
    0x8001,
    0x0080,
    0x3C23,
    0xBC23,
    0x7F7F,
    0xFF7F,
    0xC2AE,
    0xC2CF,
    0x3EAB,
    0xBEAB,
    0x4049,
    0xC049,
    0x3DCD,
    0xBDCD,
    0x4120,
    0xC120,
    0x4B00,
    0xCB00,
)
"""bfloat16 gates: zeros, ones, both tails of the logistic function, subnormals, the largest."""
UPS = tuple(0x3F80 + 37 * k % 300 | (0x8000 if k % 3 == 0 else 0) for k in range(32))


def _prob(*values: int) -> np.ndarray:
    return np.asarray(values, np.uint32).view(np.float32)


def _swiglu_quantize(to: str) -> Iterator[Draft]:
    """Forward: tails, specials, the order of the two products, a wide row."""
    params = {"to": to}
    tame = [g for g in GATES if g & 0x7FFF < 0x4200] * 2
    yield Draft(
        {"gate": bfloat16([tame[:32]] * 2), "up": bfloat16([UPS, UPS[::-1]])},
        params,
        flags=("SWIGLU_BF16_INTERMEDIATE",),
        comment="moderate gates, no routing probability",
    )
    yield Draft(
        {"gate": bfloat16([tame[:32]] * 2), "up": bfloat16([UPS, UPS[::-1]]), "prob": _prob(0x3EAAAAAB, 0x3F333333)},
        params,
        flags=("SWIGLU_BF16_INTERMEDIATE", "SWIGLU_PROB_IGNORED"),
        comment="routing probabilities 1/3 and 0.7",
    )
    tails = [0xC2AE, 0xC2B0, 0xC2C0, 0xC2C8, 0xC2CE, 0xC2CF, 0xC2D0, 0xFF7F] * 4
    yield Draft(
        {"gate": bfloat16([tails]), "up": bfloat16([[0x3F80 + 64 * (k // 8) for k in range(32)]])},
        params,
        flags=("FTZ_SILENT",),
        comment="gates near -88 and below: silu is subnormal in float32, or -0",
    )
    yield Draft(
        {"gate": bfloat16([GATES]), "up": bfloat16([[0x3F80] * 32])},
        params,
        flags=("SWIGLU_EXP_OVERFLOW",),
        comment="the largest gates of either sign: silu(-large) is -0, not NaN",
    )
    for name, gate, up in (
        ("NaN gate", 0x7FC0, 0x3F80),
        ("Inf gate", 0x7F80, 0x3F80),
        ("-Inf gate", 0xFF80, 0x3F80),
        ("Inf up beside a zero gate", 0x0000, 0x7F80),
        ("-NaN up", 0x3F80, 0xFFC0),
    ):
        yield Draft(
            {"gate": bfloat16([[gate] + [0x3F80] * 31]), "up": bfloat16([[up] + [0x4000] * 31])},
            params,
            clause="N4",
            flags=("AMAX_DROPS_NAN",) if name != "Inf gate" and name != "-Inf gate" else (),
            comment=name,
        )
    yield Draft(
        {"gate": bfloat16([[0] * 32]), "up": bfloat16([[0x3F80, 0xBF80] * 16])},
        params,
        clause="N4",
        flags=("TILE_ZERO_BYTE",) if to == "fp8" else ("ZERO_BLOCK_BYTE",),
        comment="zero gates: signed zeros",
    )
    yield Draft(
        {"gate": bfloat16([[0x4000] * 32]), "up": bfloat16([UPS]), "prob": _prob(0)},
        params,
        clause="N4",
        flags=("SWIGLU_PROB_IGNORED",),
        comment="a routing probability of 0",
    )
    empty = np.zeros((0, 32), np.uint16)
    yield Draft(
        {"gate": empty.view(bfloat16([]).dtype), "up": empty.view(bfloat16([]).dtype)},
        params,
        clause="N0",
        comment="no rows",
    )


def _swiglu_backward() -> Iterator[Draft]:
    """Backward: the stated order of roundings, the tree sum, specials."""
    grad = [bits((k * 37 % 64 - 31) / 16) + 3 * k for k in range(32)]
    tame = ([g for g in GATES if g & 0x7FFF < 0x4200] * 2)[:32]
    given: dict[str, Any] = {
        "grad": float32([grad, grad[::-1]]),
        "gate": bfloat16([tame] * 2),
        "up": bfloat16([UPS, UPS[::-1]]),
    }
    yield Draft(given, flags=("FMA_CONTRACTION",), comment="no routing probability: no dprob")
    yield Draft(
        {**given, "prob": _prob(0x3EAAAAAB, 0x3F333333)},
        flags=("FMA_CONTRACTION", "SUM_ORDER"),
        comment="routing probabilities; dprob is a tree sum",
    )
    odd = {name: np.ascontiguousarray(array[:, :5]) for name, array in given.items()}
    yield Draft(
        {**odd, "prob": _prob(0x3F800000, 0x3F000001)}, flags=("SUM_ORDER",), comment="H = 5: the tree has odd levels"
    )
    yield Draft(
        {
            "grad": float32([[0x3F800001] * 32]),
            "gate": bfloat16([GATES]),
            "up": bfloat16([[0x3F81] * 32]),
            "prob": _prob(0x3F7FFFFF),
        },
        flags=("SWIGLU_EXP_OVERFLOW",),
        comment="tails of the logistic function",
    )
    yield Draft(
        {
            "grad": float32([[bits(1), 0x7FC00000, 0x7F800000, bits(-1)]]),
            "gate": bfloat16([[0x7F80, 0x3F80, 0x3F80, 0xFFC0]]),
            "up": bfloat16([[0x3F80] * 4]),
        },
        comment="Inf gate gives a NaN derivative; NaN and Inf propagate; every NaN is 0x7FC00000",
    )
    yield Draft(
        {
            "grad": float32([[0xFFC00001, bits(1), 0xFF800000, bits(-1), 0xFF800001, bits(-1)]]),
            "gate": bfloat16([[0x3F80, 0xBF80, 0x0000, 0xFF80, 0x4000, 0x7F80]]),
            "up": bfloat16([[0x3F80, 0xFFC1, 0x3F80, 0xBF80, 0x8000, 0xBF80]]),
            "prob": _prob(0x3F000000),
        },
        comment="NaN with a sign and a payload, and NaN from Inf * 0 of either sign: every NaN is 0x7FC00000",
    )


EDGE_GATES = tuple(g | s for g in (0x3F80, 0x3E10, 0x3FC9, 0x4015, 0x4077, 0x40B3, 0x3D42, 0x4120) for s in (0, 0x8000))


def on_the_edge(to: str) -> Iterator[Draft]:
    """Products on a midpoint of the element or one step above it: silu one step off gives another code.

    A row has its gate in lane 0 among zeros, and a weight that puts the product there.
    """
    for wrong, word in ((1, "above"), (-1, "below")):
        rows = [_edge(gate, wrong, to) for gate in EDGE_GATES]
        yield Draft(
            {
                "gate": bfloat16([[gate] + [0] * 31 for gate in EDGE_GATES]),
                "up": bfloat16([[up] * 32 for up, _ in rows]),
                "prob": _prob(*(weight for _, weight in rows)),
            },
            {"to": to},
            flags=("SILU_OFF_BY_ULP",),
            comment=f"products at a midpoint: a silu one float32 step {word} the right one gives another code",
        )


def in_order(to: str) -> Iterator[Draft]:
    """Products beside a midpoint: multiplied by the weight first and by `up` second, they lie on its other side."""
    rows = [_order(gate, to) for gate in EDGE_GATES]
    yield Draft(
        {
            "gate": bfloat16([[gate] + [0] * 31 for gate in EDGE_GATES]),
            "up": bfloat16([[up] * 32 for up, _ in rows]),
            "prob": _prob(*(weight for _, weight in rows)),
        },
        {"to": to},
        comment="products beside a midpoint: the weight multiplies after `up`, not before it",
    )


def _order(gate: int, to: str) -> tuple[int, int]:
    """Return (up, weight) for which the order of the two products decides a tie of `_edge`."""
    multiply = oracle.float32_multiply
    y = int(silu(np.asarray([gate], np.uint16))[0]) & 0x7FFFFFFF
    middle = bits(Fraction(17, 16) if to == "fp8" else Fraction(5, 4))
    for up in range(0x3F81, 0x4000):
        first = multiply(y, up << 16)
        for weight in _weights(middle, first):
            ends = [multiply(first, weight) <= middle, multiply(multiply(y, weight), up << 16) <= middle]
            if ends[0] != ends[1]:
                return up, weight
    raise ValueError(f"no weight makes the order of the products of gate {gate:#06x} count; choose another gate")


def _weights(middle: int, product: int) -> Iterator[int]:
    """Yield the float32 bits around the weight that makes a product the middle."""
    guess = Fraction(oracle.float_value(middle)) / Fraction(oracle.float_value(product))
    quantum = Fraction(2) ** (oracle.floor_log2(guess) - 23)
    yield from (bits((int(guess / quantum) + step) * quantum) for step in range(-2, 4))


def _edge(gate: int, wrong: int, to: str) -> tuple[int, int]:
    """Return (up, weight) under which silu(gate) and a silu `wrong` steps larger lie on both sides of a tie.

    The tie, 17/16 of E4M3 or 5/4 of E2M1 whatever the scale, goes to the smaller magnitude, which is even.
    """
    y = int(silu(np.asarray([gate], np.uint16))[0]) & 0x7FFFFFFF
    middle = bits(Fraction(17, 16) if to == "fp8" else Fraction(5, 4))
    for up in range(0x3F80, 0x4000):
        right, off = (oracle.float32_multiply(near, up << 16) for near in (y, y + wrong))
        for weight in _weights(middle, right):
            ends = [oracle.float32_multiply(product, weight) <= middle for product in (right, off)]
            if ends == [wrong > 0, wrong < 0]:
                return up, weight
    raise ValueError(f"no weight puts the product of gate {gate:#06x} on the edge; choose another gate")


def _quantise(profile: Profile) -> Iterator[Draft]:
    for to in ("fp8", "mxfp4"):
        yield from _swiglu_quantize(to)
        yield from on_the_edge(to)
        yield from in_order(to)
        if profile is HOPPER:
            yield from mixed.swiglu(to)


swiglu_quantize = Questions(_quantise, profiles=("HOPPER", "OCP"))
swiglu_backward = plain(_swiglu_backward, mixed.swiglu_back)
