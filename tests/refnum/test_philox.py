"""Philox4x32 against Random123's known answers, and the stated stream layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import refnum
from refnum import philox
from refnum.errors import ArgumentError, ShapeError

ONES = 0xFFFFFFFF
PI = ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
KNOWN = [  # rounds, counter, key, output: Random123 kat_vectors
    (10, (0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (10, (ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (10, *PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    (7, (0, 0, 0, 0), (0, 0), (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
    (7, (ONES,) * 4, (ONES,) * 2, (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662)),
    (7, *PI, (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A)),
]


@contextmanager
def little_memory() -> Iterator[None]:
    """What asks for more memory than there is has failed, as much as a wrong answer."""
    try:
        yield
    except MemoryError as error:
        pytest.fail(f"a few elements asked for more memory than there is: {error}")


@pytest.mark.parametrize("rounds, counter, key, output", KNOWN)
def test_known_answers(rounds: int, counter: tuple, key: tuple, output: tuple) -> None:
    assert tuple(int(w) for w in philox.philox4x32(counter, key, rounds)) == output
    words = [np.full(3, c, np.uint32) for c in counter]
    for lane, expected in zip(philox.philox4x32(words, key, rounds), output, strict=True):
        assert lane.dtype == np.uint32 and lane.tolist() == [expected] * 3
    assert rounds != 10 or tuple(int(w) for w in philox.philox4x32(counter, key)) == output


@pytest.mark.parametrize(("offset", "n"), [(0, 1), (3, 1), (3, 2), (400, 8), (401, 8)])
@pytest.mark.parametrize(("draw", "size"), [(philox.random_words, 16), (philox.random_bytes, 4)])
def test_what_is_made_of_a_stream_is_what_holds_the_part(draw: Callable, size: int, offset: int, n: int) -> None:
    """Blocks for words, words for bytes: a part that lies far out takes no more memory than the first one."""
    part = draw(n, 9, offset=offset)
    assert part.base is not None and part.base.nbytes == size * ((offset + n - 1) // 4 - offset // 4 + 1)


def _plain(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 once more, in Python integers."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & ONES, (a >> 32) ^ counter[3] ^ key[1], a & ONES]
        key = [(key[0] + 0x9E3779B9) & ONES, (key[1] + 0xBB67AE85) & ONES]
    return counter


@pytest.mark.parametrize("seed, stream, step", [(0, 0, 0), (2**64 - 1, ONES, ONES), (0x123456789ABCDEF0, 5, 77)])
def test_stream_layout(seed: int, stream: int, step: int) -> None:
    base = (1 << 32) - 3  # the block index carries into the second counter word here
    with little_memory():
        words = philox.random_words(24, seed, stream, step, offset=4 * base)
        octets = philox.random_bytes(96, seed, stream, step, offset=16 * base)
    for b in range(6):
        index = base + b
        expected = _plain([index & ONES, index >> 32, stream, step], [seed & ONES, seed >> 32])
        assert words[4 * b : 4 * b + 4].tolist() == expected
        for i in range(16):
            assert octets[16 * b + i] == expected[i // 4] >> 8 * (i % 4) & 255


@pytest.mark.parametrize(("bits", "limit"), [(8, 62), (16, 61), (32, 60)])
def test_bits_of_the_last_elements(bits: int, limit: int) -> None:
    first, key = (1 << limit) - 32, {"seed": 5, "stream": 6, "step": 7}
    with little_memory():
        drawn = philox.random_bits(32, bits, **key, offset=first)
        octets = philox.random_bytes(4 * bits, **key, offset=first * bits // 8)
    assert np.array_equal(drawn, octets.view(f"<u{bits // 8}"))
    with pytest.raises(ArgumentError, match="offset"):
        philox.random_bits(32, bits, **key, offset=1 << limit)


def test_every_key_that_is_accepted_can_be_drawn_from() -> None:
    x = np.linspace(-6, 6, 64, dtype=np.float32).reshape(1, 64)
    key = (3, 2, 1, (1 << 62) - 64)
    with little_memory():
        want = refnum.quantize_mxfp4(x, "STOCHASTIC", rbits=philox.random_bytes(64, *key).reshape(1, 64))
        found = refnum.quantize_mxfp4(x, "STOCHASTIC", philox=key)
    assert all(np.array_equal(one, other) for one, other in zip(want, found, strict=True))


@pytest.mark.parametrize("offset, n", [(0, 0), (1, 2), (3, 9), (7, 40000), (4 * (1 << 13) - 1, 70001)])
def test_any_part_of_a_stream_is_the_stream(offset: int, n: int) -> None:
    whole = philox.random_words(120000, seed=9)
    assert np.array_equal(philox.random_words(n, 9, offset=offset), whole[offset : offset + n])
    octets = whole.astype("<u4").view(np.uint8)
    assert np.array_equal(philox.random_bytes(n, 9, offset=offset), octets[offset : offset + n])


def test_random_bits_take_the_top_bits_of_their_unit() -> None:
    octets = philox.random_bytes(4 * 35, seed=3, stream=1, step=2).astype(np.uint64)
    for bits, width, dtype in [(1, 1, "u1"), (8, 1, "u1"), (9, 2, "u2"), (16, 2, "u2"), (24, 4, "u4"), (32, 4, "u4")]:
        drawn = philox.random_bits((5, 7), bits, seed=3, stream=1, step=2)
        unit = sum(octets[j : 35 * width : width] << np.uint64(8 * j) for j in range(width))
        assert drawn.shape == (5, 7) and drawn.dtype == np.dtype(dtype)
        assert np.array_equal(drawn.reshape(-1), unit >> np.uint64(8 * width - bits))
    assert philox.random_bits(4, seed=3).shape == (4,)
    assert philox.random_bits(np.array([2, 3]), seed=3).shape == (2, 3)
    assert philox.random_bits((0, 3), seed=3).shape == (0, 3)


def test_seed_stream_and_step_all_matter() -> None:
    rows = [philox.random_words(8, *a) for a in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 32, 0, 0), (0, 0, 0)]]
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_defaults_are_zero_and_bounds_are_sharp() -> None:
    words = philox.random_words(20, 3, stream=0, step=0, offset=0)
    assert np.array_equal(philox.random_words(20, 3), words)
    assert np.array_equal(philox.random_bytes(80, 3), words.astype("<u4").view(np.uint8))
    assert np.array_equal(philox.random_bits(20, 32, seed=3), words)
    assert [int(w) for w in philox.philox4x32((1, 2, 3, 4), (5, 6), rounds=0)] == [1, 2, 3, 4]
    assert len(philox.philox4x32((1, 2, 3, 4), (5, 6), rounds=16)) == 4
    for call in (
        lambda: philox.philox4x32((1, 2, 3, 4), (5, 6), rounds=17),
        lambda: philox.philox4x32((0, 0, 0, 0), (1 << 32, 0)),
        lambda: philox.random_words(1, 1 << 64),
        lambda: philox.random_words(1, 0, step=1 << 32),
        lambda: philox.random_bits(3, 0, seed=0),
        lambda: philox.random_words(True, 0),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_a_key_has_sharp_bounds_and_defaults() -> None:
    assert philox.Key(3) == (3, 0, 0, 0) == philox.as_key((3, 0, 0))
    most = ((1 << 64) - 1, (1 << 32) - 1, (1 << 32) - 1, (1 << 62) - 32)
    assert philox.as_key(most) == philox.Key(*most)
    for place, (name, limit) in enumerate([("seed", 64), ("stream", 32), ("step", 32), ("offset", 62)]):
        for wrong in (1 << limit, -1):
            with pytest.raises(
                ArgumentError, match=f"{name} is {wrong}; allowed are integers from 0 to 2..{limit} - 1"
            ):
                philox.as_key((*most[:place], wrong, *most[place + 1 :]))
    with pytest.raises(ArgumentError, match="multiples of 32"):
        philox.as_key((0, 0, 0, 33))


@pytest.mark.parametrize("draw", [philox.random_words, philox.random_bytes])
def test_counts_and_offsets_have_sharp_bounds(draw: Callable[..., np.ndarray]) -> None:
    last = (1 << 62) - 1
    with little_memory():
        assert draw(1, 9, offset=last).shape == (1,)
    for more in ({"n": 1 << 62}, {"offset": 1 << 62}, {"seed": 1 << 64}):
        with little_memory(), pytest.raises(ArgumentError, match=f"{next(iter(more))} is"):
            draw(**{"n": 1, "seed": 9, **more})
    with pytest.raises((MemoryError, ValueError)) as raised:
        draw(1 << 61, 9)
    assert not isinstance(raised.value, ArgumentError)


def test_random_bits_of_every_width_are_the_top_bits_of_units() -> None:
    words = philox.random_words(12, 7)
    assert np.array_equal(philox.random_bits(5, seed=7), philox.random_bits(5, 8, seed=7))
    for bits in range(1, 33):
        size = 1 if bits <= 8 else 2 if bits <= 16 else 4
        units = words.astype("<u4").view(f"<u{size}")[3:8]
        found = philox.random_bits(5, bits, seed=7, offset=3)
        assert found.dtype.itemsize == size and found.tolist() == (units >> units.dtype.type(8 * size - bits)).tolist()


@pytest.mark.parametrize(("bits", "limit"), [(8, 62), (16, 61), (32, 60)])
def test_random_bits_say_their_own_bounds(bits: int, limit: int) -> None:
    with little_memory():
        assert philox.random_bits(1, bits, seed=0, offset=(1 << limit) - 1).shape == (1,)
    with pytest.raises(ArgumentError, match=f"offset is {1 << limit}; allowed are integers from 0 to 2..{limit} - 1"):
        philox.random_bits(1, bits, seed=0, offset=1 << limit)
    with pytest.raises(ArgumentError, match="a dimension of shape is 4611686018427387904"):
        philox.random_bits((1 << 62,), bits, seed=0)
    with pytest.raises((MemoryError, ValueError)) as raised:
        philox.random_bits((1 << 61,), 8, seed=0)
    assert not isinstance(raised.value, ArgumentError)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="seed is -1"):
        philox.random_words(1, -1)
    with pytest.raises(ArgumentError, match="stream is 4294967296"):
        philox.random_words(1, 0, stream=1 << 32)
    with pytest.raises(ArgumentError, match=r"n is 1\.5"):
        philox.random_bytes(1.5, 0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="bits is 33"):
        philox.random_bits(3, 33, seed=0)
    with pytest.raises(ArgumentError, match="rounds is -1"):
        philox.philox4x32((0, 0, 0, 0), (0, 0), rounds=-1)
    with pytest.raises(ArgumentError, match="counter word"):
        philox.philox4x32((1 << 32, 0, 0, 0), (0, 0))
    with pytest.raises(ShapeError, match="3 counter"):
        philox.philox4x32((0, 0, 0), (0, 0))
