"""The frozen answers against other people's code and published tables, where the choices coincide."""

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.vectors import load_vectors

RANDOM123 = {
    (0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (0xFFFFFFFF,) * 4: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
}
"""Known answers of Random123's kat_vectors for philox4x32, ten rounds."""


def inline(operation):
    return [vector for vector in load_vectors(operation) if vector.tensor is None]


@pytest.mark.parametrize(
    "operation,dtype",
    [
        ("decode_e2m1", ml_dtypes.float4_e2m1fn),
        ("decode_e4m3", ml_dtypes.float8_e4m3fn),
        ("decode_e8m0", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_decode_tables_are_those_of_ml_dtypes(operation, dtype):
    for vector in inline(operation):
        theirs = vector.inputs["codes"].view(dtype).astype(np.float32)
        ours = vector.outputs["values"].astype(np.float32)
        assert np.array_equal(ours, theirs, equal_nan=True) and np.array_equal(
            np.signbit(ours[ours == 0]), np.signbit(theirs[theirs == 0])
        )


@pytest.mark.parametrize(
    "element,dtype",
    [
        ("E2M1", ml_dtypes.float4_e2m1fn),
        ("E2M3", ml_dtypes.float6_e2m3fn),
        ("E3M2", ml_dtypes.float6_e3m2fn),
        ("E4M3", ml_dtypes.float8_e4m3fn),
        ("E5M2", ml_dtypes.float8_e5m2),
    ],
)
def test_rounding_is_that_of_ml_dtypes(element, dtype):
    """Finite values within the range, to nearest, ties to even."""
    top = float(ml_dtypes.finfo(dtype).max)
    compared = 0
    for vector in inline("encode_element"):
        usual = {
            "element": element,
            "rounding": "nearest",
            "ties": "even",
            "overflow": "saturate",
            "negative_zero": "keep",
        }
        if dict(vector.params) != usual:
            continue
        x = vector.inputs["x"]
        inside = np.abs(x) <= top
        theirs = x[inside].astype(dtype).view(np.uint8)
        assert np.array_equal(vector.outputs["codes"][inside], theirs)
        compared += int(inside.sum())
    assert compared > 40


def test_overflow_to_nan_is_that_of_ml_dtypes():
    seen = 0
    for vector in inline("encode_e4m3"):
        if vector.params["overflow"] == "nan":
            x = vector.inputs["x"]
            finite = np.isfinite(x)
            assert np.array_equal(
                vector.outputs["codes"][finite], x[finite].astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
            )
            seen += int(finite.sum())
    assert seen > 700


def test_philox_gives_the_published_answers():
    answers = {
        tuple(c): tuple(w)
        for v in inline("philox4x32")
        for c, w in zip(v.inputs["counter"].tolist(), v.outputs["words"].tolist(), strict=True)
    }
    for counter, words in RANDOM123.items():
        assert answers[counter] == words


def test_the_values_of_the_standard_by_hand():
    """OCP MX v1.0: E2M1's eight magnitudes, its largest under the largest scale, the smallest scale."""
    table = next(v for v in inline("decode_e2m1") if v.params["dtype"] == "float32")
    assert table.outputs["values"][0, :8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    low = next(
        v for v in inline("dequantize_mxfp4") if v.inputs["scales"].tolist() == [[0]] and v.params["dtype"] == "float32"
    )
    assert low.outputs["values"][0, 2] == np.float32(2.0**-127)
