"""The host build of SwiGLU with quantisation and of its gradients (clause N11)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.errors import DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BFLOAT16, BLOCK, Outputs, tiles
from ..silu import silu_table
from .build import address, library

__all__ = ["swiglu_backward", "swiglu_quantize"]

Array = np.ndarray[Any, Any]


def swiglu_quantize(
    gate: Array, up: Array, prob: Array | None = None, to: str = "fp8", profile: Profile | str = HOPPER,
    *, out: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Quantise silu(gate) * up, times `prob` a row if given, to E4M3 tiles 1x128 or to MXFP4 (N11).

    gate, up: bfloat16 (or its uint16 bits) [M, H], H % 32 == 0; prob: float32 [M]; to: `fp8` | `mxfp4`. The product
    is made in float32, one rounding an operation, and is not stored.
    Returns (codes u8 [M, H], scales u8 [M, ceil(H/128)]) or (packed u8 [M, H/2], scales u8 [M, H/32]).
    """
    mxfp4 = checks.choice("to", to, ("fp8", "mxfp4"))
    m, h = _gate_and_up(gate, up, BLOCK)
    given = [gate, up, *_weights(prob, m)]
    chosen = get_profile(profile)
    checks.profile(chosen)
    wanted = [((m, h // 2), np.uint8), ((m, h // BLOCK), np.uint8)] if mxfp4 else [
        ((m, h), np.uint8), ((m, tiles(h)), np.uint8)]  # fmt: skip
    results = Outputs(out, wanted, given)
    arrays = [np.ascontiguousarray(x) for x in given]
    to_ = [address(x) for x in results.arrays]
    place = [address(silu_table()), *_addresses(arrays, 3), m, h, checks.RULES[chosen.scale_rule]]
    if mxfp4:
        satfinite = int(chosen.nonfinite == "satfinite")
        library().refnum_swiglu_quantize_mxfp4(*place, satfinite, chosen.zero_scale, *to_)
    else:
        library().refnum_swiglu_quantize_fp8(*place, *to_)
    return results.finish()


def swiglu_backward(
    grad: Array, gate: Array, up: Array, prob: Array | None = None, *, out: tuple[Array, ...] | None = None
) -> tuple[Array, Array, Array | None]:
    """Return (dgate float32 [M, H], dup float32 [M, H], dprob float32 [M] or None) in the model's order (N11).

    grad: float32 or bfloat16 (or its uint16 bits) [M, H]; gate, up: bfloat16 (or its bits) [M, H], H >= 1; prob:
    float32 [M]. out: (dgate, dup), and dprob when prob is given.
    """
    m, h = _gate_and_up(gate, up, 1)
    checks.matrix("grad", grad, 1)
    if grad.dtype != np.float32 and grad.dtype not in (BFLOAT16, np.uint16):
        raise DtypeError(f"grad has dtype {grad.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    if grad.shape != gate.shape:
        raise ShapeError(f"grad has shape {grad.shape}; gate has {gate.shape}, they must be equal")
    if h == 0:
        raise ShapeError(f"gate has shape {gate.shape}; allowed is [M, H] with H >= 1")
    given = [grad, gate, up, *_weights(prob, m)]
    wanted: list[tuple[tuple[int, ...], Any]] = [((m, h), np.float32), ((m, h), np.float32)]
    results = Outputs(out, wanted if prob is None else [*wanted, ((m,), np.float32)], given)
    arrays = [np.ascontiguousarray(x) for x in given]
    library().refnum_swiglu_backward(
        address(silu_table()), checks.KINDS[grad.dtype], *_addresses(arrays, 4), m, h, *_addresses(results.arrays, 3)
    )
    dgate, dup, *dprob = results.finish()
    return dgate, dup, dprob[0] if dprob else None


def _addresses(arrays: list[Array], count: int) -> list[int | None]:
    """Addresses of the arrays, None for those at the end that are not given."""
    return [*map(address, arrays), *[None] * (count - len(arrays))]


def _gate_and_up(gate: Any, up: Any, multiple: int) -> tuple[int, int]:
    shape = checks.matrix("gate", gate, multiple)
    checks.matrix("up", up, 1)
    for name, x in (("gate", gate), ("up", up)):
        if x.dtype not in (BFLOAT16, np.uint16):
            raise DtypeError(f"{name} has dtype {x.dtype}; allowed are bfloat16 and uint16 (bfloat16 bits)")
    if up.shape != gate.shape:
        raise ShapeError(f"up has shape {up.shape}; gate has {gate.shape}, they must be equal")
    return shape


def _weights(prob: Any, m: int) -> list[Array]:
    if prob is None:
        return []
    if not checks.plain(prob) or prob.dtype != np.float32:
        raise DtypeError(f"prob is {checks.called(prob)}; allowed is a float32 array")
    if prob.shape != (m,):
        raise ShapeError(f"prob has shape {prob.shape}; allowed is one weight a row, ({m},)")
    return [prob]
