"""What a mutant is judged on: cases with their golden bytes, made once and shared by all mutants.

`first` is the fast stage: frozen vectors and corner cases, small ones first, what is no variant of an operation
(scale layouts, random bits by key or by element), and a few sampled recipes. `domains` is the long one: every
enumerable domain of the level `standard`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.errors import UnsupportedError

from ...cases.case import Case
from ...cases.corners import corner_cases
from ...cases.domains import domains_for
from ...cases.operation import OPERATIONS, arguments_of, as_bits, call_golden
from ...cases.recipes import sampled_cases
from ...vectors.frozen import frozen_cases
from . import methods
from .forked import OUR_FAULT

Arrays = tuple[np.ndarray, ...]
LAYOUTS = "scale layouts"
"""The name under which the storage layouts of scales (N6.5) are judged; they are no operation of their own."""
DEFAULT = "HOPPER"
SAMPLED, SEED = 4, 0
OWN = "own"
"""The place of a question that the workshop itself asks."""


@dataclass(frozen=True)
class Question:
    """One call and its right answer. place: `vector`, `corner`, `sampled`, `layout` or the name of a domain.

    given: arguments in the place of the case's own, where a kernel takes what the golden model refuses.
    """

    case: Case
    golden: Arrays
    place: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is, in a line."""
        return f"{self.place}: {self.case.label or self.case}"


def ask(case: Case, place: str) -> Question:
    """Return the question that a case is."""
    return Question(case, call_golden(case), place)


