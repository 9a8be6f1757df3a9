"""Each peer differs from the golden model exactly where its `DIFFERENCES` say, and nowhere else.

Casts: all 65,536 bfloat16, all 65,536 float16, 57,344 boundary patterns and 2^22 stratified float32 patterns
(gfloat's scalar E8M0: the bfloat16 and boundary ones).
Decoders: every code. Quantisers: blocks led by 28,672 boundary magnitudes and by every bfloat16 magnitude.
"""

import functools
import hashlib
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.arrays import float32_bits
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import CLASSES, classify
from refnum.conformance.cases.operation import OPERATIONS, as_bits
from refnum.conformance.subjects.arrays import to_library, to_numpy
from refnum.conformance.subjects.loading.discover import peers
from refnum.conformance.subjects.peers import (
    PEERS,
    all_differences,
    build,
    differences,
    gfloat_blocks,
    nvidia_headers,
    survey,
    torch_dtypes,
)
from refnum.conformance.subjects.peers import subjects as peer_subjects
from refnum.conformance.subjects.peers.difference import BUG_CLASSES, expected
from refnum.conformance.subjects.subject import Subject, from_dict
from refnum.errors import UnsupportedError

SUBJECTS = {entry["name"]: from_dict(entry, "test") for entry in peer_subjects()}
CODES = {"decode_e2m1": 16, "decode_e4m3": 256, "decode_e8m0": 256}


def variants(prefix):
    """Every (subject, operation, params without `input`) that a peer claims, of operations with this prefix."""
    for subject in SUBJECTS.values():
        for name in subject.operations:
            if not name.startswith(prefix):
                continue
            for params in OPERATIONS[name].variants():
                if params.pop("input", "float32") == "float32" and not subject.refuses(name, "HOPPER", params):
                    label = "-".join(map(str, (subject.name, name, *params.values())))
                    yield pytest.param(subject, name, params, id=label)


def quantisers():
    for subject in SUBJECTS.values():
        for name in [name for name in subject.operations if name.startswith("quantize")]:
            for profile in subject.profiles:
                for params in OPERATIONS[name].variants():
                    if params.pop("input") == "float32" and not subject.refuses(name, profile, params):
                        label = "-".join((subject.name, name, profile, *params.values()))
                        yield pytest.param(subject, name, profile, params, id=label)


@pytest.fixture(scope="module", autouse=True)
def _facts_of_formats_once():
    """gfloat works out the largest number of a format, and what else it knows of it, at each number that it casts."""
    found = gfloat_blocks.available()[0] and importlib.import_module("gfloat").FormatInfo
    with pytest.MonkeyPatch.context() as patch:
        for name, fact in list(vars(found).items()) if found else ():
            if isinstance(fact, property) and not name.startswith("_"):
                once = functools.cached_property(fact.fget)
                once.__set_name__(found, name)
                patch.setattr(found, name, once)
        yield


def usable(subject):
    ready, reason = subject.available()
    if not ready:
        pytest.skip(reason)


def run(subject, operation, params, **inputs):
    """The peer's results as bits."""
    given = {name: to_library(np.array(array), subject.arrays) for name, array in inputs.items()}
    result = subject.operations[operation](**given, **params)
    return [as_bits(to_numpy(part)) for part in (result if isinstance(result, tuple) else (result,))]


ANSWERS = {}
"""Golden results of megabytes of inputs by their digest: several peers are compared with the same."""


def model(operation, params, **inputs):
    arrays = [(name, x.shape, x.dtype.name, hashlib.sha256(x.tobytes()).digest()) for name, x in inputs.items()]
    key = repr((operation, sorted(params.items()), arrays))
    if key not in ANSWERS:
        result = getattr(refnum, operation)(**inputs, **params)
        ANSWERS[key] = [as_bits(part) for part in (result if isinstance(result, tuple) else (result,))]
    return ANSWERS[key]


def of_variant(subject, operation, params, profile=""):
    return [d for d in differences() if d.subject == subject.name and d.covers(operation, params, profile)]


def hexadecimal(patterns):
    return [hex(int(pattern)) for pattern in np.sort(patterns)[:8]]


