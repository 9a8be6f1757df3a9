"""Integer float32 arithmetic against the host's own (flushing off) and against exact rationals."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from refnum import oracle, softfloat
from refnum.environment import flushes_subnormals
from refnum.errors import DtypeError
from refnum.oracle import values as oracle_values
from refnum.square_roots import square_root

MAGNITUDE = np.uint32(0x7FFFFFFF)
OPERATIONS = {
    "multiply": (softfloat.multiply, np.multiply),
    "add": (softfloat.add, np.add),
    "subtract": (softfloat.subtract, np.subtract),
    "add magnitudes": (lambda a, b: softfloat.add_magnitudes(a & MAGNITUDE, b & MAGNITUDE),
                       lambda a, b: np.add(abs(a), abs(b))),
}  # fmt: skip


def corners() -> np.ndarray:
    """Both signs of: every binade's ends, few-bit and all-ones fractions, subnormals, infinities, NaNs."""
    fractions = [0, 1, 2, 3, 0x400000, 0x400001, 0x3FFFFF, 0x7FFFFE, 0x7FFFFF, 0x555555, 0x2AAAAA, 0x200000]
    fields = [0, 1, 2, 3, 22, 23, 24, 25, 26, 63, 64, 100, 101, 102, 103, 104, 125, 126, 127, 128, 129, 130, 150]
    fields += [151, 152, 190, 191, 230, 252, 253, 254, 255]
    positive = [e << 23 | f for e in fields for f in fractions] + [1 << k for k in range(23)]
    return np.array(positive + [p | 1 << 31 for p in positive], np.uint32)


