"""Policies: their rows, their names, what contradicts itself, and the bytes of each edge."""

import dataclasses

import pytest

from refnum.errors import ProfileError
from refnum.training.policies import POLICIES, Policy, get_policy, row_bytes, saved_bytes

HIDDEN, FFN = 7168, 2048
"""DeepSeek-V3."""


@pytest.mark.parametrize(
    "name, total",
    [
        ("mxfp4+fc2_input=store", 7_072),
        ("mxfp4", 7_072 - 1_088),
        ("fp8+fc2_input=store", 13_728),
        ("fp8+fc2_input=store+saved_activation=bfloat16", 17_696),
        ("bf16+fc2_input=store", 26_624),
    ],
)
def test_saved_bytes_of_a_routed_token(name, total):
    assert sum(saved_bytes(get_policy(name), HIDDEN, FFN).values()) == total


@pytest.mark.parametrize("name, size", [("bf16", 14_336), ("fp8", 7_392), ("mxfp4", 3_808)])
def test_dispatched_bytes_of_a_token(name, size):
    assert row_bytes(get_policy(name).dispatched, HIDDEN) == size


def test_bytes_of_scales_are_a_byte_or_a_float():
    assert row_bytes("fp8", HIDDEN, 1) == HIDDEN * 129 // 128
    assert (
        sum(saved_bytes(get_policy("fp8+fc2_input=store"), HIDDEN, FFN, 1).values())
        == (7168 + 4096 + 2048) * 129 // 128
    )


@pytest.mark.parametrize("form, columns", [("mxfp4", 48), ("fp8", 192)])
def test_a_row_of_broken_blocks_is_refused(form, columns):
    with pytest.raises(ProfileError, match=f"a row of {columns} columns"):
        row_bytes(form, columns)


@pytest.mark.parametrize("name", POLICIES)
def test_a_row_has_its_name_and_comes_back_as_it_is(name):
    assert get_policy(name).name == name
    assert get_policy(get_policy(name)) is POLICIES[name]


def test_a_name_changes_fields():
    changed = get_policy("mxfp4+fc2_input=store+on_mismatch=stop")
    assert (changed.fc2_input, changed.on_mismatch) == ("store", "stop")
    assert (
        dataclasses.replace(changed, name="mxfp4", fc2_input="recompute", on_mismatch="continue") == POLICIES["mxfp4"]
    )


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("fp4", "known are bf16, fp8, mxfp4"),
        (4, "known are bf16"),
        ("mxfp4+rate=2", "is no field=value"),
        ("mxfp4+fc2_input", "is no field=value"),
        ("mxfp4+fc2_input=forget", "choose from recompute, store"),
        ("mxfp4+fc2_input=store+fc2_input=store", "gives a field twice"),
        ("bf16+dispatched=mxfp4", "contradicts itself: saved_input=bfloat16 is wider than dispatched=mxfp4"),
        ("mxfp4+saved_input=fp8", "contradicts itself: saved_input=fp8 is wider than dispatched=mxfp4"),
    ],
)
def test_a_wrong_name_is_one_sentence(name, sentence):
    with pytest.raises(ProfileError, match=sentence) as caught:
        get_policy(name)
    assert "\n" not in str(caught.value)


def test_a_policy_checks_itself():
    with pytest.raises(ProfileError, match="contradicts itself"):
        Policy("mine", "fp8", "mxfp4", "fp8", "mxfp4", "store")
