"""Enumerations of proofs: exact sizes, every member once, the same bits on a device; digests; composition (N18)."""

import hashlib
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum import tensor_core
from refnum.conformance.cases.domains.wide import INFINITY, QUIET, Alone, Cut, EveryPattern, Pin, Pinned, largest_maxima
from refnum.conformance.cases.draw.bits import float_bits
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.prove import trace
from refnum.conformance.commands.prove.catalogue import CATALOGUE, get_proof
from refnum.conformance.commands.prove.catalogue import HOST as HOST_MODEL
from refnum.conformance.commands.prove.chunk import Refuted, run_chunk
from refnum.conformance.commands.prove.digest import ChunkDigest, root
from refnum.conformance.commands.prove.standard import SHAPE, TENSORS, Standard
from refnum.conformance.subjects.choose import choose
from refnum.conformance.verdicts.device import as_words
from refnum.errors import ArgumentError

spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).parents[1] / "refnum" / "test_dispatch.py")
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)

HOST = np.empty(0, np.uint8)
F32 = {"input": "float32"}


def members_of(made, chunk):
    """Patterns of a chunk's cases as one matrix, and how many members it claims."""
    parts = list(made.parts(chunk, HOST))
    return np.concatenate([float_bits(part.case.inputs["x"]) for part in parts]), sum(part.members for part in parts)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_stated_size_is_the_enumerations(name):
    proof = CATALOGUE[name]
    assert proof.made.size == proof.size > 0
    assert proof.made.chunks > 0 and proof.made.title(0) and proof.made.title(proof.made.chunks - 1)
    assert set(proof.operations) <= set(OPERATIONS) and proof.operations


def test_every_operation_is_proved_on_both_libraries():
    proofs = [proof for name, proof in CATALOGUE.items() if name.startswith("model-on-cupy")]
    named = [name for proof in proofs for name in proof.operations]
    assert sorted(named) == sorted(OPERATIONS), "N18.6: every operation, once"
    assert all(proof.golden == HOST_MODEL and proof.made.tensors for proof in proofs)


def test_sums_stand_beside_accumulators_of_every_exponent():
    """Of each pair of formats: all that a product has, in both signs; the last step holds one pair of codes."""
    made = CATALOGUE["product-sums"].made
    seen = {}
    for chunk in (chunk for chunk in made.table if "beside" in chunk.title):
        left, right = (
            refnum.decode(f, np.unique(x[:, 0])) for f, x in zip(chunk.formats, (chunk.a, chunk.b), strict=True)
        )
        products = np.outer(np.float64(left), np.float64(right)).ravel()
        assert {*chunk.a[:, 32].tolist()} == {*chunk.b[:, 32].tolist()} == {*range(256)}
        assert not chunk.a[:, 1:32].any() and chunk.members == len({*map(bytes, chunk.a)}) * len({*map(bytes, chunk.b)})
        seen.setdefault(chunk.formats, set()).update(zip(np.sign(products), np.frexp(products)[1] - 1, strict=True))
    ends = {"E4M3": (-9, 8), "E5M2": (-16, 15)}
    for formats, found in seen.items():
        low, high = (sum(ends[fmt][end] for fmt in formats) for end in (0, 1))
        assert {(s, e) for s in (-1, 1) for e in range(low, high + 1)} <= found


def test_a_chunk_of_sums_holds_for_the_host_build_and_refutes_a_step_of_other_bits(monkeypatch):
    (subject,) = choose(["host"]).usable
    proof = CATALOGUE["product-sums"]
    chunk = next(n for n, one in enumerate(proof.made.table) if one.title == "E4M3 x E4M3: sums of three products")
    assert run_chunk(proof, subject, chunk, HOST)[1] == proof.made.table[chunk].members
    facts = {**tensor_core.INSTRUCTIONS, "wgmma_fp8": replace(tensor_core.INSTRUCTIONS["wgmma_fp8"], fraction_bits=14)}
    monkeypatch.setattr("refnum.product.INSTRUCTIONS", facts)
    with pytest.raises(Refuted, match="sums of three products"):
        run_chunk(proof, subject, chunk, HOST)


def test_the_issues_domains_are_there():
    assert get_proof("e2m1-float32-scales").size == 1 << 40
    assert get_proof("e4m3-float32").size == 1 << 32
    rules = {CATALOGUE[f"maxima-{rule}"].made.profile for rule in ("rceil", "floor", "ceil", "even")}
    assert {refnum.get_profile(profile).scale_rule for profile in rules} == {"rceil", "floor", "ceil", "even"}
    with pytest.raises(ArgumentError, match="No proof is named 'x'"):
        get_proof("x")


