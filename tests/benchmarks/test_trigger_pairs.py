"""The measure of pairs of conditions that no question of structure meets."""

import re
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import trigger_pairs

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.structure import structure_cases
from refnum.conformance.cases.structure.cutting import AT_ONCE
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.cases.structure.turns import cases_in_turn
from refnum.conformance.subjects.calls import parts


def test_what_holds_always_and_never_is_told(monkeypatch):
    for owner, name in ((parts, "_quietly"), (parts.Sweep, "_at_once")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    always, never = trigger_pairs.drawn("decode_e8m0", 1, 2)[:2]
    named = [replace(always, holds=lambda call: True), replace(never, holds=lambda call: False)]
    met = trigger_pairs.noted("decode_e8m0", named)
    asked = 0
    for params, amount in zip(OPERATIONS["decode_e8m0"].variants(), ("full", "brief"), strict=True):
        key = "decode_e8m0", "HOPPER", params
        asked += len([*structure_cases(*key, amount)]) + len([*cases_in_turn(*key)])
        asked += sum(1 + (part.calls == AT_ONCE) for field in fields(*key, amount) for part in field.parts)
    assert len(met) == asked and met[:, 0].all() and not met[:, 1].any()  # what goes before a call is not noted


def test_the_table_counts_pairs_that_are_not_asked(monkeypatch, capsys):
    monkeypatch.setattr(
        trigger_pairs, "noted", lambda name, conditions: trigger_pairs.np.eye(len(conditions), dtype=bool)
    )
    monkeypatch.setattr("sys.argv", ["trigger_pairs.py", "decode_e8m0", "--conditions", "20"])
    trigger_pairs.main()
    told = capsys.readouterr().out
    assert "100.0 % of the pairs not asked" in told and re.search(r"^ *(\d+) of +\1  ", told, re.M)
