"""Peers: public implementations, judged through the same interface as any kernel.

Each peer has one file, imported when its subjects are listed; the library is imported only when an operation runs. A
peer that is not installed stays in the list with the reason. The known disagreements of a peer with the golden model
are data: `DIFFERENCES` in the peer's file.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

LARGE = "a large package"
CHECKOUT = "a checkout, in a folder of $REFNUM_PEERS: the package is not on PyPI"
GPU = "a GPU"
FORMULAS = "nothing; it is no library but this package's own formulas"

PEERS = {
    "ml_dtypes_casts": "",
    "gfloat_blocks": "",
    "torch_dtypes": "",
    "nvidia_headers": "",
    "torchao_mx": LARGE,
    "microxcaling_mx": CHECKOUT,
    "triton_mxfp": CHECKOUT,
    "deepgemm_casts": CHECKOUT,
    "transformer_engine": CHECKOUT,
    "compressed_tensors_mxfp4": LARGE,
    "modelopt_mxfp4": LARGE,
    "fouroversix_mxfp4": CHECKOUT,
    "released_steps": CHECKOUT,
    "ms_amp_dge": CHECKOUT,
    "tile_kernels_casts": GPU,
    "torch_formulas": FORMULAS,
    "nvidia_device": GPU,
    "torch_device": GPU,
}
"""Module of this package, with `subjects()` and `DIFFERENCES` -> what it needs beyond a small package from PyPI.

`refnum check -s peers` judges the peers that need nothing more; `refnum matrix` compares all of them.
"""


def _modules(everywhere: bool) -> list[ModuleType]:
    """Return the modules of all peers, or of those alone that can be installed everywhere."""
    names = [name for name, needs in PEERS.items() if not (everywhere and needs)]
    return [importlib.import_module(f"{__name__}.{name}") for name in names]


def subjects() -> list[dict[str, Any]]:
    """Return the subjects of the peers that can be installed everywhere, in the form of the entry-point group."""
    return [entry for module in _modules(True) for entry in module.subjects()]


def all_subjects() -> list[dict[str, Any]]:
    """Return the subjects of every peer, whether it can be used here or not."""
    return [entry for module in _modules(False) for entry in module.subjects()]


def differences() -> tuple[Any, ...]:
    """Return the known disagreements (`difference.Difference`) of the peers that can be installed everywhere."""
    return tuple(entry for module in _modules(True) for entry in module.DIFFERENCES)


@functools.cache
def all_differences() -> tuple[Any, ...]:
    """Return the known disagreements of every peer."""
    return tuple(entry for module in _modules(False) for entry in module.DIFFERENCES)
