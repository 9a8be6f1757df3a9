"""The comparator: no tolerance, no wildcard, and levels that forgive exactly what they say."""

import re

import ml_dtypes
import numpy as np
import pytest
from compare_tools import case_of, sample

import refnum
from refnum.arrays import unpack_nibbles
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.geometry import blocks_hit, spread
from refnum.conformance.cases.layouts import OTHERS, stored_scales
from refnum.conformance.cases.levels import NO_LEVEL, checked_level, failed_name, level_name
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.verdicts.compare import compare, differences, normalise
from refnum.errors import ArgumentError


def judged(case, change):
    """Level of the golden result with some bytes changed by `change(packed or codes, scales)`."""
    results = tuple(array.copy() for array in call_golden(case))
    change(*results)
    return compare(case, run_golden(case), results).level


def test_identical_bytes_are_level_0_and_everything_is_counted():
    case = case_of(sample())
    verdict = compare(case, run_golden(case), call_golden(case))
    assert verdict.level == 0 and not verdict.problem and verdict.compared == 3 * 32 + 3 * 2


@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 31), (0, 16)])
def test_one_bit_anywhere_is_seen(row, column):
    def flip(packed, scales):
        packed[row, column] ^= 0x10

    assert judged(case_of(sample()), flip) == NO_LEVEL


def test_one_scale_byte_is_seen():
    def bump(packed, scales):
        scales[2, 1] += 1

    assert judged(case_of(sample()), bump) == NO_LEVEL


def test_level_1_forgives_codes_under_a_nan_scale_only():
    def codes_of_nan_block(packed, scales):
        packed[1, 16:] = 0x77

    assert judged(case_of(sample()), codes_of_nan_block) == 1


def test_level_2_forgives_the_sign_of_zero_only():
    def positive_zero(packed, scales):
        assert packed[0, 0] & 0x0F == 8
        packed[0, 0] &= 0xF0

    assert judged(case_of(sample()), positive_zero) == 2

    def negative_one(packed, scales):
        packed[0, 1] ^= 0x08

    assert judged(case_of(sample()), negative_one) == NO_LEVEL


def test_level_3_forgives_nan_payload_and_sign():
    x = sample(2, 128)
    case = case_of(x, "quantize_fp8_tiles", tile=[1, 128])

    def negative_nan(codes, scales):
        assert codes[1, 32] == 0x7F
        codes[1, 32] = 0xFF

    assert judged(case, negative_nan) == 3


def test_level_4_compares_values_not_encodings():
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = (2.0, 1.0)
    case = case_of(x)  # 2.0 = 4 * 2^-1 with byte 126; the same values with byte 127 are 2 and 1

    def other_encoding(packed, scales):
        assert scales[0, 0] == 126 and packed[0, 0] == 0x46
        scales[0, 0], packed[0, 0] = 127, 0x24

    assert judged(case, other_encoding) == 4


def test_level_4_is_not_fooled_by_nan_or_infinity():
    case = Case(
        "dequantize_mxfp4",
        "HOPPER",
        {"dtype": "float32"},
        {"packed": np.full((1, 16), 0x72, np.uint8), "scales": np.array([[254]], np.uint8)},
    )
    golden = run_golden(case)
    assert np.isinf(golden["values"].view(np.float32)).any()
    for wrong in (np.nan, np.float32(3.4e38), -np.inf):
        values = call_golden(case)[0].copy()
        values[0, 1] = wrong
        assert compare(case, golden, (values,)).level == NO_LEVEL


def test_nan_is_no_wildcard_in_either_direction():
    case = Case(
        "dequantize_mxfp4",
        "HOPPER",
        {"dtype": "float32"},
        {"packed": np.full((1, 16), 0x22, np.uint8), "scales": np.array([[127]], np.uint8)},
    )
    nan = np.full((1, 32), np.nan, np.float32)
    assert compare(case, run_golden(case), (nan,)).level == NO_LEVEL
    nan_case = case.with_inputs({"scales": np.array([[255]], np.uint8)})
    ones = np.ones((1, 32), np.float32)
    assert compare(nan_case, run_golden(nan_case), (ones,)).level == NO_LEVEL