def random_pairs(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = (rng.integers(0, 1 << 32, n, dtype=np.uint32) for _ in range(2))
    if name == "any":
        return a, b
    if name == "near":  # exponents at most 30 apart: alignment, cancellation and carries
        field = (a >> np.uint32(23) & np.uint32(255)).astype(np.int64) + rng.integers(-30, 31, n)
        return a, b & np.uint32(0x807FFFFF) | np.clip(field, 0, 255).astype(np.uint32) << np.uint32(23)
    if name == "cancel":  # a few units apart with opposite signs
        return a, (a + rng.integers(-9, 10, n).astype(np.uint32)) ^ np.uint32(1 << 31)
    if name == "subnormal":  # products around and below 2**-126
        low, total = rng.integers(0, 129, n), rng.integers(90, 153, n)
        fields = [low, np.clip(total - low, 0, 254)]
        return tuple(
            v & np.uint32(0x807FFFFF) | f.astype(np.uint32) << np.uint32(23)
            for v, f in zip((a, b), fields, strict=True)
        )  # type: ignore[return-value]
    assert name == "short"  # few significand bits: exact results and exact ties
    mask = (np.uint32(0xFFFFFFFF) << rng.integers(8, 23, n).astype(np.uint32)) | np.uint32(1 << 31)
    return a & mask, b & (np.uint32(0xFFFFFFFF) << np.uint32(11))


def expect(operation: Callable[..., np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    assert not flushes_subnormals(), "the host flushes subnormals: it is no reference"
    with np.errstate(all="ignore"):
        bits = operation(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    return np.where(bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000), np.uint32(0x7FC00000), bits)


def assert_equal(got: np.ndarray, want: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    wrong = np.flatnonzero(got != want)
    first = [f"{int(v[i]):08x}" for i in wrong[:1] for v in (a, b, got, want)]
    assert not wrong.size, f"{wrong.size} of {got.size} differ; a, b, got, want = {first}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair_of_corners(name: str) -> None:
    ours, theirs = OPERATIONS[name]
    values = corners()
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    got = ours(values[:, None], values[None, :])
    assert got.shape == (values.size, values.size) and got.dtype == np.uint32
    assert_equal(got.reshape(-1), expect(theirs, a, b), a, b)


@pytest.mark.parametrize("kind", ["any", "near", "cancel", "subnormal", "short"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_random_pairs(name: str, kind: str) -> None:
    ours, theirs = OPERATIONS[name]
    rng = np.random.default_rng([list(OPERATIONS).index(name), len(kind)])
    a, b = random_pairs(kind, 1 << 19, rng)
    assert_equal(ours(a, b), expect(theirs, a, b), a, b)


def special_grid(count: int) -> list[np.ndarray]:
    """Every tuple of zeros, ones, a square that is cancelled to 2**-46, the largest numbers, infinities and NaN."""
    numbers = [0, 1 << 31, 1, 0x3F800000, 0xBF800000, 0x3F800001, 0xBF800002]
    numbers += [0x7F000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000]
    return [x.reshape(-1) for x in np.meshgrid(*[np.array(numbers, np.uint32)] * count)]


@pytest.mark.parametrize(
    ("operation", "count"), [*((ours, 2) for ours, _ in OPERATIONS.values()), (softfloat.multiply_add, 3)]
)
def test_a_number_by_itself_and_among_others(operation: Callable[..., np.ndarray], count: int) -> None:
    """Whether a NaN or an infinity is near decides which way is taken."""
    grid = special_grid(count)
    among = operation(*grid)
    for place in range(among.size):
        assert operation(*(x[place : place + 1] for x in grid)) == among[place], [hex(x[place]) for x in grid]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["any", "near", "cancel", "subnormal", "short"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_many_random_pairs(name: str, kind: str) -> None:
    ours, theirs = OPERATIONS[name]
    rng = np.random.default_rng([7, list(OPERATIONS).index(name), len(kind)])
    for _ in range(24):
        a, b = random_pairs(kind, 1 << 20, rng)
        assert_equal(ours(a, b), expect(theirs, a, b), a, b)


@pytest.mark.parametrize("kind", ["any", "near", "cancel", "subnormal", "short"])
def test_against_exact_rationals(kind: str) -> None:
    a, b = random_pairs(kind, 600, np.random.default_rng(len(kind)))
    products, sums = softfloat.multiply(a, b), softfloat.add(a, b)
    for x, y, product, total in zip(a.tolist(), b.tolist(), products.tolist(), sums.tolist(), strict=True):
        assert product == oracle.float32_multiply(x, y), (hex(x), hex(y))
        assert total == oracle.float32_add(x, y), (hex(x), hex(y))


def triples(kind: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of a fused product and sum: specials, corners, pairs beside any addend, or one that nearly cancels."""
    rng = np.random.default_rng(len(kind))
    if kind == "special":
        return tuple(special_grid(3))  # type: ignore[return-value]
    if kind == "corners":
        return tuple(rng.choice(corners(), (3, n)))  # type: ignore[return-value]
    a, b = random_pairs("near" if kind == "nearly equal" else kind, n, rng)
    if kind != "nearly equal":
        return a, b, random_pairs("near", n, rng)[0] if kind == "any" else random_pairs(kind, n, rng)[1]
    return a, b, (softfloat.multiply(a, b) ^ np.uint32(1 << 31)) + rng.integers(-3, 4, n).astype(np.uint32)


@pytest.mark.parametrize("kind", ["special", "corners", "any", "near", "subnormal", "short", "nearly equal"])
def test_fused_products_and_sums_against_exact_rationals(kind: str) -> None:
    operands = triples(kind, 1500)
    got = softfloat.multiply_add(*operands).tolist()
    for *given, total in zip(*(x.tolist() for x in operands), got, strict=True):
        assert total == oracle_values.float32_fused(*given), [hex(x) for x in given]


def test_negate() -> None:
    bits = np.array([0, 1 << 31, 0x3F800000, 0xFF800000, 0x7F800001, 0xFFC00000], np.uint32)
    assert [hex(v) for v in softfloat.negate(bits)] == [
        "0x80000000", "0x0", "0xbf800000", "0x7f800000", "0x7fc00000", "0x7fc00000",
    ]  # fmt: skip


def test_widening_every_16_bit_pattern() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    half = patterns.view(np.float16)
    expected = half.astype(np.float32).view(np.uint32)
    expected = np.where(np.isnan(half), np.uint32(0x7FC00000), expected)
    assert np.array_equal(softfloat.from_float16(patterns), expected)
    assert np.array_equal(softfloat.from_bfloat16(patterns), patterns.astype(np.uint32) << 16)


def test_narrowing_to_bfloat16() -> None:
    rng = np.random.default_rng(5)
    bits = np.concatenate([corners(), rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint32)])
    ties = rng.integers(0, 1 << 16, 1 << 16, dtype=np.uint32) << 16 | 0x8000
    bits = np.concatenate([bits, ties, ties - 1, ties + 1])
    with np.errstate(all="ignore"):
        expected = bits.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    expected = np.where(np.isnan(bits.view(np.float32)), np.uint16(0x7FC0), expected)
    assert np.array_equal(softfloat.to_bfloat16(bits), expected)


def test_large_strided_and_read_only_arrays() -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(0, 1 << 32, (300, 500), dtype=np.uint32)[:, ::2]
    b = rng.integers(0, 1 << 32, (300, 1), dtype=np.uint32)
    kept = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    got = softfloat.multiply(a, b)
    assert_equal(got, expect(np.multiply, a, b), a, np.broadcast_to(b, a.shape))
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    assert softfloat.add(np.zeros((0, 3), np.uint32), np.uint32(1)).shape == (0, 3)


def test_wrong_dtypes_are_named() -> None:
    good = np.zeros(2, np.uint32)
    for call in (softfloat.multiply, softfloat.add, softfloat.subtract):
        with pytest.raises(DtypeError, match="b has dtype float32"):
            call(good, good.view(np.float32))
    with pytest.raises(DtypeError, match="a has dtype int64"):
        softfloat.negate(np.zeros(2, np.int64))
    with pytest.raises(DtypeError, match="uint32"):
        softfloat.from_bfloat16(good)
    with pytest.raises(DtypeError, match="uint32"):
        softfloat.from_float16(good)
    with pytest.raises(DtypeError, match="uint16"):
        softfloat.to_bfloat16(np.zeros(2, np.uint16))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["negate", "to_bfloat16"])
def test_one_number_is_as_good_as_an_array(name):
    operation = getattr(softfloat, name)
    for bits in (0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7F7FFFFF, 0xFF7F8000):
        with np.errstate(all="raise"):
            assert operation(np.uint32(bits)) == operation(np.array([bits], np.uint32))[0]


@pytest.mark.parametrize("odd", [0, 1])
def test_whole_part_of_a_float64_root_is_exact(odd: int) -> None:
    """All 2^23 squares of an even and of an odd exponent whose roots `square_root` takes in float64."""
    square = np.arange(1 << 23, 1 << 24, dtype=np.uint64) << np.uint64(28 + odd)
    root = np.sqrt(square.astype(np.float64)).astype(np.uint64)
    assert (root * root <= square).all() and ((root + np.uint64(1)) ** np.uint64(2) > square).all()


def test_square_roots() -> None:
    """Corners, subnormals, squares of few bits and their neighbours, and one number of each 4,099 of all patterns."""
    short = np.arange(1, 4096, dtype=np.uint32)
    squares = (short * short).astype(np.float64).astype(np.float32).view(np.uint32)
    near = (squares[:, None] + np.array([0xFFFFFFFF, 0, 1, 1 << 23], np.uint32)).reshape(-1)
    a = np.concatenate([corners(), near, np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32)])
    assert_equal(square_root(a), expect(lambda x, _: np.sqrt(x), a, a), a, a)
    assert square_root(a.view(np.uint32)[:6].reshape(2, 3)).shape == (2, 3)
    with pytest.raises(DtypeError):
        square_root(a.view(np.float32))
