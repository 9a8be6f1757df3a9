"""Conversions between FP8 tiles and MXFP4 along rows (clauses N7 and N8)."""

from __future__ import annotations

from typing import Any

from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BLOCK
from .call import U8, A, Call, Rows

MODES = ("max", "amax")
"""How the scale of a tile follows from those of its blocks."""


def fp8_to_mxfp4(
    call: Call[A],
    codes: Any,
    scales: Any,
    profile: Profile | str = HOPPER,
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Rows[A]:
    """Quantise E4M3 tiles of 1x128 to MXFP4 directly (N7).

    Args:
        codes: u8 [M, K], K a multiple of 32.
        scales: E8M0 scales of [M, ceil(K / 128)] in `layout_in`.
        profile: a profile or its name.
        layout_in: the storage layout of the scales that are read (N6.5).
        layout_out: the storage layout of the scales that are written.
        out: the arrays to write.

    Returns:
        (packed codes u8 [M, K/2], scales of [M, K/32] in `layout_out`).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit or that the kernels do not have.
    """
    view, beside, m, k = call.tiles(codes, scales, layout=layout_in)
    rules = checks.rules(get_profile(profile))
    call.outputs(out, [((m, k // 2), U8), checks.written(m, k // BLOCK, layout_out)], [view, beside])
    return Rows(view, k, beside, rules, layouts=(layout_in, layout_out))


def mxfp4_to_fp8(
    call: Call[A],
    packed: Any,
    scales: Any,
    scale: str = "max",
    *,
    layout_in: str = "bytes",
    layout_out: str = "bytes",
    out: Any = None,
) -> Rows[A]:
    """Turn MXFP4 into E4M3 tiles of 1x128 (N8).

    Args:
        packed: codes u8 [M, K/2], two in a byte.
        scales: E8M0 scales of [M, K/32] in `layout_in`.
        scale: `max` or `amax`, the rule for the scale of a tile.
        layout_in: the storage layout of the scales that are read (N6.5).
        layout_out: the storage layout of the scales that are written.
        out: the arrays to write.

    Returns:
        (codes u8 [M, K], scales of [M, ceil(K / 128)] in `layout_out`).

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    checks.choice("scale", scale, MODES)
    view, beside, m, k = call.mxfp4(packed, scales, layout_in)
    call.outputs(out, [((m, k), U8), checks.written(m, checks.tiles(k), layout_out)], [view, beside])
    return Rows(view, k, beside, mode=scale, layouts=(layout_in, layout_out))
