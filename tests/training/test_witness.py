"""The witness judges what a layer computes, and sees a bit that flips in a kernel, a saved tensor or a payload."""

import dataclasses
import json

import pytest
import torch
from safetensors import safe_open

import refnum
from refnum.conformance.mismatches import replay
from refnum.gpu import torch as launchers
from refnum.training import edges, followed, forms, methods
from refnum.training import layer as layers
from refnum.training.followed import AFTER_TORCH, left_out
from refnum.training.layer import MoELayer
from refnum.training.policies import get_policy
from refnum.training.witness import Witness, WitnessError

STORED = dataclasses.replace(get_policy("mxfp4"), name="stored", fc2_input="store")
MIXED = dataclasses.replace(get_policy("fp8"), name="mixed", saved_input="mxfp4")
DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))


def train(witness, policy="mxfp4", steps=1, tokens=24, between=None, device="cpu"):
    """Run steps of a layer of four experts; `between` is called with the layer after each forward pass."""
    layer = MoELayer(128, 128, 4, 2, policy, device=device, witness=witness, seed=5, name="block2")
    layer.record = {}
    for step in range(steps):
        witness.step = step
        torch.manual_seed(step)
        out = layer(torch.randn(tokens, 128).to(device, torch.bfloat16).requires_grad_())
        if between is not None:
            between(layer)
        out.backward(torch.randn(tokens, 128).to(device, torch.bfloat16))
    return layer


def full(folder, **changes):
    return Witness(folder, **{"rate": 1.0, "every": 1, "rows": None, "share": 1.0} | changes)


@pytest.mark.parametrize("policy", ["nvfp4", "mxfp4-products-random"])
def test_parts_of_simulated_products_are_right(policy, tmp_path):
    """Whole steps are not followed: the maximum of a tensor is that of all rows."""
    witness = full(tmp_path, rows=5)
    train(witness, policy, tokens=40)
    assert witness.mismatches == [] and witness.judged["layer steps"] == 0 and witness.judged["products"] == 24
    assert witness.judged["conversions"] > {"nvfp4": 90, "mxfp4-products-random": 40}[policy]


@pytest.mark.parametrize("policy", ["mxfp4", "fp8", "bf16", STORED, MIXED, "fp8+saved_activation=recompute"], ids=str)
def test_a_right_layer_has_no_mismatch(policy, tmp_path):
    witness = full(tmp_path)
    train(witness, policy)
    assert witness.mismatches == [] and list(tmp_path.iterdir()) == []
    again = 4 * ("saved_activation=recompute" in str(policy))
    assert witness.judged["products"] == 24 + again and witness.judged["layer steps"] == 1
    assert witness.judged["conversions"] >= (19 if policy != "bf16" else 6)
    assert witness.summary().endswith(" elements, 0 mismatches")


def test_conversions_leave_products_their_half_of_the_time(tmp_path, monkeypatch):
    """Both are drawn all the time; the cheap ones do not use up what a product needs."""
    clock = [0.0]
    monkeypatch.setattr("refnum.training.witness.time.perf_counter", lambda: clock[0])
    witness = Witness(tmp_path, rate=1.0, share=0.01)
    clock[0] = 20.0
    while witness._affords("quantize_payload"):
        with witness._spending("quantize_payload"):
            clock[0] += 0.003
    assert 0.09 < witness.spent < 0.11 and witness._affords("matmul_fp8")
    with witness._spending("matmul_fp8"):
        clock[0] += 0.08
    assert not witness._affords("matmul_fp8") and not witness._affords("quantize_payload")


@pytest.mark.parametrize("tokens", [1, 300])
def test_parts_of_ragged_experts_are_right(tokens, tmp_path):
    witness = full(tmp_path, rows=5)
    train(witness, steps=2, tokens=tokens)
    assert witness.mismatches == [] and witness.judged["layer steps"] == 2


CONVERSIONS = ("quantize_payload", "permute_unpack", "mxfp4_to_fp8", "swiglu_quantize", "quantize_mxfp4", "unpermute",
               "quantize_fp8_tiles", "fp8_columns", "mxfp4_to_fp8_columns", "swiglu_backward", "dequantize_mxfp4",
               "permute_pad")  # fmt: skip
SIMULATED = {"mxfp4-products-random": ("quantize_mxfp4", "dequantize_mxfp4"),
             "nvfp4": ("hadamard16",)}  # fmt: skip
