"""Bug classes are recognised from their bits, and only then."""

import ml_dtypes
import numpy as np
import pytest
from diagnose_tools import control, distant, quantise, under

import refnum
from refnum.arrays import unpack_nibbles
from refnum.conformance.bugs.suspects import SUSPECTS
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.mismatches import diagnose as doctor
from refnum.conformance.mismatches.diagnose import Seen, hints
from refnum.conformance.mismatches.hints import hints_for
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.vectors.errors import VectorFileError
from refnum.conformance.vectors.frozen import frozen_cases


def ids(case, observed, level=0):
    return [entry["id"] for entry in hints([Seen(case, observed, level)])]


@pytest.mark.parametrize(
    ("case", "wrong", "expected"),
    [
        (quantise(6, 1.25), {"ties": "away"}, "E2M1_TIES_UP"),
        (quantise(6, 0.75), {"ties": "zero"}, "E2M1_TIES_TO_ZERO"),
        (quantise(6, 1.9), {"rounding": "toward_zero"}, "ELEMENT_TRUNCATED"),
        (quantise(7, 1.5), {"scale_rule": "floor"}, "E8M0_MODE"),
        (quantise(5, 1.5), {"scale_rule": "ceil"}, "E8M0_MODE"),
        (quantise(), {"zero_scale": 127}, "ZERO_BLOCK_BYTE"),
        (quantise(1, np.inf), {"nonfinite": "satfinite"}, "INF_BLOCK_POLICY"),
    ],
)
def test_wrong_profiles_are_named(case, wrong, expected):
    assert ids(case, under(case, **wrong))[0] == expected


def test_a_logarithm_just_below_a_power_of_two_is_named_before_the_mode():
    case = quantise(1.0, bits=[0x40FFFFFF])
    case = Case("quantize_mxfp4", "OCP", case.params, case.inputs)
    x = case.inputs["x"]
    bumped = x.copy()
    bumped[0, 0] = 8.0
    observed = {**run_golden(case), "scales": run_golden(case.with_inputs({"x": bumped}))["scales"]}
    codes = refnum.encode("E2M1", x, int(observed["scales"][0, 0]) - 127)
    observed["packed"] = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    assert ids(case, observed)[0] == "E8M0_EXP_BY_LOG2"


def test_a_lost_sticky_bit_is_named():
    case = quantise(6.0, bits=[0x3E800001])  # just above 0.25: rounds up, a lost sticky bit makes it a tie to zero
    observed = {name: array.copy() for name, array in run_golden(case).items()}
    assert observed["packed"][0, 0] & 15 == 1
    observed["packed"][0, 0] &= 0xF0
    assert ids(case, observed)[0] == "E2M1_STICKY_LOST"


def test_nan_lost_in_the_maximum_is_named():
    case = quantise(6, np.nan, 1)
    without = case.inputs["x"].copy()
    without[0, 1] = 0
    assert ids(case, run_golden(case.with_inputs({"x": without}))) == ["AMAX_DROPS_NAN"]


def test_a_nan_block_with_a_number_for_a_byte_is_named():
    case = quantise(6, np.nan, 1)
    assert ids(case, {**run_golden(case), "scales": np.zeros((1, 1), np.uint8)})[0] == "AMAX_DROPS_NAN"


@pytest.mark.parametrize("operation", ["encode_e2m1", "encode_e4m3", "quantize_mxfp4"])
def test_what_wraps_from_the_tie_on_is_named(operation):
    """A tie between the largest code and the one above goes to the even one: 7 in E2M1 wraps, 464 in E4M3 does not."""
    values = {"encode_e4m3": [448, 464, 465, -500], "encode_e2m1": [6, 7, -8, -np.inf], "quantize_mxfp4": [7.5, -7, 1]}
    x = np.zeros((1, 32), np.float32)
    x[0, : len(values[operation])] = values[operation]
    profile = "OCP" if operation == "quantize_mxfp4" else "HOPPER"  # the rule that lets the maximum exceed 6
    defaults = {"overflow": "saturate"} if operation == "encode_e4m3" else {}
    case = Case(operation, profile, {"input": "float32", **defaults}, {"x": x})
    golden = run_golden(case)
    name, wraps, codes = (
        next(iter(golden)),
        {"encode_e4m3": [2, 3], "encode_e2m1": [1, 2, 3]}.get(operation, [0, 1]),
        None,
    )
    codes = golden[name].copy() if name == "codes" else unpack_nibbles(golden[name])
    codes[0, wraps] &= 0x80 if operation == "encode_e4m3" else 8
    observed = {**golden, name: codes if name == "codes" else codes[:, ::2] | codes[:, 1::2] << 4}
    assert "OVERFLOW_WRAPS" in ids(case, observed)


