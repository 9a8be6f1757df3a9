"""Trigger mutants: draws that come again, wrong kernels that tell, and an exam that knows right from wrong."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import refnum
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cli import app
from refnum.conformance.commands.mutate.triggers import base, score, turns
from refnum.conformance.commands.mutate.triggers import exam as exams
from refnum.conformance.commands.mutate.triggers.condition import Condition
from refnum.conformance.commands.mutate.triggers.draw import drawn, mutants, tells, trigger_of
from refnum.conformance.commands.mutate.triggers.effects import EFFECTS, INTO_OUT, WHOLE, fits
from refnum.conformance.commands.mutate.triggers.exam import Exam, judge
from refnum.conformance.commands.mutate.triggers.kernel import Trigger, kernel
from refnum.conformance.commands.mutate.triggers.play import UnfitError
from refnum.conformance.commands.mutate.triggers.values import facing
from refnum.conformance.commands.mutate.triggers.witness import facts_of, made
from refnum.errors import ArgumentError

ALWAYS = Condition("rows >= t", "rows >= 0", lambda call: True, lambda dice: {"rows": 8})
NEVER = Condition("rows >= t", "rows < 0", lambda call: False, lambda dice: {"rows": 8})


def play(operation, **wanted):
    return made(operation, facts_of(operation), wanted, Random(5))


def words(operation, seed, count):
    return [(one.id, one.words) for one in mutants(operation, seed, count, Counter())]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_mutants_and_the_same_seed_draws_them_again(operation):
    found = words(operation, 3, 2)
    assert len(found) == 2
    assert found == words(operation, 3, 2)
    assert found != words(operation, 4, 2)


def test_an_id_draws_the_mutant_of_a_list_again():
    for one in mutants("permute_pad", 8, 5, Counter()):
        again = drawn("permute_pad", 8, one.index)
        assert (again.words, again.shown) == (one.words, one.shown)


@pytest.mark.parametrize(
    "operation", ["quantize_mxfp4", "swiglu_backward", "permute_unpack", "mxfp4_columns", "matmul_fp8"]
)
def test_a_kernel_without_a_trigger_is_the_model(operation):
    silent = Trigger((NEVER,), EFFECTS[5], 0, "everything")
    assert not tells(operation, silent, play(operation))
    if "out" not in OPERATIONS[operation].params:
        assert not tells(operation, silent, play(operation, out="padded"))


@pytest.mark.parametrize("effect", [*EFFECTS, *WHOLE], ids=lambda effect: effect.name)
def test_every_effect_tells(effect):
    name = "quantize_mxfp4"
    number = next(n for n, output in enumerate(OPERATIONS[name].outputs) if fits(effect, output))
    assert tells(name, Trigger((ALWAYS,), effect, number, "everything"), play(name, columns=128))


@pytest.mark.parametrize("effect", INTO_OUT, ids=lambda effect: effect.name)
def test_every_effect_on_out_tells(effect):
    assert tells("quantize_mxfp4", Trigger((ALWAYS,), effect, 0, "everything"), play("quantize_mxfp4", out="padded"))


@pytest.mark.parametrize(("before", "now"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_what_the_last_call_left_may_have_another_dtype(before, now):
    run = kernel("decode_e4m3", refnum.decode_e4m3, Trigger((ALWAYS,), EFFECTS[4], 0, "everything"))
    codes = np.arange(3, dtype=np.uint8)
    run(codes, dtype=before)
    stale = run(codes, dtype=now)
    assert stale.dtype == now and stale.tobytes() != refnum.decode_e4m3(codes, dtype=now).tobytes()


def test_out_of_another_shape_is_refused():
    run = kernel("dequantize_mxfp4", refnum.dequantize_mxfp4, None)
    given = play("dequantize_mxfp4").arguments
    with pytest.raises(ArgumentError, match="out is"):
        run(**given, out=np.zeros((1, 1), np.float32))


def test_triggers_of_two_conditions_are_about_two_things():
    for index in range(1, 60, 2):
        one, other = trigger_of("mxfp4_to_fp8", 0, index).conditions
        assert not one.keys & other.keys


@pytest.mark.parametrize("operation", ["quantize_mxfp4", "unpermute", "mxfp4_columns", "matmul_bf16", "decode_e4m3"])
@pytest.mark.parametrize("maker", list(turns.makers()), ids=lambda maker: maker.__name__)
def test_a_condition_of_calls_in_turn_holds_behind_its_calls_and_not_without_them(operation, maker):
    facts, met = facts_of(operation), set()
    for seed in range(24):
        dice = Random(seed)
        condition = maker(dice, OPERATIONS[operation], facts)
        if condition is None or condition.words in met or "at once" in condition.keys:
            continue
        if OPERATIONS[operation].routed and "turned" in condition.wants(dice).get("before", ()):
            continue  # rows are padded, so that no two shapes have as many elements
        try:
            asked = made(operation, facts, {"columns": 128, **condition.wants(dice)}, dice)
        except UnfitError:
            continue
        trigger = Trigger((condition,), EFFECTS[5], 0, "everything")
        met.add(condition.words)
        assert tells(operation, trigger, asked), condition.words
        if asked.before:
            asked.before = []
            assert not tells(operation, trigger, asked), condition.words
    assert met or maker is turns.behind_form


def test_few_calls_meet_a_count_so_it_is_drawn_with_no_other_condition():
    drawn_kinds = [{one.kind: one for one in trigger_of("pack_payload", 2, index).conditions} for index in range(800)]
    pairs = [kinds for kinds in drawn_kinds if len(kinds) == 2]
    assert any("each n-th call" in kinds for kinds in drawn_kinds) and any(
        "each of few calls" in kinds for kinds in pairs
    )
    assert not any(one.alone for kinds in pairs for one in kinds.values())


def test_calls_without_elements_are_not_counted():
    second = Condition("call n alone", "call 2", lambda call: call.history.calls == 1, lambda dice: {}, alone=True)
    run = kernel("decode_e4m3", refnum.decode_e4m3, Trigger((second,), EFFECTS[5], 0, "everything"))
    codes = np.arange(3, dtype=np.uint8)
    right = refnum.decode_e4m3(codes).tobytes()
    assert run(codes).tobytes() == right
    assert run(codes[:0]).size == 0
    assert run(codes).tobytes() != right and run(codes).tobytes() == right


def test_a_call_alone_is_wrong_in_every_element():
    triggers = [trigger_of("quantize_mxfp4", 3, index) for index in range(0, 800, 2)]
    alone = [one for one in triggers if one.conditions[0].alone]
    assert alone and {(one.effect.name, one.region) for one in alone} == {("off by one", "everything")}


def test_an_exam_tells_wrong_from_right():
    """A trigger on an argument is killed; one on a place in memory that nobody asks for is none of these."""
    asked = [drawn("pack_payload", 0, index) for index in range(12)]
    asked = [one for one in asked if one is not None]
    verdicts = judge(Exam(("pack_payload",), level="smoke"), "pack_payload", asked)
    assert [one.id for one in verdicts] == [one.id for one in asked]
    silent = [one for one in verdicts if not one.killed]
    assert len(silent) < len(verdicts)


def test_an_exam_of_several_seeds_tells_each():
    exam = Exam(("decode_e4m3",), (5, 6), 2, level="smoke", workers=1)
    (marked,) = exams.sit(exam)
    assert [one.id.partition(":")[0] for one in marked.verdicts] == ["5", "5", "6", "6"]
    assert score.document(exam, [marked])["seeds"] == [5, 6]
    assert {row[0].partition(",")[0] for row in dict(score.tables([marked]))["seed"]} == {"5", "6"}


def test_the_parts_of_an_exam_give_every_process_work():
    names = tuple(OPERATIONS)
    assert exams.parts(Exam(names, workers=2)) == 1 and exams.parts(Exam(names[:1], workers=4)) == 4


def test_an_exam_whose_base_is_wrong_is_refused(monkeypatch):
    def wrong(packed, scales):
        return refnum.pack_payload(packed, scales) ^ np.uint8(1)

    monkeypatch.setattr(exams, "base_of", lambda subject, operation: wrong)
    asked = list(mutants("pack_payload", 0, 1, Counter()))
    with pytest.raises(ArgumentError, match="base kernel of pack_payload is wrong"):
        judge(Exam(("pack_payload",), level="smoke"), "pack_payload", asked)


def test_scores_count_each_condition_of_two():
    verdicts = tuple(
        exams.Verdict("pack_payload", f"0:{n}", kinds, "stale", "", "", how)
        for n, (kinds, how) in enumerate([(("a",), "x"), (("a", "b"), "x"), (("a", "b"), "")])
    )
    found = dict(score.tables([exams.Marked("pack_payload", verdicts, {}, 1.0)]))
    assert found["condition"] == [["a", "1", "1", "100.0 %"], ["two, a", "2", "1", "50.0 %"],
                                  ["two, b", "2", "1", "50.0 %"]]  # fmt: skip
    assert found["all"] == [["one condition", "1", "1", "100.0 %"], ["two conditions", "2", "1", "50.0 %"]]


def test_the_command_judges_one_mutant_and_writes_json(tmp_path):
    one = next(iter(mutants("unpack_payload", 0, 1, Counter())))
    path = tmp_path / "exam.json"
    given = ["-o", "unpack_payload", "--mutant", one.id, "--level", "smoke", "--json", str(path)]
    done = CliRunner().invoke(app, ["mutate", "triggers", *given])
    found = json.loads(path.read_text())["mutants"]
    assert [(entry["id"], entry["words"]) for entry in found] == [(one.id, one.words)]
    assert done.exit_code == (0 if found[0]["killed"] else 1)
    assert one.words in done.output


@pytest.mark.parametrize("given", [["--mutant", "3"], ["--mutant", "3:1", "-o", "pack*", "-o", "permute*"]])
def test_the_command_refuses_what_is_no_mutant(given):
    done = CliRunner().invoke(app, ["mutate", "triggers", *given])
    assert done.exit_code == 2


def test_out_written_as_if_dense_stays_in_its_memory():
    effect = next(one for one in INTO_OUT if one.name == "out dense")
    memory = np.full((12, 24), 0xAA, np.uint8)
    right = np.arange(32, dtype=np.uint8).reshape(4, 8)
    for out in (memory[4:8, 8:16], memory[7:3:-1, 8:16], memory[4:8, 15:7:-1]):
        memory[...] = 0xAA
        call = SimpleNamespace(outs=(out,))
        assert effect.whole([right], call)[0] is out
        flat = memory.reshape(-1)
        first, last = 4 * 24 + 8, 7 * 24 + 16
        assert (flat[first : first + 32] == np.arange(32)).all()
        assert (flat[:first] == 0xAA).all() and (flat[last:] == 0xAA).all()


def test_a_relation_of_values_holds_nowhere_in_an_array_without_elements():
    none = np.zeros((0, 64), bool)
    assert (
        facing(none, none, 32, 1, swapped=True).shape == facing(none.T, none.T, 2, 0, swapped=False).T.shape == (0, 64)
    )


def test_a_remembered_kernel_answers_two_threads_at_once(monkeypatch):
    monkeypatch.setattr(base, "KEPT", 0)
    run, failed = base.memorised(lambda x: x + 1), []

    def calls(first):
        for number in range(first, first + 4000):
            try:
                assert run(x=np.array([number]))[0] == number + 1
            except Exception as error:
                failed.append(repr(error))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=calls, args=(first,)) for first in (0, 10_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []
