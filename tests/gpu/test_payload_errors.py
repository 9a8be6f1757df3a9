"""What the payload launchers refuse, each with its named error before any launch."""

from __future__ import annotations

import numpy as np
import pytest

from refnum import gpu
from refnum.errors import ArgumentError, DtypeError, RefnumError, ScaleError, ShapeError, UnsupportedError

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

ERRORS = {
    "payload width": (ShapeError, lambda c: gpu.unpack_payload(c.zeros((3, 16), "u1"))),
    "scales shape": (ShapeError, lambda c: gpu.pack_payload(c.zeros((3, 16), "u1"), c.zeros((3, 2), "u1"))),
    "scales dtype": (DtypeError, lambda c: gpu.pack_payload(c.zeros((3, 16), "u1"), c.zeros((3, 1), "f4"))),
    "tile dtype": (ScaleError, lambda c: gpu.fp8_to_payload(c.zeros((3, 32), "u1"), c.zeros((3, 1), "f4"))),
    "map dtype": (DtypeError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(2, "f4"), [2])),
    "map length": (ShapeError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(3, "i4"), [2])),
    "negative split": (ArgumentError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(2, "i4"), [3, -1])),
    "fractional split": (ArgumentError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(2, "i4"), [2.0])),
    "align": (ArgumentError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(2, "i4"), [2], 0)),
    "host map": (DtypeError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), np.zeros(2, "i4"), [2])),
    "device splits without out": (
        ArgumentError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(2, "i4"), c.asarray([2]))),
    "experts": (UnsupportedError, lambda c: gpu.permute_pad(c.zeros((3, 17), "u1"), c.zeros(0, "i4"), [0] * 1025)),
    "rows": (ShapeError, lambda c: gpu.unpermute(c.zeros((40, 32), "f4"), c.zeros(40, "i4"), [40], None, 4)),
    "rows dtype": (DtypeError, lambda c: gpu.unpermute(c.zeros((64, 32), "f2"), c.zeros(40, "i4"), [40], None, 4)),
    "tokens": (ArgumentError, lambda c: gpu.unpermute(c.zeros((64, 32), "f4"), c.zeros(40, "i4"), [40], None, -1)),
    "weights": (
        DtypeError,
        lambda c: gpu.unpermute(c.zeros((64, 32), "f4"), c.zeros(40, "i4"), [40], c.zeros(40, "f8"), 4)),
    "weights length": (
        ShapeError,
        lambda c: gpu.unpermute(c.zeros((64, 32), "f4"), c.zeros(40, "i4"), [40], c.zeros(41, "f4"), 4)),
}  # fmt: skip


@pytest.mark.parametrize("what", list(ERRORS))
def test_errors(what: str) -> None:
    error, call = ERRORS[what]
    with pytest.raises(RefnumError) as caught:
        call(cupy)
    assert type(caught.value) is error, caught.value


def test_shared_storage_is_refused_on_every_call() -> None:
    payload = cupy.zeros((64, 34), np.uint8)
    offsets = cupy.zeros(1, np.int64)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="shares memory"):
            gpu.permute_pad(payload, cupy.zeros(64, np.int32), [64], 32, out=(payload, offsets))
