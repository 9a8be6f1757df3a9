"""Contracts of inputs and declared sizes in campaigns, the matrix and the bench: what they exclude is never asked."""

from pathlib import Path

import numpy as np
from bench_tools import SHAPE, Host, model
from fuzz_tools import campaign

import refnum
from refnum.conformance.cases.contracts import outside
from refnum.conformance.commands.bench import lines, measure
from refnum.conformance.commands.bench.contender import of_subject
from refnum.conformance.commands.fuzz.status import Watcher, render
from refnum.conformance.commands.matrix import run as matrix
from refnum.conformance.commands.matrix.document import document, markdown
from refnum.conformance.mismatches import replay
from refnum.conformance.subjects.loading.declare import AnyOf, Limits
from refnum.conformance.subjects.subject import from_dict

FINITE = """
import numpy as np
import refnum
from refnum.conformance import implements

@implements("decode_e4m3", name="finite", inputs={contract!r}{more})
def decode_e4m3(codes, dtype):
    if {guard} and ((codes & 0x7F) == 0x7F).any():
        {then}
    out = refnum.decode_e4m3(codes, dtype)
    {bug}
    return out
"""


def subject(folder, contract="finite", guard=True, then="raise SystemExit", bug="", more=""):
    path = folder / "finite.py"
    path.write_text(FINITE.format(contract=contract, guard=guard, then=then, bug=bug, more=more))
    return str(path)


def test_a_campaign_asks_nothing_outside_of_a_contract(tmp_path):
    _, db = campaign(tmp_path / "within", subject(tmp_path), 300)
    summary = Watcher(db).summary()
    assert summary["exit"] == 0 and summary["totals"]["cases"] >= 300 and summary["findings"] == []
    assert summary["contracts"] == {"finite": "inputs=finite"}
    assert any("within its contract inputs=finite" in str(part) for part in render(summary).renderables)
    _, db = campaign(tmp_path / "all", subject(tmp_path, contract=(), then="codes = codes * 0"), 300)
    assert Watcher(db).summary()["findings"]


def test_a_bug_inside_a_contract_is_confirmed_on_a_case_inside(tmp_path):
    wrong = "out = np.where(codes == 0x7E, np.asarray(0, out.dtype), out)"
    _, db = campaign(tmp_path / "wrong", subject(tmp_path, guard=False, then="pass", bug=wrong), 300)
    (finding, *_) = Watcher(db).findings()
    assert finding["outcome"] == "mismatch", finding["words"]
    case = replay.load(Path(finding["replay"])).case
    assert not outside(case, ("finite",)) and (case.inputs["codes"] == 0x7E).any()


def test_a_fault_inside_a_contract_is_confirmed_on_a_case_inside(tmp_path):
    bug = "assert not ((codes & 0x7F) == 0x7E).any(), 'no largest'"
    _, db = campaign(tmp_path / "fault", subject(tmp_path, guard=False, then="pass", bug=bug), 200, workers=1)
    (finding, *_) = Watcher(db).findings()
    case = replay.load(Path(finding["replay"])).case
    assert not outside(case, ("finite",)) and ((case.inputs["codes"] & 0x7F) == 0x7E).any()


def limited(**more):
    def kernel(x, profile):
        assert np.isfinite(x.astype(np.float32)).all(), "NaN or Inf"
        return refnum.quantize_mxfp4(x, profile)

    entry = {"name": "limited", "operations": {"quantize_mxfp4": kernel}, "arrays": "numpy", "profiles": ["HOPPER"]}
    return from_dict({**entry, **more}, "here")


def test_the_matrix_asks_rows_inside_a_contract_and_says_so():
    one = limited(inputs="finite", kind="peer")
    found = matrix.run_matrix([one], ["quantize_mxfp4"], ["HOPPER"], lambda words: None)
    cells = [cell for cell in found.cells if cell["params"]["input"] == "float32"]
    assert [cell["state"] for cell in cells] == ["equal"] and not {"I", "N"} & set(cells[0]["classes"])
    assert cells[0]["words"].startswith("inputs=finite holds ") and cells[0]["rows"] > 1000
    assert "inputs=finite holds" in markdown(document(found, 1.0))
    nothing = matrix.run_matrix([limited(inputs=["nonzero", "normal", "finite"], kind="peer")],
                                ["decode_e4m3"], None, lambda words: None)  # fmt: skip
    assert not nothing.cells


def test_the_bench_times_what_a_contract_and_a_declaration_allow():
    def timed(operation, label, **more):
        kernel = model(operation)
        one = from_dict({"name": "k", "operations": {operation: kernel}, "arrays": "cupy", **more}, "here")
        plan = measure.Plan(of_subject(one), (), lines.select([label]), (SHAPE,), repeat=2)
        return [(record["status"], record["words"]) for record in measure.run(plan, Host())]

    assert timed("fp8_to_mxfp4", "FP8 -> MXFP4", inputs="finite") == [("timed", "")]
    zeros = [("not offered", "inputs=nonzero excludes it: packed holds a zero")]
    assert timed("mxfp4_to_fp8", "MXFP4 -> FP8, max", inputs="nonzero") == zeros
    limits = AnyOf({"fp8_to_mxfp4": Limits(columns=512)})
    ((status, words),) = timed("fp8_to_mxfp4", "FP8 -> MXFP4", outside=limits)
    assert status == "not offered" and "columns of 512" in words
