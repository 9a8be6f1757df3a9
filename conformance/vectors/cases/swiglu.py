"""What is asked of SwiGLU with quantisation and of its backward pass (N11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..draft import Draft, bfloat16, bits, float32

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


def swiglu_quantize(to: str) -> Iterator[Draft]:
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


def swiglu_backward() -> Iterator[Draft]:
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
