"""The page of a wrong product: as small as it goes, the order that gives its bits, the step at which sides part."""

import numpy as np
import pytest

import refnum
from refnum import softfloat
from refnum.arrays import BFLOAT16
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL, P1
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.mismatches.diagnose import Seen
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.mismatches.products import MOST, NEAR, order_advice, orders_given, product_page
from refnum.conformance.reports.text import page_text
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Failure

PARAMS = {"order": "promote128", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"}


def drawn(shape, seed):
    rng = np.random.default_rng(seed)
    return (rng.integers(0x20, 0x50, shape) | rng.integers(0, 2, shape) << 7).astype(np.uint8)


def record(kernel, level=P1, **scales):
    case = Case("matmul_fp8", "HOPPER", PARAMS, {"a": drawn((9, 300), 1), "b": drawn((7, 300), 2), **scales})
    subject = Subject("k", {"matmul_fp8": kernel})
    plan = Plan([subject], [], shown=1, save=False)
    return Presenter(plan).record(subject, Failure(case, level))


def chained(a, b, a_scales=None, b_scales=None):
    return refnum.matmul_fp8(a, b, order="chain" if a_scales is None else "promote32", a_scales=a_scales)


def one_run_lost(a, b, a_scales=None, b_scales=None):
    """The second block of 128 is added twice."""
    whole = refnum.matmul_fp8(a, b, a_scales, b_scales).view(np.uint32)
    if a.shape[1] <= 128:
        return whole.view(np.float32)
    one = slice(128, 256)
    again = refnum.matmul_fp8(a[:, one], b[:, one]).view(np.uint32)
    return softfloat.add(whole, again).view(np.float32)


def test_another_order_is_named_and_the_product_is_small():
    found = record(chained)
    assert found["words"].startswith("these are the bits of order=chain, not of promote128")
    a, b = found["case"].split(";")[0].split(", b ")
    assert b.startswith("[1, ") and a.startswith("a [1, ")
    assert 128 < int(b[4:-1]) < 200  # a chain is a promote128 up to 128
    assert "the sides part in step 4" in found["page"]["parts"]


def test_an_order_by_scales_of_blocks_is_named():
    found = record(chained, a_scales=np.full((9, 3), 120, np.uint8) + np.arange(3, dtype=np.uint8))
    assert "order=promote32" in found["words"] and found["page"]["parts"]


def test_a_wrong_step_is_shown_with_its_terms():
    found = record(one_run_lost, NO_LEVEL)
    assert found["words"] == "" and "the sides part in step 4" in found["page"]["parts"]
    names = [step["name"] for step in found["page"]["steps"]]
    assert names[0] == "operands" and any(name.startswith("term ") for name in names)
    text = page_text({"variant": "matmul_fp8", "subject": "k", "outcome": "mismatch"}, found)
    assert "the sides part in step 4, terms 128 to 159 of K" in text and "largest exponent" in text


def test_the_step_of_a_long_product_is_found_and_shown_with_its_terms():
    """The second half of K has a sum of its own from term 4096 on, step 256 of 320."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0x3F00, 0x4080, (1, 5120)).astype(np.uint16).view(BFLOAT16) for _ in "ab")

    def split(a, b):
        sums = [refnum.matmul_bf16(a[:, part], b[:, part]).view(np.uint32) for part in (slice(4096), slice(4096, 5120))]
        return softfloat.add(*sums).view(np.float32)

    case = Case("matmul_bf16", "HOPPER", {"order": "chain", "out": "float32"}, {"a": a, "b": b})
    golden, observed = refnum.matmul_bf16(a, b).view(np.uint32), split(a, b).view(np.uint32)
    assert golden != observed
    calls = []

    def ask(cut):
        calls.append(cut)
        return {"values": split(cut.inputs["a"], cut.inputs["b"]).view(np.uint32)}

    found = product_page(case, {"index": [0, 0]}, ask)
    start = int(found["parts"].split("terms ")[1].split()[0])
    assert found["parts"].startswith("the sides part in step") and 4096 <= start < 4300 and len(calls) <= 2 * MOST
    names = [line["name"] for line in found["steps"]]
    assert len(names) < 40 and names[1] == f"steps 0 to {start // 16 - NEAR - 1}" and names[-1].startswith("steps ")
    assert [name for name in names if name.startswith("term ")] == [f"term {start + n}" for n in range(16)]
    assert golden.item() == int(found["steps"][-1]["text"][-8:], 16)


@pytest.mark.parametrize("order", ["split2", "promote64", "chain"])
def test_the_orders_that_give_all_bits(order):
    scales = np.random.default_rng(5).uniform(1, 2, (9, 6 if order != "chain" else 1)).astype(np.float32)
    inputs = {"a": drawn((9, 768), 1), "b": drawn((7, 768), 2), "a_scales": scales}
    case = Case("matmul_fp8", "HOPPER", PARAMS, inputs)
    bits = refnum.matmul_fp8(**inputs, order=order).view(np.uint32)
    assert orders_given([Seen(case, {"values": bits})]) == [order]
    assert orders_given([Seen(case, {"values": bits ^ np.uint32(1)})]) == []


def test_each_product_of_several_orders_is_named():
    seen = []
    for number, order in enumerate(["split2", "split3", "split3"]):
        scales = np.random.default_rng(number).uniform(1, 2, (9, 6)).astype(np.float32)
        inputs = {"a": drawn((9, 768), 2 * number), "b": drawn((7, 768), 2 * number + 1), "a_scales": scales}
        bits = refnum.matmul_fp8(**inputs, order=order).view(np.uint32)
        seen.append(Seen(Case("matmul_fp8", "HOPPER", PARAMS, inputs), {"values": bits}))
    said = "these are the bits of order=split2, not of promote128"
    assert order_advice(seen[:1]) == said
    assert order_advice(seen) == f"{said}; other failing products have 2 of order=split3"
    unnamed = Seen(seen[1].case, {"values": seen[1].observed["values"] ^ np.uint32(1)})
    assert order_advice([*seen, unnamed]) == order_advice([]) == ""
