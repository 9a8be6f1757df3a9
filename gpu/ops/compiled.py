"""The compilations of an operation: the kernel files that it runs, and the macros of each compilation.

Traces and certificates (`gpu.subjects`), mutation (`mutation.kernels`) and tests read them from here.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from .. import silu
from ..checks import LAYOUTS
from ..device import compile as build
from ..interface.nvfp4 import LAYOUTS as NVFP4_LAYOUTS
from . import (
    casts,
    columns,
    estimators,
    hadamard,
    logarithmic,
    nvfp4,
    optimisers,
    payload_rows,
    product,
    rowwise,
    swiglu,
    tetrajet,
)  # fmt: skip

OPERATIONS: dict[str, tuple[str, ...]] = {
    "quantize_mxfp4_stochastic": ("quantize_mxfp4",),
    **dict.fromkeys(
        ("quantize_tetrajet_stochastic", "quantize_tetrajet_down", "quantize_tetrajet_down_stochastic"),
        ("quantize_tetrajet",),
    ),
    "q_ema_down": ("q_ema",),
    "quantize_nvfp4_variants": ("quantize_nvfp4",),
    "hadamard_quantize_nvfp4_variants": ("hadamard_quantize_nvfp4",),
    "payload_quantize": ("quantize_payload", "fp8_to_payload"),
    "payload_rows": ("pack_payload", "unpack_payload", "permute_pad", "permute_unpack"),
    "permute_sum": ("unpermute",),
    "column_places": (),  # runs by splits on the device alone, which a probe gives
    "stable_spam": ("stable_spam_apply",),
    "encode_elements": ("encode_e2m1", "encode_e4m3", "encode_e8m0"),
}
"""Kernel file -> the operations that run it, where they are not the one of its name."""
LAID: dict[str, tuple[str, ...]] = {
    "quantize_mxfp4": ("LAYOUT_OUT",),
    "quantize_mxfp4_stochastic": ("LAYOUT_OUT",),
    "dequantize_mxfp4": ("LAYOUT_IN",),
    "quantize_fp8_tiles": ("LAYOUT_OUT",),
    "dequantize_fp8_tiles": ("LAYOUT_IN",),
    "fp8_to_mxfp4": ("LAYOUT_IN", "LAYOUT_OUT"),
    "mxfp4_to_fp8": ("LAYOUT_IN", "LAYOUT_OUT"),
    "quantize_nvfp4": ("LAYOUT_OUT",),
    "quantize_nvfp4_variants": ("LAYOUT_OUT",),
    "dequantize_nvfp4": ("LAYOUT_IN",),
    "hadamard_quantize_nvfp4": ("LAYOUT_OUT",),
    "hadamard_quantize_nvfp4_variants": ("LAYOUT_OUT",),
}
"""Kernel file -> the macros of kernels/memory.cuh that choose its scale layouts, in the order of the two."""
STORED: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        "quantize_nvfp4",
        "quantize_nvfp4_variants",
        "dequantize_nvfp4",
        "hadamard_quantize_nvfp4",
        "hadamard_quantize_nvfp4_variants",
    ),
    NVFP4_LAYOUTS,
)
"""Kernel file -> its scale layouts, where they are not all."""
CONSTANTS: dict[str, str] = dict.fromkeys(("swiglu_quantize", "swiglu_backward"), silu.SHA256)
"""Operation -> SHA-256 of the constant array that its kernels read."""


class Unit(NamedTuple):
    """One compilation: a kernel file and its macros."""

    kernel: str
    defines: tuple[str, ...]


def operations(kernel: str) -> tuple[str, ...]:
    """Return the operations that run a kernel file."""
    return OPERATIONS.get(kernel, (kernel,))


def cuts(kernel: str) -> list[tuple[str, ...]]:
    """Return the macros with which a kernel file is compiled for its launches, without those of scale layouts."""
    found = {grid.defines for name, grid in rowwise.TUNING.items() if name == kernel}
    split = ((name, order._replace(split=1)) for name, order in columns.TUNING.items() if name[:13] != "mxfp4_columns")
    orders = (*columns.TUNING.items(), *columns.RAGGED.items(), *split)
    found |= {order.defines for name, order in orders if name.rpartition("_")[0] == kernel}
    found |= {stay.defines for name, stay in swiglu.TUNING.items() if name == kernel}
    found |= {product.KERNELS[kernel]} if kernel in product.KERNELS else set()
    families = nvfp4.FAMILIES if kernel.endswith("nvfp4_variants") else ((),)
    tables = nvfp4.TUNING, hadamard.TUNING, logarithmic.TUNING, tetrajet.DOWN, estimators.TUNING
    grids = {grid.defines for table in tables for name, grid in table.items() if name.partition(" ")[0] == kernel}
    found |= {(*grid, *family) for grid, family in itertools.product(grids, families)}
    found |= {optimisers.GRID.defines} if kernel == optimisers.KERNEL else set()
    found |= {casts.DEFINES} if kernel == casts.KERNEL else set()
    found |= {payload_rows.SHORT.defines} if kernel == "payload_rows" else set()
    return sorted(found) or [()]


def layouts(kernel: str) -> list[tuple[str, ...]]:
    """Return the macros of all scale layouts of a kernel file; the layout bytes, which needs no macro, comes first."""
    macros = LAID.get(kernel, ())
    stored = tuple(map(LAYOUTS.index, STORED.get(kernel, LAYOUTS)))
    found = itertools.product(stored, repeat=len(macros))
    return [tuple(f"{macro}={n}" for macro, n in zip(macros, numbers, strict=True) if n) for numbers in found]


def units(operation: str) -> list[Unit]:
    """Return the compilations of an operation; none if it has no kernel."""
    return [
        Unit(kernel, (*cut, *laid))
        for kernel in build.kernel_names()
        if operation in operations(kernel)
        for cut, laid in itertools.product(cuts(kernel), layouts(kernel))
    ]
