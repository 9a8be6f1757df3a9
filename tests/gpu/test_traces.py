"""What a report and a certificate say of the kernels: every launcher's operation has its kernel's digests."""

import pytest

from gpu import compile as build
from gpu.subjects import GPU_OPERATIONS, trace_gpu


@pytest.mark.parametrize("operation", GPU_OPERATIONS)
def test_every_operation_has_the_digests_of_its_kernel(operation):
    try:
        build.nvrtc()
    except Exception as error:  # whatever the loader says: there is no compiler here
        pytest.skip(str(error))
    trace = trace_gpu(operation)
    assert trace["kernel"] in build.kernel_names()
    assert len(trace["source"]) == len(trace["machine_code"]) == 64
