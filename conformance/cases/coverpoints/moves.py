"""Coverpoints of splits, payloads and SwiGLU inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, FP32, Format

from ..case import Case
from ..draw.bits import float_bits
from ..geometry import splits_of
from .point import Counts, Golden, Group

COLUMNS = ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns")


def _split_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    tall = 32 if operation == "mxfp4_columns" else 128
    names = {
        "one expert": "no splits given", "several experts": "blocks restart at each", "expert without rows": "m = 0",
        "no rows at all": "M = 0", "tail": f"rows of an expert that do not fill a block of {tall}",
        "whole blocks only": f"an expert of a multiple of {tall} rows", "odd row count": "of an expert",
    }  # fmt: skip
    if operation == "mxfp4_columns":
        del names["odd row count"]
    return names


def _splits(case: Case, golden: Golden) -> Counts:
    tall = 32 if case.operation == "mxfp4_columns" else 128
    rows = case.inputs["scales"].shape[0]
    counts = splits_of(case, rows)
    return {
        "one expert": int("splits" not in case.params), "several experts": int(len(counts) > 1),
        "expert without rows": int("splits" in case.params and 0 in counts), "no rows at all": int(rows == 0),
        "tail": sum(count % tall != 0 for count in counts), "odd row count": sum(count % 2 for count in counts),
        "whole blocks only": sum(count > 0 and count % tall == 0 for count in counts),
    }  # fmt: skip


def _payload_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {"expert without rows": "m = 0", "padded expert": "its last rows are padding",
             "expert that needs no padding": "a multiple of `align`", "row taken several times": "top-k routing",
             "row never taken": "a token that no expert gets", "no rows at all": "all splits 0"}  # fmt: skip
    if operation == "unpermute":
        names |= {"weights": "given", "no weights": "1 for every row", "float32 rows": "", "bfloat16 rows": "",
                  "token of three rows or more": "the order of the sum matters"}  # fmt: skip
    return names


def _payload(case: Case, golden: Golden) -> Counts:
    counts, align = case.params["splits"], case.params.get("align", 32)
    tokens = int(case.params["tokens"]) if case.operation == "unpermute" else case.inputs["payload"].shape[0]
    taken = np.bincount(case.inputs["row_map"].astype(np.int64), minlength=tokens)
    found = {
        "expert without rows": sum(count == 0 for count in counts), "no rows at all": int(sum(counts) == 0),
        "padded expert": sum(count % align != 0 for count in counts),
        "expert that needs no padding": sum(count > 0 and count % align == 0 for count in counts),
        "row taken several times": int((taken > 1).sum()), "row never taken": int((taken == 0).sum()),
    }  # fmt: skip
    if case.operation == "unpermute":
        wide = case.inputs["rows"].dtype.itemsize == 4
        found |= {"weights": int("weights" in case.inputs), "no weights": int("weights" not in case.inputs),
                  "float32 rows": int(wide), "bfloat16 rows": int(not wide),
                  "token of three rows or more": int((taken > 2).sum())}  # fmt: skip
    return found


def _swiglu_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {f"{kind} {name}": "" for name in ("gate", "up") for kind in _KINDS}
    names |= {"prob": "given", "no prob": "left out", "prob of 0": "", "NaN prob": ""}
    if operation == "swiglu_backward":
        names |= {"float32 gradient": "", "bfloat16 gradient": ""}
    return names


_KINDS = ("NaN", "Inf", "-Inf", "zero", "negative zero", "subnormal", "negative", "positive")


def _kinds(bits: np.ndarray, fmt: Format, name: str) -> Counts:
    magnitude = bits & (fmt.sign_mask - 1)
    infinity, negative = int(fmt.inf_code or 0), bits != magnitude
    hits = (magnitude > infinity, bits == infinity, bits == infinity | fmt.sign_mask, bits == 0, bits == fmt.sign_mask,
            (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits), negative, ~negative)  # fmt: skip
    return {f"{kind} {name}": int(np.count_nonzero(hit)) for kind, hit in zip(_KINDS, hits, strict=True)}


def _swiglu(case: Case, golden: Golden) -> Counts:
    found = _kinds(float_bits(case.inputs["gate"]), BF16, "gate") | _kinds(float_bits(case.inputs["up"]), BF16, "up")
    found |= {"prob": int("prob" in case.inputs), "no prob": int("prob" not in case.inputs)}
    if "prob" in case.inputs:
        prob = _kinds(float_bits(case.inputs["prob"]), FP32, "prob")
        found |= {"prob of 0": prob["zero prob"], "NaN prob": prob["NaN prob"]}
    if "grad" in case.inputs:
        wide = case.inputs["grad"].dtype.itemsize == 4
        found |= {"float32 gradient": int(wide), "bfloat16 gradient": int(not wide)}
    return found


SPLITS = Group("experts", frozenset(COLUMNS), _split_names, _splits)
PAYLOAD = Group("routing", frozenset({"permute_pad", "permute_unpack", "unpermute"}), _payload_names, _payload)
SWIGLU = Group("SwiGLU inputs", frozenset({"swiglu_quantize", "swiglu_backward"}), _swiglu_names, _swiglu)