OF_POLICIES = [("mxfp4", name) for name in CONVERSIONS] + [(row, name) for row, of in SIMULATED.items() for name in of]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy, name", OF_POLICIES)
def test_a_bit_that_flips_in_a_conversion_is_seen(policy, name, device, tmp_path, monkeypatch):
    owner = launchers if device == "cuda" and hasattr(launchers, name) else refnum
    right = getattr(owner, name)

    def flipped(*given, **named):
        results = right(*given, **named)
        first = results[0] if isinstance(results, tuple) else results
        first.view(torch.uint8)[:, 0] ^= 1
        return results

    monkeypatch.setattr(owner, name, flipped)
    witness = full(tmp_path, every=0)
    train(witness, policy, device=device)
    seen = [one for one in witness.mismatches if one.what.endswith(f" {name}")]
    assert seen and {one.what.split()[1] for one in witness.mismatches} == {name}
    monkeypatch.undo()
    read = replay.load(seen[0].file)
    assert read.case.operation == name and read.case.label.startswith("step 0, block2, ")
    assert any((read.expected[key] != read.observed[key]).any() for key in read.expected)


@pytest.mark.parametrize(
    "field, names",
    [("values", {"dequantize_nvfp4"}), ("scales", {"quantize_nvfp4", "dequantize_nvfp4"})],
)
def test_a_bit_that_flips_in_simulated_nvfp4_is_seen(field, names, tmp_path, monkeypatch):
    right = forms.nvfp4

    def flipped(*given):
        coded = right(*given)
        getattr(coded, field).view(torch.uint8)[:, 0] ^= 1
        return coded

    monkeypatch.setattr(forms, "nvfp4", flipped)
    witness = full(tmp_path, every=0)
    train(witness, "nvfp4")
    assert {one.what.split()[1] for one in witness.mismatches} == names
    assert replay.load(witness.mismatches[0].file).case.operation in names