def assert_only(known, patterns, differs):
    """The heart: `differs` is true exactly where it must be, and nowhere where it may not."""
    must, may = expected(known, patterns)
    assert not (differs & ~may).any(), f"unknown disagreements at {hexadecimal(patterns[differs & ~may])}"
    assert not (must & ~differs).any(), f"no longer disagrees at {hexadecimal(patterns[must & ~differs])}"


def cast_inputs(subject, operation):
    scalar_only = operation == "encode_e8m0" and subject.name == gfloat_blocks.NAME
    arrays = [survey.boundary().view(np.float32), survey.every("bfloat16")]
    if not scalar_only:
        arrays += [survey.every("float16"), survey.stratified().view(np.float32)]
    for x in arrays:
        if subject.name == gfloat_blocks.NAME and operation == "encode_e2m1":
            x = x[(float32_bits(x) & 0x7FFFFFFF) <= 0x7F800000]
        yield x


def run_cast(subject, operation, params, x):
    """The peer's codes, in calls no larger than the peer takes."""
    step = gfloat_blocks.MAX_SCALARS
    if subject.name != gfloat_blocks.NAME or operation != "encode_e8m0":
        step = x.size
    return np.concatenate([run(subject, operation, params, x=x[at : at + step])[0] for at in range(0, x.size, step)])


def test_the_survey_is_of_the_size_it_says():
    assert survey.boundary().size == survey.BOUNDARY_PATTERNS == 57_344
    assert survey.stratified().size == survey.STRATIFIED_PATTERNS == 1 << 22
    assert np.unique(survey.boundary()).size == survey.BOUNDARY_PATTERNS


@pytest.mark.parametrize(("subject", "operation", "params"), list(variants("encode")))
def test_a_cast_differs_exactly_where_it_is_known_to(subject, operation, params):
    usable(subject)
    known = of_variant(subject, operation, params)
    for x in cast_inputs(subject, operation):
        ours, theirs = model(operation, params, x=x)[0], run_cast(subject, operation, params, x)
        assert_only(known, np.ascontiguousarray(float32_bits(x)), ours != theirs)


@pytest.mark.parametrize(("subject", "operation", "params"), list(variants("decode")))
def test_a_decoder_differs_exactly_where_it_is_known_to(subject, operation, params):
    usable(subject)
    codes = np.arange(CODES[operation], dtype=np.uint8)
    differs = model(operation, params, codes=codes)[0] != run(subject, operation, params, codes=codes)[0]
    assert_only(of_variant(subject, operation, params), codes, differs)


def led_blocks(subject, element):
    """(amax magnitudes, blocks) that the peer takes: gfloat refuses NaN where the element has none."""
    boundary = np.unique(survey.boundary() & np.uint32(0x7FFFFFFF))
    amax = np.concatenate([boundary, np.arange(1 << 15, dtype=np.uint32) << np.uint32(16)])
    if subject.name in (gfloat_blocks.NAME, gfloat_blocks.NAME32):
        top = {"E4M3": 0x7FFFFFFF, "E5M2": 0x7FFFFFFF, "MXINT8": 0x7F7FFFFF}.get(element, 0x7F800000)
        amax = amax[amax <= top]
    return amax, survey.blocks_led_by(amax)


@pytest.mark.parametrize(("subject", "operation", "profile", "params"), list(quantisers()))
def test_a_quantiser_differs_exactly_where_it_is_known_to(subject, operation, profile, params):
    usable(subject)
    amax, x = led_blocks(subject, params.get("element", "E2M1"))
    given = {**params, "profile": profile} if subject.name == nvidia_headers.NAME else params
    parts = [run(subject, operation, given, x=x[at : at + 16384]) for at in range(0, len(x), 16384)]
    codes, scales = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
    our_codes, our_scales = model(operation, {**params, "profile": profile}, x=x)
    known = of_variant(subject, operation, params, profile)
    in_scale = (scales != our_scales).any(axis=1)
    in_codes = (codes != our_codes).any(axis=1) & ~in_scale
    assert_only(known, amax, in_scale | in_codes)
    _, may = expected([d for d in known if d.output != "codes"], amax)
    assert not (in_scale & ~may).any(), "a difference known as one of codes only is one of scales"


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.name)
def test_empty_arrays_give_empty_arrays(subject):
    usable(subject)
    for operation in subject.operations:
        params = next(p for p in OPERATIONS[operation].variants() if not subject.refuses(operation, "OCP", p)
                      or not subject.refuses(operation, "HOPPER", p))  # fmt: skip
        params.pop("input", None)
        given = {**params, "profile": "HOPPER"} if subject.name == nvidia_headers.NAME else params
        if not operation.startswith("quantize"):
            given = params
        name = "codes" if operation.startswith("decode") else "x"
        x = np.zeros((0, 64), np.uint8 if name == "codes" else np.float32)
        results = run(subject, operation, given, **{name: x})
        expected_shapes = [part.shape for part in model(operation, params, **{name: x})]
        assert [part.shape for part in results] == expected_shapes, operation


