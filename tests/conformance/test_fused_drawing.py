"""The device's short way to draw, bit for bit: its arithmetic as g++ compiles it, its kernels where there is a GPU."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from refnum.conformance.cases.draw import device as fused
from refnum.conformance.cases.draw.bits import assemble, high_product, signed
from refnum.conformance.cases.draw.values import Target, from_integer
from refnum.conformance.cases.draw.words import Draw
from refnum.conformance.verdicts.judge_worker import fingerprint
from refnum.formats import BF16, E2M1, FP16, FP32
from refnum.philox import random_words

SEEDS = (0, 1, 2**63 + 12345, 2**64 - 1)
COUNTS = (0, 1, 3, 4, 5, 1023, 4097)
FORMATS = (FP32, BF16, FP16)
LOOPS = """
typedef unsigned long long u64;
extern "C" void draw(u64 n, u64 seed, unsigned stream, unsigned step, unsigned* words, int* bells) {
    for (u64 i = 0; i < (n + 3) / 4; ++i) {
        unsigned word[4]; int value[4];
        philox(i, seed, stream, step, word); store(words, (long long)i, n, word);
        bell(i, seed, stream, step, value); store(bells, (long long)i, n, value);
    }
}
extern "C" void patterns(u64 n, const unsigned* s, const int* e, int bias, int mantissa, unsigned top, unsigned* out) {
    for (u64 i = 0; i < n; ++i) out[i] = assemble(s[i], e[i], bias, mantissa, top);
}
extern "C" void high(u64 n, const unsigned* word, const unsigned* bound, unsigned* out) {
    for (u64 i = 0; i < n; ++i) out[i] = high_product(word[i], bound[i]);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("fused")
    (folder / "fused.cpp").write_text(fused.HEADER + LOOPS)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", "fused.so", "fused.cpp"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "fused.so"))


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", COUNTS)
def test_words_and_bells(library, seed, count):
    words, bells = np.zeros(count + 1, np.uint32), np.zeros(count + 1, np.int32)
    words[count], bells[count] = 77, 77
    library.draw(ctypes.c_uint64(count), ctypes.c_uint64(seed), 65537, 0, at(words), at(bells))
    assert (words[:count] == random_words(count, seed, 65537, 0)).all() and words[count] == 77
    assert (bells[:count] == Draw(seed, 65537).bell(count)).all() and bells[count] == 77


def numbers(count=100_000):
    dice = np.random.default_rng(1)
    significand = (dice.integers(0, 1 << 24, count) >> dice.integers(0, 25, count)).astype(np.uint32)
    return significand, dice.integers(-330, 330, count).astype(np.int32)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_patterns_of_floats(library, fmt):
    significand, exponent = numbers()
    out = np.zeros_like(significand)
    library.patterns(ctypes.c_uint64(out.size), at(significand), at(exponent), fmt.bias, fmt.mantissa_bits,
                     ctypes.c_uint(fmt.max_code), at(out))  # fmt: skip
    want = assemble(fmt, significand, exponent)
    assert (out == want).all() and len(np.unique(want)) > 1000


def test_high_products(library):
    words = random_words(20_000, 3)
    out = np.zeros(10_000, np.uint32)
    library.high(ctypes.c_uint64(out.size), at(words[:10_000].copy()), at(words[10_000:].copy()), at(out))
    assert (out == high_product(words[:10_000], words[10_000:])).all()


@pytest.fixture(scope="module")
def device():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device")
    return cupy


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (37, 96), (4097,)])
def test_draws_on_the_device(device, seed, shape):
    here, there = Draw(seed, 9), Draw(seed, 9, device.empty(0, np.uint8))
    table = np.arange(77, dtype=np.uint32) * 3
    for ask in (
        lambda draw: draw.words(*shape), lambda draw: draw.below(1 << 32, *shape), lambda draw: draw.below(77, *shape),
        lambda draw: draw.between(-149, 127, *shape), lambda draw: draw.chance(0, *shape),
        lambda draw: draw.chance(256, *shape), lambda draw: draw.chance(100, *shape),
        lambda draw: draw.bell(*shape), lambda draw: draw.pick(table, *shape),
    ):  # fmt: skip
        want, got = ask(here), ask(there)
        assert got.dtype == want.dtype and got.shape == want.shape and (got.get() == want).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_patterns_on_the_device(device, fmt):
    significand, exponent = numbers(1 << 20)
    number = np.where(significand & 1, significand.astype(np.int32), -significand.astype(np.int32))
    there = [device.asarray(each) for each in (significand, exponent, number)]
    target = Target(fmt, E2M1, 32)
    for want, got in (
        (assemble(fmt, significand, exponent), assemble(fmt, there[0], there[1])),
        (from_integer(target, number, exponent), from_integer(target, there[2], there[1])),
        (from_integer(target, number, -24), from_integer(target, there[2], -24)),
        (signed(fmt, significand, number < 0), signed(fmt, there[0], there[2] < 0)),
        (high_product(significand, significand + np.uint32(1)), high_product(there[0], there[0] + np.uint32(1))),
    ):
        assert got.dtype == want.dtype and (got.get() == want).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_fingerprints_on_the_device(device, dtype):
    for count in (0, 1, 31, 100_003):
        words = random_words(2 * count, 5).view(np.uint64).astype(dtype)
        arrays = {"a": words, "b": words[::-1].copy()}
        assert fingerprint(arrays) == fingerprint({name: device.asarray(array) for name, array in arrays.items()})
