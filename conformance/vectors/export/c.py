"""C headers: one an operation and profile, static const arrays of words, and a table of the vectors."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ..load import Vector

COMMON = """/* Structures of the refnum test vectors; see vectors/README.md. */
#ifndef REFNUM_VECTORS_H
#define REFNUM_VECTORS_H
#include <stddef.h>
#include <stdint.h>

/* Row-major words of `width` bytes: uint8_t, uint16_t, uint32_t or uint64_t. Floating-point words are bits. */
typedef struct {
  const char *name, *dtype;
  unsigned width, rank;
  size_t shape[3], count;
  const void *data;
} refnum_array;

typedef struct {
  const char *id, *clause, *params, *flags, *comment; /* params is JSON; flags are note ids with spaces between */
  size_t input_count, output_count;
  const refnum_array *inputs, *outputs;
} refnum_vector;

#endif
"""
_PER_LINE = {1: 24, 2: 14, 4: 9, 8: 5}


def headers(vectors: Iterable[Vector]) -> Mapping[str, bytes]:
    """Return the common header and one header for each operation and profile, by file name."""
    files = {"refnum_vectors.h": COMMON.encode()}
    for file, group in itertools.groupby(vectors, key=lambda vector: vector.file):
        stem = "refnum_" + re.sub(r"\W", "_", file.removesuffix(".json"))
        files[f"{stem}.h"] = ("\n".join(_header(stem, list(group))) + "\n").encode()
    return files


def _header(stem: str, vectors: list[Vector]) -> Iterator[str]:
    guard = f"{stem.upper()}_H"
    yield f"/* {vectors[0].operation} under profile {vectors[0].profile['name']}: {len(vectors)} vectors. Generated. */"
    yield from (f"#ifndef {guard}", f"#define {guard}", '#include "refnum_vectors.h"', "")
    for vector in vectors:
        for side in ("inputs", "outputs"):
            yield from _arrays(f"{stem}_{vector.id}_{side}", getattr(vector, side))
    yield f"static const refnum_vector {stem}[] = {{"
    for vector in vectors:
        name = f"{stem}_{vector.id}"
        words = (vector.id, vector.clause, json.dumps(dict(vector.params)), " ".join(vector.flags), vector.comment)
        texts = ", ".join(_string(word) for word in words)
        yield f"  {{{texts},"
        yield f"   {len(vector.inputs)}, {len(vector.outputs)}, {name}_inputs, {name}_outputs}},"
    yield from ("};", f"enum {{ {stem}_count = {len(vectors)} }};", "", "#endif")


def _arrays(name: str, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    for field, array in arrays.items():
        width = array.dtype.itemsize
        words = np.ascontiguousarray(array).view(f"u{width}").reshape(-1).tolist() or [0]  # C has no empty array
        digits = [f"0x{word:0{2 * width}x}{'ull' if width == 8 else ''}" for word in words]
        yield f"static const uint{8 * width}_t {name}_{field}[] = {{"
        step = _PER_LINE[width]
        yield from ("  " + ", ".join(digits[i : i + step]) + "," for i in range(0, len(digits), step))
        yield "};"
    yield f"static const refnum_array {name}[] = {{"
    for field, array in arrays.items():
        shape = ", ".join(map(str, array.shape)) or "0"
        yield (
            f"  {{{_string(field)}, {_string(array.dtype.name)}, {array.dtype.itemsize}, {array.ndim}, "
            f"{{{shape}}}, {array.size}, {name}_{field}}},"
        )
    yield "};"


def _string(text: str) -> str:
    return json.dumps(text)
