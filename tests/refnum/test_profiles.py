"""Custom profiles: a name and the fields that differ (N14.5)."""

import numpy as np
import pytest

import refnum
from refnum.errors import ProfileError
from refnum.profiles import PROFILES, get_profile, profile_name


@pytest.mark.parametrize("name", PROFILES)
def test_a_named_profile_goes_by_its_name(name):
    assert profile_name(get_profile(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "OCP+ties=away",
        "HOPPER+scale_rule=even+zero_scale=127",
        "RECIPE+amax_floor=None",
        "DEEPGEMM+ties=even+negative_zero=keep",
        "STOCHASTIC+random_bits=4",
    ],
)
def test_a_custom_profile_comes_back_from_its_name(name):
    assert profile_name(get_profile(name)) == name
    assert get_profile(profile_name(get_profile(name))) == get_profile(name)


def test_integers_may_be_hexadecimal_and_fields_in_any_order():
    one, other = get_profile("OCP+zero_scale=0x7F+ties=away"), get_profile("OCP+ties=away+zero_scale=127")
    assert profile_name(one) == profile_name(other) == "OCP+ties=away+zero_scale=127"
    assert get_profile("OCP+amax_floor=0x38D1B717").amax_floor == 0x38D1B717


def test_a_profile_without_a_base_is_named_by_hopper():
    assert profile_name(refnum.Profile("mine", scale_rule="floor")) == "HOPPER+scale_rule=floor"


def test_the_fields_decide():
    x = np.array([[6.0, 0.25] + [0.0] * 30], np.float32)
    assert refnum.quantize_mxfp4(x, "OCP+ties=away")[0][0, 0] == 0x17
    assert refnum.quantize_mxfp4(x, "OCP")[0][0, 0] == 0x07


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MINE+ties=away", "known are HOPPER"),
        ("OCP+tie=away", "fields are scale_rule"),
        ("OCP+ties", "FIELD=VALUE"),
        ("OCP+ties=upwards", "not one of 'even'"),
        ("OCP+zero_scale=big", "no integer"),
        ("OCP+zero_scale=255", "0..254"),
        ("OCP+zero_scale=None", "no integer"),
        ("OCP+name=x", "fields are"),
    ],
)
def test_a_bad_name_says_what_is_allowed(name, words):
    with pytest.raises(ProfileError, match=words):
        get_profile(name)


@pytest.mark.parametrize(("field", "least", "most"), [("zero_scale", 0, 254), ("random_bits", 1, 24),
                                                       ("amax_floor", 1, 0x7F7FFFFF)])  # fmt: skip
def test_the_ends_of_a_range_are_allowed_and_what_is_beside_them_is_not(field, least, most):
    for value in (least, most):
        assert getattr(refnum.Profile("mine", **{field: value}), field) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ProfileError):
            refnum.Profile("mine", **{field: value})


def test_floors_and_bytes_of_zero_blocks_are_those_of_the_code_they_model():
    given = {
        name: (one.zero_scale, one.amax_floor)
        for name, one in PROFILES.items()
        if (one.zero_scale, one.amax_floor) != (0, None)
    }
    floors = {name: int(np.float32(number).view(np.uint32)) for name, number in (("RECIPE", 6e-10), ("DEEPGEMM", 1e-4))}
    assert given == {"RECIPE": (94, floors["RECIPE"]), "DEEPGEMM": (112, floors["DEEPGEMM"]), "MLX": (127, None)}
