"""SwiGLU of the host build (N11): against NumPy's float32 with the frozen table, and against the golden model."""

import float64_oracle as oracle
import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import swiglu as golden
from refnum.environment import flushes_subnormals
from refnum.errors import ArgumentError, DtypeError, FileError, ProfileError, ShapeError, UnsupportedError
from refnum.gpu import silu as tables
from refnum.gpu.host.build import library

NAN, INF = np.uint32(0x7FC00000), np.uint32(0x7F800000)
GATES = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
UPS = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x0040, 0x007F, 0x0080, 0x00FF, 0x3F80, 0xBF80, 0x3F81, 0x3FFF, 0x4000, 0x4049,
    0xC02D, 0x3F00, 0x3EAB, 0x0D55, 0x2000, 0x5FD3, 0x6AAA, 0x7E80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7F81, 0xFFC0,
]  # fmt: skip
"""Both zeros, subnormals and their ends, 1 and its neighbours, short and long significands, large, Inf, NaN."""
PROBS = [0.0, -0.0, 1.0, 0.1, 0.70710677, -1.0, 1e-45, 1.1754942e-38, 3.4028235e38, np.inf, np.nan, 0.99999994]


def canonical(bits):
    return np.where((bits & np.uint32(0x7FFFFFFF)) > INF, NAN, bits)


def numpy_float32(operation, a, b):
    """float32 bits of one operation of NumPy, which rounds to nearest even and keeps subnormals here."""
    assert not flushes_subnormals(), "the host flushes subnormals: it is no reference"
    with np.errstate(all="ignore"):
        return canonical(operation(a.view(np.float32), b.view(np.float32)).view(np.uint32))


def widen(x):
    return x.view(np.uint16).astype(np.uint32) << np.uint32(16) if x.itemsize == 2 else x.view(np.uint32)


def forward(gate, up, prob=None):
    """float32 bits of silu(gate) * up * prob by NumPy and the model's frozen table."""
    bits = numpy_float32(np.multiply, golden.silu(gate), widen(up))
    return bits if prob is None else numpy_float32(np.multiply, bits, prob.view(np.uint32)[:, None])


def host_forward(gate, up, prob=None):
    out = np.empty(gate.shape, np.uint32)
    library().refnum_swiglu(
        tables.silu_table().ctypes.data, gate.ctypes.data, up.ctypes.data, None if prob is None else prob.ctypes.data,
        *gate.shape, out.ctypes.data,
    )  # fmt: skip
    return out


def equal(got, wanted, what=""):
    assert len(got) == len(wanted)
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if b is None:
            assert a is None
            continue
        assert a.dtype == b.dtype and a.shape == b.shape, (what, number)
        bits = f"u{a.itemsize}"
        bad = np.argwhere(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits))
        assert bad.size == 0, f"{what}, output {number}: {len(bad)} differ, first at {bad[0]}"


def test_table_is_the_model_s():
    assert tables.SHA256 == golden.TABLE_SHA256 and tables.path() == golden.TABLE_PATH
    assert np.array_equal(tables.silu_table(), np.stack([golden.silu(GATES), golden.sigmoid(GATES)]))


def test_a_damaged_table_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "path", lambda: tmp_path / "table.bin")
    tables.silu_table.cache_clear()
    with pytest.raises(FileError, match="cannot be read"):
        tables.silu_table()
    (tmp_path / "table.bin").write_bytes(b"\0" * (1 << 19))
    with pytest.raises(FileError, match="sha256"):
        tables.silu_table()
    monkeypatch.undo()
    assert tables.silu_table().shape == (2, 1 << 16)


@pytest.mark.parametrize("up", UPS, ids=lambda u: f"{u:04x}")
def test_every_gate_times_a_representative_up(host, up):
    """The product before it is quantised, without a weight and under twelve weights."""
    gate = np.tile(GATES, (len(PROBS), 1))
    ups, prob = np.full(gate.shape, up, np.uint16), np.array(PROBS, np.float32)
    for weights in (None, prob):
        got, wanted = host_forward(gate, ups, weights), forward(gate, ups, weights)
        equal([got], [wanted], "NumPy")
        equal([got.view(np.float32)], [golden.swiglu(gate, ups, weights)], "model")


