"""The Markdown of a campaign: its sums are the database's, and what failed is named."""

import pytest
from fuzz_tools import PLANTED, campaign, right_subject

from refnum.conformance.commands.fuzz.status import Watcher

report = pytest.importorskip("benchmarks.campaign_report").report


def test_a_right_campaign(tmp_path):
    _, db = campaign(tmp_path / "camp", right_subject(tmp_path), 100)
    text, totals = report(tmp_path / "camp", holes=True), Watcher(db).summary()["totals"]
    assert f"{totals['compared']:,} items compared in 100 cases of 20 shards" in text
    assert "No findings." in text and "none failed" in text and "End: complete." in text
    assert "| `decode_e4m3` | 2 |" in text and "- `mxfp4_to_fp8[HOPPER, scale=" in text
    rates = text[text.index("| minute") :].splitlines()[2:]
    assert sum(int(line.split("|")[3]) for line in rates if line.startswith("|")) == 100


def test_what_failed_is_named(tmp_path):
    (tmp_path / "one.py").write_text(
        f"import sys\nsys.path.insert(0, {PLANTED.rpartition('/')[0]!r})\nfrom planted_cpu import FEW\n"
        "CHOSEN = [subject for subject in FEW if subject['name'] == 'one_point']\n"
    )
    campaign(tmp_path / "camp", f"{tmp_path / 'one.py'}:CHOSEN", 150, cases=10)
    text = report(tmp_path / "camp")
    assert (
        "| one_point quantize_mxfp4[HOPPER, input=float32] | mismatch |  |" in text
    )  # no known bug is at one point only
    assert "x [1, 32]; 32 elements | tie -2.5 | 3 of 3 on cpu" in text
    assert " in packed differ |" in text
