"""MXFP4 blocks (clause N5), also rounded stochastically (N13)."""

from __future__ import annotations

from typing import Any

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK
from .call import U8, A, Call, Rows


def quantize_mxfp4(
    call: Call[A],
    x: Any,
    profile: Profile | str = HOPPER,
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Any = None,
) -> Rows[A]:
    """Quantise floats to MXFP4 (N5).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) [M, K], K a multiple of 32.
        profile: a profile or its name; one that rounds stochastically by eight bits takes `rbits` or `philox` (N13).
        rbits: random bits [M, K]: uint8 for a kernel, any unsigned integers below 256 for the host build.
        philox: the key of a stream of random bits: (seed, stream, step) or (seed, stream, step, offset) (N13.5).
        layout_out: the storage layout of the scales (N6.5).
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], scales of [M, K/32] in `layout_out`).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view, chosen = call.floats("x", x), get_profile(profile)
    rules = checks.rules(chosen, stochastic=True)
    key = checks.randomness(rbits, philox, chosen)
    random = None if rbits is None else call.random_bits(rbits, view)
    m, k = view.shape
    wanted = [((m, k // 2), U8), checks.written(m, k // BLOCK, layout_out)]
    call.outputs(out, wanted, [view] if random is None else [view, random])
    return Rows(view, k, rules=rules, layouts=("bytes", layout_out), random=random, key=key)


def dequantize_mxfp4(
    call: Call[A], packed: Any, scales: Any, dtype: Any = "float32", *, layout_in: str = "bytes", out: Any = None
) -> Rows[A]:
    """Dequantise MXFP4, exact (N5).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        scales: E8M0 scales of [M, K/32] in `layout_in`.
        dtype: float32 or bfloat16, by name or as a dtype of NumPy, ml_dtypes or torch.
        layout_in: the storage layout of the scales (N6.5).
        out: the array to write.

    Returns:
        The values [M, K].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    view, beside, m, k = call.mxfp4(packed, scales, layout_in)
    kind, result = checks.output_dtype(dtype)
    call.outputs(out, [((m, k), result)], [view, beside])
    return Rows(view, k, beside, kind=kind, layouts=(layout_in, "bytes"))
