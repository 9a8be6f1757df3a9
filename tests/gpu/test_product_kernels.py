"""FP8 products of the host build and of the kernel on the emulated machine, against the model (N19)."""

import itertools

import numpy as np
import pytest

from refnum import softfloat
from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError
from refnum.gpu import emulate
from refnum.gpu.host.build import address, library
from refnum.gpu.ops import product
from refnum.product import matmul_bf16, matmul_fp8, tensor_core_step

ORDERS = ("chain", "promote32", "promote96", "promote128", "split2", "split3", "split2-chain")
KINDS = ("none", "tensor", "row", "1x128", "128x128")
FORMATS = ("E4M3", "E5M2")
FINITE = {"E4M3": 0x7E, "E5M2": 0x7B}
CASES = [c for c in itertools.product(ORDERS, KINDS) if c[1] not in KINDS[3:] or c[0] in ORDERS[1:2] + ORDERS[3:6]]


def codes(rng, shape, fmt, special=False):
    found = rng.integers(0, 256, shape).astype(np.uint8)
    return found if special else np.minimum(found & 0x7F, FINITE[fmt]).astype(np.uint8) | (found & np.uint8(0x80))


def scales(rng, rows, k, kind, number):
    blocks = -(-k // 128)
    shape = {"tensor": (1, 1), "row": (rows, 1), "1x128": (rows, blocks), "128x128": (-(-rows // 128), blocks)}
    if kind == "none":
        return None
    found = rng.integers(*((0, 255) if number % 5 == 0 else (110, 140)), shape[kind]).astype(np.uint8)
    return found.astype(np.float32) * np.float32(0.0137) if number % 7 == 6 else found


def bits(x):
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint16)


@pytest.fixture(scope="session")
def emulated(emulated_machine):
    return emulate.on_numpy(product.matmul_fp8, emulated_machine)


def arguments(order, kind, shape):
    """The arguments of a product whose formats, codes, scales and output differ from case to case."""
    number = CASES.index((order, kind))
    rng, (m, n, k) = np.random.default_rng(number), shape
    formats = (FORMATS[number % 2], FORMATS[number // 2 % 2])
    a, b = (codes(rng, (r, k), fmt, number % 4 == 3) for r, fmt in zip((m, n), formats, strict=True))
    pair = (scales(rng, m, k, kind, number), scales(rng, n, k, kind, number))
    return (a, b, *pair, order, ("float32", "bfloat16")[number % 2], None, *formats)


@pytest.mark.parametrize("order, kind", CASES)
def test_host_products(host, order, kind):
    given = arguments(order, kind, (5, 133, 417))
    got, want = host.matmul_fp8(*given), matmul_fp8(*given)
    assert got.dtype == want.dtype and np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("order, kind", CASES[::2])
def test_emulated_products(emulated, order, kind):
    given = arguments(order, kind, (66, 5, 400))
    got, want = emulated(*given), matmul_fp8(*given)
    assert got.dtype == want.dtype and np.array_equal(bits(got), bits(want))


@pytest.fixture(scope="session")
def emulated_bf16(emulated_machine):
    return emulate.on_numpy(product.matmul_bf16, emulated_machine)


def bf16(rng, shape, kind):
    """Bits of near numbers, of any finite ones, of mostly zeros and tiny ones, and anything."""
    sign = rng.integers(0, 2, shape) << 15
    low, high = {"near": (0x3C00, 0x4300), "tiny": (0, 0x2100), "huge": (0x5E00, 0x7F80)}.get(kind, (0, 0x8000))
    found = rng.integers(low, high, shape)
    return (np.where(rng.random(shape) < 0.3, 0, found) | sign).astype(np.uint16)


BF16_CASES = [*itertools.product(("chain", "promote16", "promote128", "split2"), ("near", "tiny", "huge", "anything"))]


def bf16_arguments(order, kind, shape):
    number = BF16_CASES.index((order, kind))
    rng, (m, n, k) = np.random.default_rng(number), shape
    a, b = bf16(rng, (m, k), kind), bf16(rng, (n, k), kind)
    a[: m // 2, k // 2 :] = a[: m // 2, : k - k // 2] ^ 0x8000  # sums that nearly cancel
    b[: n // 2, k // 2 :] = b[: n // 2, : k - k // 2]
    return a, b, order, ("float32", "bfloat16")[number % 2]


@pytest.mark.parametrize("order, kind", BF16_CASES)
def test_host_products_of_bf16(host, order, kind):
    given = bf16_arguments(order, kind, (17, 23, 203))
    got, want = host.matmul_bf16(*given), matmul_bf16(*given)
    assert got.dtype == want.dtype and np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("order, kind", BF16_CASES[::3])
def test_emulated_products_of_bf16(emulated_bf16, order, kind):
    given = bf16_arguments(order, kind, (66, 5, 200))
    got, want = emulated_bf16(*given), matmul_bf16(*given)
    assert got.dtype == want.dtype and np.array_equal(bits(got), bits(want))


def test_steps_that_overflow_stay_infinite(host, emulated_bf16):
    """A sum beyond 2**128 is an infinity for good; one of the other sign beside it is NaN."""
    large, infinite = 0x7F7F, 0x7F80
    a = np.zeros((4, 48), np.uint16)
    a[:, 0] = large
    a[1:, 16] = [large | 0x8000, infinite | 0x8000, infinite]
    b = np.full((2, 48), 0x4000, np.uint16)
    for call in (host.matmul_bf16, emulated_bf16):
        assert np.array_equal(bits(call(a, b)), bits(matmul_bf16(a, b)))
    assert bits(matmul_bf16(a, b))[:, 0].tolist() == [0x7F800000, 0x7F800000, 0x7FFFFFFF, 0x7F800000]


def test_ragged_products_of_bf16(host, emulated_bf16):
    rng = np.random.default_rng(2)
    a, b = bf16(rng, (30, 100), "near"), bf16(rng, (21, 100), "near").reshape(3, 7, 100)
    for call in (host.matmul_bf16, emulated_bf16):
        given = {"a": a, "b": b, "order": "promote32", "splits": [10, 0, 20]}
        assert np.array_equal(bits(call(**given)), bits(matmul_bf16(**given)))


def test_bad_input_of_bf16(host, emulated_bf16):
    a = np.zeros((4, 256), np.uint16)
    wrong = {"order": "promote8"}, {"order": "split3"}, {"b": a[:, :128].copy()}, {"a": a.astype(np.float32)}, {"b": A}
    for call in (host.matmul_bf16, emulated_bf16):
        for given in wrong:
            with pytest.raises((ArgumentError, ShapeError, DtypeError)):
                call(**{"a": a, "b": a, **given})


@pytest.mark.parametrize("call", ["host", "emulated"])
def test_splits(request, host, call):
    function = host.matmul_fp8 if call == "host" else request.getfixturevalue("emulated")
    rng = np.random.default_rng(0)
    a, b = codes(rng, (30, 256), "E4M3"), codes(rng, (3, 7, 256), "E4M3")
    sa, sb = (rng.integers(110, 140, shape).astype(np.uint8) for shape in ((30, 2), (3, 7, 2)))
    for pair in ((sa, sb), (sa[:, :1].copy(), None), (None, sb.astype(np.float32))):
        given = {"a": a, "b": b, "a_scales": pair[0], "b_scales": pair[1], "splits": [10, 0, 20]}
        assert np.array_equal(bits(function(**given)), bits(matmul_fp8(**given)))
    assert function(a[:0], b, splits=[0, 0, 0]).shape == (0, 7)


@pytest.mark.parametrize("call", ["host", "emulated"])
@pytest.mark.parametrize("wide", [1, 5])
def test_the_scale_of_an_experts_only_row_or_column_is_per_tensor(request, host, call, wide):
    """Each expert's rows are a product of their own (N19.8), and one item is per tensor (N19.5)."""
    function = host.matmul_fp8 if call == "host" else request.getfixturevalue("emulated")
    rng = np.random.default_rng(3)
    a, b = codes(rng, (66, 64), "E4M3"), codes(rng, (4, wide, 64), "E4M3")
    scales = [rng.uniform(1, 2, shape).astype(np.float32) for shape in ((66, 1), (4, wide, 1))]
    given = {"a": a, "b": b, "a_scales": scales[0], "b_scales": scales[1], "order": "chain", "splits": [1, 0, 64, 1]}
    want = bits(matmul_fp8(**given))
    assert np.array_equal(bits(function(**given)), want)
    alone = [slice(0, 1), slice(1, 65), slice(65, 66)]
    each = [matmul_fp8(a[rows], b[expert], scales[0][rows], scales[1][expert], order="chain")
            for rows, expert in zip(alone, (0, 2, 3), strict=True)]  # fmt: skip
    assert np.array_equal(bits(np.concatenate(each)), want)


@pytest.mark.parametrize("out", [np.float32, "bfloat16"])
def test_results_go_where_the_caller_says(host, emulated, out):
    rng = np.random.default_rng(1)
    a, b = codes(rng, (3, 300), "E4M3"), codes(rng, (4, 300), "E4M3")
    dtype = np.dtype(np.float32) if out is np.float32 else matmul_fp8(a, b, out="bfloat16").dtype
    for call in (host.matmul_fp8, emulated):
        for order in ("chain", "split2"):
            given = np.zeros((3, 4), dtype)
            call(a, b, order=order, out=given)
            assert np.array_equal(bits(given), bits(matmul_fp8(a, b, order=order, out=dtype.name)))


def test_fused_products_and_sums_of_the_host(host):
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 1 << 32, (3, 200_000), dtype=np.uint32)
    near = (softfloat.multiply(a, b) ^ np.uint32(1 << 31)) + rng.integers(-3, 4, a.size).astype(np.uint32)
    few = rng.choice(np.array([0, 1, 0x800000, 0x7F800000, 0x7F7FFFFF, 0x3F800000], np.uint32), (3, 5000))
    signs = rng.integers(0, 2, few.shape, dtype=np.uint32) << np.uint32(31)
    for x, y, z in ((a, b, c), (a, b, near), few | signs):
        x, y, z = map(np.ascontiguousarray, (x, y, z))
        out = np.empty(x.size, np.uint32)
        library().refnum_multiply_add_floats(*map(address, (x, y, z, out)), x.size)
        out = np.where((out & np.uint32(0x7FFFFFFF)) > softfloat.INF, softfloat.NAN, out)
        assert np.array_equal(out, softfloat.multiply_add(x, y, z))


def steps(a, b, c, formats=0):
    """One step a row: codes [R, T] and the bits of accumulators [R] on the host's arithmetic."""
    a, b, c = map(np.ascontiguousarray, (a, b, c))
    out = np.empty(len(c), np.uint32)
    library().refnum_fp8_steps(address(a), address(b), address(c), len(c), a.shape[1], formats, address(out))
    return out


def test_every_pair_of_codes_beside_every_exponent_of_an_accumulator(host):
    """65,536 pairs, and accumulators of all exponents that the header allows, mantissas and signs by turns."""
    rng = np.random.default_rng(2)
    every = np.arange(256, dtype=np.uint8)
    for formats in range(4):
        names = (FORMATS[formats & 1], FORMATS[formats >> 1])
        left, right = (every[(every & 0x7F) <= FINITE[name]] for name in names)
        for exponent in range(127 - 41, 127 + 80, 8 if formats == 0 else 40):
            fields = exponent + np.arange(8, dtype=np.uint32)[:, None, None] % np.uint32(8)
            fraction = rng.integers(0, 1 << 23, (8, left.size, right.size)).astype(np.uint32)
            sign = rng.integers(0, 2, fraction.shape).astype(np.uint32) << np.uint32(31)
            c = np.minimum(fields, 127 + 79).astype(np.uint32) << np.uint32(23) | fraction | sign
            for one in c:
                want = tensor_core_step(left[:, None], right[:, None], one.view(np.float32), "wgmma_fp8", *names)
                pairs = np.broadcast_arrays(left[:, None], right[None, :])
                got = steps(pairs[0].reshape(-1, 1), pairs[1].reshape(-1, 1), one.reshape(-1), formats)
                assert np.array_equal(got, bits(want).reshape(-1)), (names, exponent)


A, SA = np.zeros((4, 256), np.uint8), np.full((4, 2), 127, np.uint8)


@pytest.mark.parametrize(
    "error, given",
    [
        (ArgumentError, {"order": "tree"}),
        (ArgumentError, {"order": "promote48"}),
        (ArgumentError, {"order": "split3"}),
        (ArgumentError, {"order": "chain", "a_scales": SA}),
        (ArgumentError, {"order": "promote256", "a_scales": SA}),
        (ArgumentError, {"out": "float16"}),
        (ArgumentError, {"a_format": "E2M1"}),
        (DtypeError, {"out": np.zeros((4, 4), np.float64)}),
        (ShapeError, {"out": np.zeros((4, 3), np.float32)}),
        (ShapeError, {"a_scales": SA[:3].copy()}),
        (ShapeError, {"b_scales": np.zeros(4, np.uint8)}),
        (ScaleError, {"a_scales": SA.astype(np.int32)}),
        (ShapeError, {"a": A[:, :0].copy(), "b": A[:, :0].copy()}),
        (ShapeError, {"b": A[:, :128].copy()}),
        (DtypeError, {"a": A.astype(np.float32)}),
        (DtypeError, {"b": A.astype(np.int8)}),
        (ShapeError, {"splits": [3], "b": A[None]}),
        (ShapeError, {"splits": [4]}),
        (ShapeError, {"splits": [4], "b": A[None], "a_scales": SA[:1].copy()}),
    ],
)  # fmt: skip
def test_bad_input(host, emulated, error, given):
    for call in (host.matmul_fp8, emulated):
        with pytest.raises(error):
            call(**{"a": A, "b": A, **given})
