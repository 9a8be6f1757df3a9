"""What our own subjects declare that they do not take."""

from refnum.conformance.cases.structure.illegal import illegal_cases
from refnum.conformance.cases.structure.plan import structure_cases
from refnum.gpu.subjects import outside, outside_emulated


def test_more_experts_than_the_payload_kernels_have_places_for_are_declared():
    asked = [one.case for one in structure_cases("permute_pad", "HOPPER", {"align": 16}, "full")]
    beyond = {len(case.params["splits"]) for case in asked if outside(case)}
    assert beyond and min(beyond) > 1024
    assert {len(case.params["splits"]) for case in asked if not outside(case)} & {1024}


def test_an_index_on_the_emulated_device_is_declared_unread():
    told = {case.label: outside_emulated(case) for case in illegal_cases("permute_pad", "HOPPER", {"align": 16})}
    wrong = [words for label, words in told.items() if "a row index" in label]
    assert wrong and all("no launcher reads" in words for words in wrong)
    assert not any(words for label, words in told.items() if "a row index" not in label)
