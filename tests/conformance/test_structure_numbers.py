"""What numbers the parts of fields hold together: each with every storage, order of calls, argument and layout."""

import inspect
from collections import Counter, defaultdict
from functools import partial
from itertools import islice
from random import Random

import numpy as np
import pytest
from structure_tools import engine_of, golden

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.structure.cutting import ANOTHER_SHAPE, cutting
from refnum.conformance.cases.structure.factors import CASTS, ROUTED
from refnum.conformance.cases.structure.fields import CALL_TURNS, ENOUGH_TURNS, OTHERS, _turns, fields
from refnum.conformance.cases.structure.groups import DATA, Maker, groups
from refnum.conformance.cases.structure.numbers import (
    AREA,
    ENDS,
    MOST,
    RESIDUES,
    SMALL,
    TURNS,
    brief_pairs,
    few_pairs,
    pairs,
    tall_numbers,
    unit,
    wide_numbers,
)
from refnum.conformance.cases.structure.plan import DEAR, structure_rows, tables
from refnum.conformance.cases.structure.ragged import drawn
from refnum.conformance.commands.check import structure, sweep
from refnum.conformance.subjects.subject import Subject


def asked(operation, function, params=None, keep=lambda case: True):
    """Return the tally of a function judged on the fields that are kept."""
    subject = Subject("k", {operation: function})
    engine = engine_of(subject, operation, params, quick=False)
    key = operation, "HOPPER", params or OPERATIONS[operation].defaults()
    judged = partial(structure._judge, engine)
    sweep.ask(engine, key, "full", {"k"}, lambda _subject, case: not keep(case), judged)
    assert not engine.report.harness
    return engine.tallies["k"]


