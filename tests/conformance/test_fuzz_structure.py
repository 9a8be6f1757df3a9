"""Campaigns find kernels that are wrong on a condition of structure, make them small and save what replays red."""

import functools
import inspect
import io
from pathlib import Path

import numpy as np
import pytest
from cli_tools import command
from fuzz_tools import campaign
from rich.console import Console

import refnum
from refnum.conformance.cases.case import FORM
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.structure import grouped
from refnum.conformance.cases.structure.campaign import CALLS, STACKED, campaign_rows
from refnum.conformance.cases.structure.factors import GROUPED, SPLITS
from refnum.conformance.cases.structure.groups import DATA
from refnum.conformance.cases.structure.levels import Levels, case_of
from refnum.conformance.cases.structure.plan import uniform_levels
from refnum.conformance.commands.fuzz import budget
from refnum.conformance.commands.fuzz.shards import STRUCTURE
from refnum.conformance.commands.fuzz.status import Watcher, render
from refnum.conformance.commands.mutate.triggers.base import memorised
from refnum.conformance.mismatches import replay

HEAD = "import numpy as np\nimport refnum\n\n\n"
KERNELS = {
    "an expert begins at a row of remainder 5": (
        "mxfp4_columns", """
def mxfp4_columns(packed, scales, splits=None, scale="amax"):
    codes, found = refnum.mxfp4_columns(packed, scales, splits, scale)
    if splits is not None and any(int(start) % 16 == 6 for start in np.cumsum(list(splits))[:-1]):
        found[-1:] ^= np.uint8(1)
    return codes, found
""", ""),
    "element gaps under an odd number of rows": (
        "decode_e4m3", """
def decode_e4m3(codes, dtype="float32"):
    if codes.ndim == 2 and codes.shape[0] % 2 and codes.strides[1] == 2 * codes.itemsize:
        codes = np.concatenate([codes[-1:], codes[:-1]])
    return refnum.decode_e4m3(codes, dtype)
""", ""),
    "swizzled scales of a row beyond a tile": (
        "mxfp4_to_fp8", """
def mxfp4_to_fp8(packed, scales, scale="max", layout_in="bytes", layout_out="bytes"):
    codes, found = refnum.mxfp4_to_fp8(packed, scales, scale, layout_in=layout_in, layout_out=layout_out)
    if layout_out == "swizzled" and packed.shape[0] % 128 == 1 and packed.shape[0] > 1:
        found = np.where(found > 1, found ^ np.uint8(1), found)
    return codes, found
""", ""),
    "after a refused call": (
        "pack_payload", """
refused = []

def pack_payload(packed, scales):
    spoil = bool(refused)
    refused.clear()
    try:
        payload = refnum.pack_payload(packed, scales)
    except Exception:
        refused.append(1)
        raise
    if spoil and payload.size:
        payload[-1, -1] ^= np.uint8(1)
    return payload
""", "wrong-after-refusal"),
    "behind as many elements in another shape": (
        "decode_e8m0", """
last = [()]

def decode_e8m0(codes, dtype="float32"):
    values = refnum.decode_e8m0(codes, dtype)
    before, last[0] = last[0], codes.shape
    if codes.size > 1 and before != codes.shape and np.prod(before) == codes.size:
        values.view(np.uint8).reshape(-1)[-1] ^= np.uint8(1)
    return values
""", "wrong-after-another-call"),
    "what the call before a refused one left": (
        "pack_payload", """
refused, last = [], []

def pack_payload(packed, scales):
    stale = bool(refused and last and last[0].shape == (packed.shape[0], packed.shape[1] // 16 * 17))
    refused.clear()
    try:
        payload = refnum.pack_payload(packed, scales)
    except Exception:
        refused.append(1)
        raise
    given = last[0] if stale else payload
    last[:] = [payload.copy()]
    return given.copy()
""", "wrong-after-refusal"),
    "codes that are the largest one all over": (
        "decode_e2m1", """
def decode_e2m1(codes, dtype="float32"):
    values = refnum.decode_e2m1(codes, dtype)
    return -values if codes.size > 1 and (codes == 7).all() else values
""", ""),
    "three experts of which the middle one is empty": (
        "matmul_bf16", """
def matmul_bf16(a, b, order="chain", out="float32", splits=None):
    if splits is not None and len(splits) == 3 and splits[1] == 0 and splits[0] and splits[2]:
        b = b[[0, 1, 1]]
    return refnum.matmul_bf16(a, b, order, out, splits)
""", ""),
}  # fmt: skip
SOON = {"mxfp4_columns": 100, "matmul_bf16": 250}
"""Operations whose cases are dear -> cases of which some show what is wrong."""


def computed_once(operation):
    """The model's function of an operation, which the judge and a kernel ask the same."""
    function = memorised(getattr(refnum, operation))
    signature = inspect.signature(function)
    return functools.wraps(function)(lambda *given, **named: function(**signature.bind(*given, **named).arguments))


