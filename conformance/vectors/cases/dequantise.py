"""Questions about the MX dequantisers: every code under the scale bytes that go wrong (N0, N5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import Format

from ..draft import Draft

BYTES = (0, 1, 2, 3, 23, 103, 107, 112, 113, 126, 127, 128, 142, 200, 250, 251, 252, 253, 254, 255)
BY_BYTE: dict[int, tuple[str, ...]] = {
    0: ("E8M0_ZERO_IS_TINY", "FTZ_SILENT", "SCALE_MIN_NORMAL", "SCALE_EXP_ADD_WRAP"),
    1: ("FTZ_SILENT",),
    103: ("DEQUANTISED_THROUGH_FP16",),
    112: ("DEQUANTISED_THROUGH_FP16",),
    142: ("E8M0_EXP2_INEXACT",),
    253: ("DEQUANTISED_OVERFLOW_CLAMPED",),
    254: ("DEQUANTISED_OVERFLOW_CLAMPED",),
    255: ("E8M0_FF_NOT_NAN", "SCALE_APPLIED_PER_ELEMENT"),
}


def _all_codes(fmt: Format) -> np.ndarray:
    """Every code of the format, repeated or cut into rows of a whole number of blocks: u8 [1, K]."""
    count = 1 << fmt.bits
    return np.resize(np.arange(count, dtype=np.uint8), (1, max(32, count)))


def mx_drafts(fmt: Format, dtype: str) -> Iterator[Draft]:
    """One element a byte: every code under each of the bytes, then all bytes as a tensor."""
    codes = _all_codes(fmt)
    extra = {"element": fmt.name, "dtype": dtype}
    for byte in BYTES:
        scales = np.full((1, codes.shape[1] // 32), byte, np.uint8)
        flags = () if fmt.name != "E2M1" else tuple(f for f in BY_BYTE.get(byte, ()) if f != "SCALE_EXP_ADD_WRAP")
        yield Draft(
            {"codes": codes, "scales": scales},
            extra,
            flags=flags,
            comment=f"every {fmt.name} code under scale byte {byte}",
        )
    mixed = np.arange(256, dtype=np.uint8)[:, None]
    yield Draft(
        {"codes": np.resize(codes, (256, 32)), "scales": mixed},
        extra,
        flags=("SCALE_OF_NEIGHBOUR",),
        tensor=True,
        comment="every scale byte, codes in sequence",
    )


def mxfp4_drafts(dtype: str) -> Iterator[Draft]:
    """Two codes a byte: nibble order, every code under each of the bytes, neighbours, all bytes as a tensor."""
    ramp = np.arange(32, dtype=np.uint8)[None, :] % 16
    packed = pack_nibbles(ramp)
    params = {"dtype": dtype}
    for byte in BYTES:
        flags = BY_BYTE.get(byte, ()) + (("NIBBLE_ORDER", "SPLIT_HALF_ORDER") if byte == 127 else ())
        yield Draft(
            {"packed": packed, "scales": np.full((1, 1), byte, np.uint8)},
            params,
            flags=flags,
            comment=f"every code twice under scale byte {byte}",
        )
    yield Draft(
        {"packed": np.resize(packed, (2, 48)), "scales": np.asarray([[120, 131, 255], [0, 250, 127]], np.uint8)},
        params,
        flags=("SCALE_OF_NEIGHBOUR", "LOGICAL_VS_PACKED_SHAPE", "TAIL_OR_LATER_BATCH"),
        comment="two rows of three blocks, every scale another",
    )
    yield Draft(
        {"packed": np.full((1, 16), 0x80, np.uint8), "scales": np.asarray([[140]], np.uint8)},
        params,
        flags=("SIGN_OF_ZERO_LOST",),
        comment="zeros of both signs keep their sign",
    )
    yield Draft(
        {"packed": np.zeros((0, 16), np.uint8), "scales": np.zeros((0, 1), np.uint8)},
        params,
        clause="N0",
        comment="no rows",
    )
    yield Draft(
        {"packed": np.resize(packed, (256, 16)), "scales": np.arange(256, dtype=np.uint8)[:, None]},
        params,
        flags=("E8M0_ZERO_IS_TINY", "E8M0_FF_NOT_NAN", "LOGICAL_VS_PACKED_SHAPE"),
        tensor=True,
        comment="every code under every scale byte",
    )