@pytest.mark.parametrize("policy", ["luq", "vectors-dge-occ", "tetrajet-ema"])
def test_operands_of_other_methods_are_judged(policy, tmp_path, monkeypatch):
    witness = full(tmp_path / "right", rows=5, every=0)
    train(witness, policy, tokens=40)
    assert witness.mismatches == [] and witness.judged["conversions"] > 30
    right = methods.values
    monkeypatch.setattr(methods, "values", lambda *given: right(*given).index_fill_(1, torch.tensor([3]), 0.5))
    witness = full(tmp_path / "wrong", every=0)
    train(witness, policy)
    assert {one.what.split()[1] for one in witness.mismatches} == {"operand"}
    with safe_open(witness.mismatches[0].file, "numpy") as file:
        assert {"x", "values.found", "values.expected"} <= set(file.keys()) and "form" in file.metadata()["label"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_wrong_product_is_seen_with_its_expert(device, tmp_path, monkeypatch):
    right = edges.Edges._function

    def wrong(self, cuda, library):
        def multiply(a, b, out):
            right(self, cuda, library)(a, b, out)
            if len(calls) == 10:  # fc1 and fc2 of four experts, then the gradient of the third
                out.view(torch.int16)[:] ^= 1
            calls.append(out)

        return multiply

    calls = []
    monkeypatch.setattr(edges.Edges, "_function", wrong)
    witness = full(tmp_path, every=0)
    train(witness, device=device)
    assert [(one.what, one.expert) for one in witness.mismatches] == [("backward fc2.dgrad[2]", 2)]
    assert "step 0, block2, expert 2: backward fc2.dgrad[2]: " in str(witness.mismatches[0])
    assert replay.load(witness.mismatches[0].file).case.operation == "matmul_fp8"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("saved", ["saved_input", "saved_activation"])
def test_a_bit_that_flips_in_a_saved_tensor_is_seen_within_a_round_of_the_experts(saved, device, tmp_path):
    """Steps follow one expert after another, so four steps follow all of them."""

    def flip(layer):
        found = layer.record[f"forward.{saved}"]
        (found[0] if isinstance(found, tuple) else found).data[3, 7] ^= 4

    witness = full(tmp_path, rate=0.0)
    train(witness, steps=4, between=flip, device=device)
    assert witness.mismatches[0].what.split(".")[0] == f"backward {saved}"
    with safe_open(witness.mismatches[0].file, "numpy") as file:
        names = {name for name in file.keys() if saved in name}  # noqa: SIM118 - no dictionary
        assert names and "step" in file.metadata()["label"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_bit_that_flips_in_a_received_payload_is_seen(device, tmp_path, monkeypatch):
    right = layers._dispatched

    def flipped(ranks, rows, route):
        out = right(ranks, rows, route).clone()
        if out.dtype == torch.uint8:
            out[5, 11] ^= 16
        return out

    monkeypatch.setattr(layers, "_dispatched", flipped)
    witness = full(tmp_path, rate=0.0)
    train(witness, steps=4, device=device)
    assert any(one.what == "forward received" for one in witness.mismatches)


def test_a_mismatch_stops_the_run_where_it_is_told_to(tmp_path, monkeypatch):
    monkeypatch.setattr(refnum, "mxfp4_to_fp8", lambda packed, scales: (packed.repeat(1, 2), scales[:, :1]))
    with pytest.raises(WitnessError, match="step 0, block2"):
        train(full(tmp_path, stop=True))


def test_a_share_of_calls_is_drawn(tmp_path):
    witness = Witness(tmp_path, rate=0.25, every=0, share=1.0)
    train(witness, steps=3)
    calls = 3 * (24 + 21)
    judged = witness.judged["conversions"] + witness.judged["products"]
    assert 0.1 * calls < judged < 0.5 * calls and witness.judged["layer steps"] == 0
    assert Witness(tmp_path, rate=0.0)._left > 1 << 60


def test_the_share_of_time_is_kept(tmp_path):
    witness = Witness(tmp_path, rate=1.0, every=0, share=1e-9)
    train(witness)
    assert sum(witness.judged.values()) <= 1


def test_what_waits_is_judged_when_it_is_settled(tmp_path, monkeypatch):
    """Samples keep what was there when they were taken, with the step and the layer of that time."""
    right = refnum.quantize_mxfp4
    witness = Witness(tmp_path, rate=1.0, every=0, share=0.5)
    witness._started -= 1e6  # there is time for all
    monkeypatch.setattr(witness, "_judge", lambda taken, judge=witness._judge: kept.append(taken) or judge(taken))
    monkeypatch.setattr(refnum, "quantize_mxfp4", lambda x: (right(x)[0] ^ 1, right(x)[1]))
    kept = []
    train(witness, steps=1)
    assert kept == [] and witness.judged.total() == 0 and len(witness._waiting) == len(witness.log) > 40
    witness.step = 7
    witness.settle()
    assert len(kept) == witness.judged.total() == len(witness.log)
    assert [(one.step, one.layer, one.what) for one in witness.mismatches] == [(0, "block2", "forward quantize_mxfp4")]


def test_which_parts_are_drawn_does_not_depend_on_time(tmp_path):
    """A witness that has time for less takes some of the parts that one with more time takes."""
    logs = []
    for share, late in ((1.0, 0.0), (0.5, 0.4)):
        witness = Witness(tmp_path, rate=0.3, every=0, rows=3, share=share, seed=9)
        witness._started -= late
        train(witness, steps=3, tokens=50)
        logs.append(witness.log)
    assert len(logs[1]) > 0 and set(logs[1]) <= set(logs[0])


def test_whole_steps_keep_their_share_of_time(tmp_path):
    witness = Witness(tmp_path, rate=0.0, every=1, share=1e-9)
    train(witness, steps=3)
    assert witness.judged["layer steps"] == 1 and witness.followed == 0.0
    witness._started -= 1e15
    train(witness, steps=2)
    assert witness.judged["layer steps"] == 3 and witness.followed > 0.0


@pytest.mark.parametrize("policy", ["bf16", "mxfp4"])
def test_what_comes_from_torchs_swiglu_is_not_compared_on_a_gpu(policy, tmp_path, monkeypatch):
    """On CUDA `bf16` has torch's SwiGLU: all else is compared there too, and under other policies everything."""
    names = {}
    for on_cuda in (False, True):
        monkeypatch.setattr(followed, "left_out", lambda policy, _, on_cuda=on_cuda: left_out(policy, on_cuda))
        witness, seen = full(tmp_path), []
        monkeypatch.setattr(witness, "_compare", lambda layer, one, pairs, way, seen=seen: seen.extend(pairs))
        train(witness, policy)
        names[on_cuda] = {name.partition(".")[0] for name in seen}
    assert names[False] - names[True] == (AFTER_TORCH & names[False] if policy == "bf16" else set())
    assert {"fc2_input", "fc2"} <= names[False]
    assert {"fc1", "fc1_input", "received", "dact", "dprob", "dx_rows"} < names[True] <= names[False]


def test_products_that_are_not_drawn_are_not_shown():
    witness = Witness(rate=0.0)
    assert not witness.wants(10**6)
    witness._left = 5
    assert (witness.wants(4), witness._left, witness.wants(1)) == (False, 1, True)


def test_the_files_are_json_that_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(
        refnum,
        "quantize_mxfp4",
        lambda x: (
            torch.zeros(len(x), x.shape[1] // 2, dtype=torch.uint8),
            torch.zeros(len(x), x.shape[1] // 32, dtype=torch.uint8),
        ),
    )
    witness = full(tmp_path, every=0)
    train(witness)
    body = json.loads(witness.mismatches[0].file.read_text())
    assert body["label"] == "step 0, block2, forward quantize_mxfp4, expert 0"
    assert not list(tmp_path.glob("*.tmp"))


def test_operands_of_a_product_that_is_not_drawn_are_not_made(tmp_path):
    def operands():
        raise AssertionError("made for nothing")

    Witness(tmp_path, rate=0.0).product("fc1[0]", operands, torch.zeros(1, 1, dtype=torch.bfloat16))