@pytest.mark.parametrize("to", ["fp8", "mxfp4"])
def test_every_gate_quantised(host, to):
    """Blocks of 32 neighbours in the order of the bits, and shuffled over all exponents; every representative up."""
    shuffled = np.random.default_rng(4).permutation(GATES)
    for gate in (GATES.reshape(-1, 256), shuffled.reshape(-1, 256)):
        for up in UPS:
            ups = np.full(gate.shape, up, np.uint16)
            equal(host.swiglu_quantize(gate, ups, to=to), refnum.swiglu_quantize(gate, ups, to=to), f"up {up:04x}")


def arrays(rng, m, h):
    """(gate, up): all bit patterns, sizes as in training, subnormal products, signed zeros, one special a row."""
    wild = [rng.integers(0, 1 << 16, (m, h)).astype(np.uint16) for _ in range(2)]
    usual = [(rng.standard_normal((m, h)) * 3).astype(np.float32).astype(ml_dtypes.bfloat16) for _ in range(2)]
    yield wild
    yield usual
    yield usual[0], (usual[1].astype(np.float32) * np.float32(2.0**-128)).astype(ml_dtypes.bfloat16)
    yield usual[0], (usual[1].astype(np.float32) * np.float32(2.0**-121)).astype(ml_dtypes.bfloat16)
    yield wild[0] & np.uint16(0x807F), wild[1] & np.uint16(0xBFFF)
    yield wild[0] & np.uint16(0x8000), wild[1] & np.uint16(0xBFFF)
    special = usual[1].copy()
    if m:
        special[np.arange(m), rng.integers(0, h, m)] = rng.choice([np.inf, -np.inf, np.nan], m)
    yield usual[0], special