def test_the_model_digest_covers_what_an_operation_runs(monkeypatch):
    """A change of the scalar casts is another model for their proofs."""
    before = {name: trace.model_digest(CATALOGUE[name]) for name in ("scalars", "codes", "maxima-rceil", "fp8-columns")}
    read = trace._file_digest
    for module, changed in (
        ("refnum.casts", {"scalars", "codes"}),
        ("refnum.codec", set(before)),
        ("refnum.columns", {"fp8-columns"}),
        ("refnum.explanation", set()),
    ):
        monkeypatch.setattr(trace, "_file_digest", lambda name, module=module: "" if name == module else read(name))
        assert {name for name, digest in before.items() if trace.model_digest(CATALOGUE[name]) != digest} == changed


def test_every_pattern_comes_once_for_each_value():
    made = EveryPattern("encode_e2m1", {"input": "bfloat16"}, "scale_byte", (3, 200), cut=Cut(1 << 15, 1 << 13))
    assert (made.size, made.chunks) == (1 << 17, 4)
    seen = []
    for chunk in range(made.chunks):
        for part in made.parts(chunk, HOST):
            seen += [(part.case.params["scale_byte"], int(bits)) for bits in float_bits(part.case.inputs["x"]).ravel()]
            assert part.members == part.case.elements
    assert seen == [(byte, bits) for byte in (3, 200) for bits in range(1 << 16)]


def test_every_float32_ends_with_the_last():
    made = EveryPattern("encode_e2m1", F32, "scale_byte", (0, 255), cut=Cut(1 << 14, 1 << 13))
    bits, members = members_of(made, made.chunks - 1)
    assert made.chunks == 1 << 19 and members == 1 << 14
    assert bits.ravel()[0] == (1 << 32) - (1 << 14) and bits.ravel()[-1] == (1 << 32) - 1
    assert next(made.parts(made.chunks - 1, HOST)).case.params["scale_byte"] == 255


def test_a_magnitude_alone_in_each_block():
    made = Alone("quantize_mxfp4", "HOPPER", F32, Cut(1 << 16, 1 << 14))
    for chunk in (0, 7, made.chunks - 1):
        bits, members = members_of(made, chunk)
        blocks = bits.reshape(-1, 32)
        first = chunk << 11
        assert members == len(blocks) == 1 << 11
        number = np.arange(first, first + (1 << 11))
        assert np.array_equal(blocks[np.arange(1 << 11), number % 32], number.astype(np.uint32))
        assert np.count_nonzero(blocks) == np.count_nonzero(number)
    assert made.chunks * (1 << 11) == made.size


@pytest.mark.parametrize("width", [32, 128])
def test_members_beside_a_pin_come_once(width):
    made = Pinned("quantize_mxfp4", "HOPPER", F32, width, cut=Cut(1 << 15, 1 << 13))
    made.__dict__["pins"] = [Pin(70_000, 140_002, True), Pin(INFINITY, 99_991, False)]
    held, lanes = [[], []], set()
    for chunk in range(made.chunks):
        pin, first, blocks = made.table[chunk]
        which = made.pins.index(pin)
        bits, members = members_of(made, chunk)
        rows = bits.reshape(-1, width)
        assert len(rows) == blocks
        turn = (np.arange(width)[None, :] - (first + np.arange(blocks))[:, None]) % width
        assert (rows[turn == 0] == pin.bits).all() and (turn == 0).sum() == blocks
        lanes |= set(np.nonzero(turn == 0)[1])
        ordered = np.take_along_axis(rows, np.argsort(turn, axis=1), axis=1)[:, 1:].ravel()
        held[which] += list(ordered[:members])
        assert not ordered[members:].any(), "fillers are zeros"
    assert lanes == set(range(width)), "the pin visits every lane"
    assert [(bits >> 31) | (bits & 0x7FFFFFFF) << 1 for bits in map(int, held[0])] == list(range(140_002))
    assert held[1] == list(range(99_991))


def test_members_do_not_wrap_behind_the_last_pattern():
    made = Pinned("quantize_mxfp4", "HOPPER", F32, 32, pairs=False, cut=Cut(1 << 16, 1 << 14))
    last = next(number for number in range(made.chunks) if made.table[number][0].bits == QUIET) - 1
    bits, members = members_of(made, last)
    rows = bits.reshape(-1, 32)
    turn = (np.arange(32)[None, :] - (made.table[last][1] + np.arange(len(rows)))[:, None]) % 32
    ordered = np.take_along_axis(rows, np.argsort(turn, axis=1), axis=1)[:, 1:].ravel()
    assert int(ordered[members - 1]) == 0xFFFFFFFF and not ordered[members:].any() and members < ordered.size


