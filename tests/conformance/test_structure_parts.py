"""Parts of fields: what is asked of them, that they are right of a right kernel, and which wrong kernels they tell."""

import functools
import importlib
import inspect
import itertools
import json

import numpy as np
import pytest
from structure_tools import asked_parts, engine_of, every_pair, golden

from refnum.conformance.cases.draw.bits import as_float
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes.inputs import expand
from refnum.conformance.cases.recipes.recipe import Recipe
from refnum.conformance.cases.structure import Asked, build, values
from refnum.conformance.cases.structure.cutting import (
    COLUMNS,
    ROWS,
    UNCUT,
    cutting,
)
from refnum.conformance.cases.structure.fields import fields, parts
from refnum.conformance.cases.structure.numbers import MARKS, SMALL
from refnum.conformance.commands.check import structure, sweep
from refnum.conformance.commands.check.journal import Journal, again
from refnum.conformance.subjects.calls import parts as quick
from refnum.conformance.subjects.isolation.parent import isolated
from refnum.conformance.subjects.subject import Subject
from refnum.errors import UnsupportedError

FEW = 3
BUILD = importlib.import_module("refnum.conformance.cases.structure.build")  # the room has a function of its name


def test_rows_and_columns_are_cut_where_the_answer_is_local():
    assert cutting("quantize_mxfp4", "HOPPER", {"input": "float32"}).axis == ROWS
    assert cutting("fp8_columns", "HOPPER", {"underflow": "rne"}).axis == COLUMNS
    found = cutting("swiglu_backward", "HOPPER", {})
    assert set(found.inputs) == {"grad", "gate", "up", "prob"} and set(found.outputs) == {"dgate", "dup", "dprob"}
    assert set(cutting("matmul_fp8", "HOPPER", OPERATIONS["matmul_fp8"].defaults()).inputs) == {"a", "a_scales"}


def test_a_scale_of_the_tensor_that_hangs_on_a_given_maximum_is_no_hindrance():
    found = cutting("luq", "HOPPER", OPERATIONS["luq"].defaults())
    assert set(found.inputs) == {"x", "r_under", "r_log"} and set(found.outputs) == {"packed"}
    assert cutting("occ", "HOPPER", OPERATIONS["occ"].defaults()) is UNCUT


def test_what_is_not_local_is_not_cut():
    squares = {"tile": [128, 128], "input": "float32"}
    assert cutting("quantize_fp8_tiles", "HOPPER", squares) is UNCUT
    assert cutting("dequantize_fp8_tiles", "HOPPER", {"tile": [128, 128], "dtype": "float32"}) is UNCUT
    assert cutting("permute_unpack", "HOPPER", {"align": 32}) is UNCUT
    # one gradient that is not finite decides all sums, although rows with one stand by themselves
    assert cutting("ramping_step", "HOPPER", {"input": "float32"}) is UNCUT
    assert cutting("q_ramping", "HOPPER", OPERATIONS["q_ramping"].defaults()).axis == ROWS
    field = next(fields("quantize_fp8_tiles", "HOPPER", squares, "brief"))
    assert all(part.of(field.case.inputs, field.cutting.inputs) == field.case.inputs for part in field.parts)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_part_has_as_many_rows_as_it_says(operation, monkeypatch):
    """Arrays of a field are cut as those of the cutting are, of whatever kind a seed makes its scales.

    Only lengths are asked, so that no array is filled with numbers; and only where rows are cut, all fields are made.
    """
    zeros = lambda rows, columns, seed: np.zeros((rows, columns), np.uint32)  # noqa: E731
    monkeypatch.setattr(values, "noise", zeros)
    monkeypatch.setattr(values, "floats", lambda fmt, shape, *_: as_float(np.zeros(shape, np.uint32), fmt))
    monkeypatch.setattr(BUILD, "planted", lambda *given: given[2])
    rows = cutting(operation, "HOPPER", OPERATIONS[operation].defaults()).axis == ROWS
    for params, amount in zip(OPERATIONS[operation].variants(), ("full" if rows else "brief", "brief"), strict=False):
        for field in fields(operation, "HOPPER", params, amount):
            assert field.parts
            for part in field.parts[::7] if field.cutting.axis == ROWS else ():
                found = part.of(field.case.inputs, field.cutting.inputs)
                assert {len(found[name]) for name in field.cutting.inputs.keys() & found.keys()} == {part.count}


@pytest.mark.parametrize("operation", ["decode_e4m3", "mxfp4_to_fp8", "mxfp4_columns", "swiglu_quantize"])
def test_the_answer_to_a_part_is_a_part_of_the_answer(operation):
    every = fields(operation, "HOPPER", OPERATIONS[operation].defaults(), "full")
    for field in itertools.islice(every, 0, FEW << 5, 1 << 5):
        whole = run_golden(field.case)
        for part in field.parts[:: 1 << 4]:
            right = run_golden(part.case(field.case, field.cutting))
            want = part.of(whole, field.cutting.outputs)
            assert all(np.array_equal(want[name], array) for name, array in right.items())