def test_values_payload_is_level_3_and_zero_sign_level_2():
    case = Case(
        "dequantize_mxfp4",
        "HOPPER",
        {"dtype": "float32"},
        {"packed": np.full((1, 32), 0x08, np.uint8), "scales": np.array([[127, 255]], np.uint8)},
    )
    golden = run_golden(case)
    zeros = call_golden(case)[0].copy()
    zeros[0, :32] = 0.0
    assert compare(case, golden, (zeros,)).level == 2
    bits = call_golden(case)[0].copy().view(np.uint32)
    bits[0, 40] = 0xFFC12345
    assert compare(case, golden, (bits.view(np.float32),)).level == 3


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (lambda p, s: (p,), "1 results came back"),
        (lambda p, s: (p, s, s), "3 results came back"),
        (lambda p, s: (p.astype(np.int32), s), "packed has dtype int32; expected uint8"),
        (lambda p, s: (p, s.astype(np.float32)), "scales has dtype float32; expected uint8 or float8_e8m0fnu"),
        (lambda p, s: (p.T, s), r"packed has shape \[32, 3\]; expected \[3, 32\]"),
        (lambda p, s: (p[:2], s), r"packed has shape \[2, 32\]; expected \[3, 32\]"),
        (lambda p, s: (s, p), "packed has shape"),
    ],
)
def test_what_cannot_be_compared_is_said_in_words(results, words):
    import re

    case = case_of(sample())
    verdict = compare(case, run_golden(case), results(*call_golden(case)))
    assert verdict.level == NO_LEVEL and verdict.compared == 0 and re.search(words, verdict.problem.words)


def test_storage_dtypes_of_the_same_bytes_are_accepted():
    case = case_of(sample(2, 128), "quantize_fp8_tiles", tile=[1, 128])
    codes, scales = call_golden(case)
    typed = codes.view(ml_dtypes.float8_e4m3fn), scales.view(ml_dtypes.float8_e8m0fnu)
    assert compare(case, run_golden(case), typed).level == 0
    wrong = codes.view(ml_dtypes.float8_e5m2), scales
    assert "dtype float8_e5m2" in compare(case, run_golden(case), wrong).problem.words


def test_non_contiguous_results_are_compared_by_content():
    case = case_of(sample())
    packed, scales = call_golden(case)
    assert compare(case, run_golden(case), (np.asfortranarray(packed), scales[:, ::-1][:, ::-1])).level == 0


def test_levels_are_nested():
    """What one level accepts every later one accepts: 2,000 random corruptions."""
    rng = np.random.default_rng(7)
    case = case_of(sample())
    golden = run_golden(case)
    reached = set()
    for _ in range(2000):
        packed, scales = (array.copy() for array in call_golden(case))
        packed[rng.integers(3), rng.integers(32)] ^= 1 << rng.integers(8)
        observed = {"packed": packed, "scales": scales}
        equal = [
            all(
                np.array_equal(normalise(case, golden, at)[n], normalise(case, observed, at)[n])
                for n in normalise(case, golden, at)
            )
            for at in range(NO_LEVEL)
        ]
        assert equal == sorted(equal)
        reached.add(compare(case, golden, (packed, scales)).level)
    assert reached == {1, 2, NO_LEVEL}


def test_differences_mark_elements_not_bytes():
    case = case_of(sample())
    packed, scales = call_golden(case)
    packed = packed.copy()
    packed[2, 5] ^= 0x70
    wrong = differences(case, run_golden(case), {"packed": packed, "scales": scales})
    assert np.argwhere(wrong["packed"]).tolist() == [[2, 11]] and not wrong["scales"].any()
    packed[1, 20] ^= 1  # under a NaN scale: a difference of bytes, and of no level above
    seen = [differences(case, run_golden(case), {"packed": packed, "scales": scales}, *at) for at in ((), (0,), (1,))]
    assert [np.argwhere(one["packed"]).tolist() for one in seen] == [[[1, 40], [2, 11]]] * 2 + [[[2, 11]]]


