"""`refnum check -o moe_layer` passes our layer, and sees the bugs that layers of public projects had."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import planted_layers
import pytest
import torch
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.errors import RefnumError
from refnum.gpu import host
from refnum.training import golden_parts, judge, layer_cases

pytestmark = pytest.mark.usefixtures("forked_ranks")
FILE = str(Path(__file__).with_name("planted_layers.py"))
CASES = {case.name: case for case in judge.CASES}
EVEN = CASES["even"]


@pytest.fixture(scope="module", autouse=True)
def _golden_once():
    """Compute the golden step of a case once, its products by the host build, as ranks' large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "model", functools.cache(judge.model))
        if host.available()[0]:
            patch.setattr(golden_parts, "matmul_fp8", host.matmul_fp8)
        yield


def test_bugs_of_public_projects_are_seen():
    names = ("ranks of other magnitude", "even", "all experts", "an expert without a token")
    found = judge.judge(f"{FILE}:one_bug_after_the_other", cases=[CASES[name] for name in names])
    assert [one.outcome for one in found] == ["mismatch"] * 4
    words = "the codes of all received rows are right and scale bytes are not: scales took another way, or order"
    assert [one.why for one in found[:2]] == [words] * 2
    assert "rows were not moved" in found[2].why


def test_a_bug_of_empty_experts_is_seen_by_their_case_alone(monkeypatch, capsys):
    """Nothing else tells it: the case says what it is there to find. The exit status is 1."""
    found = judge.judge(f"{FILE}:experts_without_rows", cases=[EVEN, CASES["an expert without a token"]])
    assert [one.outcome for one in found] == ["pass", "mismatch"]
    monkeypatch.setattr(judge, "judge", lambda name, place, cases: found)
    assert judge.check_layer(["theirs"]) == 1
    assert "the case is there to find splits that leave out a zero" in capsys.readouterr().out


def test_each_case_tells_what_it_is_there_to_find():
    """A layer that is wrong in its condition alone is wrong in the case; one that keeps results is found by the next.

    No condition holds in `even`, so that each is another case's. Eight ranks take long to start.
    """
    found = judge.judge(f"{FILE}:wrong_where", cases=[case for case in judge.CASES if len(case.tokens) < 8])
    assert {one.case: one.outcome for one in found} == {
        name: "pass" if name in ("even", "even again") else "mismatch" for name in CASES if name != "eight ranks"
    }
    assert {*CASES} == {"even", "other numbers", "even again", "eight ranks", *planted_layers.WHERE}


def test_arguments_and_earlier_results_must_stay_as_they_are():
    found = judge.judge(f"{FILE}:breaks_its_contract", cases=[EVEN, CASES["other numbers"]])
    assert [one.outcome for one in found] == ["mismatch"] * 2
    assert found[0].why == "; ".join(f"rank {rank}: the call changed its argument w2" for rank in range(2))
    assert "rank 0: the call changed out, which the call before it returned" in found[1].why


def test_weights_that_are_kept_by_their_address_are_found():
    """Training changes weights where they are."""
    found = judge.judge(f"{FILE}:weights_taken_once", cases=[EVEN, CASES["other numbers"]])
    assert [one.outcome for one in found] == ["pass", "mismatch"]


def test_a_result_that_a_rank_or_a_case_lacks_is_malformed():
    """What is returned where it is right alone would not be judged where it is wrong."""
    whole = right_results()
    for rank in (0, 1):
        results = list(whole)
        results[rank] = {"out": whole[rank]["out"]}
        verdict = judge._compared(EVEN, "mxfp4", results)
        words = f"rank {rank}: dprobs is missing, which another rank returned"
        assert (verdict.outcome, verdict.why) == ("malformed", words)
    found = judge.judge(f"{FILE}:gradients_now_and_then", cases=[EVEN, CASES["no gradient"]])
    assert [one.outcome for one in found] == ["pass", "malformed"]
    assert found[1].why == "dx is missing, which other cases returned"


def test_what_is_never_returned_is_said_not_to_be_judged(monkeypatch, capsys):
    found = [judge.Verdict("even", "pass", names=("out", "dx"))]
    monkeypatch.setattr(judge, "judge", lambda name, place, cases: found)
    assert judge.check_layer(["theirs"]) == 0
    assert "not returned, and so not judged: payload, received, fc1" in capsys.readouterr().out


def test_routings_have_numbers_that_narrower_types_lose():
    """An expert beyond 256 is another in 8 bits, and an odd one in bfloat16; weights may be NaN, Inf or subnormal."""
    case = CASES["hundreds of experts"]
    assert any((layer_cases.inputs(case, rank)["experts"] == 257).any() for rank in range(2))
    tiny, other = (
        layer_cases.inputs(CASES[name], 0)["probs"] for name in ("special weights of tokens", "special numbers")
    )
    assert ((tiny != 0) & (tiny.abs() < 2**-126)).any() and other.isinf().any() and other.isnan().any()


