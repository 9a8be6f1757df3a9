"""NumPy archives: one .npz an operation and profile, without pickle, the same bytes on every machine."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Iterable, Mapping

import ml_dtypes
import numpy as np

from ..load import Vector


def archives(vectors: Iterable[Vector]) -> Mapping[str, bytes]:
    """Return `<operation>-<profile>.npz` files: arrays `<id>.inputs.<name>`, and `index`, JSON as uint8.

    bfloat16, which .npz cannot name, is stored as its uint16 bits; the index gives the true dtype.
    """
    return {
        file.removesuffix(".json").replace("/", "-") + ".npz": _archive(list(group))
        for file, group in itertools.groupby(vectors, key=lambda vector: vector.file)
    }


def _archive(vectors: list[Vector]) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    index = []
    for vector in vectors:
        dtypes = {}
        for side in ("inputs", "outputs"):
            for name, array in getattr(vector, side).items():
                dtypes[f"{side}.{name}"] = array.dtype.name
                arrays[f"{vector.id}.{side}.{name}"] = _plain(array)
        index.append(
            {
                "id": vector.id,
                "operation": vector.operation,
                "profile": dict(vector.profile),
                "params": dict(vector.params),
                "clause": vector.clause,
                "flags": list(vector.flags),
                "comment": vector.comment,
                "dtypes": dtypes,
            }
        )
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            item = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            item.create_system, item.external_attr, item.compress_type = 3, 0o644 << 16, zipfile.ZIP_DEFLATED
            part = io.BytesIO()
            np.lib.format.write_array(part, arrays[name], version=(1, 0), allow_pickle=False)
            archive.writestr(item, part.getvalue())
    return buffer.getvalue()


def _plain(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        array = array.view(np.uint16)
    return array.astype(array.dtype.newbyteorder("<"))
