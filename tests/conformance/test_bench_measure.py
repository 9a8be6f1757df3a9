"""A whole run on a stand-in device: NumPy arrays and a host clock in place of CuPy and events."""

import time

import numpy as np
import pytest

import refnum
from conformance.bench import agree, document, inputs, lines, measure, shapes
from conformance.bench.clock import Times, sets_for
from conformance.bench.contender import Contender, Prepared, of_subject
from conformance.operation import OPERATIONS, call_golden
from conformance.subject import from_dict
from refnum.errors import ArgumentError

SHAPE = shapes.Shape(64, 3, 256, 4, 128)


class Host:
    """The interface of `clock.Clock` on the host; a copy has a made-up rate, so that shares can be checked."""

    xp = np
    RATE = 1e9

    def synchronize(self):
        pass

    def free(self):
        pass

    def time(self, calls, repeat):
        found = []
        for number in range(repeat):
            start = time.perf_counter()
            calls[number % len(calls)]()
            found.append(1e6 * (time.perf_counter() - start))
        return Times(tuple(found))

    def host_time(self, call, repeat=3):
        return self.time([call], 3).summary()["median"]

    def copy(self, nbytes, repeat):
        return self.RATE


def model(name, broken=False):
    """Return a launcher with `out`, as kernels have it; a broken one leaves its last byte unwritten."""

    def call(*arrays, out=None, **options):
        found = getattr(refnum, name)(*arrays, **options)
        found = found if isinstance(found, tuple) else (found,)
        if out is None:
            return found
        for target, source in zip(out, found, strict=True):
            flat, data = target.reshape(-1).view(np.uint8), np.ascontiguousarray(source).reshape(-1).view(np.uint8)
            flat[: flat.size - broken] = data[: flat.size - broken]
        return out

    def by_name(out=None, **options):
        return call(out=out, **options)

    return by_name


def subject(broken=False):
    names = {line.operation for line in lines.LINES}
    operations = {name: model(name, broken) for name in names}
    return from_dict({"name": "stand-in", "operations": operations, "arrays": "cupy"}, "here")


def records(plan):
    return list(measure.run(plan, Host()))


def plan(**given):
    one = subject(given.pop("broken", False))
    chosen = {"peers": (), "lines": lines.LINES, "shapes": (SHAPE,), "repeat": 2, **given}
    return measure.Plan(of_subject(one), **chosen)


@pytest.fixture(scope="module")
def whole():
    return records(plan())


def test_every_line_is_timed_and_equal(whole):
    assert [r["line"] for r in whole] == [line.label for line in lines.LINES]
    assert {(r["status"], r["agreement"], r["words"]) for r in whole} == {("timed", "equal", "")}
    assert all(r["compared"] > 0 and r["differing"] == 0 for r in whole)


def test_bytes_are_inputs_and_outputs_once(whole):
    by = {r["line"]: r for r in whole}
    assert by["BF16 -> MXFP4"]["bytes"] == 64 * 256 * 2 + 64 * 128 + 64 * 8
    assert by["FP8 -> MXFP4"]["bytes"] == 256 * 256 + 256 * 2 + 256 * 128 + 256 * 8
    record = by["FP8 -> MXFP4"]
    rate = record["bytes"] / (record["us"]["median"] * 1e-6)
    assert record["of_copy"] == pytest.approx(rate / Host.RATE, abs=1e-4)


def test_every_timed_operation_has_a_line():
    silent = {"quantize_mx", "dequantize_mx"} | {name for name in OPERATIONS if name.startswith(("encode_", "decode_"))}
    assert {line.operation for line in lines.LINES} == set(OPERATIONS) - silent


def test_an_unwritten_byte_is_seen():
    (record,) = records(plan(broken=True, lines=lines.select(["FP8 -> MXFP4"])))
    assert record["agreement"] == "differs"
    assert record["differing"] == 2  # the last byte of both outputs


def test_a_peer_that_fails_does_not_stop_the_others():
    def bad(line, case):
        raise ZeroDivisionError("no such\nlaunch")

    def good(line, case):
        return Prepared(lambda: call_golden(case), list(case.inputs.values()), list)

    peers = (Contender("bad", lambda line: "", bad), Contender("good", lambda line: "", good))
    found = records(plan(peers=peers, lines=lines.select(["pack_payload"]), peer_shapes=frozenset({SHAPE.name})))
    assert [(r["contender"], r["status"]) for r in found] == [
        ("stand-in", "timed"), ("bad", "failed"), ("good", "timed"),
    ]  # fmt: skip
    assert found[1]["words"] == "ZeroDivisionError in bad: no such launch"
    assert not records(plan(peers=peers, lines=lines.select(["pack_payload"])))[1:]  # not at this shape