def test_small_numbers_of_rows_stand_beside_every_small_number_of_columns_and_many_beside_powers():
    assert {(rows, columns) for rows in SMALL for columns in SMALL} <= every_pair()
    assert all({(rows, columns) for columns in range(1, 17)} & every_pair() for rows in MARKS if rows < 3000)
    for residue in range(512):
        assert {rows % 512 for rows, _ in every_pair() if rows > 512} >= {residue}


@pytest.mark.parametrize("operation", ["encode_e2m1", "mxfp4_columns"])
def test_a_right_kernel_is_right_on_every_part(operation):
    tally = asked_parts(operation, golden(operation), most=40)
    assert tally.structural > 60 and not tally.wrong and not tally.coverage.refused and not tally.unsupported


def wrong(operation, holds, spoil):
    def run(**keywords):
        out = keywords.pop("out", None)
        array = keywords[OPERATIONS[operation].inputs[0]]
        right = golden(operation)(**keywords)
        if holds(array):
            right = spoil(right)
        if out is None:
            return right
        out[...] = right
        return out

    run.__signature__ = inspect.signature(golden(operation))
    return run


def flipped(right):
    right = right.copy()
    right.reshape(-1).view(np.uint8)[-1] ^= 1
    return right


def stepped(right):
    return np.repeat(right[..., None], 2, axis=-1)[..., 0]


