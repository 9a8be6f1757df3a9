"""Wrong rules of the direct conversions and of the columns."""

from __future__ import annotations

import numpy as np

from refnum.arrays import unpack_nibbles

from ..cases.case import Case
from ..cases.entry import TILE
from .tools import Outputs, changed, element_format, row, with_codes

PADDED = {"scales_to_swizzled": (128, 4), "scales_to_packed_ue8m0": (4, 4), "scales_to_gemm_float32": (4, 1)}
"""Layout -> the multiples that its rows and columns are padded to."""


def rows_first(case: Case) -> bool:
    """Whether the outputs `codes` and `scales` of a conversion are rows."""
    return row(case).outputs[0].block.startswith("row")


def zero_to_full_scale(case: Case, golden: Outputs) -> Outputs | None:
    """A zero nibble under a larger target scale wraps in 16 bits and is clamped to the other end."""
    nibble = unpack_nibbles(case.inputs["packed"])
    source = np.repeat(case.inputs["scales"], 32, axis=1).astype(int)
    bug = ((nibble & 7) == 0) & (spread_output(case, golden["scales"]).astype(int) > source)
    wrong = np.where(nibble & 8, 0x7E, 0xFE)
    if not rows_first(case):
        bug, wrong = bug.T, wrong.T
    return with_codes(golden, np.where(bug, wrong, golden["codes"]))


def row_segments(case, tall):
    """Return for every input row the index of its column block."""
    rows = next(iter(case.inputs.values())).shape[0]
    splits = case.params.get("splits") or [rows]
    parts, first = [], 0
    for m in splits:
        parts.append(first + np.arange(m) // tall)
        first += -(-m // tall)
    return np.concatenate(parts).astype(int) if parts else np.zeros(0, int)


def spread_output(case, byte):
    """The output scale byte of every input element, [M, K]."""
    if rows_first(case):
        return np.repeat(byte, 128, axis=1)[:, : case.inputs["packed"].shape[1] * 2]
    return byte[row_segments(case, row(case).tall)]


def signless(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """The sign bit of every code is lost."""
    fmt = element_format(case)
    return codes & np.uint8(fmt.sign_mask - 1) if fmt.kind == "float" else None


def not_written(case: Case, golden: Outputs) -> Outputs | None:
    """Every output holds zeros."""
    return {name: np.zeros_like(array) for name, array in golden.items()}


def byte_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """emax - 6 in uint8 without a clamp; an empty tile counts with the bytes it has."""
    if case.params["scale"] != "max":
        if not (golden["scales"] == 127).any():
            return None
        return {**golden, "scales": np.where(golden["scales"] == 127, 250, golden["scales"]).astype(np.uint8)}
    byte = np.where(golden["scales"] == 0, 251, golden["scales"])
    return {**golden, "scales": np.where(byte == 127, 250, byte).astype(np.uint8)}


def everything_joins(case: Case, golden: Outputs) -> Outputs | None:
    """Blocks of zeros, or rows of zeros, take part in the maximum with their byte."""
    scales = case.inputs["scales"]
    if row(case).main == "codes":
        byte = max_over_rows(case, scales, 128)
        wide = np.repeat(byte, 128, axis=1)[:, : golden["scales"].shape[1]]
        return {**golden, "scales": wide.astype(np.uint8)}
    drop = 6 if row(case).rounds_to is TILE else 0
    if rows_first(case):
        missing = -scales.shape[1] % 4
        byte = np.pad(scales, ((0, 0), (0, missing))).reshape(scales.shape[0], -1, 4).max(axis=2)
        return {**golden, "scales": np.maximum(byte.astype(int) - 6, 0).astype(np.uint8)}
    byte = max_over_rows(case, scales, row(case).tall)
    return {**golden, "scales": np.repeat(np.maximum(byte.astype(int) - drop, 0), 32, axis=1).astype(np.uint8)}


def max_over_rows(case, scales, tall):
    """Return the largest byte of each row segment."""
    part = row_segments(case, tall)
    return np.stack([scales[part == p].max(axis=0) for p in range(part.max() + 1)])


def other_mode(case: Case, golden: Outputs) -> Outputs | None:
    """The other mode of the shared scale."""
    return changed(case, scale="amax" if case.params["scale"] == "max" else "max")


def flush_e4m3(case: Case, golden: Outputs) -> Outputs | None:
    """Subnormal results are flushed to zero."""
    codes = golden["codes"]
    return with_codes(golden, np.where((codes & 0x7F) < 8, codes & 0x80, codes))


def other_underflow(case: Case, golden: Outputs) -> Outputs | None:
    """The other underflow rule."""
    return changed(case, underflow="te" if case.params["underflow"] == "rne" else "rne")


def underflow_flushed(case: Case, golden: Outputs) -> Outputs | None:
    """What underflows becomes zero instead of being rounded."""
    codes = changed(case, underflow="te")["codes"]
    return with_codes(golden, np.where((codes & 0x78) == 0, 0, codes))


def not_transposed(case: Case, golden: Outputs) -> Outputs | None:
    """Codes or values stay row-major."""
    name = next(n for n in golden if n != "scales")
    turned = {name: np.ascontiguousarray(golden[name].T)}
    return {**golden, **turned}


def splits_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """Blocks run on across experts."""
    wrong = changed(case, splits=None)
    return {
        **golden,
        **{n: a for n, a in wrong.items() if a.shape == golden[n].shape},
        **({"scales": wrong["scales"]} if wrong["scales"].shape != golden["scales"].shape else {}),
    }


def missing_blocks_read(case: Case, golden: Outputs) -> Outputs | None:
    """The block past the end of a row is read: it holds 255, and its byte joins the maximum."""
    if case.operation in PADDED:
        name = next(iter(golden))
        rows, columns = case.inputs["scales"].shape
        tall, wide = PADDED[case.operation]
        behind = ((0, -rows % tall), (0, -columns % wide))
        return {name: changed(case, scales=np.pad(case.inputs["scales"], behind, constant_values=0x77))[name]}
    wrong = golden["scales"].copy()
    wrong[:, -1] = 240
    return {**golden, "scales": wrong}


def unpadded_stride(case: Case, golden: Outputs) -> Outputs | None:
    """Scales are found with stride K // 128 instead of ceil(K / 128)."""
    scales = case.inputs["scales"] if "scales" in case.inputs else golden["scales"]
    packed = "packed" in case.inputs
    if packed:
        scales = golden["scales"]
    flat, width = scales.reshape(-1), scales.shape[1]
    m, t = np.meshgrid(np.arange(scales.shape[0]), np.arange(width), indexing="ij")
    wrong = flat[np.minimum(m * (width - 1) + t, flat.size - 1)]
    return changed(case, scales=wrong) if "scales" in case.inputs and not packed else {**golden, "scales": wrong}