def test_unpack_puts_the_even_element_in_the_low_nibble():
    assert unpack_nibbles(np.array([[0x21, 0x43]], np.uint8)).tolist() == [[1, 2, 3, 4]]
    assert unpack_nibbles(np.array([0xF0], np.uint8)).tolist() == [0, 15]
    assert unpack_nibbles(np.array([[[0x21], [0x43]]], np.uint8)).tolist() == [[[1, 2], [3, 4]]]


def test_tables_of_levels_have_an_entry_a_byte():
    from refnum.conformance.verdicts.compare import _exact, _table

    assert [_table("E2M1", level).shape for level in (2, 3, 4)] + [_exact("E2M1").shape] == [(256,)] * 4


def test_what_each_level_maps_to_which_representative():
    """One block under a NaN byte, one of both zeros and a one: the codes and the bytes that are compared."""
    case = case_of(np.ones((1, 64), np.float32))
    packed, scales = np.full((1, 32), 0x28, np.uint8), np.array([[255, 130]], np.uint8)
    packed[0, 16] = 0x80
    mapped = [normalise(case, {"packed": packed, "scales": scales}, level) for level in range(4)]
    assert all(np.array_equal(level["scales"], scales) for level in mapped)
    assert [level["packed"][0, :2].tolist() for level in mapped] == [[8, 2], [0, 0], [0, 0], [0, 0]]
    assert [level["packed"][0, 32:36].tolist() for level in mapped] == [[0, 8, 8, 2]] * 2 + [[0, 0, 0, 2]] * 2
    (values,) = normalise(case, {"packed": packed, "scales": scales}, 4).values()
    assert values.shape == (1, 64) and np.isnan(values[:, :32].view(np.float64)).all()
    assert np.unique(values[:, :32]).size == 1
    assert values[0, 32:36].view(np.float64).tolist() == [0, 0, 0, 8] and not values[0, 32:35].any()


@pytest.mark.parametrize("element", ["E4M3", "E5M2"])
def test_levels_of_every_code_of_eight_bits(element):
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    case = Case("quantize_mx", "HOPPER", {"element": element, "input": "float32"}, {"x": np.ones((8, 32), np.float32)})
    mapped = [normalise(case, {"codes": codes, "scales": np.full((8, 1), 127, np.uint8)}, at) for at in range(5)]
    fmt = refnum.get_format(element)
    for code in range(256):
        exact, level = refnum.value(fmt, code), [int(one["codes"].reshape(-1)[code]) for one in mapped[:4]]
        assert level[:2] == [code, code]
        assert level[2] == (0 if exact == 0 else code)
        assert level[3] == (fmt.nan_code if exact == "nan" else level[2])
    values = mapped[4]["codes"].reshape(-1).view(np.float64)
    want = [float(refnum.value(fmt, code)) for code in range(256)]
    assert np.array_equal(values, want, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "word", "sign", "inf", "quiet"),
    [("float32", np.uint32, 1 << 31, 0x7F800000, 0x7FC00000), ("bfloat16", np.uint16, 1 << 15, 0x7F80, 0x7FC0)],
)
def test_levels_of_values(dtype, word, sign, inf, quiet):
    case = Case("dequantize_mxfp4", "HOPPER", {"dtype": dtype}, {})
    kept = [0, 1, sign | 1, inf - 1, inf, sign | inf, sign | (inf - 1), quiet]
    bits = np.array([[sign, inf + 1, sign | (inf + 1), sign - 1, 2 * sign - 1, sign | quiet, *kept]], word)
    mapped = [normalise(case, {"values": bits}, level)["values"][0].tolist() for level in range(5)]
    assert mapped[0] == mapped[1] == bits[0].tolist()
    assert mapped[2] == [0, *bits[0, 1:].tolist()]
    assert mapped[3] == mapped[4] == [0, *[quiet] * 5, *kept]


