"""Questions about the direct row-wise conversions FP8 to MXFP4 and MXFP4 to FP8 (N7, N8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from refnum.arrays import pack_nibbles

from ..draft import MODES, Draft, each, octets, plain
from . import mixed


def _fp8_to_mxfp4() -> Iterator[Draft]:
    """FP8 tiles: every block maximum, ties, subnormal codes, scale bytes at both ends, NaN, short tiles."""
    lead = np.arange(1, 127, dtype=np.uint8)
    ramp = np.arange(31, dtype=np.int64)[None, :]
    under = np.maximum(lead[:, None].astype(np.int64) - ramp - 1, 0).astype(np.uint8) | ((ramp % 2) << 7).astype(
        np.uint8
    )
    yield Draft(
        {"codes": np.concatenate([lead[:, None], under], axis=1), "scales": np.full((126, 1), 127, np.uint8)},
        flags=(
            "E8M0_MODE",
            "SCALE_BOUNDARY_INCLUSIVE",
            "E2M1_TIES_UP",
            "E2M1_TIES_TO_ZERO",
            "E4M3_SUBNORMAL_SCALE",
            "ELEMENT_TRUNCATED",
        ),
        comment="row r has block maximum r+1; below it the next 31 codes in both signs, every tie among them",
    )
    yield Draft(
        {"codes": ((np.arange(256) * 37) % 256 & 0xFE).astype(np.uint8)[None, :], "scales": octets([[127, 130]])},
        flags=("NIBBLE_ORDER", "SPLIT_HALF_ORDER", "SIGN_OF_ZERO_LOST", "SIGN_LOST", "SCALE_OF_NEIGHBOUR"),
        comment="every even code in a scattered order, two tiles",
    )
    subnormal = octets([[*range(8), *range(0x80, 0x88)] * 2])
    for byte in (0, 1, 5, 9, 10, 11, 127, 247, 254):
        flags = ("SCALE_CLAMP_IGNORED", "SCALE_EXPONENT_WRAPS") if byte <= 9 else ("E4M3_SUBNORMAL_SCALE",)
        yield Draft(
            {"codes": subnormal, "scales": octets([[byte]])},
            flags=flags,
            clause="N3",
            comment=f"FP8 subnormals under tile byte {byte}",
        )
    large = octets([[0x7E, 0x7D, 0xFC, 0x7B, 0x78, 0xF4, 0x70, 0x66, 0x5C, 0x08, 0x80, 0x01] + [0x30] * 20])
    for byte in (0, 2, 240, 246, 247, 248, 254):
        yield Draft(
            {"codes": large, "scales": octets([[byte]])},
            clause="N3",
            comment=f"largest codes, tile byte {byte}",
            flags=("SCALE_BYTE_ABOVE_254",) if byte >= 248 else (),
        )
    yield from _fp8_specials()


def _fp8_specials() -> Iterator[Draft]:
    """Zero blocks, NaN codes, NaN tiles, short tiles."""
    yield Draft(
        {"codes": octets([[0] * 32 + [0x80] * 32, [0, 0x80] * 32]), "scales": octets([[127], [3]])},
        clause="N4",
        flags=("ZERO_BLOCK_BYTE", "SIGN_OF_ZERO_LOST"),
        comment="zero blocks under any tile byte: byte 0",
    )
    yield Draft(
        {"codes": octets([[0x38] * 32 + [0] * 32 + [0x80] * 32] * 2), "scales": octets([[254], [160]])},
        clause="N4",
        flags=("ZERO_TIMES_INF_FACTOR",),
        comment="zero blocks beside ones in tiles with a large scale",
    )
    yield Draft(
        {"codes": octets([[0x38] * 40 + [0x7F] + [0x38] * 55 + [0xFF] + [0xB0] * 31]), "scales": octets([[127]])},
        clause="N4",
        flags=("AMAX_DROPS_NAN",),
        comment="0x7F and 0xFF make their blocks NaN blocks, the others stay",
    )
    yield Draft(
        {"codes": octets([[0x38] * 160, [0, 0x80] * 80]), "scales": octets([[255, 120], [255, 255]])},
        clause="N0",
        flags=("E8M0_FF_NOT_NAN",),
        comment="tile byte 255: NaN blocks, zeros included",
    )
    yield Draft(
        {
            "codes": octets([[0x30 + k % 24 for k in range(160)]] * 3),
            "scales": octets([[120, 125], [130, 110], [127, 140]]),
        },
        flags=("PAD_STRIDE", "SCALE_OF_NEIGHBOUR", "TAIL_OR_LATER_BATCH"),
        comment="K = 160: the second tile has one block",
    )
    yield Draft(
        {"codes": np.zeros((0, 64), np.uint8), "scales": np.zeros((0, 1), np.uint8)}, clause="N0", comment="no rows"
    )


def blocks(*given: tuple[Sequence[int], int]) -> dict[str, np.ndarray]:
    """Return one row of MXFP4 from (codes, byte) pairs; short code lists are repeated to 32."""
    codes = np.concatenate([np.resize(np.asarray(c, np.uint8), 32) for c, _ in given])[None, :]
    return {"packed": pack_nibbles(codes), "scales": octets([[byte for _, byte in given]])}


def stack(*rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put rows of equal width on top of each other."""
    return {name: np.concatenate([r[name] for r in rows]) for name in rows[0]}


