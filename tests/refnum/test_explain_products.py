"""Explanations of products end in the model's bits, and show the terms of a step as they are aligned (N19)."""

import itertools

import numpy as np
import pytest
from test_product import scales
from test_tensor_core import codes

import refnum
from refnum.codec import decode
from refnum.errors import ArgumentError
from refnum.product import matmul_fp8
from refnum.product_steps import product_steps

FORMATS = (("E4M3", "E4M3"), ("E5M2", "E4M3"), ("E4M3", "E5M2"), ("E5M2", "E5M2"))


@pytest.mark.parametrize("order", ["chain", "promote32", "promote128", "split2", "split2-chain"])
@pytest.mark.parametrize("kind", ["finite", "near", "sparse", "anything"])
def test_every_result_ends_in_the_models_bits(order, kind):
    rng = np.random.default_rng(len(order) + len(kind))
    for number, (kind_of_scale, real) in enumerate(itertools.product(("none", "tensor", "row", "1x128"), (0, 1))):
        if "chain" in order and kind_of_scale == "1x128":
            continue
        left, right = FORMATS[number % 4]
        a, b = codes(rng, (2, 140), left, kind), codes(rng, (2, 140), right, kind)
        case = {"a": a, "b": b, "order": order, "a_format": left, "b_format": right}
        case["out"] = ("float32", "bfloat16")[number // 4]
        case |= {"a_scales": scales(rng, 2, 140, kind_of_scale, real), "b_scales": scales(rng, 2, 140, "tensor")}
        whole = refnum.matmul_fp8(**case)
        for index in np.ndindex(2, 2):
            told = refnum.explain("matmul_fp8", case, index)
            assert told.code == whole[index].view(f"u{whole.itemsize}") and told.index == index


@pytest.mark.parametrize("kind", ["near", "sparse", "anything"])
def test_bf16_products_are_explained_too(kind):
    rng = np.random.default_rng(1)
    a, b = codes(rng, (2, 40), "BF16", kind), codes(rng, (3, 40), "BF16", kind)
    whole = refnum.matmul_bf16(a, b).view(np.uint32)
    for index in np.ndindex(2, 3):
        assert refnum.explain("matmul_bf16", {"a": a, "b": b}, index).code == whole[index]


def lines(case, index=0):
    return [(step.name, step.text) for step in refnum.explain("matmul_fp8", case, index).steps]


def test_a_cut_term_says_what_is_kept():
    a = np.zeros((1, 33), np.uint8)
    a[0, [0, 3, 32]] = 0x78, 0x59, 0x01  # 256, 18, 2^-9
    told = dict(lines({"a": a, "b": a}))
    assert told["step 0"] == "terms 0 to 31: largest exponent 16, each is cut to a multiple of 2^3"
    assert told["term 3"] == "0x59 x 0x59: 1.125 x 1.125 x 2^8 = 324, kept 320, cut 4"
    assert told["accumulator"] == "0x478050A0 = 65860" or told["accumulator"].startswith("0x478")
    assert told["term 32"].endswith("kept 0, cut 2^-18") or "kept 0, cut" in told["term 32"]
    assert "0x38 x" not in str(told)


def test_terms_of_a_chosen_step_are_shown():
    a = np.full((1, 160), 0x38, np.uint8)
    for at in (64, 70, 95):
        found, _ = product_steps("matmul_fp8", {"a": a, "b": a}, 0, 0, at)
        assert [step.name for step in found if step.name.startswith("term")] == [f"term {k}" for k in range(64, 96)]


@pytest.mark.parametrize("count", [64, 65])
def test_up_to_64_terms_are_all_shown(count):
    a = np.full((1, count), 0x38, np.uint8)
    shown = [name for name, _ in lines({"a": a, "b": a, "order": "promote32"}) if name.startswith("term")]
    assert len(shown) == (64 if count == 64 else 32)


def test_of_a_long_product_the_step_that_loses_the_most_is_shown():
    rng, seen = np.random.default_rng(2), set()
    for _ in range(15):
        a, b = (codes(rng, (1, 160), "E4M3", "near") & np.uint8(0x7F) for _ in range(2))
        case, values = {"a": a, "b": b, "order": "promote32"}, [decode("E4M3", x).astype(np.float64) for x in (a, b)]
        exact = (values[0] * values[1]).reshape(5, 32).sum(axis=1)
        lost = [exact[n] - matmul_fp8(*(x[:, 32 * n : 32 * n + 32] for x in (a, b))).item() for n in range(5)]
        first = next(name for name, _ in lines(case) if name.startswith("term"))
        seen.add(int(np.argmax(lost)))
        assert first == f"term {32 * int(np.argmax(lost))}"
    assert len(seen) > 2


def test_of_a_long_product_a_step_that_becomes_infinite_loses_nothing():
    a = np.tile(np.array([0x3F80, 0xBF80], np.uint16), (1, 40))  # steps of 1 - 1 + 1 - 1 ...
    a[0, 14:16], a[0, 64:] = (127 - 40) << 7, 0  # in the first one 2^-40 is cut
    b = np.full_like(a, 0x3F80)
    a[0, 64] = b[0, 64] = (127 + 64) << 7
    steps = refnum.explain("matmul_bf16", {"a": a, "b": b}, 0).steps
    assert "+inf" in str(steps)
    assert next(step.name for step in steps if step.name.startswith("term")) == "term 0"


def test_a_result_of_any_row_is_explained_and_one_below_the_least_number_is_zero():
    tiny = np.full((40, 32), (127 - 100) << 7, np.uint16)
    assert refnum.explain("matmul_bf16", {"a": tiny, "b": tiny[:1]}, (39, 0)).code == 0


def test_of_a_long_product_that_loses_nothing_the_first_step_is_shown():
    a = np.full((1, 160), 0x38, np.uint8)
    a[0, 5] = 0x7F  # NaN: a step of no terms
    told = lines({"a": a, "b": a, "order": "promote32"})
    assert "a term is NaN" in told[1][1] and not any(name.startswith("term") for name, _ in told)


@pytest.mark.parametrize("order", ["chain", "promote128", "split2"])
def test_a_sum_of_zero_and_an_infinite_one_are_explained(order):
    zeros = np.zeros((1, 256), np.uint8)
    ones = np.ones((1, 2), np.float32)
    for more in ({}, {"a_scales": ones} if order != "chain" else {}):
        assert refnum.explain("matmul_fp8", {"a": zeros, "b": zeros, "order": order, **more}, 0).code == 0
    b = np.array([[0x7C] + [0] * 255, [0xFC] + [0] * 255], np.uint8)
    case = {"a": zeros + np.uint8(0x38), "b": b, "b_format": "E5M2", "order": order, "out": "bfloat16"}
    assert [refnum.explain("matmul_fp8", case, (0, column)).code for column in (0, 1)] == [0x7F80, 0xFF80]


def test_an_accumulator_below_2_to_the_minus_126_has_that_exponent():
    for power, exponent in ((-125, -125), (-126, -126), (-127, -126), (-133, -126)):
        a = np.zeros((1, 32), np.uint16)
        a[0, 0] = (127 - 60) << 7
        b = a.copy()
        b[0, 0] = (127 + power + 60) << 7
        told = {step.name: step.text for step in refnum.explain("matmul_bf16", {"a": a, "b": b}, 0).steps}
        assert told["step 1"].startswith(f"terms 16 to 31: largest exponent {exponent},")


def test_special_terms_say_why():
    a = np.full((1, 3), 0x38, np.uint8)
    b = np.array([[0x7F, 0, 0], [0x7C, 0, 0], [0x7C, 0xFC, 0]], np.uint8)
    told = [dict(lines({"a": a, "b": b, "b_format": "E5M2"}, (0, j)))["step 0"] for j in range(3)]
    assert "a term is NaN, bits 0x7FFFFFFF" in told[0] and "a term is infinite, bits 0x7F800000" in told[1]
    assert "infinities of both signs" in told[2]


def test_bad_input():
    a = np.zeros((2, 32), np.uint8)
    with pytest.raises(ArgumentError, match="is outside"):
        refnum.explain("matmul_fp8", {"a": a, "b": a}, (0, 2))
    with pytest.raises(ArgumentError, match="without splits"):
        refnum.explain("matmul_fp8", {"a": a, "b": a[None], "splits": [2]}, (0, 0))
    with pytest.raises(ArgumentError, match="argument 'b' is missing"):
        refnum.explain("matmul_fp8", {"a": a}, (0, 0))
