"""Released steps of optimisers in torch: its own Adam, SPAM, and Stable-SPAM, at each weight (N27).

What is judged is the loop over parameters in the text of `torch.optim.adam`, of SPAM-Optimizer and of StableSPAM, run
by itself. Its assignments to scalars are left out, since `factors` are what the released code makes of a step's number
and of the gradient; its rates are float64 numbers that round to the factors.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import foreign
from .difference import Difference
from .torch_peer import torch_subjects

ADAM, SPAM, STABLE = "torch-adam", "SPAM-Optimizer", "StableSPAM"
_SCALARS = ("bias_correction1", "bias_correction2", "step_size", "beta1", "beta2")
_LOOPS = {
    ADAM: ("torch/optim/adam.py", (), "_single_tensor_adam", "param",
           (*_SCALARS, "bias_correction2_sqrt", "step", "step_t")),
    SPAM: ("galore_torch/SPAM.py", ("SPAM-Optimizer",), "step", "p", _SCALARS),
    STABLE: ("galore_torch/stablespam.py", ("StableSPAM",), "step", "p",
             (*_SCALARS, "max_gradient", "m_max_t", "m_max_hat", "grad_norm", "m_norm_t", "v_norm_t", "m_norm_hat",
              "v_norm_hat", "c_norm_t")),
}  # fmt: skip
"""Name -> file, checkouts, function, the name that its loop is over, and the scalars that are given."""
_LARGE = 10**9


@functools.cache
def _code(name: str) -> Any:
    path, checkouts, function, over, given = _LOOPS[name]
    return foreign.loop(foreign.source(path, checkouts), function, over, given)


def _run(name: str, **given: Any) -> None:
    import torch

    exec(_code(name), {"torch": torch, "math": math, "_get_value": lambda x: x, "Tensor": torch.Tensor, **given})


def _rates(factors: Any, place: int) -> tuple[float, float]:
    """The two rates as float64 numbers: 1 minus each rounds to the factor beside it."""
    return 1 - float(factors[place + 1]), 1 - float(factors[place + 3])


def adam_apply(gradient: Any, weight: Any, m: Any, v: Any, factors: Any) -> Any:
    """The loop of `_single_tensor_adam`, decay decoupled."""
    weight, m, v = weight.clone(), m.clone(), v.clone()
    decay, root, eps, rate = (float(factors[place]) for place in (0, 5, 6, 7))
    beta1, beta2 = _rates(factors, 1)
    lists = {"params": [weight], "grads": [gradient], "exp_avgs": [m], "exp_avg_sqs": [v], "state_steps": [1]}
    off = dict.fromkeys(("maximize", "amsgrad", "capturable", "differentiable"), False)
    _run(ADAM, **lists, **off, beta1=beta1, beta2=beta2, beta1_dict=None, lr=1.0, weight_decay=1 - decay,
         decoupled_weight_decay=True, eps=eps, step_size=rate, bias_correction2_sqrt=root)  # fmt: skip
    return weight, m, v


def _parameter(weight: Any, gradient: Any) -> Any:
    found = weight.clone()
    found.grad = gradient.clone()
    return found


def _moments(m: Any, v: Any, zero: bool) -> dict[str, Any]:
    return {"exp_avg": m.new_zeros(m.shape) if zero else m.clone(),
            "exp_avg_sq": v.new_zeros(v.shape) if zero else v.clone()}  # fmt: skip


def spam_apply(
    gradient: Any, weight: Any, m: Any, v: Any, factors: Any, clip: bool, reset: bool, decay: bool
) -> tuple[Any, Any, Any]:
    """The loop of SPAM's step, with all elements in its mask."""
    p = _parameter(weight, gradient)
    threshold, eps, rate, rest = (float(factors[place]) for place in (0, 5, 6, 7))
    state = {"step": 0, **_moments(m, v, reset)}
    group = {"params": [p], "betas": (), "lr": 1.0, "eps": eps, "weight_decay": rest if decay else 0.0,
             "correct_bias": False}  # fmt: skip
    released = types.SimpleNamespace(
        state={p: state, "total_step": _LARGE // 2}, DeltaT=_LARGE, thres=threshold if clip else 0, grad_accu_steps=20
    )
    beta1, beta2 = _rates(factors, 1)
    _run(SPAM, self=released, group=group, beta1=beta1, beta2=beta2, step_size=rate, scale_factor=1.0)
    return p, state["exp_avg"], state["exp_avg_sq"]


def stable_spam_apply(
    gradient: Any, weight: Any, m: Any, v: Any, factors: Any, forget: str = ""
) -> tuple[Any, Any, Any]:
    """The loop of Stable-SPAM's step."""
    p = _parameter(weight, gradient)
    decay, root, eps, rate = (float(factors[place]) for place in (0, 9, 10, 11))
    limit, largest, norm, wanted = (factors[place] for place in range(1, 5))
    state = {"step": 0, "m_norm_t": 0, "v_norm_t": 0, "m_max_t": 0, **_moments(m, v, forget == "before")}
    group = {"params": [p], "betas": (), "lr": 1.0, "eps": eps, "weight_decay": 1 - decay, "amsgrad": False}
    beta1, beta2 = _rates(factors, 5)
    _run(STABLE, self=types.SimpleNamespace(state={p: state}, update_proj_gap=0, total_steps=1), group=group,
         beta1=beta1, beta2=beta2, scale=1.0, bias_correction2=root * root, step_size=rate, max_gradient=largest,
         m_max_hat=limit, grad_norm=norm, c_norm_t=wanted, m_max_t=0, m_norm_t=0, v_norm_t=0)  # fmt: skip
    found = _moments(state["exp_avg"], state["exp_avg_sq"], forget == "after")
    return p, found["exp_avg"], found["exp_avg_sq"]


def outside(case: Any) -> str:
    """Return why the released code cannot make a case's scalars, or an empty text."""
    factors = np.asarray(case.inputs["factors"], np.float32)
    stable, spam = case.operation == "stable_spam_apply", case.operation == "spam_apply"
    betas = factors[5:9] if stable else factors[1:5]
    with np.errstate(all="ignore"):
        rounded = [np.float32(1 - float(rest)) for rest in betas[1::2]]
    if any(one != beta for one, beta in zip(rounded, betas[::2], strict=True)):
        return "1 - rest is not the rate that is given"
    if not spam and (not 0 <= factors[0] <= 2 or not factors[9 if stable else 5] > 0):
        return "its decay is a number from 0 to 2, and its root a positive one"
    if spam and ((case.params["clip"] and factors[0] == 0) or (case.params["decay"] and not factors[7] > 0)):
        return "a threshold or a decay of 0 leaves its part of the step out"
    return ""


STEPS: Mapping[str, Callable[..., Any]] = {ADAM: adam_apply, SPAM: spam_apply, STABLE: stable_spam_apply}
"""Name -> its step."""


def _of(name: str) -> list[dict[str, Any]]:
    told = {name: "in torch" if name == ADAM else "checkout"}
    operations = {STEPS[name].__name__: STEPS[name]}
    return torch_subjects(name, operations, ("HOPPER",), functools.partial(_code, name), lambda: told)


def subjects() -> list[dict[str, Any]]:
    """Return the three on both devices."""
    return [{**entry, "outside": outside} for name in STEPS for entry in _of(name)]


def _difference(name: str, note: str, words: str, example: int, golden: int, peer: int) -> Difference:
    return Difference(name, STEPS[name].__name__, note, words, "N27", ((0, 0xFFFFFFFF),), example, golden, peer,
                      of="gradient", exact=False)  # fmt: skip


_FUSED = (
    "v takes (rest g) g in place of rest (g g); that product and the one of m are not rounded before they are added"
)
_ROOT = "the CPU's root is not the nearest float32: that of 0x3F800401 is 0x3F800201"
_MOVE = "the weight takes its step unrounded"
DIFFERENCES = (
    _difference(ADAM, "square-later", _FUSED, 0xC0336898, 0x3C715E04, 0x3C715E03),
    _difference(ADAM, "moment-interpolated", "m is m + rest (g - m), fused", 0x3D2AC0EA, 0xBE25150B, 0xBE25150C),
    _difference(ADAM, "rate-first", "the step is (rate m) / below", 0xBD01F454, 0xBF513962, 0xBF513964),
    _difference(ADAM, "root-not-nearest", _ROOT, 0xBD01F454, 0xBF513962, 0xBF513964),
    *(
        _difference(name, note, words, *example)
        for name, examples in (
            (SPAM, ((0xC0336898, 0x3C715E04, 0x3C715E03), (0x3C5DE6C4, 0x3D6CA7DC, 0x3D6CA7DB))),
            (STABLE, ((0xC35790AB, 0x3D74D46C, 0x3D74D46D), (0x4294D99F, 0xBD174DD2, 0xBD174DD3))),
        )
        for (note, words), example in zip(
            (("square-later", _FUSED), ("weight-fused", f"{_MOVE}; {_ROOT}")), examples, strict=True
        )
    ),
)
"""Found in torch 2.13.0 on x86-64 with AVX2, and in the checkouts of 2025-03-29 (StableSPAM) and 2025-03-12 (SPAM)."""
