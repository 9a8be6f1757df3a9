"""The order of a run: vectors of every variant first, then the rest; what is told on the way, what an end keeps."""

import numpy as np
from run_tools import only, right, subject

import refnum
import refnum.conformance.cases.corners
import refnum.conformance.cases.recipes
import refnum.conformance.commands.check.engine
import refnum.conformance.vectors.frozen
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import run_golden, select
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan, Progress, run
from refnum.conformance.reports import report as reports
from refnum.errors import UnsupportedError


class FakeDomain:
    name, size, how, wide = "all of three", 96, "three blocks", None

    def __init__(self, break_after=None):
        self.break_after = break_after

    def cases(self):
        for number in range(3):
            x = np.full((1, 32), number + 1, np.float32)
            yield Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x}, domain=self.name)


def frozen(*key):
    for case in control_cases(*key):
        yield case, run_golden(case)


def streams(monkeypatch, domain, corners=control_cases, order=None):
    note = order.append if order is not None else lambda word: None

    def said(word, source):
        def stream(*args):
            note(word)
            yield from source(*args)

        return stream

    monkeypatch.setattr(refnum.conformance.commands.check.engine, "corner_cases", said("corners", corners))
    monkeypatch.setattr(
        refnum.conformance.commands.check.engine, "domains_for", lambda *args: (note("domains"), [domain])[1]
    )
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "frozen_cases", said("vectors", frozen))
    engine = refnum.conformance.commands.check.engine
    monkeypatch.setattr(engine.in_turn, "ask", lambda *args: note("in turn"))
    monkeypatch.setattr(engine.structure, "ask", lambda *args: (note("structure"), {"k"})[1])
    monkeypatch.setattr(engine.refusals, "ask", lambda *args: note("refusals"))
    monkeypatch.setattr(
        refnum.conformance.commands.check.engine,
        "sampled_cases",
        said("sampled", lambda *args: control_cases(*args[:3])),
    )


def standard(*subjects, level="standard", progress=None, profiles=("HOPPER",), shown=0):
    plan = Plan(list(subjects), select(["quantize_mxfp4"]), list(profiles), level, save=False, shown=shown)
    plan.operations = [type(plan.operations[0])(**{**plan.operations[0].__dict__, "params": {"input": ("float32",)}})]
    return run(plan, reports.Report(reports.header(level, 0, [], [], [])), progress)


def test_vectors_come_first_then_corners_domains_and_samples(monkeypatch):
    order = []
    streams(monkeypatch, FakeDomain(), order=order)
    row = only(standard(subject()))
    assert order == ["vectors", "corners", "in turn", "structure", "domains", "sampled", "refusals"]
    assert (row["corners"], row["vectors"], row["sampled"], row["cases"]) == (1, 1, 1, 99)
    assert row["evidence"] == (
        "1 corner cases; 1 frozen vectors; proved all of three (96 cases); 1 sampled cases, not a proof; "
        "left out scales in layouts other than bytes, as it takes no `layout_out`; 26 calls without a flip, "
        "which excludes (95 %) that more than 1 in 8 flips"
    )


def test_the_vectors_of_every_variant_come_before_what_takes_long(monkeypatch):
    asked = []
    streams(monkeypatch, FakeDomain())

    def noted(word, stream):
        return lambda *key: (asked.append((word, key[1])), stream(*key))[1]

    engine = refnum.conformance.commands.check.engine
    vectors, corners = engine.frozen_cases, engine.corner_cases
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "frozen_cases", noted("vectors", vectors))
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "corner_cases", noted("corners", corners))
    document = standard(subject(), profiles=["OCP", "HOPPER"])
    assert asked == [("vectors", "OCP"), ("vectors", "HOPPER"), ("corners", "OCP"), ("corners", "HOPPER")]
    assert [(row["profile"], row["cases"]) for row in document.results] == [("OCP", 99), ("HOPPER", 99)]


def test_what_the_vectors_show_is_told_at_once_and_once_for_an_operation(monkeypatch):
    told = []

    def wrong(x, profile):
        packed, scales = right(x, profile)
        return (packed << 4 | packed >> 4).astype(np.uint8), scales

    def late(*args):
        told.append("corners")
        yield from control_cases(*args)

    streams(monkeypatch, FakeDomain(), corners=late)
    progress = Progress(wrong=told.append)
    standard(subject(wrong, "w"), subject(), profiles=["HOPPER", "OCP"], progress=progress)
    assert told == [
        "w is wrong on quantize_mxfp4[HOPPER, input=float32]: 1 of 1 frozen vectors differ, like NIBBLE_ORDER",
        "corners",
        "corners",
    ]


