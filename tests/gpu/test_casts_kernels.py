"""Scalar encoders on the emulated machine and on a GPU: every 16-bit pattern under chosen scales and rules, what fills
no chunk, and addresses that no vector load takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.gpu import emulate
from refnum.gpu.ops import casts

Host = np.ndarray[Any, Any]
Call = Callable[..., Host]
PATTERNS = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16)
DATA: dict[str, Host] = {
    "float32": (PATTERNS.astype(np.uint32) << np.uint32(16) | PATTERNS[::-1]).view(np.float32),
    "bfloat16": PATTERNS.view(ml_dtypes.bfloat16),
    "float16": PATTERNS.view(np.float16),
}
CHUNK = {"float32": casts.GRID.part // 2, "bfloat16": casts.GRID.part, "float16": casts.GRID.part}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("encode_e2m1", {"scale_byte": byte}) for byte in (0, 7, 8, 127, 252, 253, 254, 255)),
    *(("encode_e4m3", {"overflow": overflow}) for overflow in ("saturate", "nan")),
    *(("encode_e8m0", {"rounding": r, "saturate": s}) for r in ("up", "down", "nearest") for s in (False, True)),
]


@pytest.fixture(scope="module", params=["emulated", "gpu"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a launcher on the elements of NumPy data from `place` on, as an array that begins there."""
    usable, reason = emulate.available() if request.param == "emulated" else gpu.available()
    if not usable:
        pytest.skip(f"NO KERNEL WAS RUN: {reason}")
    if request.param == "emulated":
        operations = emulate.subject_operations(emulate.Emulator())
        return lambda name, x, place, options: operations[name](x[place:], **options)
    cupy = pytest.importorskip("cupy")

    def on_device(name: str, x: Host, place: int, options: dict[str, Any]) -> Host:
        whole = cupy.asarray(x.view(np.uint16) if x.dtype == samples.BFLOAT16 else x)
        return np.asarray(getattr(gpu, name)(whole[place:], **options).get())

    return on_device


@pytest.mark.parametrize("kind", DATA)
def test_every_upper_half_under_scales_and_rules(call: Call, kind: str) -> None:
    x = DATA[kind]
    for name, options in OPTIONS:
        want = getattr(refnum, name)(x, **options)
        assert np.array_equal(call(name, x, 0, options), want), (name, options)


@pytest.mark.parametrize("kind", DATA)
def test_counts_and_places(call: Call, kind: str) -> None:
    """Around a chunk and a CTA's chunks, at addresses of 16 bytes and at others."""
    part, threads = CHUNK[kind], casts.GRID.threads
    whole = threads * casts.GRID.unroll * part
    counts = (1, part - 1, part, part + 1, threads, threads * part + 1, whole - 1, whole, whole + part + 1)
    for name, options in (OPTIONS[3], OPTIONS[9], OPTIONS[-1]):
        for count in counts:
            for place in (0, 1, part - 1):
                x = np.resize(DATA[kind], place + count)
                want = getattr(refnum, name)(x, **options)[place:]
                assert np.array_equal(call(name, x, place, options), want), (name, count, place)
