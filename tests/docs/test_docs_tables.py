"""The generated tables against figures that were published, typed in here once and independently."""

import rule_tables
import value_tables

from refnum.conformance.cases.levels import CLASSES, LEVELS


def column(table, name):
    return [row[table.header.index(name)].strip("`") for row in table.rows]


def test_e2m1_values_are_the_standard_s():
    assert column(value_tables.e2m1_codes(), "value") == [
        "0", "0.5", "1", "1.5", "2", "3", "4", "6", "-0", "-0.5", "-1", "-1.5", "-2", "-3", "-4", "-6"]  # fmt: skip


def test_e2m1_ties_go_to_the_even_code():
    table = value_tables.midpoints("E2M1")
    assert column(table, "midpoint") == ["0.25", "0.75", "1.25", "1.75", "2.5", "3.5", "5"]
    assert [row[2].split("`")[1] for row in table.rows] == ["0x0", "0x2", "0x2", "0x4", "0x4", "0x6", "0x6"]
    assert [row[3].split("`")[1] for row in table.rows] == ["0x1", "0x2", "0x3", "0x4", "0x5", "0x6", "0x7"]


def test_scale_bytes_are_the_published_ones():
    table = rule_tables.scales()
    published = {
        "1": (125, 125, 125, 125), "1.5": (125, 126, 125, 125), "3": (126, 127, 126, 126),
        "3 + 1 ulp": (126, 127, 126, 127), "3.5 - 1 ulp": (126, 127, 126, 127), "3.5": (126, 127, 127, 127),
        "6": (127, 128, 127, 127), "6 + 1 ulp": (127, 128, 127, 128), "7": (127, 128, 128, 128),
        "448": (133, 134, 134, 134), "0": (0, 0, 0, 0),
    }  # fmt: skip
    rows = {row[0]: tuple(int(cell.strip("`")) for cell in row[2:]) for row in table.rows}
    assert {name: rows[name] for name in published} == published


def test_e4m3_extremes():
    flat = [cell for row in value_tables.values("E4M3").rows for cell in row[2:]]
    assert len(flat) == 128 and flat[0] == "0" and flat[1] == "2^-9" and flat[126:] == ["448", "NaN"]


def test_recoding_is_exact_up_to_distance_14():
    table = rule_tables.exactness()
    assert column(table, "all exact") == ["yes"] * 15 + ["no"] * 2
    assert [cell.strip("`") for cell in table.rows[0][1:8]] == ["0x60", "0x68", "0x6C", "0x70", "0x74", "0x78", "0x7C"]


def test_underflow_modes_differ_by_the_published_counts():
    rows = {row[0]: row[1:] for row in rule_tables.underflow().rows}
    assert rows["0"][0] == "7" and rows["6"][0] == "41" and rows["14"][0] == "97"
    assert all(float(row[1]) <= 0.5 for row in rows.values()) and max(float(r[2]) for r in rows.values()) == 7


def test_stochastic_rounding_has_the_published_codes():
    codes = column(value_tables.stochastic(), "code")
    assert codes == ["0x0", "0x1", "0x0", "0x1", "0x6", "0x7", "0xD", "0x6", "0x7", "0x8", "0x7", "0x1"]


def test_philox_known_answers():
    assert column(rule_tables.philox(), "output") == [
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8", "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1"]  # fmt: skip


def test_fp8_block_exponents_follow_the_integer_form():
    spans = {}
    for row in rule_tables.fp8_scales().rows:
        ends = [int(part.strip("`"), 16) for part in row[0].split("..")]
        spans.update(dict.fromkeys(range(ends[0], ends[-1] + 1), int(row[2])))
    assert sorted(spans) == list(range(1, 127))
    assert all(spans[a] == ((a + 3) >> 3) - 9 for a in range(8, 127))
    assert [spans[a] for a in range(1, 8)] == [-11, -10, -10, -9, -9, -9, -8]


def test_special_blocks_of_the_default_profile():
    table = rule_tables.specials()
    hopper = next(row for row in table.rows if row[0] == "`HOPPER`")
    assert hopper[1:] == ["`0: 0 0`", "`0: 8 0`", *["`255: 0 0`"] * 4, "`125: 8 6`"]
    te = next(row for row in table.rows if row[0] == "`TE`")
    assert te[3:5] == ["`254: 7 0`", "`254: F 0`"]


def test_levels_and_classes_are_the_harness_s():
    assert column(rule_tables.levels(), "level") == list(LEVELS)
    assert column(rule_tables.classes(), "class") == ["F", "T", "H", "Z", "I", "N"]
    assert set(CLASSES) == set("FTHZIN")


def test_show_writes_exact_values():
    from fractions import Fraction

    assert value_tables.show(Fraction(3, 512)) == "3 x 2^-9"
    assert value_tables.show(Fraction(1, 2**127)) == "2^-127"
    assert value_tables.show(Fraction(2) ** 127) == "2^127"
    assert value_tables.show(Fraction(448)) == "448"
    assert value_tables.show("nan") == "NaN"


def test_scale_constants():
    rows = {row[0].strip("`"): row[1:] for row in rule_tables.scale_constants().rows}
    assert rows["E2M1"] == ["6", "2", "f >= `0x400001`", "f >= `0x600000`"]
    assert rows["E4M3"] == ["448", "8", "f >= `0x600001`", "f >= `0x780000`"]
    assert rows["E5M2"][:2] == ["57344", "15"] and rows["MXINT8"][:2] == ["1.984375", "0"]