def test_blocks_that_run_on_are_named_whatever_lies_where_nothing_is_written():
    rng = np.random.default_rng(5)
    codes, scales = rng.integers(0, 127, (7, 32), np.uint8), rng.integers(120, 130, (7, 1), np.uint8)
    params = {"underflow": "rne", "splits": [3, 0, 4]}
    case = Case("fp8_columns", "HOPPER", params, {"codes": codes, "scales": scales})
    golden, on = run_golden(case), run_golden(case.with_inputs(params={"splits": None}))
    for stale in (0, 77):
        observed = {"codes": on["codes"], "scales": np.concatenate([on["scales"], np.full((1, 32), stale, np.uint8)])}
        assert observed["scales"].shape == golden["scales"].shape
        assert ids(case, observed)[0] == "RAGGED_BLOCK_RESTART"
    stale = {**golden, "scales": np.concatenate([golden["scales"][:1], np.full((1, 32), 77, np.uint8)])}
    assert "RAGGED_BLOCK_RESTART" not in ids(case, stale)  # what is written must be wrong too


@pytest.mark.parametrize("step", [1, 8, 64])
def test_a_lost_step_of_the_reduction_is_named(step):
    rng = np.random.default_rng(step)
    x = (rng.standard_normal((2, 256)) * 2.0 ** rng.integers(-6, 6, (2, 256))).astype(np.float32)
    case = Case("quantize_fp8_tiles", "HOPPER", {"tile": (1, 128), "input": "float32"}, {"x": x})
    odd = (np.arange(256) & step).astype(bool)
    low, high = (refnum.quantize_fp8_tiles(np.where(odd == other, np.float32(0), x)) for other in (True, False))
    observed = {"codes": np.where(odd, high[0], low[0]), "scales": low[1]}
    assert ids(case, observed) == ["AMAX_LANE_LEFT_OUT"]


def test_scales_that_tell_a_rule_are_no_hint_where_the_codes_are_not_its_own():
    x = np.random.default_rng(0).standard_normal((16, 96)).astype(np.float32)
    case = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x})
    observed = under(case, scale_rule="floor")
    assert ids(case, observed)[0] == "E8M0_MODE"
    assert ids(case, {**observed, "packed": observed["packed"] ^ np.uint8(0x11)}) == []


def test_flushed_subnormals_are_named():
    case = quantise(bits=[0x00400000, 0x00000003])
    flushed = run_golden(case.with_inputs({"x": np.zeros((1, 32), np.float32)}))
    assert "FTZ_SILENT" in ids(case, flushed)


@pytest.mark.parametrize(
    ("operation", "change", "expected"),
    [
        (
            "dequantize_mxfp4",
            lambda case, v: np.where(np.repeat(case.inputs["scales"], 32, 1) == 0, v & 1 << 31, v),
            "E8M0_ZERO_IS_TINY",
        ),
        ("dequantize_mxfp4", lambda case, v: np.where(v == 0x7FC00000, 0x7F800000, v), "E8M0_FF_NOT_NAN"),
        ("dequantize_mxfp4", lambda case, v: np.where(v & 0x7F800000, v, v & 1 << 31), "FTZ_SILENT"),
    ],
)
def test_wrong_decoders_are_named(operation, change, expected):
    case = control(operation)
    if expected == "FTZ_SILENT":
        case = case.with_inputs({"scales": np.full_like(case.inputs["scales"], 1)})
    observed = {"values": change(case, run_golden(case)["values"]).astype(np.uint32)}
    assert expected in ids(case, observed)