@pytest.mark.parametrize("m, h", [(0, 32), (1, 32), (7, 96), (5, 128), (3, 160), (2, 1024)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("to", ["fp8", "mxfp4"])
def test_quantised_tensors(host, to, weighted, m, h):
    rng = np.random.default_rng([m, h, weighted])
    for case, (gate, up) in enumerate(arrays(rng, m, h)):
        prob = None
        if weighted:
            prob = rng.random(m).astype(np.float32) if case else rng.choice(np.array(PROBS, np.float32), m)
        for profile in ("HOPPER", "OCP", "CEIL", "EVEN", "TE"):
            got = host.swiglu_quantize(gate, up, prob, to, profile)
            equal(got, refnum.swiglu_quantize(gate, up, prob, to, profile), (case, profile))
        v = forward(gate, up, prob).view(np.float32).astype(np.float64)
        exact = oracle.quantize_fp8_tiles(v) if to == "fp8" else oracle.quantize_mxfp4(v)
        equal(host.swiglu_quantize(gate, up, prob, to), [x.astype(np.uint8) for x in exact], (case, "float64"))


def test_one_rounding_of_the_product_shows(host):
    """A product that would round otherwise from bfloat16, or with the weight fused into it, exists and is right."""
    rng = np.random.default_rng(9)
    gate, up = next(pair for number, pair in enumerate(arrays(rng, 64, 1024)) if number == 1)
    prob = rng.random(64).astype(np.float32)
    got = host.swiglu_quantize(gate, up, prob)[0]
    narrow = forward(gate, up, prob).view(np.float32).astype(ml_dtypes.bfloat16)
    assert (host.quantize_fp8_tiles(narrow)[0] != got).sum() > 10
    y, u = golden.silu(gate).view(np.float32).astype(np.float64), widen(up).view(np.float32).astype(np.float64)
    fused = (y * u * prob[:, None]).astype(np.float32).view(np.uint32)
    assert (fused != host_forward(gate, up, prob)).sum() > 100


def tree(terms):
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            terms = np.concatenate([terms, np.zeros((len(terms), 1), np.uint32)], axis=1)
        left, right = (np.ascontiguousarray(terms[:, i::2]) for i in (0, 1))
        terms = numpy_float32(np.add, left, right)
    return terms[:, 0]


def backward(grad, gate, up, prob):
    """Every step of the stated order by NumPy."""

    def times(a, b):
        return numpy_float32(np.multiply, a, b)

    one = np.array([0x3F800000], np.uint32)
    s, y, g, u, received = golden.sigmoid(gate), golden.silu(gate), widen(gate), widen(up), widen(grad)
    v = numpy_float32(np.add, one, times(g, numpy_float32(np.subtract, one, s)))
    gp = received if prob is None else times(received, prob.view(np.uint32)[:, None])
    dprob = None if prob is None else tree(times(received, times(y, u)))
    steps = [times(times(gp, u), times(s, v)), times(gp, y), dprob]
    return [None if x is None else x.view(np.float32) for x in steps]


@pytest.mark.parametrize("h", [1, 2, 3, 5, 31, 32, 33, 64, 100, 1000])
def test_backward(host, h):
    rng = np.random.default_rng(h)
    for case, (gate, up) in enumerate(arrays(rng, 6, h)):
        wild = rng.integers(0, 1 << 32, (6, h), dtype=np.uint32)
        grads = [
            wild.view(np.float32),
            (wild >> 16).astype(np.uint16),
            rng.standard_normal((6, h)).astype(np.float32),
            rng.standard_normal((6, h)).astype(ml_dtypes.bfloat16),
            (wild & 0x80000000).view(np.float32),
        ]
        for number, grad in enumerate(grads):
            for prob in (None, rng.random(6).astype(np.float32), rng.choice(np.array(PROBS, np.float32), 6)):
                got = host.swiglu_backward(grad, gate, up, prob)
                equal(got, backward(grad, gate, up, prob), (case, number))
                equal(got, refnum.swiglu_backward(grad, gate, up, prob), (case, number, "model"))


def test_backward_every_gate(host):
    gate = GATES.reshape(64, 1024)
    rng = np.random.default_rng(3)
    grad = rng.standard_normal(gate.shape).astype(np.float32)
    for up in UPS:
        ups, prob = np.full(gate.shape, up, np.uint16), rng.random(64).astype(np.float32)
        got = host.swiglu_backward(grad, gate, ups, prob)
        equal(got, backward(grad, gate, ups, prob), f"up {up:04x}")
        equal(got, refnum.swiglu_backward(grad, gate, ups, prob), f"up {up:04x}, model")


def test_backward_sum_is_a_tree_of_neighbours(host):
    """silu(gate) * up is 1 up to the sign when gate is large and up its inverse: grads become the terms."""
    gate = np.full((1, 5), 64.0, ml_dtypes.bfloat16)
    up = np.full((1, 5), 1 / 64, ml_dtypes.bfloat16)
    one = np.ones(1, np.float32)
    grad = np.array([[2.0**24, 1, 1, 1, 1]], np.float32)
    assert host.swiglu_backward(grad, gate, up, one)[2].tolist() == [2.0**24 + 4]
    minus = host.swiglu_backward(np.full((1, 3), -0.0, np.float32), gate[:, :3], up[:, :3], one)[2]
    assert not np.signbit(minus[0])  # the odd last term meets a +0
    minus = host.swiglu_backward(np.full((1, 2), -0.0, np.float32), gate[:, :2], up[:, :2], one)[2]
    assert np.signbit(minus[0])
    assert host.swiglu_backward(grad[:0], gate[:0], up[:0], one[:0])[2].shape == (0,)


@pytest.fixture
def given():
    rng = np.random.default_rng(6)
    gate, up = ((rng.standard_normal((6, 64)) * 2).astype(np.float32).astype(ml_dtypes.bfloat16) for _ in range(2))
    return rng.standard_normal((6, 64)).astype(np.float32), gate, up, rng.random(6).astype(np.float32)


def test_layout_of_inputs_does_not_matter_and_they_stay(host, given):
    def spread(x):
        wide = np.zeros([2 * n for n in x.shape], x.dtype)
        view = wide[(slice(None, None, -2),) * x.ndim]
        view[...] = x
        view.flags.writeable = False
        return view

    loose = [spread(x) for x in given]
    kept = [x.copy() for x in loose]
    equal(host.swiglu_quantize(*loose[1:]), host.swiglu_quantize(*given[1:]))
    equal(host.swiglu_quantize(*loose[1:], to="mxfp4"), host.swiglu_quantize(*given[1:], to="mxfp4"))
    equal(host.swiglu_backward(*loose), host.swiglu_backward(*given))
    equal(host.swiglu_quantize(*(x.view(np.uint16) for x in given[1:3])), host.swiglu_quantize(*given[1:3]))
    equal(loose, kept)


def test_out_is_filled_and_returned(host, given):
    for call, count in (
        (lambda out=None: host.swiglu_quantize(*given[1:], out=out), 2),
        (lambda out=None: host.swiglu_quantize(*given[1:], "mxfp4", out=out), 2),
        (lambda out=None: host.swiglu_backward(*given, out=out), 3),
        (lambda out=None: host.swiglu_backward(*given[:3], out=out), 2),
    ):
        wanted = call()
        out = tuple(np.empty_like(x) for x in wanted if x is not None)
        assert len(out) == count
        got = call(out)
        assert all(a is b for a, b in zip(got, out, strict=False))
        equal(got, wanted)
        with pytest.raises(ArgumentError, match="arrays"):
            call(out[1:])
        with pytest.raises(DtypeError, match="out"):
            call((out[0].astype(np.int64), *out[1:]))


def test_wrong_arguments_are_named(host, given):
    grad, gate, up, prob = given
    wide = gate.astype(np.float32)
    for error, match, call in (
        (ArgumentError, "to='bf16'", lambda: host.swiglu_quantize(gate, up, to="bf16")),
        (ShapeError, "multiple of 32", lambda: host.swiglu_quantize(gate[:, :33], up[:, :33])),
        (ShapeError, "gate has shape", lambda: host.swiglu_quantize(gate[0], up[0])),
        (DtypeError, "gate has dtype float32", lambda: host.swiglu_quantize(wide, up)),
        (DtypeError, "up has dtype float32", lambda: host.swiglu_quantize(gate, wide)),
        (DtypeError, "gate is a list", lambda: host.swiglu_quantize(gate.tolist(), up)),
        (ShapeError, r"up has shape \(1, 64\)", lambda: host.swiglu_quantize(gate, up[:1])),
        (DtypeError, "prob has dtype float64", lambda: host.swiglu_quantize(gate, up, prob.astype(np.float64))),
        (DtypeError, "prob is a list", lambda: host.swiglu_quantize(gate, up, prob.tolist())),
        (ShapeError, r"prob has shape \(6, 1\)", lambda: host.swiglu_quantize(gate, up, prob[:, None])),
        (ProfileError, "HOPER", lambda: host.swiglu_quantize(gate, up, profile="HOPER")),
        (UnsupportedError, "rounding", lambda: host.swiglu_quantize(gate, up, to="mxfp4", profile="STOCHASTIC")),
        (DtypeError, "grad has dtype float64", lambda: host.swiglu_backward(grad.astype(np.float64), gate, up)),
        (DtypeError, "grad has dtype float16", lambda: host.swiglu_backward(grad.astype(np.float16), gate, up)),
        (ShapeError, r"grad has shape \(1, 64\)", lambda: host.swiglu_backward(grad[:1], gate, up)),
        (ShapeError, "H >= 1", lambda: host.swiglu_backward(grad[:, :0], gate[:, :0], up[:, :0])),
        (ShapeError, "prob has shape", lambda: host.swiglu_backward(grad, gate, up, prob[:5])),
    ):
        with pytest.raises(error, match=match):
            call()
