"""A launcher lets go of its arrays: what it kept would never be freed, and torch's CUDA graphs refuse such memory."""

import gc
import weakref

import numpy as np
import pytest

from refnum.gpu import emulate, ops
from refnum.gpu.device import plans

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)


@pytest.mark.parametrize("calls", [1, 3])  # the first is worked out, the others come from its plan
def test_no_array_outlives_its_owner(calls):
    emulator = emulate.Emulator()
    with emulator.running():
        plans.forget()
        for _ in range(calls):
            x = emulate.array(np.ones((3, 64), np.float32))
            results = ops.quantize_mxfp4(x)
        kept = [weakref.ref(array) for array in (x, *results)]
        del x, results
    gc.collect()
    assert [each() for each in kept] == [None, None, None]