def variants(operation: str, profiles: Iterable[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (operation, profile, parameters) of every variant that is judged under some profiles."""
    known = OPERATIONS[operation]
    for profile in profiles if known.profiled else (DEFAULT,):
        if refnum.get_profile(profile).rounding == "stochastic" and "rbits" not in known.optional:
            continue
        for params in known.variants():
            yield operation, profile, params


@functools.cache
def first(operation: str, profiles: tuple[str, ...]) -> tuple[Question, ...]:
    """Return the questions of the fast stage, small ones first."""
    vectors, corners, sampled = [], [], []
    for variant in variants(operation, profiles) if operation in OPERATIONS else ():
        vectors += [ask(case, "vector") for case, _ in frozen_cases(*variant)]
        corners += [ask(case, "corner") for case in corner_cases(*variant)]
        sampled += [ask(case, "sampled") for case in sampled_cases(*variant, SEED, SAMPLED)]
    by_size = functools.partial(sorted, key=lambda question: question.case.elements)
    return (*by_size(vectors), *extra(operation), *by_size(corners), *by_size(sampled))


def domains(operation: str, profiles: tuple[str, ...]) -> Iterator[Question]:
    """Yield the questions of every domain of the level `standard`."""
    for variant in variants(operation, profiles) if operation in OPERATIONS else ():
        for domain in domains_for(*variant, "standard"):
            for case in domain.cases():
                yield ask(case, domain.name)


def all_of(operation: str, profiles: tuple[str, ...]) -> Iterator[Question]:
    """Yield the questions of the fast stage, then those of the domains."""
    yield from first(operation, profiles)
    yield from domains(operation, profiles)


def extra(operation: str) -> Iterator[Question]:
    """Yield the questions on what kernels have beside the variants of `OPERATIONS`."""
    makers = {
        "quantize_mxfp4": _keyed,
        "encode_e2m1": _scaled_elements,
        "matmul_fp8": _experts_fp8,
        "matmul_bf16": _experts_bf16,
        LAYOUTS: _layouts,
    }
    yield from makers.get(operation, tuple)()
    for case in methods.MAKERS.get(operation, tuple)():
        yield ask(case, "beside")


EXPERTS = (66, 0, 3, 1)
"""Rows of each expert of a product: more than a tile of 64, none, and a part of a tile."""


def _experts_fp8() -> Iterator[Question]:
    """Products of experts (N19.8), with scales of every kind that they take."""
    rng = np.random.default_rng(6)
    rows, n, k = sum(EXPERTS), 5, 160
    a, b = (rng.integers(0, 0x7F, shape, np.uint8) for shape in ((rows, k), (len(EXPERTS), n, k)))
    scales: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "row": ((rows, 1), (len(EXPERTS), n, 1)),
        "block": ((rows, 2), (len(EXPERTS), n, 2)),
        "square": ((rows, 2), (len(EXPERTS), 1, 2)),
    }
    for order, kind, out in (
        ("chain", "row", "float32"),
        ("promote128", "block", "bfloat16"),
        ("split2", "square", "float32"),
    ):
        given = {
            f"{name}_scales": rng.integers(120, 135, shape, np.uint8)
            for name, shape in zip("ab", scales[kind], strict=True)
        }
        params = {"order": order, "out": out, "a_format": "E4M3", "b_format": "E4M3", "splits": list(EXPERTS)}
        case = Case("matmul_fp8", DEFAULT, params, {"a": a, "b": b, **given}, label=f"{order}, scales by {kind}")
        yield ask(case, "experts")


def _experts_bf16() -> Iterator[Question]:
    """Products of experts (N19.8)."""
    a, b = (_floats(m, 136).astype(ml_dtypes.bfloat16) for m in (sum(EXPERTS), len(EXPERTS) * 5))
    inputs = {"a": a, "b": b.reshape(len(EXPERTS), 5, 136)}
    for order, out in (("chain", "float32"), ("split2", "bfloat16")):
        params = {"order": order, "out": out, "splits": list(EXPERTS)}
        yield ask(Case("matmul_bf16", DEFAULT, params, inputs, label=order), "experts")


def _floats(m: int, k: int) -> np.ndarray:
    """Floats of many binades, some blocks of zeros, and one row each with Inf and NaN where there are enough."""
    rng = np.random.default_rng(m * k)
    x = rng.standard_normal((m, k)) * 2.0 ** rng.integers(-40, 40, (m, 1))
    x[:, :32] *= rng.random((m, 1)) < 0.8
    x = x.astype(np.float32)
    x[2::7, 1], x[3::7, 2] = np.inf, np.nan
    return x


def _keyed() -> Iterator[Question]:
    """Random bits by key (N13.5): both halves of the counter's words, and an offset, of every float type."""
    keys, x = ((1, 2, 3), (2**63 + 5, 2**32 - 1, 7, 64), (3, 0, 2**32 - 1, 2**37)), _floats(9, 96)
    for dtype, key in itertools.product((np.float32, np.float16, ml_dtypes.bfloat16), keys):
        with np.errstate(over="ignore"):
            given = {"x": x.astype(dtype)}
        label = f"key {key}, {np.dtype(dtype).name}"
        yield ask(Case("quantize_mxfp4", "STOCHASTIC", {"philox": key}, given, label=label), "key")


def _scaled_elements() -> Iterator[Question]:
    """Elements under a scale byte, to nearest and by random bits."""
    powers = np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)
    special = np.array([0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000], np.uint32).view(np.float32)
    x = np.concatenate([_floats(33, 64).reshape(-1), powers, -powers, special, -special])
    rbits = np.random.default_rng(1).integers(0, 256, x.shape, np.uint8)
    for byte in (0, 1, 7, 100, 127, 150, 253, 254):
        near, code = {"scale_byte": byte}, refnum.encode("E2M1", x, byte - 127, "STOCHASTIC", rbits=rbits)
        yield ask(Case("encode_e2m1", DEFAULT, near, {"x": x}, label=f"byte {byte}"), "element")
        random = Case("encode_e2m1", DEFAULT, near, {"x": x, "rbits": rbits}, label=f"byte {byte}, random")
        yield Question(random, (code,), "element")
    moved = np.concatenate([x[:1], x])[1:]  # an element into its memory: no vector load takes it
    odd = Case("encode_e2m1", DEFAULT, {"scale_byte": 128}, {"x": moved}, label="byte 128, at an odd place")
    yield ask(odd, "element")
    nan = Case("encode_e2m1", DEFAULT, {"scale_byte": 255}, {"x": x}, label="byte 255")
    yield Question(nan, (np.zeros(x.shape, np.uint8),), "element")  # a NaN block's codes (N4)


def _layouts() -> Iterator[Question]:
    """Scales written and read in every storage layout, at shapes with and without padding."""
    for m, k in ((1, 32), (3, 160), (4, 128), (5, 128), (130, 416), (257, 288), (256, 256)):
        x = _floats(m, k)
        packed, scales = refnum.quantize_mxfp4(x)
        scales[::3, 0], scales[1::3, -1], scales[-1, 0] = 255, 0, 1
        half, (codes, tile_scales) = x.astype(ml_dtypes.bfloat16), refnum.quantize_fp8_tiles(x)
        tiles = {"codes": codes, "scales": tile_scales}
        for layout in refnum.layouts.LAYOUTS[1:]:
            label = f"{m}x{k} {layout}"
            yield ask(Case("quantize_mxfp4", DEFAULT, {"layout_out": layout}, {"x": x}, label=label), "layout")
            laid = {"packed": packed, "scales": scales}
            yield ask(Case("dequantize_mxfp4", DEFAULT, {"layout_in": layout}, laid, label=label), "layout")
            # a scale of one thread, and tiles that a row does not fill
            yield ask(Case("quantize_mxfp4", DEFAULT, {"layout_out": layout}, {"x": half}, label=label), "layout")
            both = {"layout_in": layout, "layout_out": layout}
            yield ask(Case("fp8_to_mxfp4", DEFAULT, both, tiles, label=label), "layout")
        yield _strange_scales(m, k, packed, scales)


def _strange_scales(m: int, k: int, packed: np.ndarray, scales: np.ndarray) -> Question:
    """Float32 scales that are no powers of two, which a kernel reads as NaN and the model refuses."""
    strange = np.array([1.5 * 2.0**-127, -1, 0, 1.5 * 2.0**126, 1 + 2.0**-23, np.inf], np.float32)
    floats, bytes_ = refnum.layouts.scales_to_layout(scales, "float32"), scales.copy()
    floats.reshape(-1)[: strange.size] = strange[: floats.size]
    bytes_.reshape(-1)[: strange.size] = 255
    case = Case("dequantize_mxfp4", DEFAULT, {"layout_in": "float32"}, {"packed": packed, "scales": bytes_},
                label=f"{m}x{k}, scales that are no powers of two")  # fmt: skip
    return Question(case, (refnum.dequantize_mxfp4(packed, bytes_),), "layout", {"scales": floats})


def differs(results: Iterable[Any], golden: Arrays) -> bool:
    """Whether results are not, byte for byte and dtype for dtype, the golden ones."""
    given = [np.asarray(array) for array in results if array is not None]
    return len(given) != len(golden) or any(
        a.dtype.itemsize != b.dtype.itemsize or a.shape != b.shape or not np.array_equal(as_bits(a), as_bits(b))
        for a, b in itertools.zip_longest(given, golden)
    )


def answer(function: Any, question: Question) -> tuple[Any, ...]:
    """Call an operation on a question's case, as the golden one is called."""
    case = question.case
    if case.operation not in OPERATIONS:  # a question of the workshop's own
        return (function(**case.params, **case.inputs),)
    arguments = {**arguments_of(case), **question.given}
    profiled = {"profile": refnum.get_profile(case.profile)} if OPERATIONS[case.operation].profiled else {}
    result = function(**arguments, **profiled)
    return result if isinstance(result, tuple) else (result,)


def wrong(operations: Mapping[str, Callable[..., Any]], question: Question) -> str:
    """Return in words what is wrong with the answer to a question, or nothing; errors of `OUR_FAULT` are raised.

    What an operation says that it does not have is no answer, and no mutant is to blame.
    """
    try:
        with np.errstate(all="ignore"):
            results = answer(operations[question.case.operation], question)
    except OUR_FAULT:
        raise
    except UnsupportedError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "other bytes" if differs(results, question.golden) else ""
