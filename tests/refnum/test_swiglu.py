"""SwiGLU: the frozen table against a fresh computation, each step against exact rationals, orders and errors."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import make_silu, oracle, swiglu
from refnum.errors import ArgumentError, DtypeError, FileError, ShapeError

NAN, SIGN, INF, ONE = 0x7FC00000, 0x80000000, 0x7F800000, 0x3F800000


@pytest.fixture(scope="module")
def fresh() -> np.ndarray:
    """All 65,536 inputs computed again, starting from a precision that mostly does not decide at once."""
    return np.frombuffer(make_silu.make(precision=24), "<u4").reshape(2, -1)


def test_every_entry_is_recomputed(fresh: np.ndarray) -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    assert np.array_equal(swiglu.silu(every), fresh[0])
    assert np.array_equal(swiglu.sigmoid(every), fresh[1])
    assert make_silu.make() == fresh.tobytes()


@pytest.mark.parametrize("precision", [8, 24, 64])
def test_entries_of_every_exponent_are_those_of_the_file(precision: int) -> None:
    """Some of what the test above makes, in a tenth of a second."""
    some = [field << 7 | part for field in range(256) for part in (0, 1, 0x2A, 0x7F)]
    some += range(0x42A0, 0x42E0)  # 80 to 112, where results become subnormal and vanish
    for sign in (0, 0x8000):
        patterns = np.array(some, np.uint16) | np.uint16(sign)
        found = [make_silu.silu_and_sigmoid(pattern, precision) for pattern in patterns.tolist()]
        silu, sigmoid = (list(part) for part in zip(*found, strict=True))
        assert silu == swiglu.silu(patterns).tolist() and sigmoid == swiglu.sigmoid(patterns).tolist()


def test_ln_two_has_its_digits() -> None:
    digits = 0xB17217F7_D1CF79AB_C9E3B398_03F2F6AF_40F34326_7298B62D_8A0D175B_8BAAFA2B
    for precision in (1, 8, 64, 128, 255):
        assert make_silu.ln_two(precision) == digits >> (256 - precision)


def test_special_inputs() -> None:
    patterns = np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7F81, 0xFFC0, 0xC2DA], np.uint16)  # the last is -109
    assert swiglu.silu(patterns).tolist() == [0, SIGN, INF, SIGN, NAN, NAN, SIGN]
    assert swiglu.sigmoid(patterns).tolist() == [0x3F000000, 0x3F000000, ONE, 0, NAN, NAN, 0]
    assert swiglu.silu(np.array([0xC2D4], np.uint16)).tolist() == [SIGN | 7]  # -106: a subnormal result


def test_table_is_monotone_and_symmetric() -> None:
    positive = np.arange(1, 0x7F81, dtype=np.uint32).astype(np.uint16)
    up, down = swiglu.sigmoid(positive), swiglu.sigmoid(positive | np.uint16(0x8000))
    assert (np.diff(up.astype(np.int64)) >= 0).all() and (np.diff(down.astype(np.int64)) <= 0).all()
    complement = up.view(np.float32).astype(np.float64) + down.view(np.float32)
    assert np.abs(complement - 1).max() <= 2.0**-25 + 2.0**-26  # half a unit of each at most


def test_table_is_close_to_the_libm_one() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    finite = (every & 0x7FFF) < 0x42A0  # |x| < 80
    x = every[finite].view(ml_dtypes.bfloat16).astype(np.float64)
    exact = x / (1 + np.exp(-x))
    table = swiglu.silu(every).view(np.float32).astype(np.float64)[finite]
    assert np.all(np.abs(table - exact) <= np.abs(exact) * 2.0**-23.99 + 2.0**-150)


@pytest.mark.parametrize("precision", [8, 40, 64, 200])
def test_enclosures_hold_the_value(precision: int) -> None:
    """Against rationals: 1 - t + t*t/2 - t**3/6 < exp(-t) < that + t**4/24 for small t, powers of it for more."""
    for significand, exponent in [(1, -3), (128, -10), (255, -9), (173, -8), (173, -4), (255, -2), (1, -140)]:
        t = Fraction(significand) * Fraction(2) ** exponent
        halvings = max(0, exponent + 8)
        s = t / 2**halvings
        below = (1 - s + s**2 / 2 - s**3 / 6 + s**4 / 24 - s**5 / 120) ** (2**halvings)
        above = (1 - s + s**2 / 2 - s**3 / 6 + s**4 / 24) ** (2**halvings)
        low, high, scale = make_silu.exp_minus(significand, exponent, precision)
        assert Fraction(low, 2**scale) <= above and below <= Fraction(high, 2**scale)
        assert high - low <= 1000  # and it is narrow


def test_enclosures_of_large_arguments_hold_the_value() -> None:
    """Against decimals, up to 400 and beyond, where zero is the lower end; 399 itself is no bfloat16 number."""
    with localcontext(prec=300):
        for significand, exponent in (*itertools.product((128, 173, 200, 255), range(-7, 3)), (399, 0)):
            exact = (-Decimal(significand) * Decimal(2) ** exponent).exp()
            for precision in (24, 64, 128):
                low, high, scale = make_silu.exp_minus(significand, exponent, precision)
                assert low <= exact * Decimal(2) ** scale <= high, (significand, exponent, precision)


def test_round_ratio_is_correct_rounding() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        n, d = int(rng.integers(1, 1 << 62)), int(rng.integers(1, 1 << 62)) >> int(rng.integers(0, 40))
        e, d = int(rng.integers(-215, 130)), max(d, 1)
        assert make_silu.round_ratio(n, d, e) == oracle.float_bits(Fraction(n, d) * Fraction(2) ** e)
    assert make_silu.round_ratio(2**24 + 1, 1, 0) == 0x4B800000  # a tie, to the even one
    assert make_silu.round_ratio(1, 2, -149) == 0 and make_silu.round_ratio(3, 2, -149) == 2
    assert make_silu.round_ratio(2**25 - 1, 1, 103) == INF
    assert make_silu.round_ratio(0, 1, 0) == 0 and make_silu.round_ratio(1, 1, 0) == ONE


def test_a_file_of_few_inputs_is_made_and_checked(tmp_path, monkeypatch) -> None:
    assert make_silu.PATH.stat().st_size == 8 * make_silu.INPUTS
    monkeypatch.setattr(make_silu, "INPUTS", 4)
    monkeypatch.setattr(make_silu, "PATH", tmp_path / "made.bin")
    assert make_silu.main(["--check"]) == 1 and not make_silu.PATH.exists()
    assert make_silu.main(["--write"]) == 0 == make_silu.main(["--check"])
    assert len(make_silu.PATH.read_bytes()) == 32
    make_silu.PATH.write_bytes(bytes(32))
    assert make_silu.main(["--check"]) == 1


def test_help_says_what_the_command_makes(capsys) -> None:
    with pytest.raises(SystemExit):
        make_silu.main(["--help"])
    assert "frozen table of silu and sigmoid" in " ".join(capsys.readouterr().out.split())


def test_the_frozen_file_is_checked(tmp_path, monkeypatch) -> None:
    assert make_silu.main(["--check"]) == 0
    damaged = bytearray(make_silu.PATH.read_bytes())
    damaged[77] ^= 1
    (tmp_path / "damaged.bin").write_bytes(damaged)
    monkeypatch.setattr(make_silu, "PATH", tmp_path / "damaged.bin")
    assert make_silu.main(["--check"]) == 1
    monkeypatch.setattr(make_silu, "PATH", tmp_path / "made.bin")
    assert make_silu.main(["--check"]) == 1
    assert make_silu.main(["--write"]) == 0 and make_silu.main(["--check"]) == 0
    monkeypatch.setattr(swiglu, "TABLE_PATH", tmp_path / "damaged.bin")
    with pytest.raises(FileError, match="sha256"):
        swiglu._load_table.__wrapped__()
    monkeypatch.setattr(swiglu, "TABLE_PATH", tmp_path / "nowhere.bin")
    with pytest.raises(FileError, match="cannot be read"):
        swiglu._load_table.__wrapped__()


# ------------------------------------------------------------------------------------------ the operations


def bfloat16(shape: tuple[int, int], rng: np.random.Generator, wild: bool = False) -> np.ndarray:
    if wild:  # any pattern, NaN and Inf included
        return rng.integers(0, 1 << 16, shape).astype(np.uint16)
    return (rng.standard_normal(shape) * 3).astype(np.float32).astype(ml_dtypes.bfloat16)


def bits16(x: np.ndarray) -> list[list[int]]:
    return x.view(np.uint16).tolist()


def widen(x: np.ndarray) -> list[list[int]]:
    return (x.view(np.uint16).astype(np.uint32) << 16).tolist()


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_forward_is_two_rounded_products(wild: bool, weighted: bool, fresh: np.ndarray) -> None:
    rng = np.random.default_rng(wild * 2 + weighted)
    gate, up = bfloat16((3, 96), rng, wild), bfloat16((3, 96), rng, wild)
    prob = rng.random(3).astype(np.float32) if weighted else None
    got = swiglu.swiglu(gate, up, prob).view(np.uint32)
    for i, (gs, us) in enumerate(zip(bits16(gate), widen(up), strict=True)):
        for j, (g, u) in enumerate(zip(gs, us, strict=True)):
            want = oracle.float32_multiply(int(fresh[0, g]), u)
            if prob is not None:
                want = oracle.float32_multiply(want, int(prob.view(np.uint32)[i]))
            assert got[i, j] == want
    codes, scales = swiglu.swiglu_quantize(gate, up, prob)
    want_codes, want_scales = refnum.quantize_fp8_tiles(got.view(np.float32))
    assert np.array_equal(codes, want_codes) and np.array_equal(scales, want_scales)
    assert codes.shape == (3, 96) and scales.shape == (3, 1)
    packed, scales = swiglu.swiglu_quantize(gate, up, prob, to="mxfp4", profile="OCP")
    want_packed, want_scales = refnum.quantize_mxfp4(got.view(np.float32), "OCP")
    assert np.array_equal(packed, want_packed) and np.array_equal(scales, want_scales)


def _tree(terms: list[int]) -> int:
    while len(terms) > 1:
        terms = terms + [0] * (len(terms) % 2)
        terms = [oracle.float32_add(terms[i], terms[i + 1]) for i in range(0, len(terms), 2)]
    return terms[0]


@pytest.mark.parametrize("h", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("kind", ["bfloat16", "float32", "wild"])
def test_backward_step_by_step(h: int, kind: str, fresh: np.ndarray) -> None:
    rng = np.random.default_rng(h)
    multiply, add = oracle.float32_multiply, oracle.float32_add
    gate, up = bfloat16((4, h), rng, kind == "wild"), bfloat16((4, h), rng, kind == "wild")
    grad = (
        rng.standard_normal((4, h)).astype(np.float32) if kind == "float32" else bfloat16((4, h), rng, kind == "wild")
    )
    grads = grad.view(np.uint32).tolist() if kind == "float32" else widen(grad)
    prob = rng.random(4).astype(np.float32)
    for weights in (prob, None):
        dgate, dup, dprob = swiglu.swiglu_backward(grad, gate, up, weights)
        assert dgate.dtype == dup.dtype == np.float32 and dgate.shape == dup.shape == (4, h)
        for i in range(4):
            terms = []
            for j in range(h):
                g16, u, received = bits16(gate)[i][j], widen(up)[i][j], grads[i][j]
                y, s = int(fresh[0, g16]), int(fresh[1, g16])
                t = add(ONE, s ^ SIGN)
                d = multiply(s, add(ONE, multiply(g16 << 16, t)))
                weighted = received if weights is None else multiply(received, int(prob.view(np.uint32)[i]))
                assert dup.view(np.uint32)[i, j] == multiply(weighted, y)
                assert dgate.view(np.uint32)[i, j] == multiply(multiply(weighted, u), d)
                terms.append(multiply(received, multiply(y, u)))
            if weights is None:
                assert dprob is None
            else:
                assert dprob is not None and dprob.dtype == np.float32 and dprob.shape == (4,)
                assert dprob.view(np.uint32)[i] == _tree(terms)


def test_the_derivative_is_a_derivative() -> None:
    """Against float64: 16 significant bits at least, where nothing cancels."""
    gate = np.linspace(-1, 6, 64).astype(ml_dtypes.bfloat16)[None]
    one = np.ones((1, 64), ml_dtypes.bfloat16)
    dgate, _, _ = swiglu.swiglu_backward(one, gate, one)
    x = gate.astype(np.float64)
    s = 1 / (1 + np.exp(-x))
    assert np.allclose(dgate, s * (1 + x * (1 - s)), rtol=2.0**-16, atol=0)


def test_the_order_of_the_sum_shows() -> None:
    """2**24, 1, 1, ... : neighbours first keeps the ones, from left to right loses them all."""
    terms = np.array([[2.0**24, 1, 1, 1, 1]], np.float32).view(np.uint32)
    assert swiglu.tree_sum(terms).view(np.float32).tolist() == [2.0**24 + 4]  # (2**24 + 2) + 1, to even
    assert swiglu.tree_sum(np.array([[SIGN] * 3, [SIGN] * 3], np.uint32)).tolist() == [0, 0]
    assert swiglu.tree_sum(np.array([[SIGN] * 2], np.uint32)).tolist() == [SIGN]
    assert swiglu.tree_sum(np.zeros((0, 3), np.uint32)).shape == (0,)


def test_views_read_only_and_empty_arrays() -> None:
    rng = np.random.default_rng(3)
    wide = bfloat16((6, 128), rng)
    gate, up = wide[::2, ::2], wide[1::2, 1::2]
    prob, grad = rng.random(6).astype(np.float32)[::2], bfloat16((6, 64), rng)[::2]
    for x in (wide, gate, up, prob, grad):
        x.flags.writeable = False
    kept = wide.view(np.uint16).copy()
    dense = [np.ascontiguousarray(x) for x in (grad, gate, up, prob)]
    for got, want in zip(swiglu.swiglu_backward(grad, gate, up, prob), swiglu.swiglu_backward(*dense), strict=True):
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    for got, want in zip(swiglu.swiglu_quantize(gate, up, prob), swiglu.swiglu_quantize(*dense[1:]), strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(wide.view(np.uint16), kept)
    assert np.array_equal(swiglu.swiglu(gate, up, prob), swiglu.swiglu(gate.view(np.uint16), up.view(np.uint16), prob))
    none = np.zeros((0, 64), np.uint16)
    assert [a.shape for a in swiglu.swiglu_quantize(none, none, np.zeros(0, np.float32))] == [(0, 64), (0, 1)]
    dgate, dup, dprob = swiglu.swiglu_backward(none, none, none, np.zeros(0, np.float32))
    assert dgate.shape == dup.shape == (0, 64) and dprob is not None and dprob.shape == (0,)


def test_wrong_arguments_are_named() -> None:
    gate, f32 = np.zeros((2, 64), np.uint16), np.zeros((2, 64), np.float32)
    prob = np.ones(2, np.float32)
    with pytest.raises(ArgumentError, match="to='bf16'"):
        swiglu.swiglu_quantize(gate, gate, to="bf16")
    with pytest.raises(ShapeError, match="multiple of 32"):
        swiglu.swiglu_quantize(gate[:, :33], gate[:, :33])
    with pytest.raises(DtypeError, match="gate has dtype float32"):
        swiglu.swiglu(f32, gate)
    with pytest.raises(DtypeError, match="up has dtype float32"):
        swiglu.swiglu_backward(gate, gate, f32)
    with pytest.raises(DtypeError, match="grad has dtype float64; allowed are float32"):
        swiglu.swiglu_backward(f32.astype(np.float64), gate, gate)
    with pytest.raises(ShapeError, match=r"up has shape \(1, 64\)"):
        swiglu.swiglu(gate, gate[:1])
    with pytest.raises(ShapeError, match=r"grad has shape \(1, 64\)"):
        swiglu.swiglu_backward(gate[:1], gate, gate)
    with pytest.raises(ShapeError, match="H >= 1"):
        swiglu.swiglu_backward(gate[:, :0], gate[:, :0], gate[:, :0])
    with pytest.raises(DtypeError, match="prob has dtype float64"):
        swiglu.swiglu(gate, gate, prob.astype(np.float64))
    with pytest.raises(ShapeError, match=r"prob has shape \(2, 1\)"):
        swiglu.swiglu(gate, gate, prob[:, None])
    with pytest.raises(DtypeError, match="float16"):
        swiglu.silu(np.zeros(2, np.float16))