def test_ranks_without_a_gpu_each_are_not_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(judge, "_judged", lambda task: [judge.Verdict(one.name, "pass") for one in task.cases])
    found = judge.judge(device="cuda", cases=[EVEN, CASES["four ranks"], CASES["one token"]])
    assert [one.outcome for one in found] == ["pass", "not asked", "pass"] and found[1].why == "it needs 4 GPUs"
    monkeypatch.setattr(judge, "judge", lambda name, place, cases: found)
    assert judge.check_layer(["theirs"]) == 0


def test_judging_goes_on_after_a_case_that_ends_the_ranks():
    cases = [CASES[name] for name in ("a rank without a token", "one expert a token", "no token at all", "even")]
    found = judge.judge(f"{FILE}:leaves_or_fails", seconds=3.0, cases=cases)
    assert [one.outcome for one in found] == ["timeout", "fault", "pass", "pass"]
    assert "waited up to" in found[0].why and "no kernel for this" in found[1].why
    assert found[3].elements == (20 + 12) * EVEN.hidden


def right_results():
    """Return the golden results of the case `even` as a subject would."""
    return [
        {"out": torch.from_numpy(forward.out.view(np.int16).copy()).view(torch.bfloat16),
         "dprobs": torch.from_numpy(backward.dprobs)}
        for forward, backward in judge.model(EVEN, "mxfp4")
    ]  # fmt: skip


def test_one_bit_is_a_mismatch():
    found = right_results()
    assert judge._compared(EVEN, "mxfp4", found).outcome == "pass"
    found[1]["out"].view(torch.int16)[3, 5] ^= 1
    verdict = judge._compared(EVEN, "mxfp4", found)
    assert (verdict.outcome, verdict.differing) == ("mismatch", {"rank 1 out": 1})


def test_rows_that_fill_up_may_have_the_nan_of_a_weight():
    """As GPUs, which multiply them, give it: N20.8."""
    case = CASES["special weights of experts"]
    steps = [forward for forward, _ in judge.model(case, "mxfp4")]
    found = [{name: torch.from_numpy(getattr(step, name).view(np.int16).copy()).view(torch.bfloat16)
              for name in ("out", "fc2")} for step in steps]  # fmt: skip
    rows = found[1]["fc2"].view(torch.int16)
    fill = rows[128 + steps[1].splits[1] :]
    assert rows[128, 3] == 0x7FFF and not fill.any()
    fill[:, 3] = 0x7FFF
    assert judge._compared(case, "mxfp4", found).outcome == "pass"
    fill[-1, 4] = 0x7FFF
    assert judge._compared(case, "mxfp4", found).differing == {"rank 1 fc2": 1}


MALFORMED = {
    "another dtype": (lambda found: found | {"out": found["out"].float()}, "out is float32"),
    "another shape": (lambda found: found | {"dprobs": found["dprobs"][:1]}, r"dprobs is float32\[1, 2\]"),
    "an unknown name": (lambda found: found | {"hidden": found["out"]}, "unknown are hidden"),
    "no output": (lambda found: {"dprobs": found["dprobs"]}, "'out' is missing"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_result_of_another_kind_is_malformed(name):
    change, why = MALFORMED[name]
    verdict = judge._compared(EVEN, "mxfp4", [change(one) for one in right_results()])
    assert verdict.outcome == "malformed" and re.search(why, verdict.why)


def test_the_command_passes_our_layer(tmp_path):
    done = CliRunner().invoke(
        app, ["check", "-o", "moe_layer", "--examples", "10", "--report", str(tmp_path / "layer.json")]
    )
    assert done.exit_code == 0, done.output
    assert f"{len(CASES) + 2} cases, 0 failed" in done.output
    verdicts = json.loads((tmp_path / "layer.json").read_text())["subjects"][judge.OURS]
    assert [one["outcome"] for one in verdicts] == ["pass"] * (len(CASES) + 2)
    assert all(one["elements"] > 1e5 for one in verdicts)


def test_cases_are_drawn_by_their_seed_and_stay_legal():
    found = layer_cases.drawn(5, 300)
    assert found[:9] == layer_cases.drawn(5, 9) and found != layer_cases.drawn(6, 300)
    assert {one.changed for one in found} == {"", *layer_cases.CHANGES} and {one.hidden for one in found} > {128, 640}
    assert all(1 <= one.top <= one.experts - len(one.barred) for one in found)


@pytest.mark.parametrize("words", ["layer", "nowhere.py:layer", f"{FILE}:missing", "no.such.module:layer"])
def test_a_subject_that_is_not_there_is_told(words):
    with pytest.raises(RefnumError):
        judge.load_subject(words)
    assert CliRunner().invoke(app, ["check", "-o", "moe_layer", "--subject", words]).exit_code == 2
