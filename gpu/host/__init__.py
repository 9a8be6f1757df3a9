# ruff: noqa: F403 - a family's `__all__` says what it offers
"""The host build: the kernels' arithmetic, compiled for this machine's processor, as twins of the golden operations.

Every function has the name, argument order and defaults of its twin in `refnum`, takes NumPy arrays (read-only and
non-contiguous ones too) and gives NumPy arrays. `out` is an array, or a tuple of arrays, of exactly the result's
shapes and dtypes that shares no memory with an input. Raises the named errors of `refnum.errors`;
UnsupportedError when there is no compiler here, or for a profile field that the kernels do not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..operations import NAMES
from .blocks import *
from .build import available, describe
from .casts import *
from .columns import *
from .payload import *
from .product import matmul_fp8 as matmul_fp8
from .recast import *
from .swiglu import *
from .tiles import *

if not TYPE_CHECKING:  # a checker of types would take a computed list for an empty one
    __all__ = ["available", "describe", *sorted(NAMES)]
