"""A vector as data: arrays as hex, profiles as literals, ids from content, one canonical text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from refnum.profiles import HOPPER, Profile

from .errors import VectorFileError

DTYPES: dict[str, np.dtype] = {
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}
"""Name in a record -> dtype in memory."""
ID_LENGTH = 16
LINE = 110
_NOT_SEMANTIC = ("name", "description", "source")


def array_record(array: np.ndarray) -> dict[str, Any]:
    """Return {dtype, shape, hex}: row-major elements, the bytes of each from the lowest to the highest."""
    name = array.dtype.name
    if name not in DTYPES:
        raise VectorFileError(f"A vector cannot hold dtype {name}; choose from {', '.join(DTYPES)}.")
    return {"dtype": name, "shape": list(array.shape), "hex": little_endian(array).hex()}


def little_endian(array: np.ndarray) -> bytes:
    """Return the array's row-major little-endian bytes on any host."""
    words = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return words.astype(words.dtype.newbyteorder("<")).tobytes()


def record_array(record: Mapping[str, Any]) -> np.ndarray:
    """Undo `array_record`. Raises VectorFileError when dtype, shape and hex do not fit together."""
    dtype = DTYPES[record["dtype"]]
    data = bytes.fromhex(record["hex"])
    count = int(np.prod(record["shape"], dtype=np.int64))
    if len(data) != count * dtype.itemsize:
        raise VectorFileError(
            f"{len(data)} bytes of hex do not fill {record['dtype']}{record['shape']}, {count * dtype.itemsize} bytes."
        )
    words = np.frombuffer(data, f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}")
    return words.view(dtype).reshape(record["shape"])


def profile_record(profile: Profile) -> dict[str, Any]:
    """Return every literal field of a profile that decides a result, and its name."""
    fields = dataclasses.asdict(profile)
    return {name: value for name, value in fields.items() if name not in ("description", "source")}


def profile_choices(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which a profile differs from HOPPER, without its name: what an id depends on."""
    default = dataclasses.asdict(HOPPER)
    return {k: v for k, v in record.items() if k not in _NOT_SEMANTIC and v != default[k]}


def vector_id(
    operation: str, profile: Mapping[str, Any], params: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the id: 16 hex digits of SHA-256 over the canonical JSON of the question, never of its place."""
    question = {"operation": operation, "profile": profile_choices(profile), "params": params, "inputs": inputs}
    text = json.dumps(question, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def canonical(document: Any) -> str:
    """Return the one text of a JSON document: key order kept, a value on one line when it fits or is an array
    record, else one item a line and one space a level."""
    return _render(document, 0) + "\n"


def _render(value: Any, level: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), allow_nan=False)
    one_line = not isinstance(value, dict | list) or not value or (isinstance(value, dict) and "hex" in value)
    if one_line or level + len(flat) <= LINE:
        return flat
    pad = "\n" + " " * (level + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k, ensure_ascii=False)}: {_render(v, level + 1)}" for k, v in value.items()]
        return "{" + pad + ("," + pad).join(items) + "\n" + " " * level + "}"
    return "[" + pad + ("," + pad).join(_render(v, level + 1) for v in value) + "\n" + " " * level + "]"