def test_parts_are_the_same_bits_on_a_device():
    like = stand_in.DeviceArray(HOST)
    small = Cut(1 << 14, 1 << 13)
    pinned = Pinned("quantize_mxfp4", "HOPPER", F32, 32, bytes_=(3,), cut=Cut(1 << 20, 1 << 18))
    for made, chunk in (
        (EveryPattern("encode_e2m1", F32, "scale_byte", (3,), cut=small), 1000),
        (Alone("quantize_mxfp4", "HOPPER", F32, small), 77),
        (pinned, 5),
        (pinned, pinned.chunks - 1),
    ):
        for host, there in zip(made.parts(chunk, HOST), made.parts(chunk, like), strict=True):
            x = there.case.inputs["x"]
            assert isinstance(x, stand_in.DeviceArray) and host.members == there.members
            assert x.host.tobytes() == host.case.inputs["x"].tobytes()


@pytest.mark.parametrize("first", [0x0000_0000, 0x3F80_0000, 0x7F7F_E000, 0x7F80_0000, 0xBFC0_0000, 0xFF7F_E000])
@pytest.mark.parametrize("byte", [0, 31, 32, 127, 240, 241, 254, 255])
def test_the_model_gives_the_same_codes_on_a_device(first, byte):
    """Subnormals, the largest finite numbers, Inf and NaN, under bytes where the quick table reaches and does not."""
    made = EveryPattern("encode_e2m1", F32, "scale_byte", (byte,), cut=Cut(1 << 13, 1 << 13))
    for host, there in zip(
        made.parts(first >> 13, HOST), made.parts(first >> 13, stand_in.DeviceArray(HOST)), strict=True
    ):
        got = run_golden(there.case)["codes"]
        assert isinstance(got, stand_in.DeviceArray) and np.array_equal(got.host, run_golden(host.case)["codes"])


def test_standard_chunks_hold_whole_domains_and_tensors():
    made = Standard(("mxfp4_to_fp8", "permute_pad", "encode_e2m1"), tensors=True)
    names = [chunk.name for chunk in made.table]
    assert names.count(TENSORS) == 2 + 3 + 3
    for number, chunk in enumerate(made.table):
        parts = list(made.parts(number, HOST))
        assert sum(part.members for part in parts) == chunk.members
        if chunk.name == TENSORS:
            assert chunk.members == len(parts) * SHAPE[0] * SHAPE[1]
            assert len({part.case.digest() for part in parts}) == len(parts)


# --- the digest (N18.4)


def by_definition(outputs):
    """N18.4 in Python integers."""
    mask, totals, places = (1 << 64) - 1, [0, 0], {}
    for case in outputs:
        for number, (name, array) in enumerate(case.items()):
            raw = array.tobytes()
            raw += bytes(-len(raw) % 8)
            for start in range(0, len(raw), 8):
                i = places.get(name, 0)
                places[name] = i + 1
                w = int.from_bytes(raw[start : start + 8], "little")
                z = ((number * 2**56 + i) * 0x9E3779B97F4A7C15 + w * 0xD1B54A32D192ED03) & mask
                z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
                z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
                a = z ^ z >> 31
                z = (a ^ 0x6A09E667F3BCC909) * 0xFF51AFD7ED558CCD & mask
                z = (z ^ z >> 33) * 0xC4CEB9FE1A85EC53 & mask
                totals[0] = (totals[0] + a) & mask
                totals[1] = (totals[1] + (z ^ z >> 33)) & mask
    return f"{totals[0]:016x}{totals[1]:016x}"


def digest_of(outputs, wrap=lambda array: array):
    digest = ChunkDigest()
    for case in outputs:
        digest.add({name: wrap(array) for name, array in case.items()})
    return digest.hex()


def samples():
    rng = np.random.default_rng(1)
    for size in (0, 1, 7, 8, 37):
        yield {"a": rng.integers(0, 256, (size, 3)).astype(np.uint8), "b": rng.integers(0, 1 << 32, size, np.uint32)}


def test_the_digest_is_the_clauses():
    outputs = list(samples())
    assert digest_of(outputs) == by_definition(outputs)
    assert digest_of(outputs, stand_in.DeviceArray) == by_definition(outputs)
    assert digest_of([]) == "0" * 32
    # a known answer, so that the definition cannot drift with its test
    assert digest_of([{"x": np.arange(16, dtype=np.uint8)}]) == KNOWN


