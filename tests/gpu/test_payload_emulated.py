"""Payload rows and the way back under every cut that the launchers may choose, on the emulated device."""

import numpy as np
import pytest

import refnum
from refnum.gpu import emulate, ops
from refnum.gpu.device import plans
from refnum.gpu.ops import rowwise

pytestmark = pytest.mark.usefixtures("emulator")


def on_device(*arrays):
    return [emulate.array(x) for x in arrays]


def equal(got, want):
    wants = want if isinstance(want, tuple) else (want,)
    gots = got if isinstance(got, tuple) else (got,)
    assert all(np.array_equal(g, w) for g, w in zip(gots, wants, strict=True))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_several_rows_a_warp(rows, monkeypatch):
    monkeypatch.setattr("refnum.gpu.ops.payload_rows.SHORT", rowwise.Grid(128, 4, 16, 1, rows))
    rng = np.random.default_rng(rows)
    for k, tokens, splits in ((1280, 9, [5, 0, 7, 1]), (512, 3, [2, 33]), (96, 6, [1])):
        payload = rng.integers(0, 256, (tokens, k // 32 * 17), np.uint8)
        row_map = rng.integers(0, tokens, sum(splits))
        for name in ("permute_pad", "permute_unpack"):
            equal(getattr(ops, name)(*on_device(payload, row_map), splits, 8),
                  getattr(refnum, name)(payload, row_map, splits, 8))  # fmt: skip
        parts = refnum.unpack_payload(payload)
        equal(ops.unpack_payload(*on_device(payload)), parts)
        equal(ops.pack_payload(*on_device(*parts)), payload)


@pytest.mark.parametrize("k", [96, 512, 1280])  # payload rows of 51, 272 and 680 bytes
@pytest.mark.parametrize("start", [0, 1])  # input rows at multiples of 16 bytes, or not
def test_quantised_whatever_is_aligned(k, start):
    rng = np.random.default_rng(k)
    room = np.zeros((7, k + start), np.float32)
    x = room[:, start:]
    x[...] = rng.standard_normal((7, k)) * 8
    equal(ops.quantize_payload(*on_device(x)), refnum.quantize_payload(x))
    codes, scales = refnum.quantize_fp8_tiles(x)
    loose = np.zeros((7, k + start), np.uint8)[:, start:]
    loose[...] = codes
    equal(ops.fp8_to_payload(*on_device(loose, scales)), refnum.fp8_to_payload(codes, scales))


def launches_of(monkeypatch, machine, tokens, taken, columns):
    """Launches of a sum, none of which runs."""
    fired = []
    with monkeypatch.context() as patched:
        patched.setattr(machine, "function", lambda *asked: 0)
        patched.setattr(machine, "fire", lambda frame, device: fired.append(frame))
        rows, row_map = np.zeros((taken, columns), np.uint16), np.zeros(taken, np.int32)
        ops.unpermute(*on_device(rows, row_map), [taken], None, tokens, 1)
    return len(fired)


@pytest.mark.parametrize(
    ("tokens", "taken", "columns", "launches"),
    [
        (512, 4096, 7168, 1),  # measured: as fast as three
        (512, 4097, 64, 3),
        (4096, 64, 1024, 1),
        (4096, 4096, 1024, 1),
        (4097, 4096, 1024, 3),  # a CTA more
        (4096, 4096, 1028, 3),  # a second warp a token
        (4097, 0, 1024, 1),
    ],
)
def test_few_rows_of_many_tokens_are_not_looked_for_by_every_block(
    tokens, taken, columns, launches, monkeypatch, emulator
):
    assert launches_of(monkeypatch, emulator, tokens, taken, columns) == launches


@pytest.mark.parametrize("together", [0, 1 << 20])
@pytest.mark.parametrize("columns", [5, 128, 1056, 2052])
def test_unpermute_with_lists_in_memory_or_without(together, columns, monkeypatch):
    monkeypatch.setattr("refnum.gpu.ops.payload_sum.TOGETHER", together)
    rng = np.random.default_rng(columns)
    for tokens, splits in ((1, [0, 40, 3]), (7, [33, 0, 18]), (9, [5]), (3, [0, 0])):  # 43 rows pass what a list holds
        count, total = sum(splits), sum(-(-n // 8) * 8 for n in splits)
        rows = rng.standard_normal((total, columns), np.float32)
        row_map = rng.integers(-1, tokens + 1, count) if tokens > 1 else np.zeros(count, np.int64)
        weights = rng.standard_normal(count, np.float32)
        kept = np.where((row_map >= 0) & (row_map < tokens), row_map, tokens)
        want = refnum.unpermute(rows, kept, splits, weights, tokens + 1, 8)[:tokens]
        for _ in range(2):
            given = on_device(rows, row_map)
            got = ops.unpermute(*given, splits, emulate.array(weights), tokens, 8)
            assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


COUNTS = {
    "as by splits of the host": ([33, 0, 18, 0], np.int32, 51, 64),
    "one expert": ([20], np.int32, 20, 24),
    "one expert behind as many as threads": ([0] * 1024 + [9], np.int16, 9, 16),
    "no expert": ([], np.int64, 5, 8),
    "negative and too many": ([-1, 37, 1000, 4, 3], np.int16, 41, 64),
    "fewer rows than the map has": ([40, 3], np.uint8, 60, 48),
    "rows that are not there": ([7, 0, 9, 40], np.int8, 56, 14),
    "no row at all": ([7, 9], np.uint16, 16, 0),
    "no entry of the map": ([0, 5], np.int64, 0, 8),
    "beyond 63 bits": ([1 << 63, 20, (1 << 64) - 1, 5], np.uint64, 25, 32),
    "more experts than threads": ([2, 0, 1] * 500, np.uint32, 1500, 8 * 1000),
}
"""Counts on the device, their dtype, rows of the map, and expert rows padded to 8."""


def summed_by_counts(rows, row_map, counts, weights, tokens, align):
    """The sums of the rows that there are, taken one after the other without padding."""
    there = [n if 0 <= n <= row_map.size else 0 for n in counts]
    first = np.cumsum([0, *(-(-n // align) * align for n in there)])
    places = np.array([start + i for start, n in zip(first, there, strict=False) for i in range(n)], np.int64)
    places = places[: row_map.size]
    taken = row_map[: places.size]
    kept = np.flatnonzero((places < rows.shape[0]) & (taken >= 0) & (taken < tokens))
    factors = None if weights is None else weights[kept]
    return refnum.unpermute(rows[places[kept]], row_map[kept], [kept.size], factors, tokens, 1)


@pytest.mark.parametrize("together", [0, 1 << 20], ids=["lists in memory", "no lists"])
@pytest.mark.parametrize("what", list(COUNTS))
def test_unpermute_by_splits_on_the_device(what, together, monkeypatch):
    monkeypatch.setattr("refnum.gpu.ops.payload_sum.TOGETHER", together)
    counts, dtype, mapped, total = COUNTS[what]
    rng = np.random.default_rng(mapped)
    for step, tokens, columns, kind in ((1, 7, 128, np.float32), (-2, 1, 5, np.uint16), (3, 9, 2052, np.float32)):
        splits = np.repeat(np.array(counts, dtype)[:: 1 if step > 0 else -1], abs(step))[::step]
        assert splits.tolist() == counts
        rows = rng.standard_normal((total, columns), np.float32)
        rows = rows.view(np.uint16)[:, 1::2].copy() if kind == np.uint16 else rows
        row_map = rng.integers(-1, tokens + 1, mapped) if tokens > 1 else np.zeros(mapped, np.int32)
        for weights in (rng.standard_normal(mapped, np.float32), None):
            want = summed_by_counts(rows, row_map, counts, weights, tokens, 8)
            factors = None if weights is None else emulate.array(weights)
            outs = [None, emulate.array(np.full_like(want, 7), written=True)]
            for out in (*outs, None):  # the last by a plan
                got = ops.unpermute(*on_device(rows, row_map, splits), factors, tokens, 8, out=out)
                assert got.view(np.uint32).tolist() == want.view(np.uint32).tolist()


def test_a_plan_of_a_sum_reads_what_splits_on_the_device_hold_now():
    rows, row_map, splits = np.ones((12, 32), np.float32), np.arange(8), np.array([8, 0])
    rows[8:] = 2
    given = on_device(rows, row_map, splits)
    for counts in ([8, 0], [1, 7], [-3, 8], [5, 9]):
        splits[:] = counts
        got = ops.unpermute(*given, None, 8, 4)
        assert np.array_equal(got, summed_by_counts(rows, row_map, counts, None, 8, 4))
    assert len(plans._plans) == 1