def test_what_a_claimed_level_forgives_is_not_told_as_wrong(monkeypatch):
    told = []

    def negative_zeros_lost(x, profile):
        packed, scales = right(x, profile)
        low, high = packed & 15, packed >> 4
        return (np.where(low == 8, 0, low) | np.where(high == 8, 0, high) << 4).astype(np.uint8), scales

    streams(monkeypatch, FakeDomain())
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "frozen_cases", lambda *key: iter([
        (case, run_golden(case))
        for case in [Case(*key, {"x": np.where(np.arange(32)[None] < 2, np.float32(-0.0), np.float32(1))})]
    ]))  # fmt: skip
    standard(subject(negative_zeros_lost, level=2), progress=Progress(wrong=told.append))
    assert told == []
    standard(subject(negative_zeros_lost), progress=Progress(wrong=told.append))
    assert len(told) == 1 and "like SIGN_OF_ZERO_LOST" in told[0]


def test_an_adapter_that_does_not_fit_is_left_alone_after_one_vector(monkeypatch):
    calls = []

    def without_scales(x, profile):
        calls.append(x.shape)
        return (right(x, profile)[0],)

    streams(monkeypatch, FakeDomain())
    told = []
    row = only(standard(subject(without_scales), progress=Progress(wrong=told.append)))
    assert row["outcome"] == "malformed" and "the first call" in row["words"] and row["compared"] == 4 * (128 + 8)
    assert told == [f"k is wrong on quantize_mxfp4[HOPPER, input=float32]: {row['words']}"]


def test_a_subject_that_takes_no_vector_is_tried_on_a_corner(monkeypatch):
    """Vectors that the adapter's test cannot use are no reason to leave it out."""
    calls = []

    def float64_result(x, profile):
        if len(x) != 1:
            raise UnsupportedError("one row")
        calls.append(1)
        return tuple(array.astype(np.float64) for array in right(x, profile))

    streams(monkeypatch, FakeDomain(), corners=lambda *key: iter([Case(*key, {"x": np.ones((1, 32), np.float32)})]))
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "frozen_cases", lambda *key: iter([
        (case, run_golden(case)) for case in [Case(*key, {"x": np.ones((2, 32), np.float32)})]
    ]))  # fmt: skip
    row = only(standard(subject(float64_result)))
    assert row["outcome"] == "malformed" and "the first call" in row["words"] and row["cases"] == 0


def test_ctrl_c_after_the_vectors_keeps_what_they_showed(monkeypatch):
    def wrong_under_ocp(x, profile):
        packed, scales = right(x, profile)
        return packed ^ np.uint8(profile.name == "OCP"), scales

    def stop(*key):
        raise KeyboardInterrupt
        yield

    streams(monkeypatch, FakeDomain(), corners=stop)
    document = standard(subject(wrong_under_ocp), profiles=["HOPPER", "OCP"], shown=1)
    rows = [(row["profile"], row["outcome"]) for row in document.results]
    assert rows == [("HOPPER", "not-verified"), ("OCP", "mismatch")] and document.status == "partial"
    assert "cut short" in document.results[0]["words"] and document.exit_status() == 1
    reports.check(document.document(), "this report")


def test_ctrl_c_between_two_variants_counts_each_once(monkeypatch):
    streams(monkeypatch, FakeDomain())

    def stop(_):
        raise KeyboardInterrupt

    document = standard(subject(), profiles=["HOPPER", "OCP"], progress=Progress(leave=stop))
    rows = [(row["profile"], row["outcome"]) for row in document.results]
    assert rows == [("HOPPER", "pass"), ("OCP", "not-verified")] and document.exit_status() == 3
    reports.check(document.document(), "this report")


def test_ctrl_c_at_the_first_checkpoint_leaves_a_report(monkeypatch):
    streams(monkeypatch, FakeDomain())
    plan = Plan([subject()], select(["quantize_mxfp4"]), ["HOPPER"], save=False)

    def stop(_):
        raise KeyboardInterrupt

    document = run(plan, reports.Report(reports.header("standard", 0, [], [], [])), checkpoint=stop)
    assert document.results == [] and document.status == "partial" and document.exit_status() == 3


def test_a_mismatch_is_not_hidden_by_a_device_that_died_later(monkeypatch):
    dead = []

    def wrong(x, profile):
        packed, scales = right(x, profile)
        return packed ^ 1, scales

    def kills(x, profile):
        if x.shape == (1, 32) and x[0, 0] == 1:  # the domain's first case
            dead.append(1)
            raise RuntimeError("cudaErrorIllegalAddress")
        return right(x, profile)

    streams(monkeypatch, FakeDomain())
    monkeypatch.setattr("refnum.conformance.commands.check.engine.alive", lambda library: not dead)
    monkeypatch.setattr("refnum.conformance.commands.check.engine.probe", lambda *args: None)
    monkeypatch.setattr("refnum.conformance.subjects.calls.call.to_library", lambda array, library: array)
    gpu = {"arrays": "torch-cuda"}
    document = standard(subject(wrong, "w", **gpu), subject(kills, "kills", **gpu), subject(name="fine", **gpu))
    outcomes = {row["subject"]: row["outcome"] for row in document.results}
    assert dead and outcomes == {"w": "mismatch", "kills": "fault", "fine": "not-run"}


