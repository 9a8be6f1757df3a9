"""`explain` of rotations, DGE and OCC ends in the model's bits, and says what decides them."""

import numpy as np
import pytest

import refnum as R

X = R.philox.random_words(48 * 32, 9).view(np.float32).reshape(48, 32).copy()
X[~np.isfinite(X)] = 1.25
NEAR = np.exp2(R.philox.random_words(48 * 32, 5) % np.uint32(9)).astype(np.float32).reshape(48, 32) - 17
SPECIAL = NEAR.copy()
SPECIAL[0, 3], SPECIAL[1, 4], SPECIAL[2, 5:7] = np.nan, np.inf, (np.inf, -np.inf)


def bits(x):
    return int(np.asarray(x).view(f"u{x.dtype.itemsize}"))


def steps(operation, case, index):
    return {step.name: step.text for step in R.explain(operation, case, index).steps}


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("order", ["exact", "sequential"])
def test_rotations_end_in_the_models_bits(axis, order):
    for x in (X[:40], NEAR[:40], SPECIAL[:40]):
        for dtype in ("bfloat16", "float32"):
            case = {"x": x, "axis": axis, "order": order, "dtype": dtype}
            result = R.hadamard16(**case)
            for row, column in ((0, 0), (0, 5), (1, 30), (2, 6), (39, 17)):
                assert R.explain("hadamard16", case, (row, column)).code == bits(result[row, column])
        case = {"x": x, "axis": axis, "order": order}
        packed, scales, _ = R.hadamard_quantize_nvfp4(**case)
        codes = R.arrays.unpack_nibbles(packed)
        for row, column in ((0, 0), (1, 30), (39, 17)):
            told = R.explain("hadamard_quantize_nvfp4", case, (row, column))
            at = (column, row) if axis == 0 else (row, column)
            assert (told.code, told.scale) == (codes[at], scales[at[0], at[1] // 16])


def test_rotations_say_what_was_added():
    x = np.zeros((1, 16), np.float32)
    x[0, :3] = 8, -1, 2.0**-149
    told = steps("hadamard16", {"x": x, "signs": 2}, (0, 1))
    assert told["signs"] == "++" + "+-" * 7 + ": those of the mask, and of row 1 of the matrix"
    assert told["sum"] == "about 1.75 x 2^2, a quarter of it is 1.75 x 2^0"
    x[0, 2] = 2.0**-10
    told = steps("hadamard16", {"x": x, "signs": 2}, (0, 1))
    assert told["sum"] == "exactly 1.750244140625 x 2^2, a quarter of it is 1.750244140625 x 2^0"
    assert steps("hadamard16", {"x": SPECIAL}, (0, 0))["sum"] == "NaN, or infinities of both signs: NaN"
    assert steps("hadamard16", {"x": SPECIAL}, (1, 0))["sum"] == "infinities of one sign: that infinity"
    sums = steps("hadamard16", {"x": np.ones((1, 16), np.float32), "order": "sequential", "signs": 0}, 0)["sum"]
    assert sums == "float32 sums of quarters: " + ", ".join(f"{n / 4:g}" for n in range(1, 17))


FLOATS = [0, -0.0, 0.25, 0.0625, 2.4, -2.6, 3.999, 5, -6, 6, 6.5, -7, -np.inf, np.inf, np.nan, 1e-30, 1e30, -1e30]


@pytest.mark.parametrize("compat", ["paper", "ms-amp"])
@pytest.mark.parametrize("target", ["bfloat16", "float32"])
def test_slopes_end_in_the_models_bits(compat, target):
    x = np.array(FLOATS, np.float32).reshape(3, 3, 2)
    for k, cap in ((5, 3), (1, 3), (16, 0.125), (2, 100)):
        case = {"x": x, "k": k, "cap": cap, "target": target, "compat": compat}
        result = R.dge(**case).reshape(-1)
        for flat in range(x.size):
            told = R.explain("dge", case, flat)
            assert told.code == bits(result[flat]) and told.index == np.unravel_index(flat, x.shape)


def test_slopes_say_what_decides():
    x = np.array([0.125, 7, 0.25, -7], np.float32)
    told = steps("dge", {"x": x}, 0)
    assert told["place"] == "|t| = 0.5 in the interval from 0 to 0.5"
    assert told["rounding"].startswith("(5 m)^5 |t|^4 is below 1 for m = 0.3466796875, and 1 or more")
    assert steps("dge", {"x": x}, 1)["edge"] == "beyond 6 under paper"
    assert steps("dge", {"x": x}, 2)["slope"] == "t is 0: the cap"
    assert steps("dge", {"x": x, "compat": "ms-amp"}, 3)["place"].startswith("|t| = 2 by")
    with pytest.raises(R.errors.ArgumentError, match="outside the array of shape"):
        R.explain("dge", {"x": x}, 4)


@pytest.mark.parametrize("axis", ["tensor", "token", "channel"])
@pytest.mark.parametrize("dtype", [np.float32, R.arrays.BFLOAT16])
def test_clamps_end_in_the_models_bits(axis, dtype):
    with np.errstate(all="ignore"):
        case = {"x": SPECIAL.astype(dtype), "alpha": (9, 10), "axis": axis}
    clamped, residual, _ = R.occ(**case)
    for row, column in ((0, 3), (1, 4), (2, 5), (9, 9), (47, 31), (20, 0)):
        told = R.explain("occ", case, (row, column))
        assert told.code == bits(clamped[row, column])
        assert f"0x{bits(residual[row, column]):0{2 * residual.dtype.itemsize}X}" in told.steps[-1].text


def test_clamps_say_which_elements_are_thresholds():
    x = np.arange(10, dtype=np.float32)[None]
    told = steps("occ", {"x": x, "alpha": (4, 5)}, (0, 9))
    assert told["thresholds"] == "elements 2 and 8 of 10 in order: 0x40000000 = 2 and 0x41000000 = 8"
    assert told["clamp"] == "moved to the nearer one: 0x41000000 = 8"
    assert told["residual"] == "x - clamped, rounded once: 0x3F800000 = 1"
