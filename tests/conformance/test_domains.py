"""Domains: exact sizes, every member held exactly once, and members that are what they claim to be."""

import itertools

import numpy as np
import pytest

from refnum.conformance.cases.domains import LEVELS, Chunk, Domain, count_once, domains_for
from refnum.conformance.cases.domains.domain import arrangement
from refnum.conformance.cases.domains.quantizers import pins
from refnum.conformance.cases.domains.recast import allowed, maxima
from refnum.conformance.cases.draw.bits import float_bits
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes.distributions import layout_of
from refnum.errors import ArgumentError

SMALL = 1 << 21


def find(operation, params, name=None, level="standard"):
    found = domains_for(operation, "HOPPER", params, level)
    return found[0] if name is None else next(domain for domain in found if domain.name.startswith(name))


WITHOUT = ("pack_payload", "unpack_payload", "permute_pad", "permute_unpack", "unpermute")


def test_operations_that_move_bytes_have_no_domain_and_all_others_have_one():
    with_domains = {name for name, operation in OPERATIONS.items()
                    if domains_for(name, "HOPPER", operation.defaults(), "exhaustive")}  # fmt: skip
    assert set(OPERATIONS) - with_domains == set(WITHOUT)


def test_levels():
    params = {"input": "float32"}
    assert domains_for("encode_e4m3", "HOPPER", params, "smoke") == []
    assert [d.size for d in domains_for("encode_e4m3", "HOPPER", params, "standard")] == [6 << 16]
    assert [d.size for d in domains_for("encode_e4m3", "HOPPER", params, "exhaustive")] == [6 << 16, 1 << 32]
    with pytest.raises(ArgumentError, match="exhaustive"):
        domains_for("encode_e4m3", "HOPPER", params, "all")


