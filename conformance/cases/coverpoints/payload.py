"""Coverpoints of payloads and routing (N12); where codes and scales are joined, those of their operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..case import Case
from ..operation import OPERATIONS
from . import blocks, recast
from .point import Counts, Golden, Group


def _payload_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {"expert without rows": "m = 0", "padded expert": "its last rows are padding",
             "expert that needs no padding": "a multiple of `align`", "row taken several times": "top-k routing",
             "row never taken": "a token that no expert gets", "no rows at all": "all splits 0"}  # fmt: skip
    if OPERATIONS[operation].main == "values":
        names |= {"weights": "given", "no weights": "1 for every row", "float32 rows": "", "bfloat16 rows": "",
                  "token of three rows or more": "the order of the sum matters"}  # fmt: skip
    return names


def _payload(case: Case, golden: Golden) -> Counts:
    counts, align = case.params["splits"], case.params.get("align", 32)
    sums = OPERATIONS[case.operation].main == "values"
    tokens = int(case.params["tokens"]) if sums else case.inputs["payload"].shape[0]
    taken = np.bincount(case.inputs["row_map"].astype(np.int64), minlength=tokens)
    found = {
        "expert without rows": sum(count == 0 for count in counts), "no rows at all": int(sum(counts) == 0),
        "padded expert": sum(count % align != 0 for count in counts),
        "expert that needs no padding": sum(count > 0 and count % align == 0 for count in counts),
        "row taken several times": int((taken > 1).sum()), "row never taken": int((taken == 0).sum()),
    }  # fmt: skip
    if sums:
        wide = case.inputs["rows"].dtype.itemsize == 4
        found |= {"weights": int("weights" in case.inputs), "no weights": int("weights" not in case.inputs),
                  "float32 rows": int(wide), "bfloat16 rows": int(not wide),
                  "token of three rows or more": int((taken > 2).sum())}  # fmt: skip
    return found


ROUTING = Group("routing", _payload_names, _payload)

pack_payload = unpack_payload = ()
quantize_payload = blocks.quantize_mxfp4
fp8_to_payload = recast.fp8_to_mxfp4
permute_pad = permute_unpack = unpermute = (ROUTING,)
