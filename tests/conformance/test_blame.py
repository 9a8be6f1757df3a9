"""What is blamed for wrong bytes, form by form: calls that a script gives, so that each is wrong when it says so."""

from dataclasses import replace

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.subjects.calls.call import Called, other_data
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import blame, probes
from refnum.conformance.verdicts.tally import Tally

CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.arange(64, dtype=np.float32).reshape(2, 32)})
OTHER = other_data(CASE)


def tally(**more):
    return Tally("kernel", CASE.operation, CASE.profile, CASE.params, **more)


def answer(wrong=0, case=CASE, **more):
    packed, scales = (array.copy() for array in call_golden(case))
    packed[0, 0] ^= wrong
    return Called((packed, scales), **more)


def scripted(*wrong):
    """Return a right subject that is wrong, or fails, in the calls that a script says; right behind its end."""
    left = list(wrong)

    def quantize_mxfp4(x, profile):
        bits = left.pop(0) if left else 0
        if bits is None:
            raise RuntimeError("failed")
        packed, scales = refnum.quantize_mxfp4(x, profile)
        packed[0, 0] ^= bits
        return packed, scales

    return Subject("k", {"quantize_mxfp4": quantize_mxfp4})


def findings(one):
    return [failure.finding for failure in one.failures]


def test_a_call_that_is_compared_counts_once():
    one = tally()
    for wrong in (0, 1):
        assert bool(blame.compared(answer(wrong), CASE, run_golden(CASE), one).level) == wrong
    assert (one.calls, one.compared, one.failing) == (2, 2 * (32 + 2), 0)


@pytest.mark.parametrize(("level", "claimed", "held"), [(0, 0, True), (1, 1, True), (1, 0, False)])
def test_a_call_is_right_at_the_claimed_level(level, claimed, held):
    nan = replace(CASE, inputs={"x": np.full((2, 32), np.nan, np.float32)})
    called = answer(level, nan)  # a code under a NaN scale: level L1
    assert blame.right(called, nan, run_golden(nan), tally(claimed=claimed)) is held


@pytest.mark.parametrize(
    ("forms", "blamed", "flips"),
    [
        ([1] * 10, True, None),
        ([0] + [1] * 9, False, "2 of 11"),
        ([0] * 10, False, "1 of 11"),
        ([0] * 7 + [1] * 3, False, "4 of 11"),
        (list(range(10)), False, "6 of 11"),
        ([0, None, 1, 2, None], False, "2 of 4"),
    ],
)
def test_a_form_is_blamed_where_it_is_wrong_each_time(forms, blamed, flips):
    left = iter(forms)

    def form():
        bits = next(left)
        return Called(outcome=Outcome.TIMEOUT, words="late") if bits is None else answer(bits)

    one = tally()
    assert blame.to_blame(scripted(), CASE, run_golden(CASE), one, 60.0, form, len(forms)) is blamed
    assert [failure.words.partition(" calls")[0] for failure in one.failures] == ([flips] if flips else [])


@pytest.mark.parametrize("shown", [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)])
def test_calls_beside_others_are_blamed_where_most_show_it(shown):
    one, left = tally(), iter(shown)
    assert blame.mostly(scripted(), CASE, run_golden(CASE), one, 60.0, lambda: bool(next(left))) is (sum(shown) > 1)
    assert next(left, None) is None
    assert one.flips == (sum(shown) < 2) and one.calls == 30 + 3 * (sum(shown) < 2)
    one = tally()
    flips = scripted(*[0] * 25, 1)
    assert not blame.mostly(flips, CASE, run_golden(CASE), one, 60.0, lambda: pytest.fail("it is not asked"))
    assert one.flips == 1 and one.calls == 30


@pytest.mark.parametrize(("wrong", "calls"), [((0, 0, 0, None), 3), ((0, 0, 0, 1), 10), ((1,) * 10, 2), ((None,), 0)])
def test_a_kernel_is_not_steady_that_fails_or_flips_in_one_of_ten_calls_or_is_wrong(wrong, calls):
    one = tally()
    assert blame.steady(scripted(*wrong), CASE, run_golden(CASE), one, 60.0) is False
    assert one.calls == calls


# --- probes -----------------------------------------------------------------------------------------------------


def probed(name, subject, case=CASE, **more):
    one = tally(**more)
    (chosen,) = (each for each in probes.PROBES if each.name == name)
    chosen.run(subject, case, run_golden(case), one, 60.0)
    return one


