"""Messages between the harness and a subject's process: a JSON head and the bytes of arrays. Nothing is unpickled.

A message is eight bytes that no subject writes by chance, the length of a JSON text, the text, and the arrays that it
names. The other side may be hostile: whatever does not fit raises MessageError, and sizes are checked before use.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ...cases.case import Case, plain
from ..arrays import not_numbers
from ..loading.shapes import dtype_of
from .channel import NEVER, Channel

MOST = 1 << 33
"""Bytes of the arrays of one message."""
MOST_TEXT = 1 << 26
"""Bytes of its JSON text."""
_BEGIN = b"refnum\xff\x01"
_LENGTH = 8


class MessageError(Exception):
    """Bytes came that are no message."""


def send(line: Channel, head: dict[str, Any], arrays: list[np.ndarray] | None = None, until: float = NEVER) -> None:
    """Send a head and arrays; their dtypes and shapes go with it. TypeError, and nothing sent, for no numbers.

    until: the deadline of the whole message. Raises LateError, OSError or EOFError as `Channel` does.
    """
    given = arrays or []
    for array in given:
        if not_numbers(array.dtype):
            raise TypeError(f"a result is an array of {array.dtype}, {not_numbers(array.dtype)}")
    specs = [[array.dtype.name, list(array.shape)] for array in given]
    text = json.dumps({"head": head, "arrays": specs}).encode()
    line.send(_BEGIN + len(text).to_bytes(_LENGTH, "little") + text, until)
    for array in given:
        if array.size:
            line.send(_bytes(np.ascontiguousarray(array)), until)


def receive(line: Channel, until: float = NEVER) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the next message; EOFError or OSError when the other side is gone, MessageError for anything else.

    until: the deadline of the whole message; LateError is raised past it. Raises MemoryError if the arrays do not fit;
    the rest of the message is skipped.
    """
    start = bytearray(len(_BEGIN) + _LENGTH)
    line.fill(start, until)
    length = int.from_bytes(start[len(_BEGIN) :], "little")
    if not start.startswith(_BEGIN) or length > MOST_TEXT:
        raise MessageError("what came back is no message: it does not begin as one")
    text = bytearray(length)
    line.fill(text, until)
    size = 0
    try:
        said = json.loads(text)
        specs = [_spec(*spec) for spec in said["arrays"]]
        size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in specs)
        if size > MOST or not isinstance(said["head"], dict):
            raise ValueError(f"a head and at most {MOST} bytes of arrays are allowed")
        arrays = [np.empty(shape, dtype) for shape, dtype in specs]
    except MemoryError:
        line.skip(size, until)
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise MessageError(f"what came back is no message: {str(error)[:200]}") from error
    for array in arrays:
        if array.size:
            line.fill(_bytes(array), until)
    return said["head"], arrays


def _spec(name: Any, shape: Any) -> tuple[tuple[int, ...], np.dtype]:
    dtype = dtype_of(name) if type(name) is str else np.dtype(object)
    if not_numbers(dtype) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"an array of {name!r} and shape {shape} cannot be sent")
    return tuple(shape), dtype


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


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
