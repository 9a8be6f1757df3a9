"""Whole products (N19.4): every order and kind of scale against the oracle, ragged groups, bounds, bad input."""

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from test_tensor_core import codes

from refnum.bounds import product_bounds
from refnum.errors import ArgumentError, DtypeError, ProfileError, ScaleError, ShapeError
from refnum.oracle import product as exact
from refnum.product import matmul_bf16, matmul_fp8

ORDERS = ("chain", "promote32", "promote96", "promote128", "promote256", "split1", "split2", "split3", "split2-chain")
SCALES = ("none", "tensor", "row", "1x128", "128x128")


def bits(x):
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint16).tolist()


def scales(rng, rows, k, kind, real=False):
    """E8M0 bytes, or float32 that are no powers of two."""
    blocks = -(-k // 128)
    shape = {"tensor": (1, 1), "row": (rows, 1), "1x128": (rows, blocks), "128x128": (-(-rows // 128), blocks)}
    if kind == "none":
        return None
    found = rng.integers(112, 140, shape[kind]).astype(np.uint8)
    return np.exp2(rng.uniform(-9, 9, shape[kind])).astype(np.float32) if real else found


def listed(x):
    """Scales as the oracle takes them: one, or nested lists; float32 as fractions."""
    if x is None:
        return None
    items = x.tolist() if x.dtype == np.uint8 else [[Fraction(v) for v in line] for line in x.tolist()]
    return items[0][0] if x.size == 1 else items


WHOLE_SUMS = ("chain", "promote96", "promote256", "split2-chain")  # a run of these has several scales of 128 elements


@pytest.mark.parametrize(
    "order, kind", [(o, s) for o in ORDERS for s in SCALES if o not in WHOLE_SUMS or s not in SCALES[3:]]
)
def test_products_equal_the_oracle(order, kind):
    rng = np.random.default_rng(ORDERS.index(order) + 10 * SCALES.index(kind))
    formats = [("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E4M3", "E5M2")][(ORDERS.index(order) + SCALES.index(kind)) % 3]
    for (m, n, k), drawn, out, real in (
        ((3, 2, 420), "finite", "float32", False),
        ((2, 3, 384), "near", "bfloat16", True),
        ((2, 2, 300), "sparse", "float32", True),
        ((2, 2, 290), "anything", "bfloat16", False),
    ):
        a, b = codes(rng, (m, k), formats[0], drawn), codes(rng, (n, k), formats[1], drawn)
        pair = (scales(rng, m, k, kind, real), scales(rng, n, k, kind, real))
        got = matmul_fp8(a, b, *pair, order, out, None, *formats)
        want = exact.matmul_fp8(a.tolist(), b.tolist(), *map(listed, pair), order, out, *formats)
        assert bits(got) == want and got.dtype == (np.float32 if out == "float32" else ml_dtypes.bfloat16)


@pytest.mark.parametrize("k", [1, 31, 33, 127, 129, 256])
def test_last_steps_and_runs_may_be_short(k):
    rng = np.random.default_rng(k)
    a, b = codes(rng, (2, k), "E4M3", "near"), codes(rng, (3, k), "E4M3", "near")
    for order in ("chain", "promote64", "promote128"):
        assert bits(matmul_fp8(a, b, order=order)) == exact.matmul_fp8(a.tolist(), b.tolist(), order=order)


def test_bf16_products_equal_the_oracle():
    rng = np.random.default_rng(3)
    for order, kind in itertools.product(("chain", "promote48", "split2"), ("near", "sparse", "anything")):
        a, b = codes(rng, (3, 200), "BF16", kind), codes(rng, (2, 200), "BF16", kind)
        want = exact.matmul_bf16(a.tolist(), b.tolist(), order)
        assert bits(matmul_bf16(a, b, order)) == want == bits(matmul_bf16(a.view(ml_dtypes.bfloat16), b, order))


def test_several_passes_give_what_one_gives():
    rng = np.random.default_rng(4)
    a, b = codes(rng, (70, 160), "E4M3", "finite"), codes(rng, (90, 160), "E4M3", "finite")
    whole = matmul_fp8(a, b)
    assert bits(whole[17:18]) == bits(matmul_fp8(a[17:18], b))
    assert bits(whole[:, 60:61].copy()) == bits(matmul_fp8(a, b[60:61]))


def test_runs_of_several_passes_give_what_one_gives():
    """2,048 results: a pass takes two runs of three."""
    rng = np.random.default_rng(9)
    a, b = codes(rng, (32, 96), "E4M3", "finite"), codes(rng, (64, 96), "E4M3", "finite")
    assert bits(matmul_fp8(a, b, order="promote32")[3:4]) == bits(matmul_fp8(a[3:4], b, order="promote32"))


@pytest.mark.parametrize("left", ["none", "tensor", "row"])
@pytest.mark.parametrize("right", ["none", "tensor", "row"])
def test_splits_take_their_own_scales(left, right):
    rng = np.random.default_rng(11)
    a, b = codes(rng, (5, 64), "E4M3", "near"), codes(rng, (2, 3, 64), "E4M3", "near")
    sa, sb = scales(rng, 5, 64, left, True), scales(rng, 3, 64, right, True)
    of_experts = sb if right in ("none", "tensor") else np.stack([sb, sb * np.float32(3)])
    rows = [sa if left in ("none", "tensor") else sa[part] for part in (slice(0, 2), slice(2, 5))]
    each = [of_experts if right in ("none", "tensor") else of_experts[expert] for expert in (0, 1)]
    parts = [matmul_fp8(a[:2], b[0], rows[0], each[0]), matmul_fp8(a[2:], b[1], rows[1], each[1])]
    assert bits(matmul_fp8(a, b, sa, of_experts, splits=[2, 3])) == bits(np.concatenate(parts))


def test_splits_are_products_of_their_own():
    rng = np.random.default_rng(5)
    splits = [3, 0, 4]
    a, b = codes(rng, (7, 256), "E4M3", "near"), codes(rng, (3 * 5, 256), "E4M3", "near").reshape(3, 5, 256)
    sa = scales(rng, 7, 256, "1x128")
    sb = np.stack([scales(rng, 5, 256, "1x128") for _ in splits])
    got = matmul_fp8(a, b, sa, sb, splits=splits)
    parts = [matmul_fp8(a[:3], b[0], sa[:3], sb[0]), matmul_fp8(a[3:], b[2], sa[3:], sb[2])]
    assert bits(got) == bits(np.concatenate(parts))
    assert matmul_fp8(a[:0], b, None, sb, splits=[0, 0, 0]).shape == (0, 5)


@pytest.mark.parametrize("chains", ["any", "consecutive"])
@pytest.mark.parametrize("kind", ["finite", "near", "sparse", "anything"])
def test_bounds_hold_every_order(kind, chains):
    rng = np.random.default_rng(6)
    for scaled, k, real in itertools.product(
        ("none", "tensor", "row", "1x128", "128x128"), (64, 300, 512), (False, True)
    ):
        a, b = codes(rng, (4, k), "E4M3", kind), codes(rng, (5, k), "E4M3", kind)
        a[:, k // 2 :] = a[:, : k - k // 2] ^ 0x80  # sums that nearly cancel
        pair = (scales(rng, 4, k, scaled, real), scales(rng, 5, k, scaled, real))
        low, high = product_bounds(a, b, *pair, chains)
        for order in ("promote32", "promote64", "promote128", "split2", "chain"):
            if (order == "split2" and k < 129) or (order == "chain" and scaled in SCALES[3:]):
                continue
            found = matmul_fp8(a, b, *pair, order)
            nan = np.isnan(low) & np.isnan(high) & np.isnan(found)
            assert (nan | ((low <= found) & (found <= high))).all(), (order, scaled, k)


def test_bounds_of_exact_sums_are_points():
    a = np.array([[0x38, 0x38, 0xB8, 0x40]], np.uint8)  # 1, 1, -1, 2
    low, high = product_bounds(a, a)
    assert low.item() == high.item() == 7.0


def test_bounds_exclude_a_sum_of_too_few_bits():
    rng = np.random.default_rng(8)
    a, b = codes(rng, (8, 32), "E4M3", "near"), codes(rng, (8, 32), "E4M3", "near")
    low, high = product_bounds(a, b)
    right = matmul_fp8(a, b)
    cut = (right.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)  # 10 bits
    assert ((cut < low) | (cut > high)).any()


A, SA = np.zeros((4, 256), np.uint8), np.full((4, 2), 127, np.uint8)
NAN_SCALE = np.array([[255]], np.uint8)


@pytest.mark.parametrize(
    "error, said, given",
    [
        (ArgumentError, "order='tree'; allowed are", {"order": "tree"}),
        (ArgumentError, "order=None", {"order": None}),
        (ArgumentError, "multiple of a step's 32", {"order": "promote48"}),
        (ArgumentError, "3 parts has more than K = 256", {"order": "split3"}),
        (ArgumentError, "runs that lie in one block", {"order": "chain", "a_scales": SA}),
        (ArgumentError, "runs that lie in one block", {"order": "promote256", "a_scales": SA}),
        (ArgumentError, "dtype='float16'", {"out": "float16"}),
        (ShapeError, "a_scales has shape", {"a_scales": SA[:3]}),
        (ShapeError, "b_scales has shape", {"b_scales": np.zeros(4, np.uint8)}),
        (ScaleError, "a_scales has dtype int32", {"a_scales": SA.astype(np.int32)}),
        (ScaleError, "b_scales holds a NaN", {"b_scales": NAN_SCALE}),
        (ScaleError, "a_scales holds a NaN or an Inf", {"a_scales": np.array([[np.inf]], np.float32)}),
        (ShapeError, "K = 0", {"a": A[:, :0], "b": A[:, :0]}),
        (ShapeError, "both are K-major", {"b": A[:, :128]}),
        (DtypeError, "codes, not values", {"a": A.astype(np.float32)}),
        (ShapeError, "splits sum to 3", {"splits": [3], "b": A[None]}),
        (ShapeError, "three axes", {"splits": [4]}),
        (ShapeError, "with splits", {"splits": [4], "b": A[None], "a_scales": SA[:1]}),
        (ProfileError, "a_format is E2M1", {"a_format": "E2M1"}),
    ],
)  # fmt: skip
def test_bad_input(error, said, given):
    with pytest.raises(error, match=said):
        matmul_fp8(**{"a": A, "b": A, **given})


def test_bad_input_of_bf16_products_and_bounds():
    with pytest.raises(DtypeError, match="a has dtype float32"):
        matmul_bf16(A.astype(np.float32), A)
    with pytest.raises(ArgumentError, match="chains"):
        product_bounds(A, A, chains="some")
