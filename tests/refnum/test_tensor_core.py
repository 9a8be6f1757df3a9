"""One step of a tensor core (N19.2): worked sums, the oracle, and what follows from the rule for every step."""

import numpy as np
import pytest

from refnum import oracle
from refnum.codec import decode
from refnum.errors import ArgumentError, DtypeError, ProfileError, ShapeError
from refnum.formats import get_format
from refnum.oracle import product as exact
from refnum.product import tensor_core_step
from refnum.tensor_core import INSTRUCTIONS

CASES = [
    *(("wgmma_fp8", a, b) for a in ("E4M3", "E5M2") for b in ("E4M3", "E5M2")),
    *((name, facts.formats[0], facts.formats[0]) for name, facts in INSTRUCTIONS.items() if name != "wgmma_fp8"),
]
E4M3 = {float(v): code for code, v in enumerate(decode("E4M3", np.arange(256, dtype=np.uint8))) if v == v}


def codes(rng, shape, name, kind):
    """Codes of a format: finite, of near exponents, mostly zeros, or anything."""
    fmt = get_format(name)
    dtype = np.uint8 if fmt.bits == 8 else np.uint16
    middle = fmt.bias << fmt.mantissa_bits
    low, high = {"near": (middle - (3 << fmt.mantissa_bits), middle + (3 << fmt.mantissa_bits))}.get(
        kind, (0, fmt.max_code + 1)
    )
    found = rng.integers(low, high, shape) | rng.integers(0, 2, shape) * fmt.sign_mask
    if kind == "anything":
        found = rng.integers(0, 1 << fmt.bits, shape)
    if kind == "sparse":
        found = np.where(rng.random(shape) < 0.8, found & fmt.sign_mask, found)
    return found.astype(dtype)


def test_the_facts_of_instructions_are_those_of_the_clause():
    facts = {name: (one.formats, one.terms, one.fraction_bits, one.result_bits) for name, one in INSTRUCTIONS.items()}
    assert facts == {
        "wgmma_fp8": (("E4M3", "E5M2"), 32, 13, 13), "wgmma_bf16": (("BF16",), 16, 25, 23),
        "wgmma_fp16": (("FP16",), 16, 25, 23), "mma_bf16": (("BF16",), 16, 25, 23), "mma_fp16": (("FP16",), 16, 25, 23),
    }  # fmt: skip


def accumulators(rng, shape, kind):
    """float32 near the products, or any bits, or zeros."""
    sign = rng.integers(0, 2, shape) << 31
    bits = {
        "near": rng.integers(0x39000000, 0x47000000, shape) | sign,
        "sparse": rng.integers(0, 0x30000000, shape) | sign,
        "anything": rng.integers(0, 1 << 32, shape),
        "finite": sign,
    }[kind]
    return bits.astype(np.uint32).view(np.float32)


def bits(x):
    return x.view(np.uint32).tolist()


def one(pairs, c=0.0):
    """The result of one step on products of E4M3 values and an accumulator."""
    a, b = (np.array([[E4M3[p[i]] for p in pairs]], np.uint8) for i in (0, 1))
    return float(tensor_core_step(a, b, np.array([[c]], np.float32))[0, 0])