@pytest.mark.parametrize("operation", ["fp8_to_payload", "unpermute", "mxfp4_columns"])
def test_every_number_is_asked_often(operation):
    found = pairs(operation, 0.1, Random(0))
    rows, columns = defaultdict(int), defaultdict(int)
    for (tall, wide), times in found.items():
        rows[tall] += times
        columns[wide] += times
    even, large = 2 if OPERATIONS[operation].even_rows else 1, AREA // unit(operation)
    tall = [number for number in tall_numbers() if number % even == 0]
    assert all(rows[number] >= (TURNS // 2 if number > large else TURNS) for number in tall)
    assert all(columns[number] >= (TURNS // 2 if number > large else TURNS) for number in wide_numbers(operation))
    brief = brief_pairs(operation, Random(0))
    assert {size for _, size in brief} >= {*wide_numbers(operation)}


def test_every_number_of_columns_meets_every_storage_and_order_of_calls():
    storages, calls, outs = defaultdict(set), defaultdict(set), set()
    for field in fields("pack_payload", "HOPPER", {}, "full"):
        for part in field.parts:
            storages[part.row["columns"]].add(part.form.get("packed.storage", "contiguous"))
            calls[part.row["columns"]].add(part.calls)
            outs |= {part.calls} if "out" in part.form else set()
    for blocks in wide_numbers("pack_payload"):
        assert storages[32 * blocks] >= {"row gap", "element gap", "transposed", "reversed rows", "broadcast rows"}
        every = {*CALL_TURNS} - {ANOTHER_SHAPE}  # its scales have no other shape
        assert calls[32 * blocks] == every or (blocks > 66 and len(calls[32 * blocks]) >= len(every) - 1)
        assert outs == every


def test_every_value_of_a_number_that_is_an_argument_stands_beside_every_number_of_columns():
    key, met = ("encode_e2m1", "HOPPER", {"input": "float32"}), defaultdict(set)
    for _, levels, members in groups(Maker(*key, cutting(*key), tables(*key)), "full", Random(0)):
        met[levels.get("scale_byte")] |= {size for _, size, _ in members}
    for value in DATA["encode_e2m1"]["scale_byte"]:
        assert met[value] >= {*wide_numbers("encode_e2m1")}


def test_operands_of_a_product_are_given_without_scales_too():
    params = OPERATIONS["matmul_fp8"].defaults()
    given = {frozenset(field.case.inputs) for field in islice(fields("matmul_fp8", "HOPPER", params, "full"), 60)}
    assert {"a_scales" in one for one in given} == {"b_scales" in one for one in given} == {True, False}


def test_rows_are_cut_into_exactly_so_many_experts():
    counts = drawn("experts 43", 100, 32, 1, 5, False)
    assert len(counts) == 43 and sum(counts) == 100


@pytest.mark.parametrize(("rows", "even"), [(1, False), (5, False), (66, False), (1025, False), (2, True), (96, True)])
def test_balanced_and_rising_experts_have_exactly_so_many_rows(rows, even):
    for seed in range(20):
        (*first, last), rising = (drawn(way, rows, 32, 1, seed, even) for way in ("balanced", "rising"))
        assert sum(first) + last == sum(rising) == rows and last <= min(first, default=last) and len({*first}) < 2
        assert rows < 6 or rising in (sorted({*rising}), sorted({*rising}, reverse=True))


def wrong(operation, holds):
    """Return a kernel that flips a bit of its last result where a condition on its keywords holds."""

    def run(**keywords):
        right = golden(operation)(**keywords)
        if holds(keywords):
            last = np.array((right if isinstance(right, tuple) else (right,))[-1], order="C")
            last.reshape(-1).view(np.uint8)[-1] ^= 1
            return (*right[:-1], last) if isinstance(right, tuple) else last
        return right

    run.__signature__ = inspect.signature(golden(operation))
    return run


def test_a_number_of_columns_beside_a_layout_is_told():
    params = {**OPERATIONS["quantize_mxfp4"].defaults(), "layout_out": "swizzled"}
    kernel = wrong("quantize_mxfp4", lambda given: given["x"].shape[1] == 32 * 43)
    tally = asked("quantize_mxfp4", kernel, params, lambda case: case.inputs["x"].shape[1] in (32 * 43, 32 * 44))
    assert tally.wrong and {one.case.inputs["x"].shape[1] for one in tally.failures} == {32 * 43}
    right = asked("quantize_mxfp4", golden("quantize_mxfp4"), params, lambda case: case.inputs["x"].shape[1] < 100)
    assert right.structural > 20 and not right.wrong and not right.coverage.forms


def test_a_layout_that_is_read_is_right_of_a_right_kernel():
    params = {**OPERATIONS["dequantize_mxfp4"].defaults(), "layout_in": "packed_ue8m0"}
    kernel = golden("dequantize_mxfp4")
    tally = asked("dequantize_mxfp4", kernel, params, lambda case: case.inputs["packed"].shape[1] < 60)
    assert tally.structural > 20 and not tally.wrong and not tally.coverage.forms


def test_a_number_of_columns_after_a_refusal_is_told():
    refused = [False]

    def run(packed, scales):
        before, refused[0] = refused[0], packed.ndim != 2
        right = golden("pack_payload")(packed, scales)
        return right[:, ::-1].copy() if before and packed.shape[1] == 16 * 41 else right

    tally = asked("pack_payload", run, keep=lambda case: case.inputs["packed"].shape[-1] in (16 * 41, 16 * 42))
    assert tally.wrong and {one.case.inputs["packed"].shape[1] for one in tally.failures} == {16 * 41}


def test_rows_cut_over_experts_are_told_beside_a_number_of_columns():
    def holds(given):
        return len(given["splits"]) == 43 and given["payload"].shape[1] > 17

    tally = asked("permute_pad", wrong("permute_pad", holds), keep=lambda case: len(case.params["splits"]) == 43)
    assert tally.wrong


@pytest.mark.parametrize("operation", sorted(set(DEAR) - ROUTED - CASTS))
def test_more_than_two_to_the_20_elements_are_asked_at_whatever_price(operation):
    variant = next(iter(OPERATIONS[operation].variants()))
    rows = structure_rows(operation, "HOPPER", variant, "full")
    assert any(int(row.get("rows", 0)) * int(row.get("columns", 0)) > 1 << 20 for row in rows)


def test_a_dear_operation_is_asked_ends_of_residues_beside_the_most_columns():
    found = pairs("swiglu_backward", 0.175, Random(0))
    assert all(any(tall == rows and tall * wide > 0.6 * MOST for tall, wide in found) for rows in ENDS)


def test_an_input_of_one_element_stands_beside_numbers_of_both_sides():
    found = few_pairs("sawb", Random(0), 1, MOST)
    rows, columns = ({pair[side] for pair in found} for side in (0, 1))
    assert rows > {*tall_numbers()} and rows & {*RESIDUES} and columns >= {*wide_numbers("sawb"), MOST}


def test_what_is_not_cut_is_asked_most_pairs_of_small_numbers():
    every = (part.row for field in fields("sawb", "HOPPER", {"input": "float32"}, "full") for part in field.parts)
    met = {(row["rows"], row["columns"]) for row in every if max(row["rows"], row["columns"]) <= SMALL[-1]}
    assert len(met) > 0.8 * len(SMALL) ** 2


def test_a_number_that_was_asked_in_every_form_is_asked_in_those_that_show_most():
    met = Counter()
    turns = [list(_turns("decode_e8m0", 66, wide, 1, met)) for wide in range(1, 66)]
    assert {turn % 8 for of in turns[:TURNS] for turn in of} == {*range(8)}
    assert all(len(of) == 1 and of[0] % 8 in OTHERS for of in turns[ENOUGH_TURNS:])
