"""What is timed: one literal line a conversion, with the operation, its parameters and where in a layer it happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from refnum.errors import ArgumentError

from ...cases.operation import OPERATIONS
from .shapes import ALIGN


@dataclass(frozen=True)
class Line:
    """One conversion, or a product, whose rate is multiply-adds a second and no share of a copy.

    at: the matrix of a shape that it works on, see `Shape.matrix`; `product` for products. params: of the operation,
    scale layouts and a key for random bits among them. experts: whether the rows are split over the shape's experts,
    not one. unit: what the rows of each expert are multiples of. optional: optional inputs that are given. dtypes: of
    inputs that are no bfloat16 here though they mostly are. once: whether it is timed at the first shape of a run
    alone, being the kernel of another line with its scales elsewhere, or no part of a layer. data: what is special
    about the gates of SwiGLU, one of `GATES`.
    """

    label: str
    operation: str
    at: str
    params: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "HOPPER"
    experts: bool = False
    unit: int = ALIGN
    optional: tuple[str, ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    data: str = ""


GATES = ("gate and up in one array", "half the gates zero", "all gates zero")

_FLOATS = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
_LAYOUTS = {
    "float32": "float32 scales", "gemm_float32": "GEMM-ready float32 scales", "packed_ue8m0": "packed UE8M0 scales",
    "swizzled": "swizzled scales",
}  # fmt: skip
_KEY = [20261121, 1, 2]
"""A Philox key: seed, stream, step."""


def _quantisers(to: str, operation: str, **params: Any) -> tuple[Line, ...]:
    return tuple(
        Line(f"{name} -> {to}", operation, "tokens", {"input": dtype, **params}) for dtype, name in _FLOATS.items()
    )


def _casts() -> Iterator[Line]:
    for to, operation in (("E2M1", "encode_e2m1"), ("E4M3", "encode_e4m3"), ("E8M0", "encode_e8m0")):
        for dtype, name in _FLOATS.items():
            yield Line(f"{name} -> {to} codes", operation, "tokens", {"input": dtype}, once=True)


def _stochastic() -> Iterator[Line]:
    for dtype, name in _FLOATS.items():
        given, label = {"input": dtype}, f"{name} -> MXFP4, stochastic"
        yield Line(f"{label}, bits given", "quantize_mxfp4", "tokens", given, "STOCHASTIC", optional=("rbits",))
        keyed = {**given, "random": "keyed", "philox": _KEY}
        yield Line(f"{label}, by key", "quantize_mxfp4", "tokens", keyed, "STOCHASTIC")


def _swiglu() -> Iterator[Line]:
    for name, to in (("FP8", "fp8"), ("MXFP4", "mxfp4")):
        yield Line(f"SwiGLU -> {name}", "swiglu_quantize", "ffn", {"to": to}, optional=("prob",))
        yield Line(f"SwiGLU -> {name}, no prob", "swiglu_quantize", "ffn", {"to": to}, once=True)
        for data in GATES:
            yield Line(
                f"SwiGLU -> {name}, {data}",
                "swiglu_quantize",
                "ffn",
                {"to": to},
                optional=("prob",),
                once=True,
                data=data,
            )


def _in_layouts(label: str, operation: str, at: str, ways: tuple[str, ...], **params: Any) -> tuple[Line, ...]:
    """Return a line for each layout of scales that are no bytes, the same in all these ways."""
    return tuple(
        Line(f"{label}, {words}", operation, at, {**params, **dict.fromkeys(ways, layout)}, once=True)
        for layout, words in _LAYOUTS.items()
    )


def _at_any_row(line: Line, unit: int = 1) -> tuple[Line, Line]:
    """Return a line of experts at multiples of 32 rows, and the same at any of `unit`."""
    return line, replace(line, label=f"{line.label}, unaligned", unit=unit)


def _by_experts(label: str, operation: str, unit: int = 1, **params: Any) -> tuple[Line, ...]:
    """Return a line for one expert, one for the shape's at multiples of 32 rows, one for these at any of `unit`."""
    line = Line(f"{label}, experts", operation, "rows", params, experts=True)
    return Line(label, operation, "rows", params), *_at_any_row(line, unit)


