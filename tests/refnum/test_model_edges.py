"""Edges that only a large, an empty or a rare input meets: chunks, widths of 0, classes of blocks, floors, byte 0."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import refnum as R
from refnum import arrays
from refnum.digest import model_digest
from refnum.errors import ShapeError

ROWS, K = 700, 160
SPLITS = [130, 2, 0, 368, 200]
CHUNKED = 256 * K
"""Elements of two rows of 128 x 128 tiles: three chunks of rows, the last of them short."""


def some_bytes(shape, stream, low=0, high=256):
    drawn = np.random.default_rng(stream).integers(low, high, shape)
    return drawn.astype(np.uint8)


X = (np.random.default_rng(1).standard_normal((ROWS, K)) * 2.0 ** np.arange(-350, 350)[:, None].clip(-60, 60)).astype(
    np.float32
)
PACKED, SCALES = some_bytes((ROWS, K // 2), 2), some_bytes((ROWS, K // 32), 3, 110, 135)
CODES, TILES = some_bytes((ROWS, K), 4), some_bytes((ROWS, 2), 5, 110, 135)
LARGE_TILES = some_bytes((6, 2), 6, 110, 135)
Y = np.ldexp(np.random.default_rng(7).standard_normal((ROWS, K), np.float32), np.arange(ROWS)[:, None] % 9)
Z, BYTES, ONE = Y[:, :128].copy(), some_bytes((ROWS, K), 8), np.ones(1, np.float32)
WORDS = np.random.default_rng(9).integers(0, 1 << 23, (2, ROWS, K), np.uint32)

CALLS = {
    "quantize_mxfp4": lambda: R.quantize_mxfp4(X),
    "quantize_mx": lambda: R.quantize_mx(X, "E5M2"),
    "dequantize_mxfp4": lambda: R.dequantize_mxfp4(PACKED, SCALES),
    "dequantize_mx": lambda: R.dequantize_mx(CODES & 15, SCALES),
    "quantize_fp8_tiles": lambda: R.quantize_fp8_tiles(X),
    "quantize_fp8_tiles 128x128": lambda: R.quantize_fp8_tiles(X, (128, 128)),
    "dequantize_fp8_tiles": lambda: R.dequantize_fp8_tiles(CODES, TILES),
    "dequantize_fp8_tiles 128x128": lambda: R.dequantize_fp8_tiles(CODES, LARGE_TILES, (128, 128)),
    "fp8_to_mxfp4": lambda: R.fp8_to_mxfp4(CODES, TILES),
    "mxfp4_to_fp8": lambda: R.mxfp4_to_fp8(PACKED, SCALES, "amax"),
    "mxfp4_to_fp8_columns": lambda: R.mxfp4_to_fp8_columns(PACKED, SCALES, SPLITS),
    "mxfp4_to_fp8_columns amax": lambda: R.mxfp4_to_fp8_columns(PACKED, SCALES, SPLITS, "amax"),
    "mxfp4_columns": lambda: R.mxfp4_columns(PACKED, SCALES, SPLITS),
    "mxfp4_columns max": lambda: R.mxfp4_columns(PACKED, SCALES, SPLITS, "max"),
    "fp8_columns": lambda: R.fp8_columns(CODES, TILES, SPLITS),
    "fp8_columns te": lambda: R.fp8_columns(CODES, TILES, SPLITS, "te"),
    "quantize_nvfp4": lambda: R.quantize_nvfp4(Y),
    "quantize_nvfp4 16x16": lambda: R.quantize_nvfp4(Y, "FOUR_OVER_SIX", tile=(16, 16)),
    "quantize_nvfp4 random": lambda: R.quantize_nvfp4(Y, rbits=BYTES),
    "dequantize_nvfp4": lambda: R.dequantize_nvfp4(PACKED, CODES[:, :10], ONE),
    "dequantize_nvfp4 16x16": lambda: R.dequantize_nvfp4(PACKED, CODES[:44, :10], ONE, tile=(16, 16)),
    "hadamard16": lambda: R.hadamard16(Y),
    "hadamard16 columns": lambda: R.hadamard16(Y, axis=0, order="sequential", dtype="float32"),
    "quantize_tetrajet": lambda: R.quantize_tetrajet(Y, rbits=BYTES),
    "quantize_tetrajet columns": lambda: R.quantize_tetrajet(Y, 0),
    "q_ema": lambda: R.q_ema(Y, np.roll(Y, 1, axis=1)),
    "q_ema columns": lambda: R.q_ema(Y, np.roll(Y, 1, axis=1), 0),
    "dequantize_tetrajet": lambda: R.dequantize_tetrajet(PACKED, SCALES),
    "dequantize_tetrajet columns": lambda: R.dequantize_tetrajet(PACKED, CODES[:22], 0),
    "quantize_tetrajet_v2": lambda: R.quantize_tetrajet_v2(Z),
    "quantize_tetrajet_v2 noise": lambda: R.quantize_tetrajet_v2(Z, 5),
    "luq": lambda: R.luq(Y, *WORDS),
    "dequantize_luq": lambda: R.dequantize_luq(PACKED, ONE),
    "radix4": lambda: R.radix4(Y, -5),
    "dequantize_radix4": lambda: R.dequantize_radix4(PACKED, -5),
}


def bits_of(result):
    results = result if isinstance(result, tuple) else (result,)
    return [(array.shape, array.dtype, array.tobytes()) for array in results]


@pytest.mark.parametrize("name", CALLS)
def test_the_size_of_a_chunk_changes_no_bit(name, monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK", 1 << 30)
    whole = bits_of(CALLS[name]())
    monkeypatch.setattr(arrays, "CHUNK", CHUNKED)
    assert bits_of(CALLS[name]()) == whole


def test_random_bits_by_key_are_those_of_the_stream_in_every_chunk(monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK", CHUNKED)
    drawn = R.philox.random_bits((ROWS, K), 8, seed=1, stream=2, step=3, offset=64)
    by_key = R.quantize_mxfp4(X, "STOCHASTIC", philox=(1, 2, 3, 64))
    assert bits_of(by_key) == bits_of(R.quantize_mxfp4(X, "STOCHASTIC", rbits=drawn))
    for quantise in (R.quantize_nvfp4, R.quantize_tetrajet):
        assert bits_of(quantise(Y, philox=(1, 2, 3, 64))) == bits_of(quantise(Y, rbits=drawn))


def zeros(*shape):
    return np.zeros(shape, np.uint8)


NO_COLUMNS = {
    "quantize_mxfp4": (lambda m: R.quantize_mxfp4(np.zeros((m, 0), np.float32)), [(3, 0), (3, 0)]),
    "quantize_mx": (lambda m: R.quantize_mx(np.zeros((m, 0), np.float32), "E4M3"), [(3, 0), (3, 0)]),
    "dequantize_mxfp4": (lambda m: R.dequantize_mxfp4(zeros(m, 0), zeros(m, 0)), [(3, 0)]),
    "dequantize_mx": (lambda m: R.dequantize_mx(zeros(m, 0), zeros(m, 0)), [(3, 0)]),
    "quantize_fp8_tiles": (lambda m: R.quantize_fp8_tiles(np.zeros((m, 0), np.float32)), [(3, 0), (3, 0)]),
    "quantize_fp8_tiles 128x128": (
        lambda m: R.quantize_fp8_tiles(np.zeros((m, 0), np.float32), (128, 128)), [(3, 0), (1, 0)],
    ),
    "dequantize_fp8_tiles": (lambda m: R.dequantize_fp8_tiles(zeros(m, 0), zeros(m, 0)), [(3, 0)]),
    "fp8_to_mxfp4": (lambda m: R.fp8_to_mxfp4(zeros(m, 0), zeros(m, 0)), [(3, 0), (3, 0)]),
    "mxfp4_to_fp8": (lambda m: R.mxfp4_to_fp8(zeros(m, 0), zeros(m, 0)), [(3, 0), (3, 0)]),
    "mxfp4_to_fp8_columns": (lambda m: R.mxfp4_to_fp8_columns(zeros(m, 0), zeros(m, 0)), [(0, 3), (1, 0)]),
    "mxfp4_to_fp8_rows_columns": (
        lambda m: R.mxfp4_to_fp8_rows_columns(zeros(m, 0), zeros(m, 0)), [(3, 0), (3, 0), (0, 3), (1, 0)],
    ),
    "mxfp4_columns": (lambda m: R.mxfp4_columns(zeros(m + 1, 0), zeros(m + 1, 0)), [(0, 2), (1, 0)]),
    "fp8_columns": (lambda m: R.fp8_columns(zeros(m, 0), zeros(m, 0)), [(0, 3), (1, 0)]),
    "fp8_to_payload": (lambda m: R.fp8_to_payload(zeros(m, 0), zeros(m, 0)), [(3, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_COLUMNS)
def test_no_columns_give_empty_outputs_of_their_shape(name):
    call, shapes = NO_COLUMNS[name]
    assert [shape for shape, _, _ in bits_of(call(3))] == shapes


EDGES = (
    ("Z", 0, 0), ("T", 1, (3 << 23) - 1), ("F", 3 << 23, (253 << 23) - 1), ("H", 253 << 23, (255 << 23) - 1),
    ("I", 255 << 23, 255 << 23), ("N", (255 << 23) + 1, 0x7FFFFFFF),
)  # fmt: skip
"""Class, first and last magnitude as float32 bits (N17): 2**-124 has exponent field 3, 2**126 has 253."""


@pytest.mark.parametrize(("name", "first", "last"), EDGES, ids=[row[0] for row in EDGES])
def test_block_class_at_both_ends_of_every_class(name, first, last):
    bits = np.zeros((4, 64), np.uint32)
    bits[0, 5], bits[1, 31], bits[2, 0], bits[3, 63] = first, last, first | 1 << 31, last | 1 << 31
    found = R.block_class(bits.view(np.float32))
    assert found.dtype == np.uint8
    assert bytes(found) == (name + "Z" + name + "Z" + name + "Z" + "Z" + name).encode()


def test_block_class_takes_the_largest_of_a_block():
    x = np.zeros((5, 32), np.float32)
    x[0, :2], x[1, :2], x[2, :2], x[3, :2] = (1e-40, -1), (1, 2.0**127), (2.0**127, -np.inf), (np.inf, np.nan)
    assert bytes(R.block_class(x)) == b"FHINZ"


def test_one_row_of_128_is_the_tile_that_is_meant():
    assert bits_of(R.dequantize_fp8_tiles(CODES, TILES)) == bits_of(R.dequantize_fp8_tiles(CODES, TILES, (1, 128)))
    assert bits_of(R.quantize_fp8_tiles(X)) == bits_of(R.quantize_fp8_tiles(X, (1, 128)))


@pytest.mark.parametrize("layout", R.layouts.LAYOUTS)
def test_recasts_read_and_write_scales_in_every_layout(layout):
    def laid(scales):
        return R.layouts.scales_to_layout(scales, layout)

    def asked(result):
        return bits_of((result[0], laid(result[1])))

    assert bits_of(R.quantize_fp8_tiles(X, layout_out=layout)) == asked(R.quantize_fp8_tiles(X))
    assert bits_of(R.quantize_fp8_tiles(X, (128, 128), layout_out=layout)) == asked(R.quantize_fp8_tiles(X, (128, 128)))
    for scales, tile in ((TILES, (1, 128)), (LARGE_TILES, (128, 128))):
        read = R.dequantize_fp8_tiles(CODES, laid(scales), tile, layout_in=layout)
        assert bits_of(read) == bits_of(R.dequantize_fp8_tiles(CODES, scales, tile))
    both = {"layout_in": layout, "layout_out": layout}
    assert bits_of(R.fp8_to_mxfp4(CODES, laid(TILES), **both)) == asked(R.fp8_to_mxfp4(CODES, TILES))
    assert bits_of(R.mxfp4_to_fp8(PACKED, laid(SCALES), **both)) == asked(R.mxfp4_to_fp8(PACKED, SCALES))


@pytest.mark.parametrize("rule", ["rceil", "floor", "ceil", "even"])
@pytest.mark.parametrize("floor", [1 << 23, (120 << 23) | 1, (127 << 23) + 0x400000, (130 << 23) - 1])
def test_floors_of_amax_count_to_their_last_bit(rule, floor):
    """An E4M3 block below the floor has the byte of the floor, as the float32 block of its values has."""
    profile = R.Profile("floored", scale_rule=rule, amax_floor=floor)
    codes = (CODES & 0x87)[:64]  # subnormals
    x = R.dequantize_fp8_tiles(codes, TILES[:64])
    assert bits_of(R.fp8_to_mxfp4(codes, TILES[:64], profile)) == bits_of(R.quantize_mxfp4(x, profile))


def test_the_odd_split_that_is_named_is_the_first_one():
    with pytest.raises(ShapeError, match=r"odd row count, 3;"):
        R.mxfp4_columns(PACKED[:12], SCALES[:12], [4, 3, 5])


@pytest.mark.parametrize("underflow", ["rne", "te"])
@pytest.mark.parametrize("code", [0x01, 0x81, 0x08, 0x7E, 0x7F])
def test_a_row_of_one_code_takes_part_whatever_it_is(code, underflow):
    codes, scales = zeros(3, 128), np.array([[90], [200], [250]], np.uint8)
    codes[0], codes[1, 77] = 0x38, code
    assert (R.fp8_columns(codes, scales, None, underflow)[1] == 200).all()


@pytest.mark.parametrize("underflow", ["rne", "te"])
@pytest.mark.parametrize("byte", [0, 1, 254])
def test_fp8_columns_of_edge_bytes(byte, underflow):
    codes = np.tile(np.arange(128, dtype=np.uint8), (4, 1))
    out, scales = R.fp8_columns(codes, np.full((4, 1), byte, np.uint8), None, underflow)
    assert (scales == byte).all()
    kept = codes if underflow == "rne" else np.where((codes & 0x78) == 0, 0, codes)  # `te` has no subnormals
    kept[:, 0x7F] = 0x7F
    assert np.array_equal(out, kept.T)


@pytest.mark.parametrize("byte", [0, 1, 127, 254])
def test_mxfp4_columns_of_one_byte_keep_it(byte):
    packed = np.tile(np.arange(16, dtype=np.uint8) | 0x50, (32, 1))
    out, scales = R.mxfp4_columns(packed, np.full((32, 1), byte, np.uint8), None, "max")
    assert (scales == byte).all()
    assert np.array_equal(arrays.unpack_nibbles(out), arrays.unpack_nibbles(packed).T)


@pytest.mark.parametrize("byte", [0, 5, 6, 7, 254])
def test_mxfp4_to_fp8_of_one_byte_is_six_lower_and_no_less_than_0(byte):
    packed, scales = np.full((1, 64), 0x22, np.uint8), np.full((1, 4), byte, np.uint8)
    out, tiles = R.mxfp4_to_fp8(packed, scales)
    assert tiles.item() == max(byte - 6, 0)
    assert (out == R.encode("E4M3", np.full(1, 2.0 ** (byte - tiles.item()), np.float32))).all()


@pytest.mark.parametrize("underflow", ["rne", "te"])
def test_fp8_columns_turn_a_nan_tile_into_nan_codes_alone(underflow):
    codes = np.tile(np.arange(256, dtype=np.uint8), (2, 1))
    out, scales = R.fp8_columns(codes, np.array([[255, 127], [127, 255]], np.uint8), None, underflow)
    assert (out[:128, 0] == 0x7F).all() and (out[128:, 1] == 0x7F).all()
    assert out[0x38, 1] == 0x38 and out[0xB8, 0] == 0xB8 and (scales == 127).all()


def test_every_float16_is_widened_exactly_and_a_nan_keeps_its_sign_and_payload():
    every = np.arange(1 << 16, dtype=np.uint16)
    number = every.view(np.float16)
    nan = (every & 0x8000).astype(np.uint32) << 16 | np.uint32(0x7F800000) | (every & 0x3FF).astype(np.uint32) << 13
    want = np.where(np.isnan(number), nan, number.astype(np.float32).view(np.uint32))
    assert np.array_equal(arrays.float32_bits(number), want)


def test_the_model_s_digest_is_that_of_its_files_names_and_bytes_in_order():
    root = Path(R.__file__).parent
    files = sorted([*root.glob("*.py"), *(root / "oracle").glob("*.py")])
    parts = (
        f"{one.relative_to(root).as_posix()}\0".encode() + hashlib.sha256(one.read_bytes()).digest() for one in files
    )
    assert model_digest() == f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"
