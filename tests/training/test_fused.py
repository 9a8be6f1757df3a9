"""The fused kernels against the torch functions that they stand for, on a GPU, or in Triton's interpreter."""

import os

import numpy as np
import pytest

from refnum import softfloat

torch = pytest.importorskip("torch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")
edges = pytest.importorskip("refnum.training.edges")


@pytest.fixture
def fused():
    from refnum.training import fused

    return fused


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def gradients(function, inputs, grads):
    inputs = [one.detach().clone().requires_grad_() for one in inputs]
    found = function(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    torch.autograd.backward(found, grads)
    return [*found, *(one.grad for one in inputs)]


@pytest.mark.parametrize("rows", (1, 300))
def test_the_norm_is_that_of_torch_up_to_the_order_of_sums(fused, rows):
    def torch_norm(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + fused.EPSILON) * weight).to(torch.bfloat16)

    x, weight, grad = drawn(rows, 2, 64), drawn(64, dtype=torch.float32), drawn(rows, 2, 64) / 3
    ours, theirs = (gradients(one, (x, weight), (grad,)) for one in (fused.norm, torch_norm))
    for one, other, most in zip(ours, theirs, (2**-7, 2**-6, 1e-4), strict=True):
        assert one.dtype == other.dtype
        assert (one.float() - other.float()).abs().max() <= most * other.float().abs().max()


@pytest.mark.parametrize("heads, groups", ((2, 2), (4, 1)))
def test_rotary_positions_have_the_bits_of_torch(fused, heads, groups):
    from refnum.training.model import _turned, turns

    count, length, width = 3, 9, 16
    by = turns(length, width, DEVICE)

    def torch_split(x):
        parts = x.split([heads * width, groups * width, groups * width], dim=-1)
        query, key, value = (part.view(count, length, -1, width).transpose(1, 2) for part in parts)
        return tuple(one.transpose(1, 2) for one in (_turned(query, by), _turned(key, by), value))

    x = drawn(count, length, (heads + 2 * groups) * width)
    grads = tuple(drawn(count, length, n, width) for n in (heads, groups, groups))
    ours = gradients(lambda x: fused.split_and_turned(x, (heads, groups), by), (x,), grads)
    for one, other in zip(ours, gradients(torch_split, (x,), grads), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        if DEVICE == "cuda":
            assert torch.equal(one, other)
        else:  # the interpreter cuts bfloat16 off
            assert torch.allclose(one.float(), other.float(), 2**-7, 0.0)


@pytest.mark.parametrize("count", (0, 1, 5000))
def test_rounding_to_bfloat16_is_that_of_the_model(fused, count):
    """Ties, both zeros, subnormal numbers, what rounds to Inf, and NaN of every kind, of which torch makes its own."""
    high = np.array([0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FBF, 0x7FC0, 0x7FFF], np.uint32)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = (np.array([0, 0x8000], np.uint32)[:, None, None] | high[:, None]) << np.uint32(16) | low
    bits = np.resize(bits.reshape(-1), count)
    x = torch.from_numpy(bits.view(np.float32)).to(DEVICE)
    want = softfloat.to_bfloat16(bits).tolist()
    assert (fused.rounded(x).view(torch.int16).cpu().numpy().view(np.uint16)).tolist() == want
    assert (edges.rounded(x).view(torch.int16).cpu().numpy().view(np.uint16)).tolist() == want


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter lacks libdevice")
@pytest.mark.parametrize("rows, columns", ((5, 128), (2, 2048), (0, 128)))
def test_swiglu_is_that_of_torch(fused, rows, columns):
    fc1, prob = drawn(rows, 2 * columns), drawn(rows, dtype=torch.float32)
    gate, up = fc1.chunk(2, dim=1)
    want = (torch.nn.functional.silu(gate.float()) * up.float() * prob.unsqueeze(1)).to(torch.bfloat16)
    found = fused.weighted_swiglu(gate, up, prob)
    assert found.dtype == want.dtype and torch.allclose(found.float(), want.float(), 2**-7, 0.0)
