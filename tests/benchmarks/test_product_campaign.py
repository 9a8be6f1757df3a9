"""The campaign of products names orders by the first call of a shape, and counts what differs from them afterwards."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import refnum

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

campaign = pytest.importorskip("product_campaign")
product_data = pytest.importorskip("product_data")


SHAPES = ((8, 6, 300), (24, 30, 1024), (1, 16, 129))


class Library:
    """Calls that sum in one order up to a K and in another beyond, and change a bit of one result of a late call."""

    def __init__(self, order, beyond, late=None):
        self.order, self.beyond, self.late, self.calls = order, beyond, late, 0

    def call(self, name, given):
        self.calls += 1
        order = self.order if given["a"].shape[1] <= 300 else self.beyond
        found = getattr(refnum, name)(**{**given, "order": order})
        if self.late is not None and self.calls > self.late:
            found.view(torch.int32)[0, 0] ^= 1
        return found

    def calls_of(self, *names):
        return {name: lambda name=name, **given: self.call(name, given) for name in names}


def run(library, mode, results, shapes=SHAPES):
    made = campaign.Campaign(library.calls_of("matmul_fp8", "matmul_bf16"), refnum, "cpu")
    made.run(next(one for one in campaign.MODES if one.name == mode), results, 60, shapes)
    return {(row.formats, row.shape): row for row in made.rows.values()}, list(
        campaign.totals(list(made.rows.values()))
    )


@pytest.mark.parametrize("mode", [mode.name for mode in campaign.MODES])
def test_every_mode_names_the_order_that_was_taken(mode):
    chained = "fast" in mode or mode == "bfloat16"
    orders = ("chain", "split2-chain") if chained else ("promote128", "split2")
    rows, totals = run(Library(*orders), mode, 3000)
    assert {row.order for row in rows.values()} <= {*orders, "promote128"} and not any(
        r.differing for r in rows.values()
    )
    assert {row.order for key, row in rows.items() if key[1][2] == 1024} == {orders[1]}
    assert totals[0]["results"] >= 3000 and totals[0]["differing"] == totals[0]["unnamed"] == 0


def test_results_of_no_named_order_are_counted_apart():
    def lossy(**given):
        found = refnum.matmul_fp8(**given)
        found.view(torch.int32)[:] &= -8192
        return found

    made = campaign.Campaign({"matmul_fp8": lossy}, refnum, "cpu")
    made.run(campaign.MODES[1], 1e9, 60, SHAPES)  # ends because nothing is left to ask
    rows = list(made.rows.values())
    assert all(row.order is None and row.calls == 1 and "differs in" in row.nearest for row in rows)
    (total,) = campaign.totals(rows)
    assert total["unnamed"] == 3 * sum(m * n for m, n, _ in SHAPES) and total["results"] == 0


def test_a_later_call_must_give_the_order_of_the_first():
    rows, totals = run(Library("promote128", "promote128", late=3), "per tensor", 10, SHAPES[:1])
    assert totals[0]["differing"] == sum(row.calls for row in rows.values()) - 3 == 3 * 7 - 3


def test_a_refused_call_is_told_and_not_repeated():
    def refuse(**given):
        raise RuntimeError("Invalid scaling configuration\nmore")

    made = campaign.Campaign({"matmul_fp8": refuse}, refnum, "cpu")
    made.run(campaign.MODES[4], 10, 60, SHAPES)
    assert {row.refused for row in made.rows.values()} == {"Invalid scaling configuration"}


def test_the_document_and_its_page(tmp_path):
    library = Library("chain", "chain")
    made = campaign.Campaign(library.calls_of("matmul_fp8", "matmul_bf16"), refnum, "cpu")
    modes = (campaign.MODES[0], campaign.MODES[7])
    campaign.campaign(made, modes, 200, 60, tmp_path, shapes=SHAPES)
    found = json.loads((tmp_path / "product_campaign.json").read_text())
    assert [one["mode"] for one in found["modes"]] == ["per tensor, fast accumulation", "bfloat16"]
    page = (tmp_path / "product_campaign.md").read_text()
    assert page.count("\n| bfloat16 |") == 4 and "`chain`" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["product_campaign.json", "product_campaign.md"]


@pytest.mark.parametrize("fmt", ["E4M3", "E5M2", "BF16"])
@pytest.mark.parametrize("kind", product_data.KINDS)
def test_drawn_operands_are_what_their_name_says(fmt, kind):
    random = torch.Generator("cpu").manual_seed(1)
    a, b = product_data.KINDS[kind](random, 65, 66, 320, (fmt, fmt))
    for x in (a, b):
        assert x.dtype == (torch.bfloat16 if fmt == "BF16" else torch.uint8)
        values = x.view(product_data.FLOATS[fmt]).to(torch.float32).numpy()
        assert (values < 0).any() and (values > 0).any()
        assert np.isfinite(values).all() == (kind != "special")
    product = a.view(product_data.FLOATS[fmt]).double() @ b.view(product_data.FLOATS[fmt]).double().T
    assert torch.isfinite(product).sum() > 0.9 * product.numel()


def test_a_shape_whose_first_call_named_too_little_is_named_anew():
    """One result with near operands fits `promote128`; the next call tells that it was `split2`."""
    made = campaign.Campaign(Library("split2", "split2").calls_of("matmul_fp8"), refnum, "cpu")
    row = campaign.Row("per tensor", "E4M3 x E4M3", (9, 70, 1024), None)
    one = torch.full((9, 1024), 0x38, dtype=torch.uint8), torch.full((70, 1024), 0x38, dtype=torch.uint8)
    campaign.KINDS["ones"] = lambda *given: one
    try:
        made._compare(campaign.MODES[1], row, "ones", ("E4M3", "E4M3"))
    finally:
        del campaign.KINDS["ones"]
    assert row.order == "promote128" and row.compared == 630
    made._compare(campaign.MODES[1], row, "spread", ("E4M3", "E4M3"))
    assert (row.order, row.compared, row.differing, row.renamed) == ("split2", 630, 0, 1)
