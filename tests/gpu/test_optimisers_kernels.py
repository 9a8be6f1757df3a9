"""Stable-SPAM's step in two parts equals the whole step; its kernel equals the part at each weight, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refnum
from refnum import gpu
from refnum.errors import ArgumentError, DtypeError, RefnumError, ShapeError
from refnum.gpu import emulate, host
from refnum.gpu.host import optimisers as twins
from refnum.gpu.ops import optimisers as launchers

STABLE = {"gap": 3, "gammas": (0.7, 0.9), "theta": 0.99, "weight_decay": 0.02}


def bits(x: Any) -> list[int]:
    return np.asarray(x, np.float32).view(np.uint32).ravel().tolist()


def steps(count: int, size: int, **options: Any) -> Any:
    """Yield (arguments of the part at each weight, state and weight after the whole step) of a run with spikes."""
    dice = np.random.default_rng(size)
    weight = dice.standard_normal(size).astype(np.float32)
    state = refnum.StableSpamState.start(weight)
    for number in range(count):
        gradient = (dice.standard_normal(size) * 10.0 ** dice.integers(-4, 3)).astype(np.float32)
        gradient[:: 5 + number] = dice.choice(np.array([0, -0.0, 1e-40, 3e17, 1e-25], np.float32))
        if number == count - 1:
            gradient[1:3] = np.nan, np.inf
        factors, after, forget = refnum.stable_spam_factors(state, gradient, **options)
        given = (gradient, weight, state.m, state.v, factors.array, forget)
        state, weight = refnum.stable_spam_step(state, gradient, weight, **options)
        scalars = [(one.step, one.total, *map(bits, (one.peak, one.norm, one.square))) for one in (after, state)]
        assert scalars[0] == scalars[1]
        yield given, state, weight


@pytest.mark.parametrize("mode", ["code", "paper"])
@pytest.mark.parametrize("horizon", [None, 9])
def test_two_parts_are_the_step(mode: str, horizon: int | None) -> None:
    forgets = []
    for given, state, weight in steps(9, 24, mode=mode, steps=horizon, **STABLE):
        found = refnum.stable_spam_apply(*given)
        assert [bits(x) for x in found] == [bits(x) for x in (weight, state.m, state.v)]
        forgets.append(given[-1])
    word = "after" if mode == "code" else "before"
    assert forgets == ["", "", word] * 3


def test_measured_elsewhere() -> None:
    """A maximum and a norm that are given are taken as they are."""
    gradient, weight = np.array([1, -2, 30, -4], np.float32), np.zeros(4, np.float32)
    state = refnum.StableSpamState.start(weight)
    own, _, _ = refnum.stable_spam_factors(state, gradient)
    given = {"largest": np.float32(30), "norm": refnum.exact_norm(gradient)}
    assert bits(own.array) == bits(refnum.stable_spam_factors(state, gradient, **given)[0].array)
    twice, _, _ = refnum.stable_spam_factors(state, gradient, largest=np.array([60], np.float32))
    assert twice.largest == 60 and twice.limit == 2 * own.limit
    with pytest.raises(DtypeError, match="norm is a float; allowed is one float32"):
        refnum.stable_spam_factors(state, gradient, norm=3.0)


WRONG = [
    ({"weight": np.zeros(4, np.float64)}, DtypeError), ({"m": np.zeros(3, np.float32)}, ShapeError),
    ({"factors": np.zeros(11, np.float32)}, ShapeError), ({"forget": "both"}, ArgumentError),
    ({"v": None}, RefnumError),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error"), WRONG)
@pytest.mark.parametrize("function", [refnum.stable_spam_apply, twins.stable_spam_apply], ids=["model", "host"])
def test_named_errors(function: Any, wrong: dict[str, Any], error: type[RefnumError]) -> None:
    given = {name: np.zeros(4, np.float32) for name in ("gradient", "weight", "m", "v")}
    with pytest.raises(error):
        function(**{**given, "factors": np.ones(12, np.float32), **wrong})


def anything(dice: np.random.Generator, size: int) -> list[np.ndarray[Any, Any]]:
    """Gradient, weight and moments of any bits."""
    words = [dice.integers(0, 1 << 32, size, dtype=np.uint32) for _ in range(4)]
    words[0][::3], words[3][1::3] = 0, words[3][1::3] & np.uint32(0x1FFFFFFF)
    return [x.view(np.float32) for x in words]


def equal(function: Any, size: int) -> None:
    """Compare a function with the model, on runs, and on any bits under the factors of a run and under odd limits."""
    for given, _, _ in steps(4, size, **STABLE):
        chosen = anything(np.random.default_rng(size), size)
        limits = [np.array([1, limit, *given[4][2:]], np.float32) for limit in (-0.0, -3, np.nan, np.inf)]
        for arguments in (
            given, (*chosen, given[4], "before"), (*chosen, given[4], "after"), *((*chosen, one, "") for one in limits),
        ):  # fmt: skip
            wanted, found = refnum.stable_spam_apply(*arguments), function(*arguments)
            assert [bits(x) for x in found] == [bits(x) for x in wanted]


@pytest.mark.skipif(not host.available()[0], reason="no host build")
def test_the_host_build() -> None:
    equal(twins.stable_spam_apply, 5001)


@pytest.mark.skipif(not emulate.available()[0], reason="no emulator")
@pytest.mark.parametrize("size", [1, 7, 1024, 1500])
def test_the_emulated_kernel(size: int) -> None:
    if size == 1:
        size = 3  # NaN and Inf need places
    equal(emulate.on_numpy(launchers.stable_spam_apply, emulate.Emulator()), size)


@pytest.mark.skipif(not gpu.available()[0], reason="NO KERNEL WAS RUN")
@pytest.mark.parametrize("size", [3, 7, 1024, 100_003])
def test_the_kernel(size: int) -> None:
    cupy = pytest.importorskip("cupy")

    def launch(*arguments: Any) -> tuple[Any, ...]:
        *arrays, forget = arguments
        return tuple(x.get() for x in launchers.stable_spam_apply(*map(cupy.asarray, arrays), forget))

    equal(launch, size)


@pytest.mark.skipif(not gpu.available()[0], reason="NO KERNEL WAS RUN")
def test_the_operator() -> None:
    torch = pytest.importorskip("torch")
    operators = pytest.importorskip("refnum.gpu.torch")

    def launch(*arguments: Any) -> tuple[Any, ...]:
        *arrays, forget = arguments
        compiled = torch.compile(operators.stable_spam_apply, fullgraph=True)
        return tuple(x.cpu().numpy() for x in compiled(*(torch.from_numpy(x.copy()).cuda() for x in arrays), forget))

    equal(launch, 1500)
    given = next(iter(steps(2, 40, **STABLE)))[0]  # the first has no NaN, which differs from itself
    tensors = tuple(torch.from_numpy(x.copy()).cuda() for x in given[:5])
    torch.library.opcheck(torch.ops.refnum.stable_spam_apply.default, tensors)


def test_fake_results() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("refnum.gpu.torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        one = torch.empty(3, 5, dtype=torch.float32, device="cuda")
        found = torch.ops.refnum.stable_spam_apply(one, one, one, one, torch.empty(12, device="cuda"))
    assert [(tuple(x.shape), x.dtype) for x in found] == [((3, 5), torch.float32)] * 3