KNOWN = "0b9ee40d1e89253c96672f84eb90ae43"


def test_the_digest_sees_each_byte_its_place_and_its_output():
    outputs = list(samples())
    base = digest_of(outputs)
    changed = [{name: array.copy() for name, array in case.items()} for case in outputs]
    changed[3]["a"][5, 1] ^= 1
    swapped = [{name: array.copy() for name, array in case.items()} for case in outputs]
    swapped[4]["b"][[0, 9]] = swapped[4]["b"][[9, 0]]
    renamed = [{"b": case["b"], "a": case["a"]} for case in outputs]
    assert len({base, digest_of(changed), digest_of(swapped), digest_of(renamed), digest_of(outputs[2:])}) == 5


def test_words_are_padded_little_endian():
    words = as_words(np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    assert words.tolist() == [0x060504030201]


def test_the_root_is_sha256_of_the_lines():
    assert root(["aa", "bb"]) == "sha256:" + hashlib.sha256(b"0:aa\n1:bb\n").hexdigest()


# --- composition (N18.2): what the domains rest on


@pytest.mark.parametrize("profile", ["HOPPER", "OCP", "CEIL", "EVEN"])
def test_pins_are_the_largest_maxima_and_rules_are_monotone(profile):
    tops = largest_maxima("quantize_mxfp4", profile, F32, 32)

    def byte(patterns):
        blocks = np.zeros((len(patterns), 32), np.uint32)
        blocks[:, 7] = patterns
        return refnum.quantize_mxfp4(blocks.view(np.float32), profile)[1].ravel().astype(int)

    pins = np.array(list(tops.values()))
    assert byte(pins).tolist() == list(tops) == sorted(tops)
    after = pins[:-1] + 1
    assert (byte(after) > np.array(list(tops))[:-1]).all(), "one step above a pin has a larger byte"
    lattice = np.unique((np.arange(1, 0x7F80)[:, None] << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF])).ravel())
    found = byte(lattice)
    assert (np.diff(found) >= 0).all()
    assert all(lattice[i] <= tops[found[i]] for i in range(len(lattice)))


def test_the_clauses_counts():
    tops = largest_maxima("quantize_mxfp4", "HOPPER", F32, 32)
    assert list(tops) == list(range(254))
    assert sum(2 * (top + 1) for top in tops.values()) == 549_713_871_354
    text = (Path(__file__).parents[2] / "docs" / "specification" / "N18.md").read_text()
    assert "549,713,871,354" in text


@pytest.mark.parametrize("who", ["model", "host"])
@pytest.mark.parametrize("profile", ["HOPPER", "OCP"])
def test_a_block_is_the_scale_of_its_maximum_and_then_elements(who, profile):
    """Random blocks of all magnitudes: the byte is that of the maximum alone, each code that of its element alone."""
    usable = [subject for subject in choose([who]).usable if subject.name == who]
    if not usable:
        pytest.skip(f"{who} is not usable here")
    bits = refnum.philox.random_words(1 << 16, 5).reshape(-1, 32)
    bits[:400] &= np.uint32(0x807FFFFF)  # tiny blocks
    bits[400:800] = bits[400:800] & np.uint32(0x80FFFFFF) | np.uint32(0x7E000000)  # huge ones
    bits[800:1200] = bits[800:1200] & np.uint32(0x8FFFFFFF) | np.uint32(0x30000000)
    x = bits.view(np.float32)
    finite = np.isfinite(x).all(axis=1)
    x = x[finite]
    packed, scales = usable[0].operations["quantize_mxfp4"](x, profile=refnum.get_profile(profile))
    magnitude = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    alone = np.zeros_like(magnitude)
    alone[:, 0] = magnitude.max(axis=1)
    assert np.array_equal(scales, refnum.quantize_mxfp4(alone.view(np.float32), profile)[1])
    exponent = scales.astype(np.int32) - 127
    elements = refnum.encode("E2M1", x, exponent)
    assert np.array_equal(packed, refnum.arrays.pack_nibbles(elements)) and len(x) > 1500


def test_byte_255_gives_zeros():
    case = next(EveryPattern("encode_e2m1", {"input": "bfloat16"}, "scale_byte", (255,), cut=Cut(1 << 16, 1 << 16))
                .parts(0, HOST)).case  # fmt: skip
    assert not run_golden(case)["codes"].any()