def test_which_probes_are_tried_on_which_cases(monkeypatch):
    tried = []

    def noted(name, **more):
        return probes.Probe(name, lambda subject, case, *_: tried.append((name, case.label)), **more)

    monkeypatch.setattr(probes, "PROBES", (
        noted("always"), noted("once", once=True), noted("ordinary", ordinary=True),
        noted("both", once=True, ordinary=True), noted("never", applies=lambda *_: False),
    ))  # fmt: skip
    one = tally()
    keyed = CASE.with_inputs({}, {"random": "philox"})
    for label, case in (("keyed", keyed), ("first", CASE), ("second", CASE)):
        probes.probe(scripted(), replace(case, label=label), run_golden(CASE), one, 60.0)
    assert tried == [
        ("always", "keyed"), ("once", "keyed"),
        ("always", "first"), ("ordinary", "first"), ("both", "first"),
        ("always", "second"), ("ordinary", "second"),
    ]  # fmt: skip
    assert list(one.probes) == ["always", "once", "ordinary", "both"]


PLACED = ["new data in place", "padded rows", "rows one element apart", "views at an odd address",
          "two threads at once", "two variants at once"]  # fmt: skip
STREAMED = ["side stream", "two streams at once", "graph capture"]
LIBRARIES = {
    "numpy": [*PLACED, "views with gaps", "rows far apart"],
    "torch": PLACED,
    "cupy": [*PLACED, *STREAMED, "views with gaps"],
    "torch-cuda": [*PLACED, *STREAMED],
    "jax": [],
}


@pytest.mark.parametrize("devices", [0, 1, 2])
@pytest.mark.parametrize("arrays", LIBRARIES)
def test_which_probes_the_arrays_of_a_library_allow(monkeypatch, arrays, devices):
    for library in probes.STREAMED.values():
        monkeypatch.setattr(library, "devices", lambda: devices)
    subject = replace(scripted(), arrays=arrays)
    several_devices = ["another device"] if arrays in probes.STREAMED and devices == 2 else []
    applied = {one.name for one in probes.PROBES if one.applies(subject, CASE.operation)}
    several = {"inputs of one array"} if arrays != "jax" else set()  # x and its random bits
    assert applied == {*LIBRARIES[arrays], *several, *several_devices, "ten repeats", "earlier results held"}


def test_which_operations_may_have_inputs_in_one_array():
    (several,) = (one for one in probes.PROBES if one.name == "inputs of one array")
    for operation, row in OPERATIONS.items():
        for arrays in ("numpy", "torch", "jax"):
            subject = Subject("k", {operation: getattr(refnum, operation)}, arrays=arrays)
            assert several.applies(subject, operation) == (len([*row.inputs, *row.optional]) >= 2 and arrays != "jax")


@pytest.mark.parametrize(("name", "fake", "finding", "rounds"), [
    (probes.IN_PLACE, "replay_in_place", Finding.STALE, 10), (probes.GRAPH, "under_graph", Finding.GRAPH, 3),
])  # fmt: skip
@pytest.mark.parametrize(
    ("first", "seconds", "blamed", "flips", "asked"),
    [(0, (0,), False, 0, 1), (0, (1,) * 99, True, 0, None), (0, (1, 0), False, 1, None), (1, (1,) * 99, False, 0, 1)],
)
def test_the_second_of_two_calls(monkeypatch, name, fake, finding, rounds, first, seconds, blamed, flips, asked):
    left, made = list(seconds), []

    def two(subject, case, limit):
        made.append(1)
        return OTHER, answer(first), answer(left.pop(0) if left else 0, OTHER)

    monkeypatch.setattr(probes, fake, two)
    one = probed(name, scripted(*[first] * 2))
    assert (finding in findings(one)) is blamed and one.flips == flips
    assert len(made) == (asked or 1 + rounds)
    assert one.reached == (6 if first else 0)


def test_ten_repeats_are_ten_calls_and_the_bytes_of_one():
    one = probed("ten repeats", scripted())
    assert (one.calls, one.repeated, one.compared, one.flips) == (10, 9, 34, 0)
    one = probed("ten repeats", scripted(0, 0, 1))
    assert (one.compared, one.flips, one.failing) == (0, 1, 1)


def test_calls_beside_held_results_that_do_not_agree_are_a_flip_of_nine(monkeypatch):
    last = answer(0, OTHER, outcome=Outcome.MISMATCH, finding=Finding.NOT_DETERMINISTIC)
    monkeypatch.setattr(probes, "hold_results", lambda *_: (OTHER, answer(), last))
    one = probed("earlier results held", scripted())
    assert (one.calls, one.flips) == (8, 1) and one.failures[0].words.startswith("1 of 9 calls")