# --- geometry -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [None, [5], [3, 0, 200, 129], [128, 128], [0, 0, 7]])
@pytest.mark.parametrize(("geometry", "last"), [("column128", 128), ("column32", 32)])
def test_spread_over_columns_equals_the_loop_over_experts(splits, geometry, last):
    rows = sum(splits) if splits else 300
    case = Case("mxfp4_to_fp8_columns", "HOPPER", {"splits": splits}, {})
    blocks = sum(-(-count // last) for count in (splits or [rows]))
    scales = np.arange(blocks * 4, dtype=np.uint8).reshape(blocks, 4)
    wide = spread(geometry, case, scales, (4, rows))
    row = block = 0
    for count in splits or [rows]:
        for inside in range(count):
            assert wide[:, row].tolist() == scales[block + inside // last].tolist()
            row += 1
        block += -(-count // last)


def test_spread_over_tiles_and_blocks_hit_are_inverse():
    case = Case("quantize_fp8_tiles", "HOPPER", {"tile": [128, 128]}, {})
    scales = np.arange(6, dtype=np.uint8).reshape(2, 3)
    wide = spread("tile", case, scales, (130, 288))
    for block in range(6):
        hit = blocks_hit("tile", case, wide == block)
        assert hit.shape == (2, 3) and np.argwhere(hit).tolist() == [[block // 3, block % 3]]


@pytest.mark.parametrize(("geometry", "last"), [("row32", 32), ("row128", 128)])
def test_spread_over_rows_and_blocks_hit_are_inverse(geometry, last):
    scales = np.arange(9, dtype=np.uint8).reshape(3, 3)
    wide = spread(geometry, case_of(sample()), scales, (3, 2 * last + 32))
    assert wide.shape == (3, 2 * last + 32)
    assert np.array_equal(wide, scales[:, np.arange(2 * last + 32) // last])
    for block in range(9):
        hit = blocks_hit(geometry, case_of(sample()), wide == block)
        assert hit.shape == (3, 3) and np.argwhere(hit).tolist() == [[block // 3, block % 3]]


def test_a_scale_down_a_column_covers_32_rows():
    scales = np.arange(6, dtype=np.uint8).reshape(2, 3)
    wide = spread("down32", case_of(sample()), scales, (40, 3))
    assert np.array_equal(wide, scales[np.arange(40) // 32])
    for block in range(6):
        hit = blocks_hit("down32", case_of(sample()), wide == block)
        assert hit.shape == (2, 3) and np.argwhere(hit).tolist() == [[block // 3, block % 3]]


def test_an_unknown_geometry_is_named():
    with pytest.raises(ArgumentError, match="Unknown block geometry 'row7'; choose from row32, row128"):
        spread("row7", case_of(sample()), np.zeros((1, 1), np.uint8), (1, 1))


@pytest.mark.parametrize("layout", OTHERS)
def test_of_results_with_a_scale_layout_the_scales_alone_are_read_from_it(layout):
    case = case_of(sample(), layout_out=layout)
    packed, plain = call_golden(case_of(sample()))
    golden, scales = run_golden(case), stored_scales(case, plain)
    assert compare(case, golden, (packed, scales)).level == 0
    assert compare(case, golden, (packed ^ np.uint8(1), scales)).level == NO_LEVEL
    assert compare(case, golden, (packed, stored_scales(case, plain + np.uint8(1)))).level == NO_LEVEL
    assert compare(case, golden, (scales, scales)).problem and compare(case, golden, (packed, packed)).problem


@pytest.mark.parametrize("level", ["L9", "", "l0", True, 1.0, -1, NO_LEVEL, None, ["L0"]])
def test_what_is_no_level_is_refused_by_name(level):
    with pytest.raises(ArgumentError, match=f"k claims level {re.escape(repr(level))}; a level of agreement is L0, L1"):
        checked_level(level, "k")


def test_level_names():
    assert [level_name(level) for level in range(7)] == ["L0", "L1", "L2", "L3", "L4", "P1", "none"]
    assert [checked_level(name, "k") for name in ("L0", "L4", "P1", 5)] == [0, 4, 5, 5]
    assert [failed_name(level, "matmul_fp8") for level in (0, 1, 5, 6)] == ["L0", "L0", "L4", "P1"]
    assert failed_name(NO_LEVEL, "quantize_mxfp4") == "L4"
