"""Nonsense in any one argument of any public function is refused by a named error, never by NumPy's or Python's own.

What is nonsense depends on what the argument is, so each has a kind, and each kind its list.
"""

import re

import ml_dtypes
import numpy as np
import pytest
from nonsense_calls import (
    CALLS,
    CODES,
    KINDS,
    MAP,
    NO_INTEGER,
    NO_WORD,
    PACKED,
    PAYLOAD,
    RANDOM,
    ROWS,
    SCALES,
    TILES,
    WRONG,
    X,
    once,
)

import refnum as R
from refnum import layouts, philox
from refnum.errors import ArgumentError, DtypeError, ProfileError, RefnumError, ShapeError, shown

TWINS = ("quantize_", "dequantize_mxfp4", "dequantize_fp8", "fp8_", "mxfp4_", "swiglu_", "pack_", "unpack_", "permute_",
         "unpermute", "matmul_fp8", "hadamard", "dge", "occ", "luq", "dequantize_luq", "radix4",
         "dequantize_radix4", "q_ema")  # fmt: skip
TWINLESS = {"quantize_mx", "quantize_tetrajet_v2"}
"""What has a name like theirs and no kernel."""


def nonsense(given):
    """Yield (argument, wrong value) of a call."""
    for argument in given:
        name, _, kind = argument.partition("*")
        for wrong in WRONG[kind or KINDS[name]]:
            yield argument, wrong() if wrong is once else wrong


def raised(function, given, argument, wrong):
    try:
        function(**{name.partition("*")[0]: wrong if name == argument else each for name, each in given.items()})
    except Exception as error:
        return error
    return None


def promised(function):
    """The docstring of a function, and of those that it says it is like."""
    like = re.findall(r"(?:[Aa]s|than|gives) `(\w+)`", function.__doc__)
    others = [getattr(module, name, None) for name in like for module in (R, layouts, philox)]
    return function.__doc__ + "".join(promised(other) for other in others if other is not None)


def complaints(module, call):
    given, function = CALLS[call], module
    for part in call.partition(" ")[0].split("."):
        function = getattr(function, part)
    assert raised(function, given, None, None) is None
    for argument, wrong in nonsense(given):
        error = raised(function, given, argument, wrong)
        if not isinstance(error, RefnumError):
            yield f"{call}({argument}={shown(wrong)}): {'accepted' if error is None else repr(error)}"
        elif module is R and type(error).__name__ not in promised(function):
            yield f"{call}({argument}={shown(wrong)}): {type(error).__name__}, which its docstring does not name"
        elif len(str(error)) > 400:
            yield f"{call}({argument}={shown(wrong)}): a message of {len(str(error))} characters"


@pytest.mark.parametrize("call", CALLS)
def test_nonsense_is_refused_by_a_named_error(call):
    assert not list(complaints(R, call))


@pytest.mark.parametrize("call", [c for c in CALLS if c.startswith(TWINS) and c not in RANDOM])
def test_the_kernels_twins_refuse_what_the_model_refuses(call):
    host = pytest.importorskip("refnum.gpu.host")
    usable, reason = host.available()
    if not usable:
        pytest.skip(reason)
    name = call.partition(" ")[0]
    assert hasattr(host, name) is (name not in TWINLESS)
    assert name in TWINLESS or not list(complaints(host, call))


def test_every_public_function_is_asked():
    asked = {call.partition(" ")[0] for call in CALLS}
    for prefix, module in (("", R), ("layouts.", layouts), ("philox.", philox)):
        for name in getattr(module, "__all__", dir(module)):
            function = getattr(module, name)
            if callable(function) and not isinstance(function, type) and function.__module__.startswith("refnum"):
                own = not prefix or (function.__module__ == module.__name__ and not name.startswith("_"))
                assert not own or prefix + name in asked, prefix + name


def test_a_profile_of_nonsense_is_refused():
    for field in ("scale_rule", "rounding", "ties", "overflow", "negative_zero", "nonfinite"):
        for wrong in NO_WORD:
            with pytest.raises(ProfileError, match=field):
                R.HOPPER.replace(**{field: wrong})
    for field in ("zero_scale", "random_bits", "amax_floor"):
        for wrong in [w for w in NO_INTEGER if w is not None or field != "amax_floor"]:
            with pytest.raises(ProfileError, match=field):
                R.HOPPER.replace(**{field: wrong})
    for wrong in (None, 5, b"x", ["x"]):
        with pytest.raises(ProfileError, match="name"):
            R.Profile(wrong)


def test_what_is_no_nonsense_is_taken():
    want = [array.tobytes() for array in R.fp8_columns(CODES, TILES, [1, 3])]
    for splits in ((1, 3), np.array([1, 3], np.int32), np.array([1, 3], ">u2"), [np.int64(1), np.array(3)]):
        assert [array.tobytes() for array in R.fp8_columns(CODES, TILES, splits)] == want
    assert R.fp8_columns(CODES, TILES, range(4, 5))[1].shape == (1, 128)
    for dtype in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), np.str_("bfloat16")):
        assert R.dequantize_mxfp4(PACKED, SCALES, dtype).dtype == ml_dtypes.bfloat16
    for x in (np.array(3.0, np.float32), np.array(3.0, np.float16)):
        assert (
            R.encode("E2M1", x) == 5
            and R.encode("E2M1", x, np.int64(1)) == 3
            and R.encode_e8m0(x, saturate=np.True_) == 129
        )
    by_row = R.encode("E2M1", X, np.array([[0], [1], [2], [3]]))
    assert all(np.array_equal(by_row[e], R.encode("E2M1", X[e], e)) for e in range(4))
    assert R.value("E2M1", np.uint8(2)) == 1 and R.decode("E2M1", np.array(2, np.uint64)) == 1.0


def test_a_wish_for_more_rows_than_there_are_takes_no_memory():
    for call in (
        lambda: R.permute_pad(PAYLOAD, MAP, [2**31 - 1] * 4),
        lambda: R.permute_unpack(PAYLOAD, MAP, [2**31 - 1]),
        lambda: R.unpermute(ROWS, MAP, [2**31 - 1], None, 4),
    ):
        with pytest.raises(ShapeError):
            call()
    with pytest.raises(ArgumentError, match="align"):  # before what would be made of it: the splits are wrong too
        R.permute_pad(PAYLOAD, MAP, [3], 2**31)
    with pytest.raises(DtypeError, match="MaskedArray"):
        R.quantize_mxfp4(np.ma.masked_array(X, X > 0))
