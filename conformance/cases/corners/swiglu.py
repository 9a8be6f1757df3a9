"""Corners of SwiGLU (N11): every bfloat16 gate, special factors, routing probabilities at their edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, E4M3, FP32

from ..draw import VALUES, Draw
from ..draw.bits import as_float
from ..draw.values import Target
from .floats import SHAPES, SPECIALS

Corner = tuple[str, dict[str, np.ndarray]]

ONE, COLUMNS = 0x3F80, 1024
PROBS = (0x3F800000, 0, 0x80000000, 0x3F000001, 0x00000001, 0x007FFFFF, 0x00800000, 0x7F800000, 0x7FC00000, 0xFF800001,
         0xBF800000, 0x3EAAAAAB, 0x34000000, 0x7F7FFFFF)  # fmt: skip
UNEVEN = 608
"""Columns of 19 blocks or 5 tiles, odd numbers that divide no count of threads: those that walk on over such rows go
over ends, and come to other columns."""


def gates() -> np.ndarray:
    """All bfloat16 patterns [64, 1024], one of each exponent field in a row so that a block spans many scales."""
    return np.arange(1 << 16, dtype=np.uint16).reshape(COLUMNS, 64).T.copy()


def gate_rows() -> np.ndarray:
    """All bfloat16 patterns [64, 1024] in sequence: the gates of a block have one or two scales."""
    return np.arange(1 << 16, dtype=np.uint16).reshape(64, COLUMNS)


def _factors() -> Iterator[tuple[str, np.ndarray]]:
    number = np.arange(64 * COLUMNS, dtype=np.uint32).reshape(64, COLUMNS)
    yield "up = 1", np.full((64, COLUMNS), ONE, np.uint16)
    yield "up = +-(1 .. 2)", (ONE | (number * 37 & 0x7F) | (number & 1) << 15).astype(np.uint16)
    yield "up over all patterns", ((number * 40503 + 12345) & 0xFFFF).astype(np.uint16)


def _edges(columns: int = 256) -> dict[str, np.ndarray]:
    """Probabilities at their edges; first of the corners, for the contract is probed on those."""
    rows = _data(len(PROBS), columns)
    return {"gate": rows[0], "up": rows[1], "prob": as_float(np.array(PROBS, np.uint32), FP32)}


def swiglu_quantize(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every gate in sequence and spread, with three kinds of `up`; specials against specials; probabilities."""
    yield "probabilities at their edges", _edges()
    yield f"probabilities at their edges, {UNEVEN} columns", _edges(UNEVEN)
    for order, gate in (("in sequence", gate_rows()), ("spread", gates())):
        for label, up in _factors():
            yield f"every gate {order}, {label}", {"gate": as_float(gate, BF16), "up": as_float(up, BF16)}
    gate, up = _special_pairs()
    yield "special gates times special factors", {"gate": gate, "up": up}
    yield "one rare gate in every place among ordinary ones", _lone_gates()
    for shape in SHAPES:
        rows = _data(*shape)
        yield f"shape {shape[0]}x{shape[1]}", {"gate": rows[0], "up": rows[1]}
        prob = as_float(np.full(shape[0], 0x3EAAAAAB, np.uint32), FP32)
        yield f"shape {shape[0]}x{shape[1]} with prob", {"gate": rows[0], "up": rows[1], "prob": prob}


SUMMED = ((3, 1), (2, 2), (2, 3), (2, 3072), (2, 70000))
"""Rows whose sum is one term, an odd tree, three eighths of a segment of 32768, and three segments."""
ZERO_SUMS = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 128), (1, 256), (1, 1024), (1, 3072), (2, 65536), (1, 98304))
"""Rows whose tree is full, so that -0 stays, at sizes where a kernel's levels begin, and such as +0 fills up."""
RARE_GATES = (0x0000, 0x8000, 0x0001, 0x8040, 0x3280, 0xB200, 0x3C12, 0x3C13, 0xBC28, 0x42DB, 0x42DC, 0xC2DC, 0x4780,
              0xC7C3, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFF81)  # fmt: skip
"""Gates at which a table or a series gives way to a bound: zeros, tiny, small, large, Inf and NaN."""


def _lone_gates() -> dict[str, np.ndarray]:
    """One rare gate in each of 32 places of a block of ordinary ones: a test on neighbours together must see it."""
    blocks = np.full((len(RARE_GATES), 32, 32), ONE, np.uint16)
    blocks[:, np.arange(32), np.arange(32)] = np.array(RARE_GATES, np.uint16)[:, None]
    gate = blocks.reshape(len(RARE_GATES), 1024)
    return {"gate": as_float(gate, BF16), "up": as_float(np.full_like(gate, ONE), BF16)}


def swiglu_backward(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every gate with a bfloat16 and a float32 gradient, specials, probabilities, shapes."""
    yield "probabilities at their edges", {"grad": _data(len(PROBS), 256)[2], **_edges()}
    gate = gate_rows()
    number = np.arange(64 * COLUMNS, dtype=np.uint32).reshape(64, COLUMNS)
    grad32 = as_float(0x3F800000 | (number * 0x9E3779B1 & 0x7FFFFF), FP32)
    for label, up in _factors():
        both = {"gate": as_float(gate, BF16), "up": as_float(up, BF16)}
        yield f"every gate, {label}, float32 gradient", {"grad": grad32, **both}
        yield f"every gate, {label}, bfloat16 gradient", {"grad": as_float(gates(), BF16), **both}
    special_gate, special_up = _special_pairs()
    grad = as_float(np.full(special_gate.shape, ONE, np.uint16), BF16)
    yield "special gates times special factors", {"grad": grad, "gate": special_gate, "up": special_up}
    lone = _lone_gates()
    yield "one rare gate in every place among ordinary ones", {"grad": lone["up"], **lone}
    for shape in (*SHAPES, *SUMMED):
        rows = _data(*shape)
        yield f"shape {shape[0]}x{shape[1]}", {"grad": rows[2], "gate": rows[0], "up": rows[1]}
        prob = as_float(np.full(shape[0], 0x3EAAAAAB, np.uint32), FP32)
        yield (f"shape {shape[0]}x{shape[1]} with prob",
               {"grad": rows[2], "gate": rows[0], "up": rows[1], "prob": prob})  # fmt: skip
    yield from _zero_sums()


def _zero_sums() -> Iterator[Corner]:
    """Rows of which every share of dprob is -0, before an ordinary one: -0 stays where nothing is added to it."""
    for shape in ZERO_SUMS:
        gate, up, grad = _data(*shape)
        gate.view(np.uint16)[0], up.view(np.uint16)[0], grad.view(np.uint16)[0] = ONE, 0, ONE | 0x8000
        prob = as_float(np.full(shape[0], 0x3F800000, np.uint32), FP32)
        yield f"terms of -0, {shape[0]}x{shape[1]}", {"grad": grad, "gate": gate, "up": up, "prob": prob}


def _special_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Every special gate times every special factor: a row a gate."""
    special = np.array(SPECIALS[BF16], np.uint16)
    columns = -(-special.size // 32) * 32
    up = np.resize(special, (special.size, columns))
    gate = np.broadcast_to(special[:, None], up.shape)
    return as_float(gate.copy(), BF16), as_float(up, BF16)


def _data(rows: int, columns: int) -> list[np.ndarray]:
    target = Target(BF16, E4M3, 128)
    make = VALUES["normal"].make
    return [as_float(make(Draw(rows * 8192 + columns, stream), target, (rows, columns), exponent=1), BF16)
            for stream in range(3)]  # fmt: skip