EVERY = tuple(range(16))
TOP = (7, 15, 6, 14)


def _mxfp4_to_fp8(mode: str) -> Iterator[Draft]:
    """MXFP4 rows: every code at every distance, zeros, empty and NaN blocks, scale bytes at both ends."""
    params = {"scale": mode}
    far = [stack(*[blocks((TOP, 150), (EVERY, 150 - d)) for d in ds]) for ds in (range(7), range(7, 15), range(15, 24))]
    yield Draft(
        far[0],
        params,
        flags=("NIBBLE_ORDER", "SHARED_SCALE_MODE", "SIGN_LOST"),
        comment="every code at distances 0 to 6",
    )
    yield Draft(
        far[1],
        params,
        flags=("RECIPE_ZERO_FULL_SCALE",),
        comment="every code at distances 7 to 14: exact, and a zero stays a zero",
    )
    yield Draft(
        far[2],
        params,
        flags=("RECIPE_ZERO_FULL_SCALE", "E4M3_FLUSHES_SUBNORMALS"),
        comment="every code at distances 15 to 23: rounded to nearest even, then zero",
    )
    yield from _participants(params)


def _participants(params: dict[str, str]) -> Iterator[Draft]:
    """Zero, empty and NaN blocks beside ordinary ones."""
    yield Draft(
        blocks((TOP, 127), ((0, 8), 94), ((1, 9), 120), ((0,), 0)),
        params,
        flags=("RECIPE_ZERO_FULL_SCALE",),
        comment="an all-zero block of byte 94, as the recipe's quantiser writes it, beside a normal one",
    )
    yield Draft(
        blocks((TOP, 120), ((0, 8), 180), ((2, 10), 119), ((0,), 254)),
        params,
        flags=("EMPTY_BLOCK_JOINS_MAX",),
        comment="empty blocks of large bytes take no part in the maximum",
    )
    yield Draft(
        blocks((TOP, 120), (EVERY, 255), ((3, 11), 121)),
        params,
        flags=("NAN_BLOCK_JOINS_MAX", "E8M0_FF_NOT_NAN"),
        comment="a NaN block gives 0x7F and takes no part",
    )
    yield Draft(
        blocks((EVERY, 255), ((0, 8), 100), (TOP, 255), ((0,), 3)),
        params,
        flags=("NAN_BLOCK_JOINS_MAX",),
        comment="only NaN and empty blocks: byte 127",
    )
    yield Draft(
        blocks(((0, 8), 0), ((0,), 0), ((8,), 0), ((0,), 0)),
        params,
        flags=("RECIPE_SCALE_BYTE_WRAPS", "TILE_ZERO_BYTE", "E4M3_NEG_ZERO"),
        comment="a tile of zero blocks of byte 0, as padding makes it: byte 127, signed zeros",
    )
    yield from _edges_and_tails(params)


def _edges_and_tails(params: dict[str, str]) -> Iterator[Draft]:
    """Scale bytes at both ends and short last tiles."""
    for top in (0, 1, 5, 6, 7, 12):
        yield Draft(
            blocks((TOP, top), (EVERY, max(top - 2, 0)), ((1, 9), 0)),
            params,
            flags=("RECIPE_SCALE_BYTE_WRAPS",) if top < 6 and params["scale"] == "max" else (),
            comment=f"largest byte {top}: the tile byte is clamped at 0",
        )
    for top in (253, 254):
        yield Draft(blocks((TOP, top), (EVERY, top - 6), (EVERY, top - 13)), params, comment=f"largest byte {top}")
    yield Draft(
        blocks((EVERY, 130), (EVERY, 124), (EVERY, 121)),
        params,
        flags=("PAD_SCALE_READ", "NIBBLE_ORDER"),
        comment="K = 96: a missing block is absent from the maximum",
    )
    yield Draft(
        stack(
            blocks(*[(EVERY, 100 + b) for b in (0, 1, 2, 3, 25)]), blocks(*[(EVERY, 140 - b) for b in (4, 3, 2, 1, 9)])
        ),
        params,
        flags=("PAD_STRIDE", "PAD_SCALE_READ", "SCALE_OF_NEIGHBOUR"),
        comment="K = 160, two rows: the second tile has one block",
    )
    yield Draft(
        stack(*[blocks(((code,), 127), ((1,), 120)) for code in range(1, 8)]),
        params,
        flags=("SHARED_SCALE_MODE",),
        comment="the tile's largest code decides in mode amax, not in mode max",
    )
    yield Draft(
        {"packed": np.zeros((0, 64), np.uint8), "scales": np.zeros((0, 4), np.uint8)},
        params,
        clause="N0",
        comment="no rows",
    )


fp8_to_mxfp4 = plain(
    _fp8_to_mxfp4,
    mixed.fp8_rows,
    profiles=("HOPPER", "OCP", "CEIL", "EVEN", "RECIPE", "DEEPGEMM", "MICROXCALING", "TRITON_GEN1", "MODELOPT"),
    whole=("HOPPER", "OCP", "CEIL", "EVEN"),
)
mxfp4_to_fp8 = each(MODES, _mxfp4_to_fp8, mixed.mxfp4_rows)