def of_example(difference):
    """Golden and peer value of a difference's example, by running both."""
    subject = SUBJECTS[difference.subject]
    usable(subject)
    params = dict(difference.params)
    if difference.of == "codes":
        inputs = {"codes": np.array([difference.example], np.uint8)}
    elif difference.of == "x":
        inputs = {"x": np.array([difference.example], np.uint32).view(np.float32)}
    else:
        inputs = {"x": np.zeros((1, 32), np.float32)}
        inputs["x"].view(np.uint32)[0, :2] = difference.example
    if difference.of == "amax":
        profile = difference.profile or subject.profiles[0]
        params["profile"] = profile
    given = {k: v for k, v in params.items() if k != "profile" or subject.name == nvidia_headers.NAME}
    index = 1 if difference.of == "amax" and difference.output != "codes" else 0
    ours = model(difference.operation, params, **inputs)[index].reshape(-1)[0]
    return int(ours), int(run(subject, difference.operation, given, **inputs)[index].reshape(-1)[0])


@pytest.mark.parametrize("difference", differences(), ids=lambda d: f"{d.subject}-{d.operation}-{d.note}")
def test_the_example_of_a_difference_is_the_smallest_and_as_stated(difference):
    ours, theirs = of_example(difference)
    assert (ours, theirs) == (difference.golden, difference.peer)
    magnitude = difference.example & 0x7FFFFFFF if difference.of == "amax" else difference.example
    assert any(low <= magnitude <= high for low, high in difference.where)
    assert not difference.exact or magnitude == min(low for low, _ in difference.where)
    assert difference.operation in OPERATIONS and difference.clause in ("N1", "N2", "N3", "N4")
    if difference.of != "codes":
        assert CLASSES[classify(np.array([magnitude & 0x7FFFFFFF], np.uint32))[0]] in difference.input_classes


def test_every_bug_class_of_a_difference_is_a_note_of_the_vectors():
    notes = json.loads((Path(__file__).parents[2] / "vectors" / "notes.json").read_text())["notes"]
    assert set(BUG_CLASSES.values()) <= set(notes)
    assert set(BUG_CLASSES) <= {difference.note for difference in all_differences()}


