"""Rotations of groups of 16 (clause N22): what the kernels have of them."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import ArgumentError, DtypeError

from .. import checks
from ..checks import KINDS
from .call import F32, U8, A, Call
from .nvfp4 import VARIANTS, stored

GROUP = 16
"""Elements that a rotation mixes."""
SIGNS = 0xD7E8
AXES = (-1, 0)
ORDERS = ("exact", "sequential")
"""In the order of `RotationOrder` of the headers."""


class Rotated(NamedTuple, Generic[A]):
    """The checked arguments of a rotation.

    x: floats. signs: the mask. axis: -1 or 0. rotation: the order of its sums, see the headers. wide: whether the
    result is float32. kind: the `FloatKind` of x. scales: rows and columns of the codes' scales. order: of NVFP4's
    operations. layout: of the scales. amax: the tensor's maximum, None for that of the rotated x. random, key: of
    stochastic rounding.
    """

    x: A
    signs: int
    axis: int
    rotation: int
    kind: int
    wide: bool = False
    scales: tuple[int, int] = (0, 0)
    order: int = 0
    layout: str = "bytes"
    amax: A | None = None
    random: A | None = None
    key: tuple[int, int, int, int] | None = None


def hadamard16(
    call: Call[A],
    x: Any,
    signs: int = SIGNS,
    axis: int = -1,
    order: str = "exact",
    dtype: Any = "bfloat16",
    *,
    out: Any = None,
) -> Rotated[A]:
    """Rotate groups of 16 elements by the Hadamard matrix with signs (N22).

    Args:
        x: float32, bfloat16 or uint16 (bfloat16 bits) [M, K], K a multiple of 16 for axis -1.
        signs: a mask below 2**16; a set bit negates the element of its number.
        axis: -1, groups along K, or 0, groups along M, whose last one rows of +0 complete.
        order: "exact" or "sequential".
        dtype: bfloat16 or float32, by name or as a dtype of NumPy, ml_dtypes or torch.
        out: the array to write.

    Returns:
        The rotated [M, K], or [16 * ceil(M/16), K] for axis 0.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    given = _rotation(call, x, signs, axis, order)
    kind, result = checks.output_dtype(dtype)
    m, k = given.x.shape
    call.outputs(out, [((m if given.axis else _whole(m), k), result)], [given.x])
    return given._replace(wide=kind == 0)


def hadamard_quantize_nvfp4(
    call: Call[A],
    x: Any,
    signs: int = SIGNS,
    axis: int = -1,
    order: str = "exact",
    variant: str = "TE",
    tensor_amax: Any = None,
    *,
    rbits: Any = None,
    philox: tuple[int, ...] | None = None,
    layout_out: str = "bytes",
    out: Any = None,
) -> Rotated[A]:
    """Rotate to bfloat16, then quantise to NVFP4 with blocks of 16 (N22.6).

    Args:
        x: float32, bfloat16 or uint16 (bfloat16 bits) [M, K], K a multiple of 16 for axis -1.
        signs: a mask below 2**16; a set bit negates the element of its number.
        axis: -1, groups along K, or 0, groups along M, whose last one rows of +0 complete.
        order: "exact" or "sequential".
        variant: an order of float32 operations, as `quantize_nvfp4` takes it.
        tensor_amax: the tensor's largest magnitude, float32 [1]; that of the rotated x if None, found by another pass.
        rbits, philox: random bits of the codes' elements, as `quantize_nvfp4` takes them.
        layout_out: the storage layout of the scales, "bytes" or "swizzled" (N21.6).
        out: the arrays to write.

    Returns:
        (packed codes u8, E4M3 scale codes in `layout_out`, the maximum float32 [1]) of [M, K], or for axis 0 of the
        transpose [K, 16 * ceil(M/16)].

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    given = _rotation(call, x, signs, axis, order)
    number = checks.choice("variant", variant, VARIANTS)
    if rbits is not None and philox is not None:
        raise ArgumentError("rbits and philox were both given; allowed is one of them")
    key = None if philox is None else checks.philox_key(philox)
    view = given.x
    amax = None if tensor_amax is None else call.weights("tensor_amax", tensor_amax, view, 1, "a tensor has one")
    m, k = view.shape
    lines, length = (m, k) if given.axis else (k, _whole(m))
    random = None if rbits is None else call.random_bits(rbits, view, of_codes=(lines, length))
    wanted = [((lines, length // 2), U8), stored(lines, length, "layout_out", layout_out), ((1,), F32)]
    call.outputs(out, wanted, [each for each in (view, amax, random) if each is not None])
    codes = (lines, length // GROUP)
    return given._replace(scales=codes, order=number, layout=layout_out, amax=amax, random=random, key=key)


def _whole(m: int) -> int:
    return -(-m // GROUP) * GROUP


def _rotation(call: Call[A], x: Any, signs: Any, axis: Any, order: Any) -> Rotated[A]:
    """Return the checked arguments that both operations have."""
    along = checks.count("axis", axis, *AXES)
    view = call.matrix("x", x, GROUP if along else 1)
    kind = KINDS.get(view.dtype, 2)
    if kind == 2:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    mask = checks.count("signs", signs, 0, (1 << GROUP) - 1)
    return Rotated(view, mask, along, checks.choice("order", order, ORDERS), kind)