SIZES = {
    ("decode_e2m1", ()): [16],
    ("decode_e4m3", ()): [256],
    ("decode_e8m0", ()): [256],
    ("dequantize_mxfp4", ()): [65536],
    ("dequantize_mx", (("element", "E2M1"),)): [4096],
    ("dequantize_mx", (("element", "E4M3"),)): [65536],
    ("dequantize_fp8_tiles", ()): [65536],
    ("fp8_to_mxfp4", ()): [(2 * 127 * 128 // 2 + 256) * 256],
    # row bytes up to the largest with 16 codes, larger ones with two zeros, NaN with 16 codes
    ("mxfp4_to_fp8", (("scale", "max"),)): [255 * 256 // 2 * 16 + 255 * 254 // 2 * 2 + 255 * 16],
    ("fp8_columns", (("underflow", "rne"),)): [(255 * 256 // 2 + 255) * 256 + 255 * 254 // 2 * 2],
    ("encode_e2m1", (("input", "bfloat16"),)): [65536],
    ("swiglu_quantize", (("to", "fp8"),)): [65536, 1 << 24],
}


@pytest.mark.parametrize("key", SIZES, ids=str)
def test_sizes_are_the_exact_counts(key):
    name, changed = key
    params = {**OPERATIONS[name].defaults(), **dict(changed)}
    assert [domain.size for domain in domains_for(name, "HOPPER", params, "standard")] == SIZES[key]


def pairs_size(emax_significand, low, high, mantissa, bias, top):
    """Pairs (byte, element) by hand: for byte s every pattern up to significand * 2**(s - 127), both signs."""
    total = 0
    for byte in range(low, high + 1):
        exponent, fraction = byte - 127 + emax_significand[0], emax_significand[1]
        pattern = ((exponent + bias) << mantissa) + (fraction << mantissa - 2)
        total += 2 * (min(pattern, top) + 1)
    return total


def test_pair_domain_sizes_follow_from_the_rule():
    """rceil: the largest maximum of byte s is 1.5 * 4 * 2**(s-127) for E2M1, 1.75 * 256 * 2**(s-127) for E4M3."""
    bf16 = find("quantize_mxfp4", {"input": "bfloat16"}, "every element under")
    assert bf16.size == pairs_size((2, 2), 0, 253, 7, 127, 0x7F7F) == 8388474
    tiles = find("quantize_fp8_tiles", {"tile": [1, 128], "input": "bfloat16"}, "every element under")
    assert tiles.size == pairs_size((8, 3), 0, 247, 7, 127, 0x7F7F)
    # float16: the smallest maximum 2**-24 has byte 101, 2**15 * 1.999 byte 141; below 2**-14 patterns are linear
    half = pins("quantize_mxfp4", "HOPPER", (("input", "float16"),))
    assert (min(half), max(half), half[141]) == (101, 141, 0x7BFF)
    assert half[113] == (3 << 10) + 512  # 6 * 2**-14 = 1.5 * 2**-12
    assert half[101] == 1 and half[102] == 3 and half[103] == 6


def test_pins_follow_each_scale_rule():
    items = (("input", "bfloat16"),)
    for profile, top in (("HOPPER", 0x40C0), ("OCP", 0x40FF), ("CEIL", 0x4080), ("EVEN", 0x40DF)):
        assert pins("quantize_mxfp4", profile, items)[127] == top
    assert min(pins("quantize_mxfp4", "RECIPE", items)) == 94


def variants():
    for name in (name for name in OPERATIONS if name not in WITHOUT):
        for params in OPERATIONS[name].variants():
            if name == "quantize_mx" and (params["element"], params["input"]) not in (
                ("E2M1", "float16"),
                ("E4M3", "float16"),
                ("MXINT8", "float16"),
            ):
                continue
            yield name, params


@pytest.mark.parametrize(("name", "params"), list(variants()), ids=str)
def test_every_member_is_held_exactly_once(name, params):
    for domain in domains_for(name, "HOPPER", params, "standard"):
        if domain.size <= SMALL or name in ("fp8_to_mxfp4", "fp8_columns"):
            assert count_once(domain) == domain.size


@pytest.mark.parametrize(("name", "params", "part"), [
    ("quantize_mxfp4", {"input": "bfloat16"}, "every element under"),
    ("quantize_fp8_tiles", {"tile": [128, 128], "input": "bfloat16"}, "every element under"),
    ("swiglu_backward", {}, "every gate times"),
])  # fmt: skip
def test_large_domains_too(name, params, part):
    domain = find(name, params, part)
    assert count_once(domain) == domain.size > SMALL


def test_count_once_finds_a_missing_and_a_double_member():
    def domain(members):
        return Domain(
            "d",
            "decode_e2m1",
            "HOPPER",
            {},
            16,
            "",
            lambda: iter([Chunk({"codes": np.zeros((1, 16), np.uint8)}, lambda: np.array(members))]),
        )

    assert count_once(domain(np.arange(16))) == 16
    with pytest.raises(AssertionError, match="15 members held"):
        count_once(domain(np.arange(15)))
    with pytest.raises(AssertionError, match="member 3 is missing"):
        count_once(domain([0, 1, 2, 2, *range(4, 16)]))


def test_arrangement_places_members_pin_and_fillers():
    index = arrangement(70, 32)
    assert index.shape == (3, 32)
    assert ((index == -2).sum(axis=1) == 1).all()
    assert sorted(index[index >= 0].tolist()) == list(range(70))
    assert (index == -1).sum() == 3 * 31 - 70
    assert index.argmin(axis=1).tolist() == [0, 1, 2]


def test_dequantize_members_are_the_pairs_they_say():
    case, members = next(find("dequantize_mxfp4", {"dtype": "float32"}).chunks())
    held = members()
    row, column = np.nonzero(held >= 0)
    byte = case.inputs["scales"][row, column // 32].astype(int)
    assert (held[row, column] == byte * 256 + case.inputs["packed"][row, column // 2]).all()
    for element in ("E2M1", "E2M3", "MXINT8"):
        params = {"element": element, "dtype": "float32"}
        case, members = next(find("dequantize_mx", params).chunks())
        held = members()
        row, column = np.nonzero(held >= 0)
        count = 1 << layout_of("dequantize_mx", params).element.bits
        byte = case.inputs["scales"][row, column // 32].astype(int)
        assert (held[row, column] == byte * count + case.inputs["codes"][row, column]).all()


def test_pair_members_are_elements_under_their_byte():
    """Read each member back from the inputs: its block's byte and its own pattern give its number."""
    domain = find("quantize_mxfp4", {"input": "float16"}, "every element under")
    tops = pins("quantize_mxfp4", "HOPPER", (("input", "float16"),))
    first = dict(zip(tops, np.cumsum([0, *(2 * (top + 1) for top in tops.values())]).tolist(), strict=False))
    for case, members in domain.chunks():
        held = members()
        byte = np.repeat(run_golden(case)["scales"], 32, axis=1)
        bits = float_bits(case.inputs["x"]).astype(int)
        number = np.array([first.get(b, 0) for b in range(256)])[byte] + 2 * (bits & 0x7FFF) + (bits >> 15)
        assert (held[held >= 0] == number[held >= 0]).all()


def test_fp8_members_stand_under_their_maximum():
    domain = find("fp8_to_mxfp4", {})
    first = np.cumsum([0, *(2 * (top + 1) for top in range(128))])
    for case, members in itertools.islice(domain.chunks(), 1):
        held = members()
        codes = case.inputs["codes"].astype(int)
        byte = np.repeat(case.inputs["scales"].astype(int), 128, axis=1)
        top = np.repeat((codes & 0x7F).reshape(len(codes), -1, 32).max(axis=2), 32, axis=1)
        number = byte * first[-1] + first[top] + 2 * (codes & 0x7F) + (codes >> 7)
        assert (held[held >= 0] == number[held >= 0]).all()
        assert (held >= 0).any()


@pytest.mark.parametrize("rule", ["max", "amax"])
@pytest.mark.parametrize("name", ["mxfp4_to_fp8", "mxfp4_to_fp8_columns", "mxfp4_columns"])
def test_pins_stay_the_maximum_of_their_tile(name, rule):
    """The golden scale of every tile is what its pin alone would give, so each member meets its stated maximum."""
    domain = find(name, {"scale": rule})
    code, byte = maxima(rule)
    tall = {"mxfp4_to_fp8": 1, "mxfp4_to_fp8_columns": 128, "mxfp4_columns": 32}[name]
    alone = np.zeros((byte.size * tall, 16), np.uint8)
    alone[::tall] = (code | code << 4)[:, None]
    scales = np.zeros((byte.size * tall, 1), np.uint8)
    scales[::tall, 0] = byte
    case = next(domain.cases()).with_inputs({"packed": alone, "scales": scales})
    want = run_golden(case)["scales"][:, 0]
    got = [run_golden(case)["scales"] for case in domain.cases()]
    if name == "mxfp4_to_fp8":
        tiles = np.concatenate([part[:, :1] for part in got])
        assert all((part == part[:, :1]).all() for part in got)
        assert (tiles[:, 0] == want).all()
    else:
        per = -(-(255 if tall == 32 else 256) // (tall - 1))
        tiles = np.concatenate(got)
        assert (tiles == tiles[:, :1]).all()
        assert (tiles[:, 0].reshape(-1, per) == want[:, None]).all()


def test_allowed_is_by_value():
    """1.0 under byte 5 is 2.0 under byte 4: both stay, 3.0 under byte 4 does not, below a maximum of 2.0."""
    fits = allowed("amax", 256)
    code, byte = maxima("amax")
    small = int(np.flatnonzero((code == 4) & (byte == 0))[0])  # 2.0 at byte 0
    assert fits[small, 1, 2] and not fits[small, 1, 3] and not fits[small, 0, 5] and fits[small, 255, 7]
    assert fits[small, 200, 8] and not fits[small, 2, 2] and fits[small, 2, 1]


def test_every_golden_call_takes_the_domain_cases():
    for name in ("fp8_columns", "swiglu_quantize", "encode_e8m0"):
        domain = find(name, OPERATIONS[name].defaults())
        outputs = run_golden(next(domain.cases()))
        assert all(output.size for output in outputs.values())
    assert LEVELS["standard"] == 1 << 24


def test_the_float32_sweep_goes_through_all_patterns_in_order():
    domain = find("encode_e4m3", {"input": "float32"}, "every float32 pattern", "exhaustive")
    cases = domain.cases()
    for start in (0, 1 << 21):
        case = next(cases)
        bits = case.inputs["x"].view(np.uint32).reshape(-1)
        assert (bits == np.arange(start, start + bits.size)).all() and bits.size == 1 << 21
        assert case.domain == domain.name
    assert domain.wide is not None and domain.wide.size == domain.size == 1 << 32
    with pytest.raises(ArgumentError, match="no list of members"):
        next(domain.chunks())


@pytest.mark.parametrize("name", ["quantize_mxfp4", "quantize_fp8_tiles", "quantize_payload"])
def test_a_magnitude_stands_alone_beside_its_scale(name):
    params = {**OPERATIONS[name].defaults(), "input": "float32"}
    domain = find(name, params, "every float32 magnitude as block maximum", "exhaustive")
    case = next(domain.cases())
    assert case.operation == name
    bits = case.inputs["x"].view(np.uint32)
    blocks = bits.reshape(-1, 32)
    assert ((blocks != 0).sum(axis=1) <= 1).all()
    assert (blocks.max(axis=1) == np.arange(len(blocks))).all()
    assert bits.shape[1] == (32 if name == "quantize_fp8_tiles" else 1024)


def test_random_bits_stand_beside_every_magnitude():
    params = {"input": "float32"}
    domains = domains_for("quantize_mxfp4", "STOCHASTIC", params, "exhaustive")
    case = next(next(d for d in domains if d.wide).cases())
    assert case.inputs["rbits"].shape == case.inputs["x"].shape