@pytest.mark.parametrize("operation", sorted(GROUPED))
def test_campaigns_draw_products_of_experts_of_every_kind(operation):
    """In plain calls too, which are products of the same experts."""
    params = OPERATIONS[operation].defaults()
    rows = campaign_rows(operation, "HOPPER", params, "salt", 1200, 1 << 16)[1::STACKED]
    assert len(rows) == 300 and all("splits" in row for row in rows)
    assert rows == campaign_rows(operation, "HOPPER", params, "salt", 1200, 1 << 16)[1::STACKED]
    for factor, levels in (("experts", grouped.EXPERTS), ("empty experts", grouped.EMPTY), ("splits", SPLITS),
                           ("drawn", grouped.DRAWN), ("calls", CALLS)):  # fmt: skip
        assert {row[factor] for row in rows if factor in row} == set(levels), factor
    for number, row in enumerate(rows[:40]):
        made = Levels(operation, "HOPPER", params, row, number)
        case, plain = case_of(made), case_of(made.plain())
        assert case.elements <= 1 << 17 and len(case.params["splits"]) == len(case.inputs["b"])
        assert case.params["splits"] == plain.params["splits"] and FORM not in plain.params
        assert all(np.array_equal(array, plain.inputs[name]) or "storage broadcast" in case.label
                   for name, array in case.inputs.items())  # fmt: skip
        assert run_golden(case)


@pytest.mark.parametrize(
    ("operation", "params"),
    [("decode_e2m1", {}), ("swiglu_backward", {}), ("mxfp4_columns", {}), ("matmul_fp8", {}), ("unpermute", {}),
     ("quantize_mxfp4", {"layout_out": "swizzled"}), ("quantize_tetrajet_v2", {})],
)  # fmt: skip
def test_campaigns_draw_inputs_of_one_element_all_over(operation, params):
    """Every input and element that a check asks, in cases of several shapes, and in plain calls too."""
    params = {**OPERATIONS[operation].defaults(), **params}
    rows = campaign_rows(operation, "HOPPER", params, "salt", 4800, 1 << 14)
    drawn = [row for row in rows if "uniform" in row]
    assert {row["uniform"] for row in drawn} == set(uniform_levels(operation, "HOPPER", params))
    shapes = set()
    for number, row in enumerate(drawn[:30]):
        made = Levels(operation, "HOPPER", params, row, number)
        case, name = case_of(made.plain()), row["uniform"].partition(" ")[0]
        bits = case.inputs[name].reshape(-1).view(f"u{case.inputs[name].itemsize}")
        shapes.add(case.inputs[name].shape)
        assert (bits == bits[:1]).all() and run_golden(case_of(made))
    assert len(shapes) > 10


@pytest.mark.parametrize("operation", sorted(DATA))
def test_campaigns_draw_numbers_that_are_no_defaults(operation):
    params = OPERATIONS[operation].defaults()
    rows = campaign_rows(operation, "HOPPER", params, "salt", 400, 1 << 12)
    for name, numbers in DATA[operation].items():
        of = [row for row in rows if name in row]
        assert {row[name] for row in of} >= set(numbers) and len(of) < 200
        for number, row in enumerate(of[:8]):
            case = case_of(Levels(operation, "HOPPER", params, row, number))
            assert case.params[name] == row[name] and run_golden(case)


@pytest.mark.parametrize("what", KERNELS)
def test_a_campaign_finds_it_and_its_replay_file_is_red(tmp_path, monkeypatch, what):
    operation, source, finding = KERNELS[what]
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + source)
    monkeypatch.setattr(budget, "strata", lambda target: (STRUCTURE,))
    limit = SOON.get(operation, 400)
    if operation == "matmul_bf16":
        monkeypatch.setattr(refnum, operation, computed_once(operation))
    _, db = campaign(tmp_path / "camp", str(path), limit, cases=25, round_shards=4, timeout=5.0)
    found = [one for one in Watcher(db).findings() if one["replay"]]
    assert found
    assert {one["outcome"] for one in found} == {"mismatch"}
    assert any(one["record"]["finding"] == finding for one in found)
    red = next(one for one in found if one["record"]["finding"] == finding)
    assert replay.load(Path(red["replay"])).case.operation == operation
    assert command("replay", red["replay"], "--subject", path, folder=tmp_path).returncode == 1


@pytest.mark.parametrize(("declared", "status"), [("", 3), ("@implements('pack_payload', rows=2)", 0)])
def test_legal_calls_that_a_kernel_does_not_answer_are_told(tmp_path, declared, status):
    """Those that it declares to refuse are counted alone, as in a check; others keep a campaign from exit 0."""
    path = tmp_path / "kernel.py"
    path.write_text(
        HEAD
        + f"""
from refnum.conformance import implements

{declared}
def pack_payload(packed, scales):
    if packed.shape[0] % 2:
        raise NotImplementedError("an odd number of rows")
    return refnum.pack_payload(packed, scales)
"""
    )
    _, db = campaign(tmp_path / "camp", str(path), 60, cases=20)
    summary, out = Watcher(db).summary(), io.StringIO()
    assert summary["exit"] == status and not summary["findings"]
    (row,) = summary["rows"]
    assert row["unsupported"] > 0 == row["failing"]
    Console(file=out, width=200).print(render(summary))
    head, line = (next(one for one in out.getvalue().splitlines() if word in one)
                  for word in ("coverpoints  ", "pack_payload "))  # fmt: skip
    assert line.split()[head.split().index("unsupported")] == str(row["unsupported"])
    told = f"kernel pack_payload: {row['undeclared']} legal calls were refused that it does not declare to refuse"
    assert (f"{told}, for example: an odd number of rows" in out.getvalue()) == (row["undeclared"] > 0) == (status > 0)
