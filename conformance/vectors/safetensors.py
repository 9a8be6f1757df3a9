"""A deterministic safetensors writer, and a reader as small: same tensors, same bytes, on every machine.

The official writer orders metadata keys at random, so its files have no digest worth freezing
(huggingface/safetensors#584). Here there is one metadata key, `refnum`, that holds canonical JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import VectorFileError
from .record import DTYPES, little_endian

_NAMES = {
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
}
_DTYPES = {short: DTYPES[name] for name, short in _NAMES.items()}


def write_safetensors(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> bytes:
    """Return the file's bytes: widest dtype first, then by name, so that every tensor is aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"refnum": text}}
    parts, end = [], 0
    for name in order:
        part = little_endian(tensors[name])
        header[name] = {
            "dtype": _NAMES[tensors[name].dtype.name],
            "shape": list(tensors[name].shape),
            "data_offsets": [end, end + len(part)],
        }
        parts.append(part)
        end += len(part)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + b"".join(parts)


def read_safetensors(data: bytes, origin: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return (tensors, the metadata under `refnum`). Raises VectorFileError for anything else."""
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        metadata = json.loads(header.pop("__metadata__")["refnum"])
        body, tensors = data[8 + size :], {}
        for name, entry in header.items():
            start, stop = entry["data_offsets"]
            dtype = _DTYPES[entry["dtype"]]
            words = np.frombuffer(body[start:stop], f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}")
            tensors[name] = words.view(dtype).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise VectorFileError(f"{origin} is no safetensors file of refnum: {error!r}.") from error
    return tensors, metadata
