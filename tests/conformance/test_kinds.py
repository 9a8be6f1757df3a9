"""Every distinct difference is counted and gets a page: a known difference hides no second bug, here or in a diff."""

import functools
import tracemalloc

import numpy as np
import pytest
from defects import DEFECTS, RIGHT
from run_tools import report_of, right, subject

import refnum
from refnum.conformance.api import as_text
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import NO_LEVEL
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.mismatches import failures
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.difference import difference
from refnum.conformance.reports.html import html
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.compare import compare
from refnum.conformance.verdicts.kinds import Kind, kinds_of, places_of


def inf_as_254(x, profile):
    """Differ on Inf alone, as most public kernels do."""
    packed, scales = right(x, profile)
    blocks = np.isinf(np.asarray(x, np.float32).reshape(len(x), x.shape[1] // 32, 32)).any(axis=2)
    return packed, np.where(blocks & (scales == 255), np.uint8(254), scales)


def and_ties_up(x, profile):
    """Have a second bug beside the difference on Inf."""
    packed, _ = refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))
    return packed, inf_as_254(x, profile)[1]


def and_more_inf(x, profile):
    """Differ on Inf, and on NaN in the first lane."""
    packed, scales = inf_as_254(x, profile)
    first = np.isnan(np.asarray(x, np.float32).reshape(len(x), x.shape[1] // 32, 32)[:, :, 0])
    return packed, np.where(first, np.uint8(254), scales)


def corners(operation, profile, params):
    """Yield small cases: ties, signed zeros, random bits, Inf and NaN in the first lane and in others."""
    if params["input"] != "float32":
        return
    dice = np.random.default_rng(11)
    ordinary = np.resize(np.array([6, 5, 1.25, -0.0, 0.3, -2.5, 4, 0], np.float32), (4, 64))
    special = [ordinary.copy() for _ in range(4)]
    for array, lane, what in zip(special, (0, 3, 0, 9), (np.inf, -np.inf, np.nan, np.nan), strict=True):
        array[::2, lane] = what
    bits = dice.integers(0, 1 << 32, (4, 64), dtype=np.uint32).view(np.float32)
    for x in (ordinary, *special, bits):
        yield Case(operation, profile, params, {"x": x})


@functools.cache
def judged(function):
    document = report_of(subject(function), cases=corners).document()
    document["results"] = [row for row in document["results"] if row["compared"]]
    document["footer"].update(reports.concluded(document))
    reports.check(document, "this report")
    return document


def kinds_in(document):
    return {(one["class"], one["output"], one["way"]) for one in document["results"][0]["differences"]}


def pages_of(document):
    found = [record["difference"] for record in document["results"][0]["failures"]]
    return [(one["class"], one["output"], one["way"]) for one in found]


def test_a_second_bug_beside_inf_has_its_own_page_and_comes_by_its_rank():
    assert kinds_in(judged(inf_as_254)) == {("I", "scales", "NaN")} and len(pages_of(judged(inf_as_254))) == 1
    both = judged(and_ties_up)
    assert {letter for letter, _, _ in kinds_in(both)} >= {"I", "F"} and ("F", "packed", "magnitude") in pages_of(both)
    assert any(letter == "I" for letter, _, _ in pages_of(both))
    by_page = {one["difference"]["class"]: one for one in both["results"][0]["failures"]}
    assert by_page["F"]["bug_classes"][0]["id"] == "E2M1_TIES_UP" and by_page["F"]["page"]["output"] == "packed"
    assert "Inf" in by_page["I"]["page"]["input"][0]["value"].title() or by_page["I"]["page"]["output"] == "scales"
    assert all(one["reproduced"] == "3 of 3" for one in by_page.values())


def test_a_diff_names_the_second_bug_and_what_grew_and_what_is_gone():
    names = ("old.json", "new.json")
    for document in (judged(inf_as_254), judged(and_ties_up), judged(and_more_inf)):
        assert document["results"][0]["subject"] == "k"
    found = difference(judged(inf_as_254), judged(and_ties_up), names)
    assert found.exit == 1 and "finite packed: magnitude" in found.new[0].words
    assert {record["difference"]["class"] for record in found.new[0].failures} >= {"F"}
    assert "I" not in {record["difference"]["class"] for record in found.new[0].failures}
    assert "NaN scales" in difference(judged(inf_as_254), judged(and_more_inf), names).new[0].words
    back = difference(judged(and_ties_up), judged(inf_as_254), names)
    assert back.exit == 0 and not back.new and "no longer finite packed: magnitude" in back.fixed[0].words
    same = difference(judged(and_ties_up), judged(and_ties_up), names)
    assert (same.exit, same.same, same.fixed) == (0, 1, ())


def test_more_of_the_same_kind_is_new_too():
    old, new = ({**judged(inf_as_254)} for _ in range(2))
    row = old["results"][0]
    fewer = [{**one, "count": one["count"] - 1} for one in row["differences"]]
    old["results"] = [{**row, "differences": fewer}]
    found = difference(old, new, ("old", "new"))
    assert found.exit == 1 and f"{fewer[0]['count']} on the other side" in found.new[0].words
    assert difference(new, old, ("new", "old")).exit == 0


def test_of_two_kinds_a_diff_shows_the_page_of_the_one_that_grew():
    new = judged(and_ties_up)
    row = new["results"][0]
    fewer = [{**one, "count": one["count"] - (one["class"] == "F")} for one in row["differences"]]
    old = {**new, "results": [{**row, "differences": fewer}]}
    shown = difference(old, new, ("old", "new")).new[0].failures
    assert {record["difference"]["class"] for record in shown} == {"F"} and len(shown) < len(row["failures"])


def test_every_difference_is_in_the_terminal_and_on_the_page():
    for text in (as_text(judged(and_ties_up)), html(judged(and_ties_up))):
        assert "Differences, by class of input" in text and "magnitude" in text and "finite" in text


def test_pages_are_bounded_and_what_is_left_out_is_counted(monkeypatch):
    monkeypatch.setattr(failures, "MOST_PAGES", 1)
    row = report_of(subject(and_ties_up), cases=corners).document()["results"][0]
    assert len(row["failures"]) == 1 and row["unshown"] >= 1 and row["failures"][0]["fails"] == "L4"


@pytest.mark.parametrize("name", [name for name in DEFECTS if name[0] in "SE"][::6])
def test_every_wrong_element_of_a_defect_bears_a_kind(name):
    bits = np.random.default_rng(5).integers(0, 1 << 32, (64, 32), dtype=np.uint32)
    bits[:32] &= 0x807FFFFF
    bits[:32] |= np.uint32(127 << 23)
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": bits.view(np.float32)})
    golden = run_golden(case)
    codes, scales = DEFECTS[name](bits)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    observed = {"packed": packed.astype(np.uint8), "scales": scales.reshape(-1, 1)}
    found = kinds_of(case, golden, observed)
    differs = not all(np.array_equal(golden[key], observed[key]) for key in golden)
    assert bool(found) == differs
    for kind, count in found.items():
        assert int(places_of(case, golden, observed, kind).sum()) == count > 0
    assert compare(case, golden, (packed, observed["scales"])).kinds == found
    assert not kinds_of(case, golden, golden) and RIGHT is not None


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_operation_s_differences_have_a_kind_at_their_level(operation):
    params = OPERATIONS[operation].defaults()
    cases = [case for case in corner_cases(operation, "HOPPER", params) if 0 < case.elements < 1 << 14]
    case = cases[0]
    golden = run_golden(case)
    for name, array in golden.items():
        if array.size:
            wrong = {**golden, name: array ^ array.dtype.type(1)}
            found = kinds_of(case, golden, wrong)
            assert found and all(kind.output == name and kind.level <= NO_LEVEL for kind in found)


def test_levels_of_kinds_are_those_of_agreement():
    zero = Kind("F", "packed", "sign of zero")
    assert (zero.level, Kind("N", "packed", "codes under a NaN scale").level, Kind("F", "packed", "sign").level) == (
        2, 1, NO_LEVEL
    )  # fmt: skip


def test_a_kernel_that_holds_at_its_claim_passes_and_shows_the_difference_below_it():
    def positive_zero(x, profile):
        packed, scales = right(x, profile)
        low, high = packed & 15, packed >> 4
        return np.where(low == 8, 0, low) | np.where(high == 8, 0, high) << 4, scales

    held = Subject("k", {"quantize_mxfp4": positive_zero}, level=2)
    document = report_of(held, cases=corners).document()
    row = document["results"][0]
    reports.check(document, "this report")
    assert row["outcome"] == "pass" and [one["difference"]["way"] for one in row["failures"]] == ["sign of zero"]


def test_a_shrunk_case_still_differs_in_value_and_its_page_shows_the_scale():
    def floor(x, profile):
        return refnum.quantize_mxfp4(x, "OCP")

    def just_above_six(operation, profile, params):
        if params["input"] == "float32":
            x = np.zeros((1, 32), np.float32)
            x[0, :2] = np.nextafter(np.float32(6), np.float32(7)), 0.5  # without 0.5 both scales give the same values
            yield Case(operation, profile, params, {"x": x})

    document = report_of(subject(floor), cases=just_above_six).document()
    record = next(one for one in document["results"][0]["failures"] if one["difference"]["output"] == "scales")
    assert record["fails"] == "L4" and record["difference"]["way"] == "smaller" and record["reproduced"] == "3 of 3"
    assert record["page"]["expected"]["value"] == "2" and record["page"]["observed"]["value"] == "1"


def test_a_report_of_an_earlier_version_is_compared_by_its_cases():
    old = {**judged(and_ties_up)}
    row = {name: value for name, value in old["results"][0].items() if name not in ("differences", "unshown")}
    row["failures"] = [{name: part for name, part in one.items() if name != "difference"} for one in row["failures"]]
    old["results"] = [row]
    assert difference(old, judged(and_ties_up), ("old", "new")).exit == 0
    row["failures"] = row["failures"][:1]
    assert difference(old, judged(and_ties_up), ("old", "new")).exit == 1


def test_kinds_of_a_large_case_take_no_memory_to_speak_of():
    x = np.random.default_rng(3).integers(0, 1 << 32, (1024, 1024), dtype=np.uint32).view(np.float32)
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x})
    golden = run_golden(case)
    wrong = {name: array ^ np.uint8(1) for name, array in golden.items()}
    tracemalloc.start()
    found = kinds_of(case, golden, wrong)
    assert found and tracemalloc.get_traced_memory()[1] < 64 * x.size
    tracemalloc.stop()
