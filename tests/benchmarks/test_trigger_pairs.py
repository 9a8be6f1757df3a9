"""The measure of pairs of conditions that no question of structure meets."""

import re
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import trigger_pairs

from refnum.conformance.subjects.calls import parts


def test_what_holds_always_and_never_is_told(monkeypatch):
    for owner, name in ((parts, "_quietly"), (parts.Sweep, "_at_once")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    always, never = trigger_pairs.drawn("decode_e8m0", 1, 2)[:2]
    met = trigger_pairs.noted(
        "decode_e8m0", [replace(always, holds=lambda call: True), replace(never, holds=lambda call: False)]
    )
    assert len(met) > 10_000 and met[:, 0].all() and not met[:, 1].any()


def test_the_table_counts_pairs_that_are_not_asked(monkeypatch, capsys):
    monkeypatch.setattr(
        trigger_pairs, "noted", lambda name, conditions: trigger_pairs.np.eye(len(conditions), dtype=bool)
    )
    monkeypatch.setattr("sys.argv", ["trigger_pairs.py", "decode_e8m0", "--conditions", "20"])
    trigger_pairs.main()
    told = capsys.readouterr().out
    assert "100.0 % of the pairs not asked" in told and re.search(r"^ *(\d+) of +\1  ", told, re.M)
