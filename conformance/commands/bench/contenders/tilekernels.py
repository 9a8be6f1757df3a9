"""DeepSeek TileKernels: the calls of `subjects.peers.tile_kernels_calls`, timed in the library's own formats.

Codes and scales that it reads are made ready outside the timed call.
"""

from __future__ import annotations

from typing import Any

from refnum.arrays import Array
from refnum.errors import UnsupportedError

from ....cases import layouts
from ....cases.case import Case
from ....subjects.peers import foreign
from ....subjects.peers import tile_kernels_calls as calls
from ....subjects.subject import Subject
from ..contender import Contender, Prepared, from_torch, to_torch
from ..lines import Line

NAME = "TileKernels"


def missing() -> str:
    """Return why it cannot be used here, or an empty string."""
    try:
        calls.kernels()
    except UnsupportedError as error:
        return str(error)
    return ""


def offers(line: Line) -> str:
    """Return why TileKernels does not have a line."""
    if line.operation not in calls.CALLS:
        return "TileKernels has no such kernel"
    if line.profile == "OCP":
        return "TileKernels rounds scales up, not down"
    if "rbits" in line.optional:
        return "TileKernels draws its random bits itself: see the line by key"
    if line.params.get("input") == "float16":
        return "TileKernels takes bfloat16 and float32"
    if line.operation == "swiglu_quantize" and not line.optional:
        return "TileKernels takes a weight for every row"
    if line.dtypes:
        return "TileKernels takes gradients of the dtype of gate and up"
    if line.params.get("to") == "mxfp4":
        return "TileKernels has SwiGLU to FP8 only"
    if line.params.get("underflow") == "te":
        return "TileKernels rounds to nearest even"
    if line.operation == "mxfp4_to_fp8_columns" and line.params["scale"] == "max":
        return "TileKernels scales columns by their maximum: see amax"
    if layouts.IN in line.params:
        return "its scales are float32 on the line with bytes too"
    if line.params.get(layouts.OUT, "bytes") not in calls.STORED:
        return "TileKernels has no such layout"
    return "its kernels know no experts" if line.experts else ""


def canonical(case: Case, found: Any) -> list[Array]:
    """Return results in the golden layouts, as arrays of the case's library."""
    like = next(iter(case.inputs.values()))
    return [from_torch(x, like) for x in calls.results(case.operation, case.params, found)]


def prepare(line: Line, case: Case) -> Prepared:
    """Make a case ready in TileKernels' formats."""
    arrays = calls.inputs(case.operation, {name: to_torch(x) for name, x in case.inputs.items()})
    run = calls.call(case.operation, calls.kernels(), case.params)
    return Prepared(lambda: run(*arrays), arrays, lambda found: canonical(case, found))


def describe() -> dict[str, str]:
    """Return the versions of TileKernels and of the compiler it stands on."""
    return {name: foreign.version(name) for name in ("tile-kernels", "tilelang")}


def contenders(subject: Subject) -> list[Contender]:
    """Return the one contender."""
    return [
        Contender(NAME, offers, prepare, describe, "DeepSeek TileKernels, float32 scales unless a line names others")
    ]