CONDITIONS = {
    "24 rows of 5 columns": (lambda x: x.shape == (24, 5), flipped, "", 24),
    "384 rows of 23 columns": (lambda x: x.shape == (384, 23), stepped, "not contiguous", 384),
    "a residue of 512 rows in a storage": (
        lambda x: x.shape[0] % 512 == 277 and x.ndim == 2 and not x.flags.c_contiguous, flipped, "", 277),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_two_exact_numbers_together_are_told(name):
    holds, spoil, words, rows = CONDITIONS[name]
    tally = asked_parts("decode_e8m0", wrong("decode_e8m0", holds, spoil), of=lambda count, _: count % 512 == rows)
    assert tally.wrong and {len(one.case.inputs["codes"]) % 512 for one in tally.failures} == {rows}
    assert all(words in one.words for one in tally.failures)


def test_a_kernel_that_writes_its_input_is_told():
    def run(codes, dtype="float32"):
        right = golden("decode_e8m0")(codes, dtype)
        if codes.shape[1] == 9 and codes.flags.writeable:
            codes[-1, -1] ^= 1
        return right

    tally = asked_parts("decode_e8m0", run, most=60)
    assert {one.finding for one in tally.failures} == {"input-mutated"}


def test_a_kernel_that_is_wrong_where_all_elements_are_one_beside_a_residue_of_rows_is_told():
    right = golden("decode_e8m0")

    def run(codes, dtype="float32"):
        result = right(codes=codes, dtype=dtype)
        if len(codes) % 32 == 9 and codes.size > 32 and (codes == 254).all():
            result[-1:, -1:] = 3
        return result

    assert asked_parts("decode_e8m0", run, having="uniform").close() is not Outcome.PASS
    assert asked_parts("decode_e8m0", right, having="uniform").close() is Outcome.PASS


def test_experts_of_more_and_more_rows_stand_beside_every_residue_of_columns():
    met = set()
    for field in fields("mxfp4_columns", "HOPPER", OPERATIONS["mxfp4_columns"].defaults(), "full"):
        counts = field.case.params.get("splits") or []
        if len(counts) > 2 and counts == sorted(set(counts)):
            met |= {part.row["columns"] % 128 for part in field.parts}
    assert met == {0, 32, 64, 96}


def test_a_kernel_that_refuses_a_storage_is_not_wrong():
    def run(codes, dtype="float32"):
        if not codes.flags.c_contiguous:
            raise ValueError("contiguous arrays only")
        return golden("decode_e8m0")(codes, dtype)

    tally = asked_parts("decode_e8m0", run, most=20)
    assert not tally.wrong and tally.coverage.forms and tally.structural > 100


def test_a_part_of_the_journal_is_made_again(tmp_path):
    key = "decode_e8m0", "HOPPER", {"dtype": "float32"}
    book = Journal(tmp_path / "note.json")
    book.enter(key, "parts full")
    book.note("k", 70)
    found = again(json.loads((tmp_path / "note.json").read_text()))
    want = next(case for number, case in enumerate(parts(*key, "full")) if number == 70)
    assert found.label == want.label and found.digest() == want.digest()


SOURCE = """
import refnum

def decode_e8m0(codes, dtype="float32"):
    right = refnum.decode_e8m0(codes, dtype)
    if codes.shape == (24, 5):
        right[-1, -1] = 3
    if codes.shape == (9, 9):
        import os, ctypes
        os.kill(os.getpid(), 9)
    return right
"""


def test_parts_are_asked_in_a_process_of_its_own(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    (subject,) = isolated(str(path))
    tally = asked_parts("decode_e8m0", subject, most=60)
    assert tally.structural > 500
    assert {one[1].partition(" with")[0] for one in tally.faults} == {"its process ended"}
    assert any(one.case.inputs["codes"].shape == (24, 5) for one in tally.failures)


def test_activations_are_drawn_of_powers_of_two_as_well():
    params, drawn = {"dtype": "float32"}, {"spread": 2, "exponent": 0}
    recipe = Recipe("decode_e8m0", "HOPPER", params, (3, 5), 1, "activations", drawn)
    assert run_golden(expand(recipe))["values"].shape == (3, 5)


def test_a_subject_that_names_what_is_outside_is_called_as_quickly(monkeypatch):
    slow = []
    watched = quick.call
    monkeypatch.setattr(
        quick, "call", lambda subject, case, seconds: slow.append(case) or watched(subject, case, seconds)
    )
    tally = asked_parts("decode_e8m0", golden("decode_e8m0"), most=5, outside=lambda case: "")
    assert tally.structural > 60 and not tally.wrong
    taken = len(slow)
    tally = asked_parts(
        "decode_e8m0", golden("decode_e8m0"), most=5, outside=lambda case: "wide" * (case.elements > 40)
    )
    assert tally.structural > 30 and tally.coverage.refused and not tally.wrong
    assert len(slow) > taken and all(case.elements > 40 for case in slow[taken:])


def test_a_dtype_that_is_refused_is_asked_of_few_parts():
    given = []

    def run(codes, dtype="float32"):
        given.append(codes.dtype.name)
        if codes.dtype != np.uint8:
            raise UnsupportedError("bytes alone")
        return golden("decode_e8m0")(codes=codes, dtype=dtype)

    tally = asked_parts("decode_e8m0", run, most=60)
    assert {"codes.dtype uint16", "codes.dtype uint32", "codes.dtype uint64"} <= set(tally.coverage.forms)
    assert tally.coverage.refused > 0.2 * tally.coverage.cases and 20 < given.count("uint16") < 0.1 * len(given)


def test_out_of_a_layout_has_the_dtypes_of_its_outputs():
    seen = set()

    def run(x, tensor_amax=None, variant="TE", tile=(1, 16), layout_out="bytes", out=None):
        right = golden("quantize_nvfp4")(x, tensor_amax=tensor_amax, variant=variant, tile=tile, layout_out=layout_out)
        for one, array in zip(out or (), right, strict=bool(out)):
            seen.add((one.dtype, array.dtype))
            one[...] = array
        return right if out is None else out

    params = {**OPERATIONS["quantize_nvfp4"].defaults(), "layout_out": "swizzled"}
    assert not asked_parts("quantize_nvfp4", run, params, most=8, outside=lambda case: "").wrong
    assert len(seen) > 1 and all(one == array for one, array in seen)


def test_a_form_that_is_known_to_be_refused_is_asked_without_what_is_refused_at_once():
    given = []

    def run(codes, dtype="float32"):
        given.append(codes.dtype.name)
        if codes.dtype == np.uint16:
            raise UnsupportedError("no uint16")
        return golden("decode_e8m0")(codes=codes, dtype=dtype)

    engine = engine_of(Subject("k", {"decode_e8m0": run}), "decode_e8m0", quick=False)
    params = OPERATIONS["decode_e8m0"].defaults()
    form = {"codes.dtype": "uint16", "codes.storage": "row gap", "codes.address": 4}
    row = {"rows": 3, "columns": 5, "form shape": "3x5", **form}
    asked_row = Asked(row, build("decode_e8m0", "HOPPER", params, row, 0), 0)
    counts = []
    for _ in range(2):
        structure._judge(engine, engine.judged[0], asked_row, run_golden(asked_row.case))
        counts.append((given.count("uint16"), given.count("uint8")))
        given.clear()
    (first, _), second = counts
    assert first > 2 and second[0] == 2 and 0 < second[1] < 3
    assert list(engine.tallies["k"].coverage.forms) == ["codes.dtype uint16"]


def test_what_a_subject_declares_outside_is_asked_once_a_field():
    """All parts count as refused; the golden model runs for no more than a field and one of its parts."""
    asked, subject = [], Subject("k", {"pack_payload": golden("pack_payload")}, outside=lambda case: "not here")
    engine = engine_of(subject, "pack_payload", quick=False)
    engine.progress.step = asked.append
    sweep.ask(engine, ("pack_payload", "HOPPER", {}), "full", {"k"}, lambda *_: False,
              functools.partial(structure._judge, engine))  # fmt: skip
    made = list(fields("pack_payload", "HOPPER", {}, "full"))
    tally = engine.tallies["k"]
    assert len(made) < len(asked) <= 2 * len(made) < sum(len(field.parts) for field in made)
    assert tally.coverage.refused >= sum(len(field.parts) for field in made)
    assert not tally.coverage.cases and not tally.compared and not tally.wrong