_ALL = (
    *_quantisers("MXFP4", "quantize_mxfp4"),
    Line("BF16 -> MXFP4, floor", "quantize_mxfp4", "tokens", {"input": "bfloat16"}, "OCP"),
    *_stochastic(),
    *_quantisers("FP8 1x128", "quantize_fp8_tiles", tile=[1, 128]),
    *_quantisers("FP8 128x128", "quantize_fp8_tiles", tile=[128, 128]),
    Line("MXFP4 -> BF16", "dequantize_mxfp4", "rows", {"dtype": "bfloat16"}),
    Line("MXFP4 -> FP32", "dequantize_mxfp4", "rows", {"dtype": "float32"}),
    Line("FP8 -> BF16", "dequantize_fp8_tiles", "rows", {"tile": [1, 128], "dtype": "bfloat16"}),
    Line("FP8 -> FP32", "dequantize_fp8_tiles", "rows", {"tile": [1, 128], "dtype": "float32"}),
    Line("FP8 128x128 -> BF16", "dequantize_fp8_tiles", "rows", {"tile": [128, 128], "dtype": "bfloat16"}),
    Line("FP8 128x128 -> FP32", "dequantize_fp8_tiles", "rows", {"tile": [128, 128], "dtype": "float32"}),
    *(
        Line(f"{name} -> NVFP4", "quantize_nvfp4", "tokens", {"input": dtype}, optional=("tensor_amax",))
        for dtype, name in _FLOATS.items()
    ),
    Line("BF16 -> NVFP4, maximum found", "quantize_nvfp4", "tokens", {"input": "bfloat16"}),
    Line("BF16 -> NVFP4 16x16", "quantize_nvfp4", "tokens", {"input": "bfloat16", "tile": [16, 16]},
         optional=("tensor_amax",)),
    Line("BF16 -> NVFP4, by key", "quantize_nvfp4", "tokens", {"input": "bfloat16", "random": "keyed", "philox": _KEY},
         optional=("tensor_amax",)),
    *(
        Line(f"BF16 -> NVFP4, {name}", "quantize_nvfp4", "tokens", {"input": "bfloat16", "variant": variant},
             optional=("tensor_amax",))
        for name, variant in (("ModelOpt", "MODELOPT"), ("four over six", "FOUR_OVER_SIX"))
    ),
    Line("BF16 -> rotated BF16", "hadamard16", "tokens", {"input": "bfloat16"}),
    Line("BF16 -> rotated BF16, columns", "hadamard16", "tokens", {"axis": 0, "input": "bfloat16"}),
    Line("BF16 -> rotated NVFP4", "hadamard_quantize_nvfp4", "tokens", {"input": "bfloat16"},
         optional=("tensor_amax",)),
    Line("BF16 -> rotated NVFP4, columns", "hadamard_quantize_nvfp4", "tokens", {"axis": 0, "input": "bfloat16"},
         optional=("tensor_amax",)),
    Line("BF16 -> rotated NVFP4, columns, maximum found", "hadamard_quantize_nvfp4", "tokens",
         {"axis": 0, "input": "bfloat16"}),
    *(
        Line(f"BF16 -> rotated NVFP4{words}, by key", "hadamard_quantize_nvfp4", "tokens",
             {"axis": axis, "input": "bfloat16", "random": "keyed", "philox": _KEY}, optional=("tensor_amax",))
        for words, axis in (("", -1), (", columns", 0))
    ),
    *(
        Line(f"{name} -> LUQ", "luq", "tokens", {"input": dtype}, optional=("tensor_amax",))
        for dtype, name in _FLOATS.items() if dtype != "float16"
    ),
    Line("BF16 -> LUQ, maximum found", "luq", "tokens", {"input": "bfloat16"}),
    *(
        Line(f"{name} -> TetraJet{words}", "quantize_tetrajet", "tokens", {"axis": axis, "input": dtype})
        for words, axis in (("", 1), (", columns", 0)) for dtype, name in _FLOATS.items()
    ),
    *(
        Line(f"BF16 -> TetraJet{words}, bits given", "quantize_tetrajet", "tokens",
             {"axis": axis, "input": "bfloat16"}, optional=("rbits",))
        for words, axis in (("", 1), (", columns", 0))
    ),
    *(
        Line(f"{name} -> Q-EMA{words}", "q_ema", "tokens", {"axis": axis, "input": dtype})
        for words, axis in (("", 1), (", columns", 0)) for dtype, name in _FLOATS.items() if dtype != "float16"
    ),
    Line("LUQ -> BF16", "dequantize_luq", "rows", {"dtype": "bfloat16"}),
    Line("LUQ -> FP32", "dequantize_luq", "rows", {"dtype": "float32"}),
    Line("BF16 -> radix 4", "radix4", "tokens", {"n0": -5, "input": "bfloat16"}),
    Line("FP32 -> radix 4", "radix4", "tokens", {"n0": -5, "input": "float32"}),
    Line("radix 4 -> BF16", "dequantize_radix4", "rows", {"n0": -5, "dtype": "bfloat16"}),
    Line("radix 4 -> FP32", "dequantize_radix4", "rows", {"n0": -5, "dtype": "float32"}),
    *(
        Line(f"{name} -> DGE {to}", "dge", "tokens", {"input": dtype, "target": target})
        for dtype, name in _FLOATS.items() if dtype != "float16"
        for target, to in _FLOATS.items() if target != "float16"
    ),
    *(
        Line(f"{name} -> OCC, by {axis}", "occ", "tokens", {"axis": axis, "alpha": [99, 100], "input": dtype})
        for dtype, name in _FLOATS.items() if dtype != "float16"
        for axis in ("token", "channel")
    ),
    Line("NVFP4 -> BF16", "dequantize_nvfp4", "rows", {"dtype": "bfloat16"}),
    Line("NVFP4 -> FP32", "dequantize_nvfp4", "rows", {"dtype": "float32"}),
    Line("NVFP4 16x16 -> BF16", "dequantize_nvfp4", "rows", {"dtype": "bfloat16", "tile": [16, 16]}),
    Line("FP8 -> MXFP4", "fp8_to_mxfp4", "rows"),
    Line("MXFP4 -> FP8, max", "mxfp4_to_fp8", "rows", {"scale": "max"}),
    Line("MXFP4 -> FP8, amax", "mxfp4_to_fp8", "rows", {"scale": "amax"}),
    *_by_experts("MXFP4 -> FP8 columns, max", "mxfp4_to_fp8_columns", scale="max"),
    *_by_experts("MXFP4 -> FP8 columns, amax", "mxfp4_to_fp8_columns", scale="amax"),
    *_by_experts("MXFP4 -> FP8 rows and columns", "mxfp4_to_fp8_rows_columns", scale="max"),
    *_by_experts("MXFP4 -> FP8 rows and columns, amax", "mxfp4_to_fp8_rows_columns", scale="amax"),
    *_by_experts("MXFP4 -> MXFP4 columns, amax", "mxfp4_columns", 2, scale="amax"),
    *_by_experts("MXFP4 -> MXFP4 columns, max", "mxfp4_columns", 2, scale="max"),
    *_by_experts("FP8 -> FP8 columns, rne", "fp8_columns", underflow="rne"),
    *_by_experts("FP8 -> FP8 columns, te", "fp8_columns", underflow="te"),
    *_swiglu(),
    Line("SwiGLU backward", "swiglu_backward", "ffn", optional=("prob",)),
    Line("SwiGLU backward, FP32 gradient", "swiglu_backward", "ffn", optional=("prob",), dtypes={"grad": "float32"}),
    Line("pack payload", "pack_payload", "tokens"),
    *_quantisers("payload", "quantize_payload"),
    Line("FP8 -> payload", "fp8_to_payload", "tokens"),
    Line("unpack payload", "unpack_payload", "rows"),
    *_at_any_row(Line("permute and pad", "permute_pad", "tokens", {"align": 32}, experts=True)),
    *_at_any_row(Line("permute and unpack", "permute_unpack", "tokens", {"align": 32}, experts=True)),
    *_at_any_row(Line("unpermute", "unpermute", "rows", {"align": 32}, experts=True, optional=("weights",))),
    *_at_any_row(Line("unpermute, FP32 rows", "unpermute", "rows", {"align": 32}, experts=True, optional=("weights",),
                      dtypes={"rows": "float32"})),
    *_casts(),
    Line("FP8 product, chain", "matmul_fp8", "product", {"order": "chain"}),
    Line("FP8 product, 1x128 by 128x128", "matmul_fp8", "product", {"order": "promote128"},
         optional=("a_scales", "b_scales")),
    Line("BF16 product", "matmul_bf16", "product", {"order": "chain"}),
    *_in_layouts("BF16 -> MXFP4", "quantize_mxfp4", "tokens", ("layout_out",), input="bfloat16"),
    *_in_layouts("BF16 -> FP8 1x128", "quantize_fp8_tiles", "tokens", ("layout_out",), input="bfloat16", tile=[1, 128]),
    *_in_layouts("MXFP4 -> BF16", "dequantize_mxfp4", "rows", ("layout_in",), dtype="bfloat16"),
    *_in_layouts("FP8 -> BF16", "dequantize_fp8_tiles", "rows", ("layout_in",), tile=[1, 128], dtype="bfloat16"),
    *_in_layouts("FP8 -> MXFP4", "fp8_to_mxfp4", "rows", ("layout_in", "layout_out")),
    *_in_layouts("MXFP4 -> FP8, max", "mxfp4_to_fp8", "rows", ("layout_in", "layout_out"), scale="max"),
)  # fmt: skip

LINES: tuple[Line, ...] = tuple(line for line in _ALL if line.operation in OPERATIONS)
"""The lines of the operations that this version has."""


def select(patterns: list[str] | None) -> tuple[Line, ...]:
    """Return the lines whose operation or label matches any shell pattern; ArgumentError for one without a match."""
    if not patterns:
        return LINES
    for pattern in patterns:
        if not any(_matches(line, pattern) for line in LINES):
            known = sorted({line.operation for line in LINES})
            raise ArgumentError(f"--operation {pattern!r} selects nothing that is timed; known are {', '.join(known)}.")
    return tuple(line for line in LINES if any(_matches(line, pattern) for pattern in patterns))


def _matches(line: Line, pattern: str) -> bool:
    return fnmatchcase(line.operation, pattern) or fnmatchcase(line.label, pattern)