def test_a_line_that_the_subject_lacks_is_recorded_with_the_reason():
    one = from_dict({"name": "few", "operations": {"pack_payload": model("pack_payload")}, "arrays": "cupy"}, "here")
    chosen = measure.Plan(of_subject(one), (), lines.select(["pack_payload", "unpermute"]), (SHAPE,), repeat=2)
    assert [(r["status"], r["words"]) for r in records(chosen)] == [
        ("timed", ""), ("not offered", "few has no unpermute"),
    ]  # fmt: skip


def test_host_time_of_every_operation():
    one = subject()
    found = list(measure.overheads(one, of_subject(one), lines.LINES, Host()))
    assert [call["operation"] for call in found] == list(dict.fromkeys(line.operation for line in lines.LINES))
    assert all(call["fresh_us"] > 0 and call["out_us"] > 0 for call in found)


@pytest.mark.parametrize("steps", [{0: 128, 1: 128}, {0: 2048, 1: 1024}])
def test_parts_cover_every_byte_once(steps, monkeypatch):
    monkeypatch.setattr(agree, "STEP", steps)
    for line in lines.LINES:
        case = inputs.make(np, line, shapes.Shape(160, 3, 288, 2, 416))
        whole = call_golden(case)
        found = agree.Golden(case).compare(whole)
        assert (found.compared, found.differing) == (sum(x.size for x in whole), 0), line.label
        for number, x in enumerate(whole):
            wrong = [y.copy() for y in whole]
            flat = wrong[number].reshape(-1).view(np.uint8)
            flat[-1] ^= 1
            assert agree.Golden(case).compare(wrong).differing == 1, (line.label, number, x.shape)


def test_other_bytes_of_equal_value_are_told_apart():
    case = inputs.make(np, lines.select(["FP8 -> MXFP4"])[0], SHAPE)
    packed, scales = (x.copy() for x in call_golden(case))
    row, block = np.argwhere((packed.reshape(256, 8, 16) & 0x77 == 0x22).all(-1) | True)[0]
    packed.reshape(256, 8, 16)[row, block], scales[row, block] = 0, 90  # a zero block has any scale
    golden = agree.Golden(case)
    for part in golden.parts:
        part.golden["packed"].reshape(256, 8, 16)[row, block], part.golden["scales"][row, block] = 0, 80
    assert golden.compare((packed, scales)).verdict == "values"
    packed[row, 16 * block] = 2
    assert golden.compare((packed, scales)).verdict == "differs"


def test_sets_are_larger_than_a_cache():
    assert sets_for(1 << 30) == 2
    assert sets_for(1 << 25) == 8
    assert sets_for(1) == 32


@pytest.mark.parametrize("shape", shapes.SHAPES.values(), ids=list(shapes.SHAPES))
def test_recipe_shapes_have_whole_blocks_and_give_every_row_away(shape):
    splits = shape.splits()
    assert len(splits) == shape.experts
    assert sum(splits) == shape.tokens * shape.top_k
    assert all(rows % 32 == 0 and rows >= 0 for rows in splits)
    assert shapes.parse(shape.name) == shape


def test_shapes_by_numbers():
    assert shapes.parse("64x96") == shapes.Shape(64, 1, 96, 1, 96)
    assert shapes.parse("64-3-256-4-128") == SHAPE
    for text in ("64", "64x", "64x33", "1-2-3", "axb", "0x32"):
        with pytest.raises(ArgumentError, match="--shape"):
            shapes.parse(text)


def test_an_operation_that_is_not_timed_is_refused():
    with pytest.raises(ArgumentError, match="selects nothing"):
        lines.select(["encode_e2m1"])


def test_the_document_has_its_schema(whole):
    head = document.header(["bench"], {"name": "Stand-in"}, [of_subject(subject())], [("peer", "why")])
    head |= {"repeat": 2, "copy_bytes_per_second": 1e9, "copy_again_bytes_per_second": 1e9, "seconds": 0.1}
    found = document.document(head, whole, [{"operation": "pack_payload", "fresh_us": 1.0, "out_us": None}])
    assert found["schema"] == "refnum.bench/1"
