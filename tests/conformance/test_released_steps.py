"""Released steps of optimisers differ from the model exactly by the arithmetic that their entries describe (N27)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.matrix import inputs
from refnum.conformance.commands.matrix.cells import one_nan
from refnum.conformance.subjects.peers import foreign, released_steps
from refnum.division import divide
from refnum.errors import UnsupportedError
from refnum.softfloat import SIGN, add, multiply, multiply_add, subtract
from refnum.updates import above, clipped

torch = pytest.importorskip("torch")
MAGNITUDE = np.uint32(0x7FFFFFFF)


def root(x):
    """The root of the processor's torch, which may be one step off."""
    return one_nan(torch.from_numpy(x.view(np.float32).copy()).sqrt().numpy().view(np.uint32))


def moments(g, m, v, rates, first):
    beta1, rest1, beta2, rest2 = rates
    m = multiply_add(rest1, subtract(g, m), m) if first else multiply_add(g, rest1, multiply(m, beta1))
    return m, multiply_add(multiply(rest2, g), g, multiply(v, beta2))


def adam(g, w, m, v, factors):
    decay, *rates, under, eps, rate = factors
    m, v = moments(g, m, v, rates, True)
    step = divide(multiply(rate ^ SIGN, m), add(divide(root(v), under), eps))
    return add(multiply(w, decay), step), m, v


def spam(g, w, m, v, factors, clip, reset, decay):
    threshold, *rates, eps, rate, rest = factors
    m, v = (np.zeros_like(m), np.zeros_like(v)) if reset else (m, v)
    if clip:
        limit = multiply(v, threshold)
        sign = np.where(root(limit) & MAGNITUDE == 0, limit & SIGN, 0).astype(np.uint32)  # of a root of -0
        g = np.where(above(multiply(g, g), limit), root(limit) & MAGNITUDE | (g & SIGN) ^ sign, g)
    m, v = moments(g, m, v, rates, False)
    w = multiply_add(rate ^ SIGN, divide(m, add(root(v), eps)), w)
    return multiply_add(rest ^ SIGN, w, w) if decay else w, m, v


def stable_spam(g, w, m, v, factors, forget):
    decay, limit, largest, norm, wanted, *rates, under, eps, rate = factors
    m, v = (np.zeros_like(m), np.zeros_like(v)) if forget == "before" else (m, v)
    g = multiply(divide(clipped(g, limit, largest), norm), wanted)
    m, v = moments(g, m, v, rates, False)
    w = multiply_add(rate ^ SIGN, divide(m, add(divide(root(v), under), eps)), multiply(w, decay))
    return (w, np.zeros_like(m), np.zeros_like(v)) if forget == "after" else (w, m, v)


ARITHMETIC = {released_steps.ADAM: adam, released_steps.SPAM: spam, released_steps.STABLE: stable_spam}


def cases():
    for name, step in released_steps.STEPS.items():
        for params in OPERATIONS[step.__name__].variants():
            params.pop("input")
            yield pytest.param(name, params, id=f"{name}-{'-'.join(map(str, params.values()))}")


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2", reason="known of AVX2 alone")
@pytest.mark.parametrize(("name", "params"), [*cases()])
def test_every_bit_is_explained(name, params):
    step = released_steps.STEPS[name]
    ready, reason = next(one for one in released_steps.subjects() if one["name"] == name)["available"]()
    if not ready:
        pytest.skip(reason)
    given = inputs.rows(step.__name__, params).inputs
    tensors = [torch.from_numpy(array.copy()) for array in given.values()]
    found = [one_nan(part.numpy().view(np.uint32)) for part in step(*tensors, **params)]
    bits = [given[part].view(np.uint32) for part in ("gradient", "weight", "m", "v", "factors")]
    wanted = ARITHMETIC[name](*bits, **params)
    golden = [part.view(np.uint32) for part in getattr(refnum, step.__name__)(*given.values(), **params)]
    assert [np.flatnonzero(a != one_nan(b)).tolist() for a, b in zip(found, wanted, strict=True)] == [[], [], []]
    assert any((a != one_nan(b)).any() for a, b in zip(found, golden, strict=True))


def exact_root(bits):
    """The nearest float32 to the root of a normal one, in integers: its significand times 2^23 or 2^24 has the root."""
    exponent, significand = (bits >> 23) - 127, bits & 0x7FFFFF | 0x800000
    whole = significand << 23 + exponent % 2
    least = math.isqrt(whole)
    return ((exponent >> 1) + 127 << 23) + (least + (whole - least * least > least)) - 0x800000


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2", reason="known of AVX2 alone")
def test_the_note_says_how_far_the_root_of_torch_is_off():
    """NumPy's is the nearest one."""
    bits = np.arange(0x3F800000, 0x40800000, 251, dtype=np.uint32)
    bits = np.concatenate([[0x3F800401, np.float32(19).view(np.uint32)], bits]).astype(np.uint32)
    exact = np.array([exact_root(one) for one in bits.tolist()])
    off = root(bits).astype(np.int64) - exact
    assert np.array_equal(np.sqrt(bits.view(np.float32)).view(np.uint32), exact)
    assert exact[:2].tolist() == [0x3F800200, 0x408B7C1A] and off[:2].tolist() == [1, -1]
    assert set(off) == {-1, 0, 1} and 0.16 < (off != 0).mean() < 0.18
    first = np.arange(0x3F800000, 0x3F800401, dtype=np.uint32)
    assert np.array_equal(root(first), np.sqrt(first.view(np.float32)).view(np.uint32))


def test_what_released_code_cannot_be_given_is_outside():
    given = dict(inputs.rows("adam_apply", {}).inputs)
    assert not released_steps.outside(Case("adam_apply", "HOPPER", {}, given))
    for place, value in ((0, -1), (2, 0.2), (5, 0)):
        factors = given["factors"].copy()
        factors[place] = value
        assert released_steps.outside(Case("adam_apply", "HOPPER", {}, {**given, "factors": factors}))
    spam = dict(inputs.rows("spam_apply", {}).inputs)
    spam["factors"] = np.where(np.arange(8) == 0, 0, spam["factors"]).astype(np.float32)
    flags = {"clip": True, "reset": False, "decay": False}
    assert released_steps.outside(Case("spam_apply", "HOPPER", flags, spam))
    assert not released_steps.outside(Case("spam_apply", "HOPPER", {**flags, "clip": False}, spam))


def test_a_loop_runs_without_the_names_that_are_given(tmp_path):
    path = tmp_path / "foreign_step.py"
    path.write_text(
        "class Optimiser:\n    def step(self, found):\n        for p in self.group:\n            rate = missing(p)\n"
        "            if p > 1:\n                rate *= 2\n            found[p] = p * rate\n"
    )
    scope = {"self": type("Self", (), {"group": (1, 2)}), "rate": 5, "found": {}}
    exec(foreign.loop(path, "step", "p", ("rate",)), scope)
    assert scope["found"] == {1: 5, 2: 10}
    with pytest.raises(UnsupportedError, match="no longer has a loop over q in step"):
        foreign.loop(path, "step", "q", ())
