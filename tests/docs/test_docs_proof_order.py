"""N18.9: the cases of every enumeration, made again from the text and compared with those that the proofs run."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.domains import domains_for
from refnum.conformance.cases.domains.wide import Alone, Cut, EveryPattern, Pinned
from refnum.conformance.commands.prove.sums import Sums

HALVES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
BF16 = ml_dtypes.bfloat16
F32 = {"input": "float32"}


def cases(operation, params, number, most=None):
    """The inputs of a domain's first cases, by its place in the order of the page."""
    domain = domains_for(operation, "HOPPER", params, "standard")[number]
    return [case.inputs for case in itertools.islice(domain.cases(), most)]


def unpacked(packed):
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").astype(np.int64)


def blocks_of_a_pin(width, pin, members):
    """Blocks of a pin as the table's legend says; a place without a member holds 0."""
    count = -(-len(members) // (width - 1))
    out = np.zeros((count, width), np.int64)
    for n in range(count):
        q = (n + n // width) % width
        out[n, q] = pin
        for t in range(1, width):
            if n * (width - 1) + t - 1 < len(members):
                out[n, (q + t) % width] = members[n * (width - 1) + t - 1]
    return out


def rows_of_1024(blocks):
    flat = blocks.reshape(-1)
    return np.concatenate([flat, np.zeros(-flat.size % 1024, flat.dtype)]).reshape(-1, 1024)


def test_decoders_and_dequantisers():
    assert (cases("decode_e4m3", {"dtype": "float32"}, 0)[0]["codes"] == np.arange(256)[None, :]).all()
    (both,) = cases("dequantize_mxfp4", {"dtype": "float32"}, 0)
    assert (both["packed"] == np.arange(256)[None, :]).all() and (both["scales"] == np.arange(256)[:, None]).all()
    (both,) = cases("dequantize_mx", {"element": "E2M1", "dtype": "float32"}, 0)
    assert (both["codes"] == np.arange(32) % 16).all() and (both["scales"] == np.arange(256)[:, None]).all()
    (both,) = cases("dequantize_fp8_tiles", {"tile": [1, 128], "dtype": "float32"}, 0)
    assert both["codes"].shape == (256, 256) and (both["codes"] == np.arange(256)).all()
    (both,) = cases("dequantize_fp8_tiles", {"tile": [128, 128], "dtype": "float32"}, 0)
    assert (both["codes"].reshape(2, 256, 128) == np.arange(256).reshape(2, 1, 128)).all()
    assert (both["scales"] == np.arange(256)).all()


def test_encoders():
    (x,) = cases("encode_e2m1", {"input": "bfloat16"}, 0)
    assert (bits(x["x"]) == np.arange(1 << 16).reshape(64, 1024)).all()
    (x,) = cases("encode_e2m1", F32, 0)
    n = np.arange(384 * 1024)
    assert (bits(x["x"]).reshape(-1) == (n // 6 << 16) + np.array(HALVES)[n % 6]).all()


@pytest.mark.parametrize("tile,width", [([1, 128], 128), (None, 32)])
def test_quantisers_one_maximum(tile, width):
    operation, params = ("quantize_fp8_tiles", {"tile": tile, **F32}) if tile else ("quantize_mxfp4", F32)
    n = np.arange((1 << 21) // width)
    expected = np.zeros((n.size, width), np.int64)
    expected[n, (5 * n + n // width) % width] = (n // 6 << 16) + np.array(HALVES)[n % 6]
    assert (bits(cases(operation, params, 0, 1)[0]["x"]) == rows_of_1024(expected)).all()


def test_quantisers_one_maximum_in_tall_tiles():
    found = cases("quantize_fp8_tiles", {"tile": [128, 128], "input": "bfloat16"}, 0, 1)[0]["x"]
    n = np.arange((1 << 21) // 128)
    expected = np.zeros((n.size, 128), np.int64)
    expected[n, (5 * n + n // 128) % 128] = n
    assert found.shape[0] == 1 and (bits(found) == expected.reshape(1, -1)).all()


@pytest.mark.parametrize("number,low", [(1, 0), (2, 1)])
def test_quantisers_pairs(number, low):
    import refnum

    found = bits(cases("quantize_mxfp4", F32, number, 1)[0]["x"]).reshape(-1, 32)
    upper = (np.arange(1, 0x7F80, dtype=np.uint32) << 16).view(np.float32)
    alone = np.zeros((upper.size, 32), np.float32)
    alone[:, 0] = upper
    byte = refnum.quantize_mxfp4(alone)[1][:, 0]
    begin = 0
    for s in range(3):
        top = int(bits(upper[byte == s])[-1]) >> 16
        magnitudes = np.arange(top + (low == 0))
        members = [int(m) << 16 | low | sign << 31 for m in magnitudes for sign in (0, 1)]
        blocks = blocks_of_a_pin(32, top << 16, members)
        assert (found[begin : begin + len(blocks)] == blocks).all(), s
        begin += len(blocks)


def test_quantisers_beside_nan_and_inf():
    nan, inf = cases("quantize_mxfp4", {"input": "bfloat16"}, 2)
    for found, pin in ((nan, 0x7FC0), (inf, 0x7F80)):
        assert (bits(found["x"]) == rows_of_1024(blocks_of_a_pin(32, pin, range(1 << 16)))).all()


def test_fp8_to_mxfp4():
    parts = [blocks_of_a_pin(32, top, [m // 2 | m % 2 << 7 for m in range(2 * (top + 1))]) for top in range(128)]
    row = np.concatenate(parts)
    row = np.concatenate([row, np.zeros((-len(row) % 4, 32), np.int64)]).reshape(-1)
    found = cases("fp8_to_mxfp4", {}, 0)
    assert [len(part["codes"]) for part in found[:-1]] == [(1 << 21) // row.size] * (len(found) - 1)
    codes, scales = (np.concatenate([part[name] for part in found]) for name in ("codes", "scales"))
    assert (codes == row).all() and codes.shape[0] == 256 and (scales == np.arange(256)[:, None]).all()


def maxima(mode):
    if mode == "max":
        return [(7, byte) for byte in range(255)]
    return [*((code, 0) for code in range(1, 6)), *((6, b) for b in range(255)), *((7, b) for b in range(255))]


def block_of(mode, largest, byte):
    """The block of a byte beside a maximum: codes 0 to 15, then in reverse; what would be larger is a zero."""
    code, top = largest
    value = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    larger = byte > top if mode == "max" else None
    out = []
    for c in range(16):
        above = larger if mode == "max" else value[c & 7] * 2.0 ** (byte - top) > value[code]
        out.append(c & 8 if above and byte != 255 and c & 7 else c)
    return out + out[::-1]


@pytest.mark.parametrize("mode", ["max", "amax"])
@pytest.mark.parametrize("number", [0, 9, 200])
def test_mxfp4_to_fp8(mode, number):
    case = cases("mxfp4_to_fp8", {"scale": mode}, 0)[number // 128]
    codes, scales = unpacked(case["packed"])[number % 128], case["scales"][number % 128]
    largest = maxima(mode)[number]
    pin = [0] * 9 + [largest[0]] + [0] * 22
    assert codes.size == 86 * 128
    for t in range(86):
        held = [(block_of(mode, largest, b), b) if b < 256 else ([0] * 32, 0) for b in range(3 * t, 3 * t + 3)]
        for place, (block, byte) in enumerate([(pin, largest[1]), *held]):
            at = 4 * t + (t + place) % 4
            assert codes[32 * at : 32 * at + 32].tolist() == block and scales[at] == byte


@pytest.mark.parametrize("operation,tall,last", [("mxfp4_to_fp8_columns", 128, 256), ("mxfp4_columns", 32, 255)])
@pytest.mark.parametrize("number", [0, 3, 130])
def test_mxfp4_columns(operation, tall, last, number):
    case, j = cases(operation, {"scale": "amax"}, 0)[number // 128], number % 128
    largest, segments = maxima("amax")[number], -(-last // (tall - 1))
    codes, scales = unpacked(case["packed"]), case["scales"][:, 0]
    for t in range(segments):
        first = (j * segments + t) * tall
        held = range(t * (tall - 1), (t + 1) * (tall - 1))
        rows = [([largest[0]] * 32, largest[1])]
        rows += [(block_of("amax", largest, b), b) if b < last else ([0] * 32, 0) for b in held]
        for place, (row, byte) in enumerate(rows):
            at = first + (5 * j + t + place) % tall
            assert codes[at].tolist() == row and scales[at] == byte


def test_fp8_columns():
    case = cases("fp8_columns", {"underflow": "rne"}, 0)[1]
    for s, t, row in itertools.product((16, 20, 31), range(3), range(128)):
        at = ((s - 16) * 3 + t) * 128 + row
        byte = 127 * t + row - 1
        if row == 0:
            expected, byte = [0x38] * 256, s
        elif byte > 255:
            expected, byte = [0] * 256, 0
        elif byte <= s or byte == 255:
            expected = list(range(256))
        else:
            expected = [0] * 128 + [0x80] + [0] * 127
        assert case["codes"][at].tolist() == expected and case["scales"][at].tolist() == [byte, byte]


def test_swiglu():
    gates = np.arange(1 << 16).reshape(64, 1024)
    (one,) = cases("swiglu_backward", {}, 0)
    assert (bits(one["gate"]) == gates).all() and (one["up"] == BF16(1)).all() and (one["grad"] == BF16(1)).all()
    many = cases("swiglu_quantize", {"to": "fp8"}, 1)
    assert [float(case["up"][0, 0]) for case in many] == [s * (1 + n / 128) for s in (1, -1) for n in range(128)]


def test_wide_every_pattern_and_alone():
    wide = EveryPattern("encode_e2m1", F32, "scale_byte", (3, 4), cut=Cut(1 << 12, 1 << 11))
    parts = list(wide.parts((1 << 32) // (1 << 12) + 1, np.empty(0, np.uint8)))
    assert [part.case.params["scale_byte"] for part in parts] == [4, 4]
    found = np.concatenate([bits(part.case.inputs["x"]) for part in parts])
    assert (found == np.arange(1 << 12, 2 << 12).reshape(-1, 1024)).all()
    wide = Alone("quantize_mxfp4", "HOPPER", F32, cut=Cut(1 << 13, 1 << 12))
    found = np.concatenate([bits(p.case.inputs["x"]) for p in wide.parts(5, np.empty(0, np.uint8))]).reshape(-1, 32)
    for row, b in zip(found, range(5 * 256, 6 * 256), strict=True):
        assert row[b % 32] == b and np.count_nonzero(row) == 1
    assert Cut() == Cut(1 << 28, Cut().part)


def test_wide_pinned():
    wide = Pinned("quantize_mxfp4", "HOPPER", F32, 32, nonfinite=False, bytes_=(0,), cut=Cut(1 << 14, 1 << 12))
    top = 0x01400000  # 6 * 2^-127, the largest float32 of byte 0
    for chunk in (0, 7):
        found = np.concatenate([bits(p.case.inputs["x"]) for p in wide.parts(chunk, np.empty(0, np.uint8))])
        for place, row in enumerate(found.reshape(-1, 32)):
            n = chunk * 512 + place
            assert row[n % 32] == top
            members = [n * 31 + t - 1 for t in range(1, 32)]
            assert [int(row[(n + t) % 32]) for t in range(1, 32)] == [m // 2 | m % 2 << 31 for m in members]
    last = np.concatenate([bits(p.case.inputs["x"]) for p in wide.parts(wide.chunks - 1, np.empty(0, np.uint8))])
    assert last.shape[1] == 1024 and wide.size == 2 * (top + 1)


def test_sums_and_products():
    fields = {"E4M3": (3, 15, 0x7E, 0x38), "E5M2": (2, 30, 0x7B, 0x3C)}
    formats = list(itertools.product(fields, fields))

    def top(fmt, field):
        bits, _, largest, _ = fields[fmt]
        return min(((field + 1) << bits) - 1, largest)

    def anchors(fmt):
        return sorted({1, fields[fmt][2], *(top(fmt, f) for f in (0, 8, 16, 24) if f <= fields[fmt][1])})

    def signed(some):
        return [*some, *(code + 128 for code in some)]

    def powers(fmt):
        bits, last, _, _ = fields[fmt]
        return [*(1 << b for b in range(bits)), *(f << bits for f in range(1, last + 1))]

    want = []
    for left, right in formats:
        for anchor in signed(anchors(left)):
            a, b = np.zeros((256, 33), np.uint8), np.zeros((256 * len(powers(right)), 33), np.uint8)
            a[:, 0], a[:, 32], b[:, 0] = anchor, np.arange(256), np.repeat(powers(right), 256)
            b[:, 32] = np.arange(len(b)) % 256
            want.append((a, b))
    for _left, right in formats:
        some = sorted({*anchors(right), fields[right][3]})
        want.append((list(itertools.product(range(256), repeat=2)), list(itertools.product(some, signed(some)))))
    for left, right in formats:
        terms, (_, _, largest, one) = signed([top(left, f) for f in range(fields[left][1] + 1)]), fields[right]
        factors = (1, one, largest)
        want.append((list(itertools.product(terms, repeat=3)), list(itertools.product(factors, factors, (one,)))))
    made = Sums()
    assert made.chunks == len(want)
    for chunk, (a, b) in enumerate(want):
        (part,) = made.parts(chunk, np.empty(0, np.uint8))
        assert np.array_equal(part.case.inputs["a"], a) and np.array_equal(part.case.inputs["b"], b)
    (codes,) = cases("matmul_fp8", {"order": "chain", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"}, 0)
    assert all(np.array_equal(x[:, 0], np.arange(256)) and x.shape == (256, 1) for x in codes.values())
    found = cases("matmul_bf16", {"order": "split2", "out": "float32"}, 0)
    places = [(field << 7 | sign << 15) for field in (1, 64, 103, 120, 127, 134, 190, 254) for sign in (0, 1)]
    for number, inputs in enumerate(found):
        a, b = (bits(inputs[name]) for name in "ab")
        assert a.shape == (4096, 130) and np.array_equal(a[:, 0], np.arange(4096) + 4096 * number)
        assert np.array_equal(b[:, 0], places) and (b[:, 1] == 0x3F80).all() and (a[:, 1] == 0x3F80).all()
        assert not a[:, 2:].any() and not b[:, 2:].any()
    assert len(found) == 16
