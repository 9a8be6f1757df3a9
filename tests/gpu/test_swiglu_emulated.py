"""The SwiGLU kernels on the emulated device: every function, every access checked, equal to the golden twins."""

from __future__ import annotations

from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum.gpu import emulate, ops
from refnum.gpu.ops import swiglu

USABLE, REASON = emulate.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS EMULATED: {REASON}")

Host = np.ndarray[Any, Any]
CUTS = {"swiglu_quantize": swiglu.Stay(64, 1), "swiglu_backward": swiglu.Stay(64, 1)}
"""Few threads, so that a CTA takes several chunks, rows and segments of a small array."""


@pytest.fixture(scope="module")
def device() -> emulate.Emulator:
    return emulate.Emulator()


@pytest.fixture(autouse=True)
def cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel, cut in CUTS.items():
        monkeypatch.setitem(swiglu.TUNING, kernel, cut)


def halves(rng: np.random.Generator, m: int, h: int) -> Host:
    wide = samples.floats(rng, m, -(-h // 32) * 32, samples.BFLOAT16).view(np.uint16)
    return np.ascontiguousarray(wide[:, :h])


def usual(rng: np.random.Generator, m: int, h: int) -> Host:
    bits = (rng.standard_normal((m, h)) * 2).astype(np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype(np.uint16)


def placed(x: Host, pad: int) -> Host:
    """The same values, rows `pad` elements apart, the first one `pad` elements behind an address of 16 bytes."""
    if pad == 0:
        return x
    store = np.full((x.shape[0] + 1) * (x.shape[-1] * (x.ndim > 1) + pad) + 8, 77, x.dtype)
    store = store[-(store.ctypes.data // x.itemsize) % (16 // x.itemsize) + pad :]
    wide = x.shape[1] + pad if x.ndim > 1 else 1 + pad
    view = store[: x.shape[0] * wide].reshape(x.shape[0], wide)
    view = view[:, : x.shape[1]] if x.ndim > 1 else view[:, 0]
    view[...] = x
    return view


def same(want: tuple[Any, ...], got: tuple[Any, ...]) -> None:
    for number, (w, g) in enumerate(zip(want, got, strict=True)):
        if w is None:
            assert g is None
            continue
        wrong = np.argwhere(w.view(f"u{w.itemsize}") != np.ascontiguousarray(g).view(f"u{w.itemsize}"))
        assert w.shape == g.shape and not len(wrong), f"output {number}: {len(wrong)} differ, first at {wrong[0]}"


def run(device: emulate.Emulator, name: str, inputs: tuple[Any, ...], pad: int, *options: Any) -> None:
    given = [None if x is None else placed(x, pad) for x in inputs]
    got = emulate.on_numpy(getattr(ops, name), device)(*given, *options)
    same(getattr(refnum, name)(*inputs, *options), got)


@pytest.mark.parametrize("pad", [0, 3], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "prob"])
@pytest.mark.parametrize(("to", "profile"), [("fp8", "HOPPER"), ("mxfp4", "HOPPER"), ("mxfp4", "OCP"), ("mxfp4", "TE")])
def test_quantize(device: emulate.Emulator, to: str, profile: str, weighted: bool, pad: int) -> None:
    rng = np.random.default_rng(pad)
    for m, h in ((1, 32), (7, 160), (3, 1408)):
        for make in (halves, usual):
            prob = rng.random(m).astype(np.float32) if weighted else None
            run(device, "swiglu_quantize", (make(rng, m, h), make(rng, m, h), prob), pad, to, profile)


@pytest.mark.parametrize("pad", [0, 3], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "prob"])
@pytest.mark.parametrize("wide", [False, True], ids=["bfloat16", "float32"])
def test_backward(device: emulate.Emulator, wide: bool, weighted: bool, pad: int) -> None:
    rng = np.random.default_rng(pad)
    for m, h in ((1, 1), (3, 7), (5, 160), (2, 1028), (1, 32772)):
        gate, up, grad = (make(rng, m, h) for make in (halves, usual, usual))
        received = rng.standard_normal((m, h)).astype(np.float32) if wide else grad
        prob = rng.random(m).astype(np.float32) if weighted else None
        run(device, "swiglu_backward", (received, gate, up, prob), pad)
    if weighted:
        zeros = np.zeros((2, 32769), np.uint16)
        one, minus = zeros + np.uint16(0x3F80), np.full(zeros.shape, -0.0, np.float32)
        run(device, "swiglu_backward", (minus, one, one, np.ones(2, np.float32)), pad)  # a last -0 alone becomes +0
