"""The operators on a device: opcheck, torch.compile without graph breaks, CUDA graphs, streams, no gradient."""

import kernel_samples as samples
import numpy as np
import pytest

import conformance.golden
import gpu
import refnum
from refnum.errors import UnsupportedError

USABLE, REASON = gpu.available()
torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = pytest.mark.skipif(
    not USABLE or not torch.cuda.is_available(),
    reason=f"NO KERNEL WAS RUN: {REASON or 'torch sees no GPU'}",
)

import gpu.torch as operators  # noqa: E402

M, K, T = 192, 320, 150
SPLITS = [64, 0, 130 - 64, 62]


def floats(rng, *shape):
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(np.float32)


def bf16(rng, *shape):
    return floats(rng, *shape).astype(samples.BFLOAT16)


def bytes_of(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def scales(rng, *shape):
    return rng.integers(100, 140, shape, dtype=np.uint8)


def codes(rng, *shape):
    """Return E4M3 codes without NaN."""
    x = bytes_of(rng, *shape)
    return np.where((x & 0x7F) == 0x7F, 0, x).astype(np.uint8)


def make(name):
    """Return the golden keywords of one call of an operation."""
    rng = np.random.default_rng(0)
    mxfp4 = {"packed": bytes_of(rng, M, K // 2), "scales": scales(rng, M, K // 32)}
    fp8 = {"codes": codes(rng, M, K), "scales": scales(rng, M, -(-K // 128))}
    pair = {"gate": bf16(rng, M, K), "up": bf16(rng, M, K), "prob": rng.random(M).astype(np.float32)}
    row_map = rng.integers(0, T, M).astype(np.int64)
    return {
        "quantize_mxfp4": {"x": bf16(rng, M, K), "profile": "OCP"},
        "dequantize_mxfp4": {**mxfp4, "dtype": "bfloat16"},
        "quantize_fp8_tiles": {"x": floats(rng, M, K), "tile": (128, 128)},
        "dequantize_fp8_tiles": {**fp8, "dtype": "bfloat16"},
        "fp8_to_mxfp4": fp8,
        "mxfp4_to_fp8": {**mxfp4, "scale": "amax"},
        "mxfp4_to_fp8_columns": {**mxfp4, "splits": SPLITS},
        "mxfp4_columns": {**mxfp4, "splits": SPLITS},
        "mxfp4_to_fp8_rows_columns": {**mxfp4, "splits": SPLITS},
        "fp8_columns": {**fp8, "splits": SPLITS},
        "swiglu_quantize": {**pair, "to": "mxfp4"},
        "swiglu_backward": {"grad": bf16(rng, M, K), **pair},
        "pack_payload": mxfp4,
        "unpack_payload": {"payload": bytes_of(rng, M, K // 32 * 17)},
        "quantize_payload": {"x": bf16(rng, M, K)},
        "fp8_to_payload": fp8,
        "permute_unpack": {"payload": bytes_of(rng, T, K // 32 * 17), "row_map": row_map, "splits": SPLITS},
        "encode_e2m1": {"x": bf16(rng, 2, 3, 70)},
        "encode_e4m3": {"x": floats(rng, 2, 3, 70), "overflow": "nan"},
        "encode_e8m0": {"x": floats(rng, 2, 3, 70), "saturate": True},
        "permute_pad": {"payload": bytes_of(rng, T, K // 32 * 17), "row_map": row_map, "splits": SPLITS},
        "unpermute": {
            "rows": bf16(rng, 64 + 96 + 64, K), "row_map": row_map, "splits": SPLITS,
            "weights": rng.random(M).astype(np.float32), "tokens": T,
        },
    }[name]  # fmt: skip


def given(name):
    """Return the same call with torch's words and tensors on the device."""
    words = {"dtype": lambda dtype: getattr(torch, dtype), "tile": list}

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
    wanted = (getattr(conformance.golden, name, None) or getattr(refnum, name))(**make(name))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    results = results if isinstance(results, tuple | list) else (results,)
    assert len(wanted) == len(results)
    for want, got in zip(wanted, results, strict=True):
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