@pytest.mark.parametrize("columns", [False, True])
def test_the_zero_bug_of_the_released_kernel_is_named(columns):
    case = distant(columns)
    golden = run_golden(case)
    observed = dict(golden)
    codes = golden["codes"].copy()
    if columns:
        zero = (codes & 0x7F) == 0
        zero[:32, 0] = False
        zero[32:, :] = False
    else:
        zero = ((codes & 0x7F) == 0) & (np.arange(2)[:, None] == 0)
    observed["codes"] = np.where(zero, np.where(codes & 0x80, 0x7E, 0xFE), codes).astype(np.uint8)
    assert zero.any() and ids(case, observed) == ["RECIPE_ZERO_FULL_SCALE"]


def test_an_empty_block_in_the_maximum_is_named():
    packed = np.full((1, 32), 0x22, np.uint8)
    packed[0, 16:] = 0x80
    case = Case(
        "mxfp4_to_fp8", "HOPPER", {"scale": "max"}, {"packed": packed, "scales": np.array([[120, 140]], np.uint8)}
    )
    counted = case.with_inputs({"packed": np.where(np.arange(32) == 16, 0x82, packed).astype(np.uint8)})
    observed = {name: array.copy() for name, array in run_golden(counted).items()}
    observed["codes"][0, 32] = 0
    assert ids(case, observed)[0] == "EMPTY_BLOCK_JOINS_MAX"


@pytest.mark.parametrize(
    ("operation", "change", "expected"),
    [
        ("quantize_mxfp4", lambda p: (p << 4 | p >> 4).astype(np.uint8), "NIBBLE_ORDER"),
        ("quantize_mxfp4", lambda p: p & 0x77, "SIGN_LOST"),
        ("quantize_mxfp4", np.zeros_like, None),
        ("fp8_to_mxfp4", lambda p: p & 0x77, "SIGN_LOST"),
        ("mxfp4_columns", lambda p: p & 0x77, "SIGN_LOST"),
    ],
)
def test_structural_bugs_are_named(operation, change, expected):
    case = control(operation)
    golden = run_golden(case)
    observed = {**golden, "packed": change(golden["packed"])}
    if expected is None:
        observed["scales"] = np.zeros_like(golden["scales"])
        expected = "OUTPUT_NOT_WRITTEN"
    assert ids(case, observed)[0] == expected


def test_bits_that_no_rule_gives_are_not_named():
    case = control("quantize_mxfp4")
    golden = run_golden(case)
    packed = golden["packed"].copy()
    packed[2, 3] ^= 0x11
    packed[1, 5] ^= 0x04
    assert ids(case, {**golden, "packed": packed}) == []


def test_the_right_bits_are_never_named():
    for operation in OPERATIONS:
        case = control(operation)
        assert ids(case, run_golden(case)) == []


def words(*kept):
    return [entry["words"] for entry in hints([Seen(case, observed) for case, observed in kept])]


def test_a_hint_gives_the_bits_of_every_kept_case():
    small, large = quantise(6, 1.25), quantise(6, 1.25, -1.25)
    away, up = under(small, ties="away"), under(large, ties="up")
    assert words((small, away))[0] == "ties are rounded away from zero, not to even"
    assert words((small, away), (large, up)) == ["ties are rounded up, not to even"]
    other = quantise(6, 0.3)
    assert words((small, away), (other, under(other, rounding="toward_zero"))) == []


def kernel(**changes):
    """A kernel that quantises under a changed profile, and the cases that it was called on."""
    asked = []

    def quantize_mxfp4(x):
        asked.append(x)
        return refnum.quantize_mxfp4(x, refnum.HOPPER.replace(name="wrong", **changes))

    return Subject("wrong", {"quantize_mxfp4": quantize_mxfp4}, profiles=("HOPPER",)), asked


