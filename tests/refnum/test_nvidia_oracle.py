"""NVIDIA's own header conversions, compiled for the host, as an independent oracle of the model (N1, N2, N3).

Every scalar conversion of cuda_fp4.h, cuda_fp6.h and cuda_fp8.h that the model has is compared on all 65,536 bfloat16,
all 65,536 float16, 57,344 boundary patterns (every sixteenth of every binade +-3 ulp, both signs: all values and
midpoints of these formats), 2^22 stratified float32 patterns and, with --slow, all 2^32 float32 patterns.
Decoders: every code. Skipped with the reason where there is no compiler or there are no headers.
"""

import numpy as np
import pytest

import refnum
from refnum.conformance.subjects.peers import nvidia_headers as nvidia
from refnum.conformance.subjects.peers import survey
from refnum.scales import block_scale

READY, REASON = nvidia.available()
pytestmark = pytest.mark.skipif(not READY, reason=REASON)

NEAREST = {
    "E2M1": {}, "E2M3": {}, "E3M2": {},
    "E4M3-satfinite": {}, "E5M2-satfinite": {},
    "E4M3-nosat": {"overflow": "nan"}, "E5M2-nosat": {"overflow": "nan"},
}  # fmt: skip
TOWARD_ZERO = {name: {"rounding": "toward_zero"} for name in ("E2M1-rz", "E2M3-rz", "E3M2-rz")}
CASTS = NEAREST | TOWARD_ZERO
SCALES = {f"E8M0-{rounding}-{'satfinite' if saturate else 'nosat'}": (rounding, saturate)
          for rounding in ("up", "down", "nearest") for saturate in (False, True)}  # fmt: skip
INPUTS = {
    "bfloat16-65536": lambda: survey.every("bfloat16"), "float16-65536": lambda: survey.every("float16"),
    "boundary-57344": lambda: survey.boundary().view(np.float32),
    "stratified-4194304": lambda: survey.stratified().view(np.float32),
}  # fmt: skip
CHUNK = 1 << 20


def by_model(cast, x):
    """Codes of the model under the policy that the cast's name stands for."""
    if cast in SCALES:
        return refnum.encode_e8m0(x, *SCALES[cast])
    return refnum.encode(cast[:4], x, profile=refnum.HOPPER.replace(name=cast, **CASTS[cast]))


def header_policy(cast):
    if "E8M0-nearest" in cast and not nvidia.nearest_scale():
        pytest.skip("these headers round E8M0 up and down only")
    rounding = "toward_zero" if cast.endswith("rz") else "nearest"
    return dict(zip(("rounding", "saturate"), SCALES.get(cast, (rounding, not cast.endswith("nosat"))), strict=True))


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("cast", [*CASTS, *SCALES])
def test_the_model_encodes_as_the_headers_do(cast, inputs):
    x = INPUTS[inputs]()
    assert x.size == int(inputs.split("-")[1])
    ours, theirs = by_model(cast, x), nvidia.encode(cast[:4], x, **header_policy(cast))
    wrong = np.flatnonzero(ours != theirs)
    assert not wrong.size, f"{wrong.size} differ, first {x[wrong[0]]!r}: {ours[wrong[0]]}, header {theirs[wrong[0]]}"


@pytest.mark.slow
@pytest.mark.parametrize("cast", [*CASTS, *SCALES])
def test_the_model_encodes_all_4294967296_float32_as_the_headers_do(cast):
    policy, wrong, seen, run = header_policy(cast), [], 0, np.arange(CHUNK, dtype=np.uint32)
    for first in range(0, 1 << 32, CHUNK):
        x = (run + np.uint32(first)).view(np.float32)
        differs = by_model(cast, x) != nvidia.encode_patterns(cast[:4], first, CHUNK, **policy)
        wrong += (first + np.flatnonzero(differs)[:4]).tolist()
        seen += x.size
    assert seen == 1 << 32
    assert not wrong, f"first at {wrong[0]:#010x}"


@pytest.mark.parametrize("name", ["E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "E8M0"])
def test_the_model_decodes_every_code_as_the_headers_do(name):
    codes = np.arange(1 << refnum.FORMATS[name].bits, dtype=np.uint16).astype(np.uint8)
    ours, theirs = refnum.decode(name, codes), nvidia.decode(name, codes)
    nan = np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), nan)
    assert np.array_equal(ours[~nan].view(np.uint32), theirs[~nan].view(np.uint32))
    expected_nans = {"E4M3": 2, "E5M2": 6, "E8M0": 1}
    assert nan.sum() == expected_nans.get(name, 0)


LOST = {"E2M1": 0x01400001, "E2M3": 0x01700001, "E3M2": 0x02600001, "E4M3": 0x04600001, "E5M2": 0x07E00001}


def scale_disagreements(element, profile, patterns):
    """Amax patterns in some ranges where E8M0(amax / m, rounded up) by the headers is not the model's byte."""
    fmt, profile = refnum.FORMATS[element], refnum.get_profile(profile)
    maximum, saturate = float(fmt.max_value), profile.nonfinite == "satfinite"
    wrong, seen = [], 0
    for start, stop in patterns:
        for first in range(start, stop, 1 << 18):
            count = min(1 << 18, stop - first)
            ours = block_scale(np.arange(first, first + count, dtype=np.uint32), fmt, profile)
            theirs = nvidia.scale_patterns(maximum, first, count, saturate=saturate)
            wrong += (first + np.flatnonzero(ours != theirs)).tolist()
            seen += count
    return wrong, seen


@pytest.mark.parametrize("profile", ["HOPPER", "TE"])
@pytest.mark.parametrize("element", LOST)
def test_the_scale_of_a_block_is_the_headers_in_five_binades_and_at_every_boundary(element, profile):
    """All 2^23 amax of the lost pattern's binade, [1, 2), all from 2^127 into the NaNs, each sixteenth +-3 ulp."""
    field = LOST[element] >> 23
    whole = [(field << 23, field + 1 << 23), (127 << 23, 128 << 23), (254 << 23, 0x7F900000)]
    sixteenths = [k << 23 | part << 19 for k in range(255) for part in range(16)]
    edges = [(max(at - 3, 0), at + 4) for at in sixteenths]
    wrong, seen = scale_disagreements(element, profile, whole + edges)
    assert seen > 1 << 24
    assert sorted(set(wrong)) == [LOST[element]]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["HOPPER", "TE"])
@pytest.mark.parametrize("element", LOST)
def test_the_scale_of_a_block_is_the_headers_on_all_2147483648_amax_but_one(element, profile):
    wrong, seen = scale_disagreements(element, profile, [(0, 1 << 31)])
    assert (seen, wrong) == (1 << 31, [LOST[element]])
