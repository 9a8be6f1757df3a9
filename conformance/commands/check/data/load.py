"""Real tensors from files that someone else wrote: read strictly, refuse what is damaged, name what is left out."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from refnum.errors import DtypeError, FileError

from ....reports.files import ARRAY_DAMAGE, check_archive

FLOATS = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
SUFFIXES = (".safetensors", ".npy", ".npz")
_SAFETENSORS_FLOATS = {"F32": FLOATS[0], "BF16": FLOATS[1], "F16": FLOATS[2]}

Loaded = tuple[str, np.ndarray | None, str]


@dataclass(frozen=True)
class _Entry:
    """One tensor in a file: its reader is called late, so that a folder of models needs little memory."""

    name: str
    shape: tuple[int, ...]
    refusal: str
    read: Callable[[], np.ndarray]


def load_tensors(path: str | Path) -> Iterator[Loaded]:
    """Yield (name, array or None, note) for every tensor of a .safetensors, .npy or .npz file or a folder of them.

    The array is [M, K] float32, bfloat16 or float16: the last axis is K and the others are joined to rows; a
    1-D tensor is one row. The note says what was done to the shape. Where the array is None the tensor is not
    usable and the note begins with `unsupported:` (K no multiple of 32, no elements) or `skipped:` (a dtype
    that block quantisers do not take, float64 among them: round it to float32 yourself, once).
    Files of a folder come in the order of their names; tensors in the order of the file.

    Raises FileError for a missing, truncated, malformed or unknown file and for object arrays, which would run
    code; DtypeError when no tensor has a usable dtype. Nothing of a damaged file is yielded before the error
    is known, except in a folder, whose files are opened one after the other.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path} does not exist; give a .safetensors, .npy or .npz file or a folder of them.")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    known = [file for file in files if file.suffix in SUFFIXES and file.is_file()]
    if not known:
        what = "holds no" if path.is_dir() else "is no"
        raise FileError(f"{path} {what} {', '.join(SUFFIXES)} file; convert the tensors to one of these.")
    refusals, usable = [], 0
    for file in files:
        if file not in known:
            yield file.name, None, f"skipped: not a {', '.join(SUFFIXES)} file"
            continue
        prefix = f"{file.name}:" if path.is_dir() else ""
        entries = _entries(file)
        usable += sum(not entry.refusal for entry in entries)
        refusals += [f"{entry.name} ({entry.refusal})" for entry in entries if entry.refusal]
        if not usable and file == known[-1]:
            raise DtypeError(
                f"{path} holds no float32, bfloat16 or float16 tensor, only {', '.join(refusals[:5])}"
                f"{' and others' if len(refusals) > 5 else ''}; convert one, float64 by one rounding."
            )
        for entry in entries:
            yield _loaded(file, prefix, entry)


def _entries(file: Path) -> list[_Entry]:
    """Return what a file holds after its whole structure has been checked."""
    try:
        if file.suffix == ".safetensors":
            return _safetensors(file)
        return _npy(file) if file.suffix == ".npy" else _npz(file)
    except (SafetensorError, *ARRAY_DAMAGE) as error:
        raise FileError(f"{file} cannot be read as {file.suffix}: {_words(error)}; write it again.") from error


def _loaded(file: Path, prefix: str, entry: _Entry) -> Loaded:
    name = prefix + entry.name
    if entry.refusal:
        return name, None, f"skipped: {entry.refusal}"
    refusal, note = _shape_note(entry.shape)
    if refusal:
        return name, None, f"unsupported: {refusal}"
    try:
        array = entry.read()
    except (SafetensorError, *ARRAY_DAMAGE) as error:
        raise FileError(f"{file}, tensor {entry.name}: {_words(error)}; write the file again.") from error
    if not array.dtype.isnative:
        array, note = array.astype(array.dtype.newbyteorder("=")), f"{note}; byte order swapped".lstrip("; ")
    return name, np.ascontiguousarray(array.reshape(-1, entry.shape[-1])), note


