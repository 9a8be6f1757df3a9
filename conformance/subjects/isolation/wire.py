"""Messages between the harness and a subject's process: a JSON head and the bytes of arrays. Nothing is unpickled.

A message is eight fixed bytes, a length of a JSON text, the text, and the bytes of the arrays that it lists. The
sender may be hostile: malformed messages raise MessageError, and sizes are checked before memory is allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...cases.case import Case, plain
from ...cases.structure.cutting import Cutting, Part
from ..arrays import not_numbers
from ..loading.shapes import dtype_of
from .channel import NEVER, Channel

MOST = 1 << 33
"""Largest number of array bytes in one message."""
MOST_TEXT = 1 << 26
"""Largest number of bytes of the JSON text."""
_BEGIN = b"refnum\xff\x01"
_LENGTH = 8


class MessageError(Exception):
    """The received bytes are not a message."""


def send(line: Channel, head: dict[str, Any], arrays: list[np.ndarray] | None = None, until: float = NEVER) -> None:
    """Send a head and arrays, with the dtypes and shapes of the arrays.

    Args:
        line: the channel.
        head: JSON values.
        arrays: arrays of numbers.
        until: the deadline of the whole message.

    Raises:
        TypeError: an array does not hold numbers; nothing has been sent.
        LateError: past the deadline.
        EOFError: the peer is gone; OSError means the same.
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
    """Return the head and the arrays of the next message.

    Args:
        line: the channel.
        until: the deadline of the whole message.

    Raises:
        EOFError: the peer is gone; OSError means the same.
        LateError: past the deadline.
        MessageError: the bytes are not a message.
        MemoryError: the arrays do not fit; the rest of the message is skipped.
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


def cut_head(cutting: Cutting, parts: Sequence[Part]) -> dict[str, Any]:
    """Return how a case is cut, and into which parts, as JSON values."""
    return {
        "axis": cutting.axis,
        "inputs": dict(cutting.inputs),
        "outputs": dict(cutting.outputs),
        "parts": [
            [part.first, part.count, dict(part.form), part.same, part.calls, part.turn, part.elsewhere]
            for part in parts
        ],
    }


def cut_from(head: Mapping[str, Any]) -> tuple[Cutting, list[Part]]:
    """Return what `cut_head` was given; parts without their levels."""
    inputs, outputs = ({name: (way[0], way[1]) for name, way in head[key].items()} for key in ("inputs", "outputs"))
    parts = [Part(first, count, {}, *more) for first, count, *more in head["parts"]]
    return Cutting(head["axis"], inputs, outputs), parts


def case_head(case: Case) -> dict[str, Any]:
    """Return a case without its arrays, as JSON values."""
    return {
        "operation": case.operation,
        "profile": case.profile,
        "params": plain(case.params),
        "inputs": list(case.inputs),
        "label": case.label,
        "domain": case.domain,
    }


def case_from(head: dict[str, Any], arrays: list[np.ndarray]) -> Case:
    """Return the case of a head, with the arrays in the order of its inputs."""
    inputs = dict(zip(head["inputs"], arrays, strict=False))
    return Case(head["operation"], head["profile"], head["params"], inputs, None, head["label"], head["domain"])
