"""Peers: public implementations that install everywhere, judged through the same door as any kernel.

One file a peer, imported when the list is asked for; the library behind it only when an operation runs. A peer that
is not installed stays in the list with the reason. Its known disagreements are data, `DIFFERENCES` in its file.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

PEERS = ("ml_dtypes_casts", "gfloat_blocks", "torch_dtypes", "nvidia_headers")
"""Modules of this package with a `subjects()` and `DIFFERENCES`; adding a peer adds one file and one name here."""


GUESTS = ("torchao_mx", "microxcaling_mx", "triton_mxfp", "deepgemm_casts", "transformer_engine",
          "compressed_tensors_mxfp4", "modelopt_mxfp4", "fouroversix_mxfp4", "tile_kernels_casts", "torch_formulas",
          "nvidia_device", "torch_device")  # fmt: skip
"""As `PEERS`, for the matrix: libraries that are large, that need a GPU or that are not on PyPI (`foreign`)."""


def guests() -> list[dict[str, Any]]:
    """Return the subjects of every guest, usable here or not."""
    return [entry for name in GUESTS for entry in importlib.import_module(f"{__name__}.{name}").subjects()]


def subjects() -> list[dict[str, Any]]:
    """Return the subjects of every peer, in the form of the entry-point group."""
    return [entry for name in PEERS for entry in importlib.import_module(f"{__name__}.{name}").subjects()]


def differences() -> tuple[Any, ...]:
    """Return every known disagreement of every peer (`difference.Difference`)."""
    return tuple(entry for name in PEERS for entry in importlib.import_module(f"{__name__}.{name}").DIFFERENCES)


@functools.cache
def all_differences() -> tuple[Any, ...]:
    """Return the known disagreements of peers and guests."""
    files = (importlib.import_module(f"{__name__}.{name}") for name in (*PEERS, *GUESTS))
    return tuple(entry for file in files for entry in file.DIFFERENCES)
