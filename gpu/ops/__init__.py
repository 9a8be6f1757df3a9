# ruff: noqa: F403 - a family's `__all__` says what it offers
"""The kernels' launchers: twins of the golden operations, on device arrays.

Each has the name, argument order and defaults of its twin in `refnum`. Inputs are CuPy arrays, torch tensors or
anything else that speaks DLPack or `__cuda_array_interface__`, all of one library. Results of CuPy arrays and torch
tensors are arrays of their library, written on its current stream. What is neither is read, and worked on, on CuPy's
current stream, and the call ends when its kernels have. Its results are arrays of its library where its arrays name
one with a `from_dlpack` (`__array_namespace__`; JAX), else CuPy's.

Rows of a matrix may have any stride; the elements of a row are neighbours. What the scalar conversions `encode_*` take
is contiguous, and so are scales in a layout other than bytes. Items of a vector lie at multiples of their size. `out`
is an array, or a tuple of arrays, of exactly the results' shapes and dtypes, contiguous and apart from the inputs,
of their library; beside what is neither CuPy's nor torch's it may be CuPy's. Errors of `refnum.errors` come before any
launch.

Row-wise conversions and those between rows and columns are here; scalars, payloads, permutations and SwiGLU are in the
rooms that they are imported from. Small results of one call on CuPy arrays may be parts of one allocation.

Calls, first ones too, can be captured into graphs of CuPy and torch. A graph has addresses, not arrays: keep what a
captured call was given, `row_map` and device splits too, and with CuPy what it returned. Scratch memory of a call that
CuPy captures (`unpermute` unless rows and tokens are few, gathers by splits on the device, large gathers that read
every row once) is kept for the process; once none of its graphs is left, `captured.clear()` gives it back.

The host's splits are read at every call; only lists and tuples of Python's integers take the short way of a call whose
kind is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device.call import captured as captured
from ..device.driver import available
from ..operations import LAUNCHED
from .blocks import *
from .casts import *
from .columns import *
from .payload import *
from .payload_permute import *
from .payload_sum import *
from .product import matmul_fp8 as matmul_fp8
from .recast import *
from .swiglu import *
from .tiles import *

if not TYPE_CHECKING:  # a checker of types would take a computed list for an empty one
    __all__ = ["available", *sorted(LAUNCHED)]
