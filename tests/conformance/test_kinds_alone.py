"""One difference by itself: its class, its output, its way and its place, of every way and every kind of output."""

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.verdicts.compare import compare
from refnum.conformance.verdicts.kinds import Kind, kinds_of, places_of


def quantised(operation="quantize_mxfp4", **params):
    """Two rows of blocks: finite, Inf, NaN; zero, tiny, huge. A block begins with 6, -0 or an infinity."""
    x = np.zeros((2, 96), np.float32)
    x[0, :4], x[0, 32], x[0, 64] = (6, -0.0, 0.5, -3), np.inf, np.nan
    x[1, 32], x[1, 64] = 2.0**-130, 2.0**127
    return Case(operation, "HOPPER", {"input": "float32", **params}, {"x": x})


def words(case, golden, observed):
    """The kinds of one answer in words, each of which has its number of places."""
    found = kinds_of(case, golden, observed)
    for kind, count in found.items():
        assert places_of(case, golden, observed, kind).sum() == count
    return {str(kind): count for kind, count in found.items()}


def changed(golden, name, place, bits):
    array = golden[name].copy()
    array[place] = bits
    return {**golden, name: array}


# place: of an element; 6 is 7, 0.5 is 1, -3 is 13 and -0 is 8, all under the scale byte 127.
@pytest.mark.parametrize(
    ("place", "code", "kind"),
    [
        ((0, 0), 6, "class F, packed: magnitude"),
        ((0, 0), 0, "class F, packed: magnitude"),
        ((0, 0), 15, "class F, packed: sign"),
        ((0, 3), 5, "class F, packed: sign"),
        ((0, 3), 0, "class F, packed: magnitude"),
        ((0, 1), 0, "class F, packed: sign of zero"),
        ((0, 1), 1, "class F, packed: magnitude"),
        ((0, 1), 9, "class F, packed: magnitude"),
        ((0, 40), 1, "class I, packed: codes under a NaN scale"),
        ((0, 95), 8, "class N, packed: codes under a NaN scale"),
        ((1, 5), 8, "class Z, packed: sign of zero"),
        ((1, 33), 1, "class T, packed: magnitude"),
        ((1, 64), 1, "class H, packed: magnitude"),
    ],
)
def test_a_code_of_a_quantiser(place, code, kind):
    case = quantised()
    golden = run_golden(case)
    row, column = place
    old = int(golden["packed"][row, column // 2])
    shift = 4 * (column % 2)
    observed = changed(golden, "packed", (row, column // 2), old & ~(15 << shift) | code << shift)
    assert words(case, golden, observed) == {kind: 1}
    (found,) = kinds_of(case, golden, observed)
    assert [tuple(at) for at in np.argwhere(places_of(case, golden, observed, found))] == [place]
    assert found.level == compare(case, golden, tuple(observed.values())).level
    assert places_of(case, golden, observed, Kind("F", "elsewhere", found.way)) is None


@pytest.mark.parametrize(
    ("place", "byte", "kind"),
    [
        ((0, 0), 128, "class F, scales: larger"),
        ((0, 0), 254, "class F, scales: larger"),
        ((0, 0), 126, "class F, scales: smaller"),
        ((0, 0), 255, "class F, scales: NaN"),
        ((0, 1), 254, "class I, scales: NaN"),
        ((0, 2), 0, "class N, scales: NaN"),
        ((1, 0), 127, "class Z, scales: larger"),
        ((1, 1), 1, "class T, scales: larger"),
        ((1, 2), 0, "class H, scales: smaller"),
    ],
)
def test_a_scale_of_a_quantiser_for_whose_codes_it_alone_counts(place, byte, kind):
    case = quantised()
    golden = run_golden(case)
    observed = changed(golden, "scales", place, byte)
    assert words(case, golden, observed) == {kind: 1}
    row, block = place
    observed["packed"] = golden["packed"].copy()
    observed["packed"][row, 16 * block : 16 * block + 16] ^= 0x11
    assert words(case, golden, observed) == {kind: 1}


def test_differences_of_several_classes_are_counted_each():
    case = quantised()
    golden = run_golden(case)
    observed = {name: array.copy() for name, array in golden.items()}
    observed["packed"][:, :2] ^= 0x10
    observed["packed"][0, 20] ^= 0x11
    observed["scales"][1, 1:] += 1
    assert words(case, golden, observed) == {
        "class F, packed: magnitude": 2,
        "class Z, packed: magnitude": 2,
        "class I, packed: codes under a NaN scale": 2,
        "class T, scales: larger": 1,
        "class H, scales: larger": 1,
    }


@pytest.mark.parametrize(
    ("element", "old", "new", "way"),
    [
        ("E4M3", 0x7F, 0xFF, "NaN payload"),
        ("E4M3", 0x7E, 0x7F, "NaN"),
        ("E4M3", 0xFF, 0x00, "NaN"),
        ("E5M2", 0x7C, 0xFC, "sign"),
        ("E5M2", 0x7C, 0x7B, "Inf"),
        ("E5M2", 0xFC, 0xFD, "NaN"),
        ("E5M2", 0x00, 0x7C, "Inf"),
        ("E5M2", 0x7D, 0xFF, "NaN payload"),
        ("MXINT8", 0x01, 0xFF, "sign"),
        ("MXINT8", 0x01, 0xFE, "magnitude"),
        ("MXINT8", 0x00, 0x80, "magnitude"),
    ],
)
def test_a_code_of_every_kind_of_format(element, old, new, way):
    case = quantised("quantize_mx", element=element)
    golden = run_golden(case)
    golden = changed(golden, "codes", (0, 7), old)
    observed = changed(golden, "codes", (0, 7), new)
    assert words(case, golden, observed) == {f"class F, codes: {way}": 1}
    assert kinds_of(case, golden, observed).keys() == {Kind("F", "codes", way)}
    assert Kind("F", "codes", way).level == {"NaN payload": 3}.get(way, NO_LEVEL)


def numbers(dtype, sign, inf):
    """Bits of a floating-point dtype before and after, the class of the former and the way."""
    two, quiet = sign >> 1, inf | inf >> 1
    return [(dtype, *row) for row in (
        (0, 1, "Z", "magnitude"), (0, sign, "Z", "sign of zero"), (sign, 0, "Z", "sign of zero"),
        (1, sign | 1, "F", "sign"), (1, 0, "F", "magnitude"), (two, 0, "F", "magnitude"),
        (two, sign | two | 1, "F", "magnitude"), (inf - 1, inf - 2, "F", "magnitude"), (inf - 1, inf, "F", "Inf"),
        (inf, sign | inf, "I", "sign"), (inf, inf + 1, "I", "NaN"), (inf + 1, quiet, "N", "NaN payload"),
        (inf + 1, 0, "N", "NaN"), (sign | quiet, inf, "N", "NaN"),
    )]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "old", "new", "letter", "way"),
    [*numbers("uint32", 1 << 31, 0x7F800000), *numbers("uint16", 1 << 15, 0x7F80)],
)
def test_a_number_whose_class_is_that_of_what_is_expected(dtype, old, new, letter, way):
    wide = {"uint32": "float32", "uint16": "bfloat16"}[dtype]
    case = Case("decode_e4m3", "HOPPER", {"dtype": wide}, {"codes": np.zeros((2, 3), np.uint8)})
    assert run_golden(case)["values"].dtype == dtype
    golden = {"values": np.full((2, 3), old, dtype)}
    observed = changed(golden, "values", (1, 2), new)
    assert words(case, golden, observed) == {f"class {letter}, values: {way}": 1}


def test_scales_without_a_class_of_input_are_of_the_class_that_is_expected():
    packed = np.full((256, 64), 0x77, np.uint8)
    case = Case("mxfp4_to_fp8_rows_columns", "HOPPER", {"scale": "max"},
                {"packed": packed, "scales": np.full((256, 4), 120, np.uint8)})  # fmt: skip
    golden = run_golden(case)
    assert golden["column_scales"].shape == (2, 128)
    golden["scales"][0, 0], golden["scales"][1, 0], golden["column_scales"][1, 5] = 255, 254, 255
    observed = {name: array.copy() for name, array in golden.items()}
    observed["scales"][:2, 0] = 9
    observed["codes"][:3] = 0
    observed["column_codes"][5, 100:130] = 0
    observed["column_codes"][6, 100:130] = 0x7F
    assert words(case, golden, observed) == {
        "class N, scales: NaN": 1,
        "class F, scales: smaller": 1,
        "class F, codes: magnitude": 128,
        "class F, column_codes: magnitude": 28,
        "class N, column_codes: codes under a NaN scale": 2,
        "class F, column_codes: NaN": 30,
    }


def test_bytes_differ_as_bytes():
    payload = np.zeros((3, 68), np.uint8)
    case = Case("permute_pad", "HOPPER", {"align": 32, "splits": [3]},
                {"payload": payload, "row_map": np.arange(3, dtype=np.int32)})  # fmt: skip
    golden = run_golden(case)
    observed = changed(changed(golden, "rows", (0, 1), 255), "offsets", 0, 7)
    assert words(case, golden, observed) == {"class F, rows: bytes": 1, "class F, offsets: bytes": 1}


def test_classes_of_a_quantiser_fit_each_of_its_outputs():
    x = np.ones((130, 160), ml_dtypes.bfloat16)
    x[129, 159] = np.inf
    for tile in ([1, 128], [128, 128]):
        case = Case("quantize_fp8_tiles", "HOPPER", {"input": "bfloat16", "tile": tile}, {"x": x})
        golden = run_golden(case)
        observed = {**golden, "scales": golden["scales"] ^ np.uint8(1)}
        rows = 130 if tile == [1, 128] else 2
        found = words(case, golden, observed)
        assert sum(found.values()) == rows * 2 and sum(n for kind, n in found.items() if "class I" in kind) == 1
