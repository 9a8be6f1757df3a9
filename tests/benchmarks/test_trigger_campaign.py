"""Campaigns judge mutants of one condition, up to the first finding or the end of their CPU seconds."""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import trigger_campaign


def test_mutants_of_one_condition_are_found_and_written(tmp_path, monkeypatch):
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["trigger_campaign.py", "pack_payload", "11", "2", "60", str(out)])
    trigger_campaign.main()
    found = json.loads(out.read_text())
    assert [(one["id"], one["killed"], len(one["conditions"])) for one in found["mutants"]] == [
        ("11:0", True, 1), ("11:2", True, 1)]  # fmt: skip
    assert all(one["cpu"] <= found["seconds"] + 0.1 and "mutant pack_payload" in one["how"] for one in found["mutants"])


def test_a_campaign_of_a_right_kernel_ends_after_its_seconds(monkeypatch):
    right = trigger_campaign.KERNEL.replace("trigger_of({operation!r}, {seed}, {index})", "None")
    monkeypatch.setattr(trigger_campaign, "KERNEL", right)
    how, cpu = trigger_campaign.judged(next(trigger_campaign.singles("pack_payload", 11, Counter())), 0.2)
    assert how == "" and cpu > 0.2