@pytest.mark.parametrize("spoiled", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("again", [True, False])
def test_threads_that_spoil_each_other(monkeypatch, spoiled, again):
    made = []

    def at_once(subject, case, seconds):
        made.append(1)
        now = spoiled if again or len(made) == 1 else ()
        calls = [replace(answer(0, one), finding=Finding.NOT_THREAD_SAFE if place in now else "")
                 for place, one in enumerate((CASE, OTHER))]  # fmt: skip
        return OTHER, *calls

    monkeypatch.setattr(probes, "call_at_once", at_once)
    one = probed(probes.AT_ONCE, scripted())
    assert findings(one).count(Finding.NOT_THREAD_SAFE) == len(spoiled) * again
    assert one.flips == len(spoiled) * (not again) and len(made) == 1 + 3 * len(spoiled)


class Way:
    """The way for large data, and whether it is taken."""

    def __init__(self):
        self.taken = False

    def __enter__(self):
        self.taken = True

    def __exit__(self, *_):
        self.taken = False


def into(write):
    """Return a subject that returns right results, and writes into `out` as `write(results, out, on the way)` does."""
    way = Way()

    def quantize_mxfp4(x, profile, out=None):
        results = refnum.quantize_mxfp4(x, profile)
        if out is None:
            return results
        write(results, out, way.taken)
        return out

    return Subject("k", {"quantize_mxfp4": quantize_mxfp4}, forced_paths={"quantize_mxfp4": {"large": lambda: way}})


def copied(results, out, flip=0):
    for one, given in zip(results, out, strict=True):
        given[...] = one ^ np.uint8(flip)


def test_wrong_bytes_in_out_are_no_bytes_that_were_left_and_the_other_way_round():
    wrong = into(lambda results, out, _: copied(results, out, 4))
    assert findings(probed(probes.OUT, wrong)) == [Finding.OUT_WRONG] * 2
    left = into(lambda results, out, _: copied(results[1:], out[1:]))
    one = probed(probes.OUT, left)
    assert findings(one) == [Finding.NOT_WRITTEN] * 2
    assert [next(byte for byte in ("0xCD", "0x32") if byte in each.words) for each in one.failures] == ["0xCD", "0x32"]


def test_a_byte_of_the_poison_that_is_right_was_not_left():
    """Codes of 0xCD are what the block asks for; the scale alone is wrong."""
    x = np.tile(np.array([-3, -2], np.float32), (2, 16))
    x[:, 1] = -6
    case = replace(CASE, inputs={"x": x})
    assert (run_golden(case)["packed"] == 0xCD).any()
    wrong = into(lambda results, out, _: copied((results[0], results[1] + 1), out))
    assert findings(probed(probes.OUT, wrong, case)) == [Finding.OUT_WRONG] * 2


def test_out_that_was_wrong_eleven_times_is_no_way_by_size():
    """Each time is two calls."""
    calls = []

    def write(results, out, _):
        calls.append(1)
        copied(results, out, len(calls) <= 22)

    assert findings(probed(probes.OUT, into(write))) == [Finding.OUT_WRONG]


@pytest.mark.parametrize("always", [True, False])
def test_what_is_wrong_into_out_on_a_way_alone_is_the_way_s(always):
    one = probed(probes.WAYS, into(lambda results, out, large: copied(results, out, large or always)))
    assert findings(one) == [Finding.OUT_WRONG if always else Finding.WAY_BY_SIZE]
    assert "large" in one.failures[0].words


def test_on_a_way_out_is_filled_with_the_first_poison():
    one = probed(probes.WAYS, into(lambda results, out, large: copied(results[large:], out[large:])))
    assert findings(one) == [Finding.NOT_WRITTEN, Finding.WAY_BY_SIZE] and "0xCD" in one.failures[0].words


def test_a_kernel_without_out_is_not_asked_for_it_on_a_way():
    one = probed(probes.WAYS, replace(scripted(), forced_paths={"quantize_mxfp4": {"large": Way}}))
    assert one.calls == 1 and not one.faults and not one.unsupported


@pytest.mark.parametrize(
    ("wrong", "findings_", "calls"),
    [(lambda number: False, [], 2), (lambda number: True, [Finding.SPLITS_AS_ARRAY] * 2, 22),
     (lambda number: number == 1, [Finding.NOT_DETERMINISTIC], 12)],
)  # fmt: skip
def test_splits_in_an_array_are_blamed_where_they_are_wrong_each_time(wrong, findings_, calls):
    made = []

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        rows, offsets = refnum.permute_pad(payload, row_map, [int(n) for n in splits], align)
        if isinstance(splits, np.ndarray):
            made.append(1)
            rows[0, 0] ^= wrong(len(made))
        if out is None:
            return rows, offsets
        out[0][...], out[1][...] = rows, offsets
        return out

    case = Case("permute_pad", "HOPPER", {"align": 32, "splits": [3]},
                {"payload": np.ones((3, 68), np.uint8), "row_map": np.arange(3, dtype=np.int32)})  # fmt: skip
    one = probed("splits as an array", Subject("k", {"permute_pad": permute_pad}), case)
    assert findings(one) == findings_ and len(made) == calls
