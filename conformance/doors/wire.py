"""Messages between the harness and a subject's process: a JSON head and the bytes of arrays. Nothing is unpickled.

The other side may be hostile: whatever does not fit raises MessageError, and sizes are checked before use.
"""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..case import Case, plain
from .shapes import dtype_of

MOST = 1 << 33
"""Bytes of one message."""
_LENGTH = 8


class MessageError(Exception):
    """Bytes came that are no message."""


def send(line: Connection, head: dict[str, Any], arrays: list[np.ndarray] | None = None) -> None:
    """Send a head and arrays; their names, dtypes and shapes go with it. TypeError for an array of objects."""
    parts = [np.ascontiguousarray(array) for array in arrays or []]
    for part in parts:
        if part.dtype.hasobject or part.dtype.names or part.dtype.name.startswith("void"):
            raise TypeError(f"a result is an array of {part.dtype}, not of numbers")
    specs = [[part.dtype.name, list(array.shape)] for part, array in zip(parts, arrays or [], strict=True)]
    text = json.dumps({"head": head, "arrays": specs}).encode()
    bodies = [part.reshape(-1).view(np.uint8).data if part.size else b"" for part in parts]
    line.send_bytes(b"".join([len(text).to_bytes(_LENGTH, "little"), text, *bodies]))


def receive(line: Connection) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the next message; EOFError or OSError when the other side is gone, MessageError for anything else."""
    data = line.recv_bytes(MOST)
    try:
        start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        said = json.loads(data[_LENGTH:start])
        arrays = []
        for name, shape in said["arrays"]:
            dtype = dtype_of(name)
            count = int(np.prod(shape, dtype=object)) if shape else 1
            end = start + count * dtype.itemsize
            if any(type(size) is not int or size < 0 for size in shape) or end > len(data):
                raise ValueError(f"{name}{shape} does not fit into the message")
            body = np.frombuffer(data, np.uint8, end - start, start).copy()
            arrays.append(body.view(dtype).reshape(shape))
            start = end
        if start != len(data) or not isinstance(said["head"], dict):
            raise ValueError("bytes are left over")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MessageError(f"what came back is no message: {str(error)[:200]}") from error
    return said["head"], arrays


def case_head(case: Case) -> dict[str, Any]:
    """Return what a case says besides its arrays, as JSON values."""
    return {
        "operation": case.operation,
        "profile": case.profile,
        "params": plain(case.params),
        "inputs": list(case.inputs),
        "label": case.label,
        "domain": case.domain,
    }


def case_from(head: dict[str, Any], arrays: list[np.ndarray]) -> Case:
    """Return the case of a head and its arrays, in order."""
    inputs = dict(zip(head["inputs"], arrays, strict=False))
    return Case(head["operation"], head["profile"], head["params"], inputs, None, head["label"], head["domain"])