@pytest.mark.parametrize("kind", ["finite", "near", "sparse", "anything"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_steps_equal_the_oracle(case, kind):
    rng = np.random.default_rng(len(kind))
    name, left, right = case
    for terms in (INSTRUCTIONS[name].terms, 1, 5):
        a, b = codes(rng, (5, terms), left, kind), codes(rng, (4, terms), right, kind)
        c = accumulators(rng, (5, 4), kind)
        got = tensor_core_step(a, b, c, name, left, right)
        want = exact.tensor_core_step(a.tolist(), b.tolist(), bits(c), name, left, right)
        assert bits(got) == want, terms


def test_a_term_is_cut_toward_zero_to_13_bits_below_the_largest_exponent():
    assert one([(1.0, 1.0), (2.0**-9, 2.0**-4)]) == 1 + 2.0**-13
    assert one([(1.0, 1.0), (2.0**-9, 2.0**-5)]) == 1.0
    assert one([(1.0, 1.0), (-(2.0**-9), 2.0**-5)]) == 1.0
    assert one([(1.0, 1.0)] + [(2.0**-9, 2.0**-5)] * 31) == 1.0  # each is cut, not their sum


def test_products_are_not_normalised():
    assert one([(1.875, 1.875), (2.0**-9, 2.0**-4), (-1.75, 1.0), (-1.75, 1.0)]) == 2.0**-6 + 2.0**-13


def test_a_zero_has_no_part_in_the_largest_exponent():
    small = np.float32(2.0**-40 * (1 + 2.0**-13 + 2.0**-14))
    assert one([(0.0, 448.0)] * 32, small) == 2.0**-40 * (1 + 2.0**-13)
    assert one([(0.0, 448.0), (2.0**-9, 2.0**-9)]) == 2.0**-18


def test_a_subnormal_code_counts_with_its_own_exponent():
    # 2**-9 is 0.001 * 2**-6: the step keeps multiples of 2**(-12 - 13), not of 2**(-18 - 13)
    c = np.float32(2.0**-20 + 2.0**-26)
    assert one([(2.0**-9, 2.0**-9)], c) == 2.0**-18 + 2.0**-20
    assert one([(0.0, 0.0)], c) == c


def test_a_result_is_cut_to_13_bits_of_its_own_significand():
    pairs = [(1.75, 1.75)] * 31 + [(2.0**-4, 2.0**-4)]
    assert one(pairs) == 94.9375  # 94.9375 + 2**-8; the last bit of 64 to 128 is 2**-7
    assert one([(-x, y) for x, y in pairs]) == -94.9375
    zeros, sums = np.zeros((1, 32), np.uint8), np.array([[0x003FFFFF, 0x80000FFF, 0x800003FF]], np.uint32)
    found = tensor_core_step(zeros, np.zeros((3, 32), np.uint8), sums.view(np.float32)).view(np.uint32)
    assert found.tolist() == [[0x003FFC00, 0x80000C00, 0]]  # a subnormal sum keeps multiples of 2**-139


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_what_follows_from_the_rule(case):
    rng = np.random.default_rng(7)
    name, left, right = case
    terms = INSTRUCTIONS[name].terms
    for kind in ("finite", "near", "sparse"):
        a, b = codes(rng, (9, terms), left, kind), codes(rng, (8, terms), right, kind)
        c = accumulators(rng, (9, 8), kind)
        want = tensor_core_step(a, b, c, name, left, right)
        order = rng.permutation(terms)
        assert bits(tensor_core_step(a[:, order], b[:, order], c, name, left, right)) == bits(want)
        assert bits(tensor_core_step(b, a, np.ascontiguousarray(c.T), name, right, left).T.copy()) == bits(want)
        minus = tensor_core_step(a ^ a.dtype.type(get_format(left).sign_mask), b, -c, name, left, right)
        assert (np.abs(minus) == np.abs(want)).all() and ((minus == -want) | np.isnan(want)).all()
        fewer = tensor_core_step(a[:, :3], b[:, :3], c, name, left, right)
        padded = a.copy()
        padded[:, 3:] = 0
        assert bits(tensor_core_step(padded, b, c, name, left, right)) == bits(fewer)


def test_a_step_without_results():
    a, b = np.zeros((0, 32), np.uint8), np.zeros((3, 32), np.uint8)
    assert tensor_core_step(a, b).shape == (0, 3) and tensor_core_step(b, a).shape == (3, 0)


CODES, WIDE = np.zeros((2, 32), np.uint8), np.zeros((2, 33), np.uint8)
BYTES = CODES[:, :16]


@pytest.mark.parametrize(
    "error, said, given",
    [
        (ShapeError, "a has 33 columns; a step of wgmma_fp8", (WIDE, WIDE)),
        (ShapeError, "a has K = 32 and b has K = 16", (CODES, CODES[:, :16])),
        (ShapeError, "K = 0", (CODES[:, :0], CODES[:, :0])),
        (ShapeError, "c has shape", (CODES, CODES, np.zeros((2, 3), np.float32))),
        (DtypeError, "c has dtype float64", (CODES, CODES, np.zeros((2, 2)))),
        (DtypeError, "a has dtype float32", (CODES.astype(np.float32), CODES)),
        (DtypeError, "a has .*E4M3 codes", (CODES.astype(np.float32), CODES, None, "wgmma_fp8", "E4M3", "E5M2")),
        (DtypeError, "b has .*E5M2 codes", (CODES, CODES.astype(np.float32), None, "wgmma_fp8", "E4M3", "E5M2")),
        (DtypeError, "a has dtype uint8; allowed is uint16", (BYTES, BYTES, None, "wgmma_bf16", "BF16", "BF16")),
        (ProfileError, "a_format is E2M1", (CODES, CODES, None, "wgmma_fp8", "E2M1")),
        (ArgumentError, "instruction", (CODES, CODES, None, "wgmma_fp4")),
    ],
)  # fmt: skip
def test_bad_input(error, said, given):
    with pytest.raises(error, match=said):
        tensor_core_step(*given)


def test_the_oracle_reads_codes_as_the_model_does():
    values = decode("E5M2", np.arange(256, dtype=np.uint8))
    for code in range(0, 0x7C):
        assert oracle.decode("E5M2", code) == values[code]
