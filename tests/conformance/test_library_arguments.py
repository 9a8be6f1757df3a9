"""What a C function is given: sizes of scalars too, integers of one width only, and nothing where it is not there."""

import shutil
import subprocess

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.loading import shared_library
from refnum.conformance.subjects.loading.discover import from_file
from refnum.errors import UnsupportedError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
SOURCE = """
#include <stdint.h>
static const float M[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
int decode(const uint8_t *c, int64_t n, int64_t rows, int64_t columns, float *v) {
    if (rows > n + 1 || columns > n + 1) return 2;
    for (int64_t i = 0; i < n; i++) {
        if (c[i] > 15) return 1;
        v[i] = c[i] & 8 ? -M[c[i] & 7] : M[c[i] & 7];
    }
    return 0;
}
"""
DECLARED = """[operations.decode_e2m1]
symbol = "decode"
arguments = ["codes", "size(codes)", "rows(codes)", "columns(codes)", "values"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("library")
    (place / "lib.c").write_text(SOURCE)
    (place / "lib.toml").write_text(DECLARED)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(place / "lib.c"), "-o", str(place / "lib.so")], check=True)
    return place


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_arrays_of_any_axes_have_sizes(folder, shape):
    (subject,) = from_file(str(folder / "lib.so"))
    codes = np.full(shape, 11, np.uint8)
    (values,) = subject.operations["decode_e2m1"](codes=codes)
    assert np.array_equal(values, refnum.decode_e2m1(codes)) and values.shape == shape


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_codes_in_wider_integers_are_unsupported_and_not_misread(folder, dtype):
    (subject,) = from_file(str(folder / "lib.so"))
    called = call(subject, Case("decode_e2m1", "HOPPER", {}, {"codes": np.arange(8, dtype=dtype)}), 20.0)
    assert called.outcome is Outcome.UNSUPPORTED and f"codes is {dtype}; a library is given uint8" in called.words


@pytest.mark.parametrize(
    ("name", "profile", "wanted"),
    [
        ("rbits", "STOCHASTIC", "uint8"),
        ("rbits", "STOCHASTIC+random_bits=16", "uint16"),
        ("rbits", "STOCHASTIC+random_bits=17", "uint32"),
        ("row_map", "HOPPER", "int32"),
        ("r_log", "HOPPER", "uint32"),
    ],
)
def test_integers_of_another_width_than_the_pointer_s_are_unsupported(name, profile, wanted):
    given = Case("quantize_mxfp4", profile, {}, {})
    assert shared_library._argument(name, {name: np.zeros(3, wanted)}, given, []).value
    assert shared_library._argument(name, {name: None}, given, []) is None
    with pytest.raises(UnsupportedError, match=f"{name} is uint64; a library is given {wanted}"):
        shared_library._argument(name, {name: np.zeros(3, "uint64")}, given, [])


def test_a_function_that_a_library_lacks_makes_it_unavailable_and_not_wrong(folder, tmp_path):
    shutil.copy(folder / "lib.so", tmp_path / "lib.so")
    (tmp_path / "lib.toml").write_text(DECLARED.replace('"decode"', '"decoed"'))
    (subject,) = from_file(str(tmp_path / "lib.so"))
    usable, reason = subject.available()
    assert not usable and "undefined symbol: decoed" in reason
    (tmp_path / "lib.toml").write_text(DECLARED)
    assert from_file(str(tmp_path / "lib.so"))[0].available() == (True, "")


def test_a_library_that_changes_its_splits_fails(tmp_path):
    """As one that turns them into sums where they are: they are the caller's."""
    arguments = "const char *payload, const int *row_map, long *splits, long n, char *rows, long *offsets"
    (tmp_path / "lib.c").write_text(f"int f({arguments}) {{ splits[n - 1]++; return 0; }}")
    (tmp_path / "lib.toml").write_text(
        '[operations.permute_pad]\nsymbol = "f"\n'
        'arguments = ["payload", "row_map", "splits", "size(splits)", "rows", "offsets"]\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "lib.c", "-o", tmp_path / "lib.so"], check=True)
    (subject,) = from_file(str(tmp_path / "lib.so"))
    inputs = {"payload": np.zeros((3, 17), np.uint8), "row_map": np.arange(3, dtype=np.int32)}
    called = call(subject, Case("permute_pad", "HOPPER", {"splits": (1, 2)}, inputs), 20.0)
    assert called.outcome is Outcome.FAULT and "f changed its argument splits" in called.words
