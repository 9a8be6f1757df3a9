"""MS-AMP's slope of DGE: its text compiled for the host differs from the model at 22 numbers (N25.3)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.bugs import estimators
from refnum.conformance.cases.case import Case
from refnum.conformance.subjects.peers import foreign, ms_amp_dge
from refnum.errors import UnsupportedError

EVERY = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
PARAMS = {"k": 5, "cap": 3, "target": "bfloat16", "compat": "ms-amp", "input": "bfloat16"}
TEXT = """
#include <torch/extension.h>
__device__ float power_derivative(float x, float k) { return fminf(x * k, 100.0f); }
__global__ void differentiable_quantize_derivative(
    const __nv_bfloat16* input, __nv_bfloat16* output, float k, float power_clamp_max, int n
) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) output[idx] = __float2bfloat16(power_derivative(__bfloat162float(input[idx]), k) + power_clamp_max);
}
void launch_differentiable_quantize_derivative(at::Tensor input) {}
"""


@pytest.fixture
def clean():
    ms_amp_dge.slopes.cache_clear()
    yield
    ms_amp_dge.slopes.cache_clear()


def test_the_wrong_rule_differs_where_the_entry_says():
    [entry] = ms_amp_dge.DIFFERENCES
    golden = refnum.dge(EVERY, compat="ms-amp")
    with np.errstate(all="ignore"):
        wrong = estimators.power_rounded(Case("dge", "HOPPER", PARAMS, {"x": EVERY}), {"values": golden})["values"]
    places = np.flatnonzero(golden.view(np.uint16) != wrong.view(np.uint16))
    assert places.tolist() == [low >> 16 for low, _ in entry.where] and len(places) == 22
    assert (golden.view(np.uint16)[places[0]], wrong.view(np.uint16)[places[0]]) == (entry.golden, entry.peer)
    ready, reason = ms_amp_dge.available()
    if ready:
        assert np.array_equal(ms_amp_dge.dge(EVERY).view(np.uint16), wrong.view(np.uint16))
    else:
        assert "quantize.cu" in reason or "compiler" in reason


def test_the_text_of_a_kernel_is_compiled_by_itself(clean, monkeypatch, tmp_path):
    file = tmp_path / "MS-AMP" / ms_amp_dge.FILE
    file.parent.mkdir(parents=True)
    file.write_text(TEXT)
    monkeypatch.setenv(foreign.VARIABLE, str(tmp_path))
    ready, reason = ms_amp_dge.available()
    if not ready and "compiler" in reason:
        pytest.skip(reason)
    x = np.array([[1, -2.5], [3, 40]], ml_dtypes.bfloat16)
    assert ms_amp_dge.dge(x, 4, 0.5).tolist() == [[4.5, -9.5], [12.5, 100.5]]
    ms_amp_dge.slopes.cache_clear()
    file.write_text("nothing")
    with pytest.raises(UnsupportedError, match="no longer has"):
        ms_amp_dge.slopes()