@pytest.mark.parametrize("element", ["E2M1", "E4M3", "E3M2"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_gfloat_adapter_gives_what_encode_block_gives(element, dtype):
    gfloat = pytest.importorskip("gfloat")
    pytest.importorskip("gfloat.formats")
    block_format = getattr(
        gfloat.formats,
        {"E2M1": "format_info_mxfp4_e2m1", "E4M3": "format_info_mxfp8_e4m3", "E3M2": "format_info_mxfp6_e3m2"}[element],
    )
    amax = survey.boundary()[3::601] & np.uint32(0x7FFFFFFF)
    x = survey.blocks_led_by(amax[amax <= 0x7F800000])
    codes, scales = gfloat_blocks.quantize_blocks(x, element, dtype)
    for row, block in enumerate(x.astype(dtype)):
        with np.errstate(all="ignore"):
            scale = gfloat.block.compute_scale_amax(block_format.etype.emax, block)
            whole = list(gfloat.encode_block(block_format, float(scale), block / dtype(scale)))
        assert whole == [int(scales[row, 0]), *codes[row].tolist()], hex(int(amax[row]))


def test_gfloat_refuses_what_it_has_no_code_for():
    pytest.importorskip("gfloat")
    nan = np.full((1, 32), np.nan, np.float32)
    with pytest.raises(UnsupportedError, match="NaN"):
        gfloat_blocks.encode_e2m1(nan)
    with pytest.raises(UnsupportedError, match="NaN"):
        gfloat_blocks.quantize_blocks(nan, "E2M1", np.float64)


def test_what_gfloat_is_too_slow_for_is_declared():
    for subject in map(from_dict, gfloat_blocks.subjects(), ["here"] * 2):
        for operation in {"quantize_mxfp4", "encode_e8m0", "encode_e4m3"} & set(subject.operations):
            largest = {"quantize_mxfp4": 1 << 20, "encode_e8m0": 1 << 17}.get(operation)
            for size, outside in ((1 << 17, False), (1 << 18, largest == 1 << 17), (1 << 21, largest is not None)):
                x = np.zeros((size // 32, 32), np.float32)
                words = subject.outside(Case(operation, "OCP", {"input": "float32"}, {"x": x}))
                assert bool(words) is outside and (not words or f"at most {largest} elements" in words)


def test_every_peer_comes_in_by_the_public_door():
    found, broken = peers()
    assert not broken
    assert (
        [subject.name for subject in found]
        == list(SUBJECTS)
        == ["ml_dtypes", "gfloat", "gfloat-float32", "torch", "nvidia-headers"]
    )
    assert sum(not needs for needs in PEERS.values()) == 4
    for subject in found:
        ready, reason = subject.available()
        assert ready or reason
        assert not ready or subject.describe()
        assert isinstance(subject, Subject) and subject.kind == "peer"


def test_a_peer_says_which_variants_are_not_its_own():
    ml, header, torch = SUBJECTS["ml_dtypes"], SUBJECTS["nvidia-headers"], SUBJECTS["torch"]
    assert "does not saturate" in ml.refuses("encode_e4m3", "HOPPER", {"overflow": "saturate"})
    assert not ml.refuses("encode_e4m3", "HOPPER", {"overflow": "nan"})
    nearest = header.refuses("encode_e8m0", "HOPPER", {"rounding": "nearest", "saturate": False})
    can = header.available()[0] and nvidia_headers.nearest_scale()
    assert not nearest if can else "cudaRoundPosInf" in nearest
    assert "MXINT8" in header.refuses("quantize_mx", "HOPPER", {"element": "MXINT8"})
    assert "not OCP" in header.refuses("quantize_mxfp4", "OCP", {})
    if torch.available()[0]:
        own = torch_dtypes.e4m3_overflow()
        assert not torch.refuses("encode_e4m3", "HOPPER", {"overflow": own})
        assert own in torch.refuses("encode_e4m3", "HOPPER", {"overflow": {"nan": "saturate"}.get(own, "nan")})


def test_no_compiler_is_unsupported_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnsupportedError, match="no C\\+\\+ compiler"):
        build.find_compiler()
    with pytest.raises(UnsupportedError, match="not installed"):
        build.find_includes(("no_such_header.h",))


def test_a_build_is_cached_and_a_compile_error_is_said(monkeypatch, tmp_path):
    try:
        build.find_compiler()
    except UnsupportedError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path))
    source = tmp_path / "seven.cpp"
    source.write_text('extern "C" int seven() { return 7; }\n')
    assert build.build(source, ()).seven() == 7
    built = list((tmp_path / "peers").iterdir())
    assert [path.suffix for path in built] == [".so"]
    stamp = built[0].stat().st_mtime_ns
    assert build.build(source, ()).seven() == 7
    assert built[0].stat().st_mtime_ns == stamp
    source.write_text("this is no C++\n")
    with pytest.raises(UnsupportedError, match=r"could not compile seven\.cpp"):
        build.build(source, ())
    assert list((tmp_path / "peers").iterdir()) == built


def test_torch_that_is_not_there_refuses_with_the_reason(monkeypatch):
    """What the cast would do is only asked of a torch that is installed."""
    monkeypatch.setattr(torch_dtypes, "available", lambda: (False, "torch is not installed"))
    for params in OPERATIONS["encode_e4m3"].variants():
        assert "torch is not installed" in torch_dtypes._supports("encode_e4m3", "HOPPER", params)