def _shape_note(shape: tuple[int, ...]) -> tuple[str, str]:
    """Return (why the shape is not usable, or "", and what is done to it)."""
    if not shape:
        return "a scalar has no K", ""
    if 0 in shape:
        return f"shape {list(shape)} has no elements", ""
    if shape[-1] % 32:
        return f"K={shape[-1]} is not a multiple of 32", ""
    if len(shape) == 2:
        return "", ""
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    return "", f"{list(shape)} read as [{rows}, {shape[-1]}]"


def _dtype_refusal(dtype: np.dtype) -> str:
    """Return why a dtype is left out, or ""; the byte order does not matter."""
    if dtype.newbyteorder("=") in FLOATS:
        return ""
    if dtype == np.float64:
        return "dtype float64; round it to float32 yourself, once"
    if dtype.kind == "V":
        return f"dtype {dtype.str}, which names no format; NumPy files cannot say bfloat16, use .safetensors"
    return f"dtype {dtype.name}"


def _safetensors(file: Path) -> list[_Entry]:
    entries = []
    with safe_open(file, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a mapping
            header = opened.get_slice(name)
            kind = header.get_dtype()
            refusal = "" if kind in _SAFETENSORS_FLOATS else f"dtype {kind}"
            if kind == "F64":
                refusal = _dtype_refusal(np.dtype(np.float64))
            entries.append(_Entry(name, tuple(header.get_shape()), refusal, _reader(file, name)))
    return entries


def _reader(file: Path, name: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        with safe_open(file, framework="numpy") as opened:
            return np.asarray(opened.get_tensor(name))

    return read


def _npy(file: Path) -> list[_Entry]:
    with file.open("rb") as stream:
        shape, dtype = _npy_header(stream)
    _refuse_objects(file, file.name, dtype)
    if 0 in shape:  # an empty file region cannot be mapped
        return [_Entry(file.stem, shape, _dtype_refusal(dtype), lambda: np.zeros(shape, dtype))]
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return [_Entry(file.stem, shape, _dtype_refusal(dtype), lambda: np.array(array))]


def _npy_header(stream: object) -> tuple[tuple[int, ...], np.dtype]:
    """Read the header of a .npy stream: shape and dtype. Raises ValueError when it is malformed."""
    version = np.lib.format.read_magic(stream)  # type: ignore[arg-type]
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)  # type: ignore[arg-type]
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)  # type: ignore[arg-type]
    else:
        raise ValueError(f"format version {version} is not read here")
    return shape, dtype


def _npz(file: Path) -> list[_Entry]:
    entries = []
    with zipfile.ZipFile(file) as archive:
        check_archive(file, archive)
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"member {damaged} fails its checksum")
        for member in archive.namelist():
            if not member.endswith(".npy"):
                entries.append(_Entry(member, (), "not an array", lambda: np.zeros(0)))
                continue
            with archive.open(member) as stream:
                shape, dtype = _npy_header(stream)
            _refuse_objects(file, member, dtype)
            _check_size(member, shape, dtype, archive.getinfo(member).file_size)
            entries.append(_Entry(member[:-4], shape, _dtype_refusal(dtype), _member(file, member)))
    return entries


def _check_size(member: str, shape: tuple[int, ...], dtype: np.dtype, size: int) -> None:
    """Raise ValueError for a header that promises more bytes than the member holds: no array is made for them."""
    promised = math.prod(shape) * dtype.itemsize
    if promised > size:
        raise ValueError(f"the header of {member} promises {promised} bytes of numbers; it holds {size} in all")


def _member(file: Path, member: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))

    return read


def _refuse_objects(file: Path, member: str, dtype: np.dtype) -> None:
    if dtype.hasobject:
        raise FileError(f"{file}: {member} is an object array, which only runs code when it is read; save numbers.")


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__