def test_a_vector_that_the_model_disagrees_with_is_the_harness_s_fault(monkeypatch):
    def other(*key):
        for case, outputs in frozen(*key):
            yield case, {**outputs, "scales": outputs["scales"] ^ 1}

    streams(monkeypatch, FakeDomain())
    monkeypatch.setattr(refnum.conformance.commands.check.engine, "frozen_cases", other)
    document = standard(subject())
    assert document.harness and "other bytes than the frozen" in document.harness[0] and document.exit_status() == 1


def test_the_frozen_vectors_of_every_operation_are_run_once_each():
    """Every vector of a judged operation, on inputs and numbers that are judged, belongs to exactly one variant."""
    from refnum.conformance.cases.operation import OPERATIONS
    from refnum.conformance.vectors.load import load_vectors

    inputs = {name: row.params.get("input") for name, row in OPERATIONS.items()}
    judged = [v for v in load_vectors() if v.operation in OPERATIONS]
    judged = [v for v in judged if not (of := inputs[v.operation]) or next(iter(v.inputs.values())).dtype.name in of]
    # numbers of bits and seeds that no variant asks for: there for the text's readers
    variants = {"llm_qat": ("bits", (4, 8)), "quantize_tetrajet_v2": ("seed", (None, 20251027))}
    numbers = {v.id: variants.get(v.operation, ("", (None,))) for v in judged}
    unasked = [v for v in judged if v.params.get(numbers[v.id][0]) not in numbers[v.id][1]]
    judged = [v for v in judged if v not in unasked]
    assert len(judged) > 2700 and len(unasked) == 20
    expected, profiles = {v.id for v in judged}, sorted({v.profile["name"] for v in judged})
    assert set(refnum.PROFILES) < set(profiles), "custom profiles have vectors, too"
    seen = [
        case.label.removeprefix("vector ")
        for name, operation in OPERATIONS.items()
        for profile in profiles
        for params in operation.variants()
        for case, _ in refnum.conformance.vectors.frozen.frozen_cases(name, profile, params)
    ]
    assert len(seen) == len(set(seen)) and set(seen) == expected


def test_a_domain_with_a_wrong_or_refused_case_is_not_proved(monkeypatch):
    def wrong_at_two(x, profile):
        packed, scales = right(x, profile)
        return (packed ^ np.uint8(x.size > 0 and x[0, 0] == 2), scales)

    def refuses_two(x, profile):
        if x.size and x[0, 0] == 2:
            raise UnsupportedError("no two")
        return right(x, profile)

    streams(monkeypatch, FakeDomain())
    rows = {row["subject"]: row for row in standard(subject(wrong_at_two, "w"), subject(refuses_two, "r")).results}
    assert rows["w"]["domains"][0]["verdict"] == "wrong" and "proved" not in rows["w"]["evidence"]
    assert rows["r"]["domains"][0] == {
        "name": "all of three",
        "size": 96,
        "how": "three blocks",
        "points": 0,
        "verdict": "incomplete",
    }
    assert "proved" not in rows["r"]["evidence"] and rows["r"]["outcome"] == "not-verified"


def test_an_interrupted_domain_is_not_proved(monkeypatch):
    calls = []

    def impatient(x, profile):
        calls.append(float(x[0, 0]))
        if calls[-1] == 3 and x.shape == (1, 32):
            raise KeyboardInterrupt
        return right(x, profile)

    streams(monkeypatch, FakeDomain())
    document = standard(subject(impatient))
    assert only(document)["domains"][0]["verdict"] == "incomplete" and document.status == "partial"


def test_smoke_runs_no_domain_and_says_that_it_is_no_verification(monkeypatch):
    order = []
    streams(monkeypatch, FakeDomain(), order=order)
    document = standard(subject(), level="smoke")
    assert "domains" not in order and "not a verification" in only(document)["evidence"]
    assert "not a verification" in document.document()["footer"]["verdict"]


def test_progress_is_told_of_every_variant(monkeypatch):
    seen = []
    streams(monkeypatch, FakeDomain())
    standard(
        subject(),
        progress=Progress(start=seen.append, enter=seen.append, leave=lambda rows: seen.append(rows[0]["outcome"])),
    )
    name = "quantize_mxfp4[HOPPER, input=float32]"
    assert seen == [1, name, name, "pass"]  # at work twice: on its vectors, then on all else
