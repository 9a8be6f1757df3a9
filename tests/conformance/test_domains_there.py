"""Wide domains judged where a subject's arrays are: the engine's way on a device, tried here on NumPy arrays."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from run_tools import only, report_of, subject

import refnum
from refnum.conformance.cases.domains import domains_for
from refnum.conformance.cases.domains.wide import Alone, Cut
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.commands.check import engine
from refnum.errors import ArgumentError

NAME = "every float32 magnitude as block maximum"
FIRST, BLOCKS = 0x3F9AB300, 256


@dataclass(frozen=True)
class Short:
    """A few blocks of the wide domain, none of which a corner case has."""

    wide: Alone
    cut: Cut = field(default_factory=Cut)
    chunks: int = 1

    def parts(self, chunk, like):
        small = replace(self.wide, cut=Cut(BLOCKS * 32, BLOCKS * 32))
        return small.parts(FIRST // BLOCKS, like)


@pytest.fixture
def there(monkeypatch, little_structure):
    """Level exhaustive with one short wide domain, subjects judged `there`."""

    def short(operation, profile, params, level):
        domain = next((d for d in domains_for(operation, profile, params, level) if d.name == NAME), None)
        return [replace(domain, wide=Short(domain.wide), size=BLOCKS)] if domain else []

    monkeypatch.setattr(engine, "domains_for", short)
    monkeypatch.setattr("refnum.conformance.verdicts.device.device_like", lambda: np.empty(0, np.uint8))
    monkeypatch.setattr(engine.Engine, "on_device", lambda self, subject: True)

    def result(function):
        return only(report_of(subject(function), level="exhaustive", cases=None))

    return result


def test_a_right_subject_is_proved_and_its_elements_are_counted(there):
    right = there(refnum.quantize_mxfp4)
    (domain,) = right["domains"]
    assert (right["outcome"], domain["verdict"], domain["points"]) == ("pass", "proved", BLOCKS)


@pytest.mark.parametrize("magnitude", [FIRST, FIRST + 77, FIRST + 255])
def test_one_wrong_magnitude_is_found_and_shown_by_its_row(there, magnitude):
    def wrong(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        if x.shape[1:] == (1024,) and x.dtype == np.float32 and not (x[:, 32:64] != 0).all():  # not dense data
            scales = scales + (x.view(np.uint32) == magnitude).reshape(len(x), -1, 32).any(axis=2)
        return packed, scales.astype(np.uint8)

    row = there(wrong)
    (domain,) = row["domains"]
    assert (row["outcome"], domain["verdict"]) == ("mismatch", "wrong")
    assert any(f"0x{magnitude:08X}" in str(shown["page"]["input"]) for shown in row["failures"])


def test_what_is_wrong_only_the_first_time_is_called_so(there):
    calls = []

    def sometimes(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        if x.size == 8192 and x.view(np.uint32).max() == FIRST + 255:
            calls.append(1)
            scales = scales + np.uint8(len(calls) == 1)
        return packed, scales

    assert "not-deterministic" in there(sometimes)["findings"]


def test_what_is_wrong_only_in_a_large_case_is_shown_by_all_of_it(there):
    def large(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile)
        wrong = x.size == 8192 and x.view(np.uint32).max() == FIRST + 255
        return packed, scales + np.uint8(wrong)

    row = there(large)
    assert row["outcome"] == "mismatch" and "not-deterministic" not in row["findings"]


def test_parts_that_do_not_hold_what_is_stated_are_no_proof(there):
    made = domains_for("quantize_mxfp4", "HOPPER", {"input": "float32"}, "exhaustive")
    domain = next(domain for domain in made if domain.name == NAME)
    with pytest.raises(ArgumentError, match="stated to have 257 members; its parts hold 256"):
        list(replace(domain, wide=Short(domain.wide), size=BLOCKS + 1).cases())


def test_a_part_of_the_device_is_made_again_by_its_number():
    made = domains_for("quantize_mxfp4", "HOPPER", {"input": "float32"}, "exhaustive")
    domain = next(domain for domain in made if domain.name == NAME)
    small = replace(domain, wide=replace(domain.wide, cut=Cut(1 << 12, 1 << 10)))
    blocks = small.part(9).inputs["x"].view(np.uint32).reshape(-1, 32)
    assert (blocks.max(axis=1) == np.arange(9 * 32, 10 * 32)).all()


def test_a_device_that_dies_under_one_subject_blames_no_other(there, monkeypatch):
    asked = []

    def dead(subject, case, golden, tally, seconds, again):
        asked.append(subject.name)
        tally.faults.append((Outcome.FAULT, "illegal address", again()))

    monkeypatch.setattr(engine, "judge_wide", dead)
    monkeypatch.setattr(engine, "alive", lambda _library: not asked)
    pair = [subject(refnum.quantize_mxfp4, name) for name in ("first", "second")]
    rows = report_of(*pair, level="exhaustive", cases=None).document()["results"]
    assert asked == ["first"]
    assert {row["subject"] for row in rows if row["outcome"] == "fault"} == {"first"}
