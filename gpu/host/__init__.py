# ruff: noqa: F403 - a family's `__all__` says what it offers
"""The host build: the kernels' arithmetic, compiled for this machine's processor, as functions on NumPy arrays.

Every function has the name, argument order and defaults of the golden operation in `refnum`. It takes NumPy arrays,
also read-only and non-contiguous ones, and returns NumPy arrays. `out` is an array, or a tuple of arrays, with exactly
the shapes and dtypes of the results, in memory that no input uses. The named errors of `refnum.errors` are raised
before an output is written; UnsupportedError also without a compiler, or for a profile field that the kernels lack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..operations import NAMES
from .blocks import *
from .build import available, describe
from .casts import *
from .columns import *
from .estimators import *
from .hadamard import *
from .logarithmic import *
from .nvfp4 import *
from .optimisers import *
from .payload import *
from .product import matmul_bf16 as matmul_bf16
from .product import matmul_fp8 as matmul_fp8
from .recast import *
from .swiglu import *
from .tetrajet import *
from .tiles import *

if not TYPE_CHECKING:  # a checker of types would take a computed list for an empty one
    __all__ = ["available", "describe", *sorted(NAMES)]
