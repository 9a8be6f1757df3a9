# ruff: noqa: F403 - a family's `__all__` says what it offers
"""The kernels' launchers: the golden operations on device arrays.

Each launcher has the name, argument order and defaults of the golden operation in `refnum`.

Arrays: the inputs are CuPy arrays, torch tensors, or arrays of any library with DLPack or `__cuda_array_interface__`,
all of one library. Results for CuPy and torch are arrays of that library, written on its current stream. Arrays of
another library are read through CuPy, the kernels run on CuPy's current stream, and the call returns when they have
finished; the results are arrays of that library if its arrays name a namespace with `from_dlpack` (JAX does), else CuPy
arrays.

Memory: rows of a matrix may have any stride, and the elements of a row must be adjacent. The inputs of `encode_*` are
contiguous, and so are scales in a layout other than bytes. Items of a vector lie at multiples of their size. `out` is
an array, or a tuple of arrays, with exactly the shapes and dtypes of the results, contiguous, in memory that no input
uses, and of the inputs' library; for inputs of a library other than CuPy and torch it may also be of CuPy. Small
results of one call on CuPy arrays may share one allocation.

Errors: the named errors of `refnum.errors` are raised before anything is launched.

Graphs: every call, also the first of its kind, can be captured into a graph of CuPy or torch. A graph holds addresses
and not arrays, so keep the arrays that a captured call was given, `row_map` and splits on the device among them, and
for CuPy its results too. Scratch memory of a call that CuPy captures (`unpermute` unless rows and tokens are few,
all calls by splits on the device, large gathers that read every row once) is kept for the life of the process;
`captured.clear()` releases it, once none of these graphs is used again.

Splits on the host are read at every call; only lists and tuples of Python integers can use the plan of an earlier call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device.call import captured as captured
from ..device.driver import available
from ..operations import LAUNCHED
from .blocks import *
from .casts import *
from .columns import *
from .estimators import *
from .hadamard import *
from .logarithmic import *
from .nvfp4 import *
from .optimisers import *
from .payload import *
from .payload_permute import *
from .payload_sum import *
from .product import matmul_bf16 as matmul_bf16
from .product import matmul_fp8 as matmul_fp8
from .recast import *
from .swiglu import *
from .tetrajet import *
from .tiles import *

if not TYPE_CHECKING:  # a checker of types would take a computed list for an empty one
    __all__ = ["available", *sorted(LAUNCHED)]
