"""$readmemh files for SystemVerilog: one memory a field, and an index that says where each vector lies.

A folder `<operation>/<profile>/<params>` holds `<side>_<field>.hex`, words of the element's own width, vectors
one after the other, each row of an array on one line (of three axes, the rows of all matrices); `index.hex`, 32-bit
words, for every vector and for every field in the order of index.json the triple (first word, rows, columns); and
`index.json`, which documents it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..load import Vector
from ..record import canonical

_DATA = ("splits", "tokens", "rows", "columns")


def memories(vectors: Iterable[Vector]) -> Mapping[str, bytes]:
    """Return every file of every group of vectors that share operation, profile, parameters and fields."""
    groups: dict[str, list[Vector]] = {}
    for vector in vectors:
        groups.setdefault(_folder(vector), []).append(vector)
    files: dict[str, bytes] = {}
    for folder, group in groups.items():
        files.update({f"{folder}/{name}": text.encode() for name, text in _group(group).items()})
    return files


def _folder(vector: Vector) -> str:
    words = [f"{name}_{_word(value)}" for name, value in vector.params.items() if name not in _DATA]
    words += [f"with_{name}" for name in ("prob", "rbits") if name in vector.inputs]
    words += [vector.inputs["x"].dtype.name] if "x" in vector.inputs else []
    scales = (vector.inputs[name].dtype.name for name in ("a_scales", "b_scales") if name in vector.inputs)
    words += ["float32_scales"] if "float32" in scales else []  # a memory has words of one width
    return "/".join([vector.operation, vector.profile["name"], "-".join(words) or "default"])


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def _fields(vector: Vector) -> dict[str, np.ndarray]:
    """Return every array by field name; splits and tokens become 32-bit words of their own."""
    found = {
        f"{side}_{name}": array for side in ("input", "output") for name, array in getattr(vector, f"{side}s").items()
    }
    for name in _DATA:
        if vector.params.get(name) is not None:
            found[f"input_{name}"] = np.atleast_1d(np.asarray(vector.params[name], np.uint32))
    return found


def _group(vectors: list[Vector]) -> dict[str, str]:
    names = list(dict.fromkeys(itertools.chain.from_iterable(_fields(vector) for vector in vectors)))
    lines: dict[str, list[str]] = {name: [] for name in names}
    ends = dict.fromkeys(names, 0)
    facts: dict[str, Any] = {}
    index, listed = [], []
    for vector in vectors:
        fields, places = _fields(vector), {}
        for name in names:
            array = fields.get(name, np.zeros(0, np.uint8))
            matrix = np.atleast_2d(array)
            matrix = matrix.reshape(math.prod(matrix.shape[:-1]), matrix.shape[-1])
            if name in fields:
                facts.setdefault(name, {"dtype": array.dtype.name, "bits": 8 * array.dtype.itemsize})
                lines[name] += [f"// {vector.id}", *_rows(matrix)]
            rows, columns = matrix.shape if array.size else (0, 0)
            places[name] = [ends[name], rows, columns]
            ends[name] += array.size
        index.append(" ".join(f"{word:08x}" for name in names for word in places[name]))
        listed.append(
            {
                "id": vector.id,
                "clause": vector.clause,
                "flags": list(vector.flags),
                "comment": vector.comment,
                "params": dict(vector.params),
                "places": places,
            }
        )
    document = {
        "operation": vectors[0].operation,
        "profile": dict(vectors[0].profile),
        "index": {"bits": 32, "words_per_vector": 3 * len(names), "depth": 3 * len(names) * len(vectors)},
        "fields": {name: {**facts[name], "depth": ends[name]} for name in names},
        "vectors": listed,
    }
    files = {f"{name}.hex": "\n".join(lines[name]) + "\n" for name in names}
    return {**files, "index.hex": "\n".join(index) + "\n", "index.json": canonical(json.loads(json.dumps(document)))}


def _rows(matrix: np.ndarray) -> list[str]:
    width = matrix.dtype.itemsize
    words = np.ascontiguousarray(matrix).view(f"u{width}")
    return [" ".join(f"{word:0{2 * width}x}" for word in row) for row in words.tolist() if row]