def test_further_calls_refute_what_one_case_leaves_open():
    """Ties up and ties away are one on a positive tie: the kernel is asked a negative one."""
    case = quantise(6, 1.25)
    both = {"ties are rounded away from zero, not to even", "ties are rounded up, not to even"}
    seen = [Seen(case, under(case, ties="up"))]
    kept = lambda hint: {suspect.words for suspect in SUSPECTS if doctor.explains(suspect, seen[0])}  # noqa: E731
    assert both <= kept(None)
    for ties, wanted in (("up", "ties are rounded up, not to even"), ("away", min(both))):
        subject, asked = kernel(ties=ties)
        found = hints_for(subject, [Seen(case, under(case, ties=ties))], 60.0)
        assert [entry["words"] for entry in found] == [wanted] and asked


def test_a_second_bug_elsewhere_does_not_hide_the_first():
    """Inf is treated otherwise by most kernels: that is no reason against a rule of ties."""
    subject, _ = kernel(ties="away", nonfinite="satfinite", zero_scale=127)
    case = quantise(6, 1.25)
    found = hints_for(subject, [Seen(case, under(case, ties="away"))], 60.0)
    assert found[0]["words"] == "ties are rounded away from zero, not to even"


def test_a_kernel_that_only_looks_like_a_rule_on_one_case_gets_no_hint():
    def quantize_mxfp4(x):
        packed, scales = refnum.quantize_mxfp4(x, "HOPPER")
        packed[0, 0] = 3 if x[0, 0] == 1.25 and x[0, 1] == 6 else packed[0, 0]
        return packed, scales

    subject = Subject("one place", {"quantize_mxfp4": quantize_mxfp4}, profiles=("HOPPER",))
    case = quantise(1.25, 6)
    packed = run_golden(case)["packed"].copy()
    packed[0, 0] ^= 1
    seen = Seen(case, {**run_golden(case), "packed": packed})
    assert hints([seen]) and hints_for(subject, [seen], 60.0) == []


def test_a_machine_without_time_refutes_too(monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS", 0.0)
    test_further_calls_refute_what_one_case_leaves_open()
    test_a_kernel_that_only_looks_like_a_rule_on_one_case_gets_no_hint()


def test_frozen_vectors_alone_bear_no_hint_out(monkeypatch):
    """A kernel that rounds ties away in the frozen vectors and nowhere else, and no time but for the least of cases."""
    monkeypatch.setattr(doctor, "SECONDS", 0.0)
    known = {case.inputs["x"].tobytes() for case, _ in frozen_cases("quantize_mxfp4", "HOPPER", {"input": "float32"})}

    def quantize_mxfp4(x):
        return refnum.quantize_mxfp4(
            x, refnum.HOPPER.replace(name="wrong", ties="away") if x.tobytes() in known else "HOPPER"
        )

    subject = Subject("vectors", {"quantize_mxfp4": quantize_mxfp4}, profiles=("HOPPER",))
    case = quantise(6, 1.25)
    assert hints_for(subject, [Seen(case, under(case, ties="away"))], 60.0) == []


def test_a_level_hides_what_lower_levels_forgive():
    x = np.zeros((1, 64), ml_dtypes.bfloat16)
    x[0, :2], x[0, 32:34] = (6, 1.25), (1, np.nan)
    case = Case("quantize_mxfp4", "HOPPER", {"input": "bfloat16"}, {"x": x})
    observed = {name: array.copy() for name, array in under(case, ties="away").items()}
    observed["packed"][0, 16:] = 0x77
    assert ids(case, observed, level=0) == [] and ids(case, observed, level=1)[0] == "E2M1_TIES_UP"


def test_notes_are_looked_up_by_id_and_their_absence_is_no_error(monkeypatch):
    doctor.notes.cache_clear()
    assert doctor.notes()["E2M1_TIES_UP"]["clause"].startswith("N")

    def absent():
        raise VectorFileError("no folder")

    doctor.notes.cache_clear()
    monkeypatch.setattr(doctor, "load_notes", absent)
    assert doctor.notes() == {}
    doctor.notes.cache_clear()
