"""The operators on a device: opcheck, torch.compile without graph breaks, CUDA graphs, streams, no gradient."""

import kernel_samples as samples
import numpy as np
import pytest
from launcher_calls import K, M, bytes_of, floats, make, wanted

import refnum
from refnum import gpu
from refnum.errors import UnsupportedError

USABLE, REASON = gpu.available()
torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = pytest.mark.skipif(
    not USABLE or not torch.cuda.is_available(),
    reason=f"NO KERNEL WAS RUN: {REASON or 'torch sees no GPU'}",
)

from refnum.gpu import torch as operators  # noqa: E402


def given(name):
    """Return the same call with torch's words and tensors on the device."""
    words = {"dtype": lambda name: getattr(torch, name), "out": lambda name: getattr(torch, name), "tile": list}

    def word(key, value):
        if not isinstance(value, np.ndarray):
            return words.get(key, lambda x: x)(value)
        if value.dtype == samples.BFLOAT16:
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(value).cuda()

    return {key: word(key, value) for key, value in make(name).items()}


def raw(x):
    if isinstance(x, torch.Tensor):
        x = x.contiguous().cpu().view(torch.uint8).numpy()
    return np.ascontiguousarray(x).view(np.uint8)


def equal(name, results):
    results = results if isinstance(results, tuple | list) else (results,)
    for want, got in zip(wanted(name), results, strict=True):
        np.testing.assert_array_equal(raw(want), raw(got))


NAMES = sorted(operators.REGISTERED)


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name):
    torch.library.opcheck(operators.REGISTERED[name], (), given(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_equals_the_model(name):
    equal(name, getattr(operators, name)(**given(name)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_compiled_without_a_graph_break(name, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(lambda **x: getattr(torch.ops.refnum, name)(**x), fullgraph=True, dynamic=dynamic)
    equal(name, compiled(**given(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_cuda_graph_replays_with_new_data(name):
    arguments = given(name)
    tensors = [x for x in arguments.values() if isinstance(x, torch.Tensor) and x.dtype != torch.int64]
    right = [x.clone() for x in tensors]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        getattr(operators, name)(**arguments)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for x in tensors:
        x.zero_()
    with torch.cuda.graph(graph):
        results = getattr(operators, name)(**arguments)
    graph.replay()
    for x, value in zip(tensors, right, strict=True):
        x.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    equal(name, results)


@pytest.mark.parametrize("layout", ["float32", "gemm_float32", "packed_ue8m0", "swizzled"])
def test_a_layout_goes_through_a_compiled_function(layout):
    def block(x):
        codes, laid = torch.ops.refnum.quantize_fp8_tiles(x, layout_out=layout)
        return laid, *torch.ops.refnum.fp8_to_mxfp4(codes, laid, layout_in=layout)

    x = floats(np.random.default_rng(1), M, K)
    torch._dynamo.reset()
    laid, packed, bytes_ = torch.compile(block, fullgraph=True)(torch.from_numpy(x).cuda())
    codes, scales_ = refnum.quantize_fp8_tiles(x)
    np.testing.assert_array_equal(raw(laid), raw(getattr(refnum.layouts, f"scales_to_{layout}")(scales_)))
    for want, got in zip(refnum.fp8_to_mxfp4(codes, scales_), (packed, bytes_), strict=True):
        np.testing.assert_array_equal(want, raw(got))


def test_stochastic_rounding_takes_bits_or_a_key():
    rng = np.random.default_rng(2)
    x, rbits = floats(rng, M, K), bytes_of(rng, M, K)
    tensor = torch.from_numpy(x).cuda()
    found = torch.ops.refnum.quantize_mxfp4(tensor, "STOCHASTIC", rbits=torch.from_numpy(rbits).cuda())
    for want, got in zip(refnum.quantize_mxfp4(x, "STOCHASTIC", rbits=rbits), found, strict=True):
        np.testing.assert_array_equal(want, raw(got))
    keyed = [torch.ops.refnum.quantize_mxfp4(tensor, "STOCHASTIC", philox=[seed, 0, 0])[0] for seed in (1, 1, 2)]
    high = (1 << 64) - 7  # torch's integers have a sign
    found = torch.ops.refnum.quantize_mxfp4(tensor, "STOCHASTIC", philox=[high - (1 << 64), 4, 5, 64])
    for want, got in zip(refnum.quantize_mxfp4(x, "STOCHASTIC", philox=(high, 4, 5, 64)), found, strict=True):
        np.testing.assert_array_equal(want, raw(got))
    assert torch.equal(keyed[0], keyed[1])
    assert not torch.equal(keyed[0], keyed[2])


def test_compiled_with_cuda_graphs_between_other_operations():
    def block(x):
        packed, bytes_ = torch.ops.refnum.quantize_mxfp4(torch.nn.functional.relu(x) - 1.0)
        return torch.ops.refnum.dequantize_mxfp4(packed, bytes_, dtype=torch.bfloat16) * 2

    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(x).clone(), block(x))


def test_a_gradient_is_refused_with_the_reason():
    if "unpermute" not in operators.REGISTERED:
        pytest.skip("this version has no launcher of an operation that is differentiable")
    arguments = given("unpermute")
    arguments["rows"].requires_grad_(True)
    with pytest.raises(UnsupportedError, match="unpermute has no gradient"):
        operators.unpermute(**arguments).sum().backward()
