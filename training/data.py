"""Text to train on: the Python sources of this interpreter's library and of its installed packages, as bytes.

A corpus is a folder: `corpus.json` lists every file with its size, its digest and its split, and `train.bin` and
`valid.bin` are the files of a split one after another. A file belongs to a split by its digest, so that no text is in
both, and the split does not depend on what else is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refnum.errors import ArgumentError, FileError

VALID = 16
"""One file of this many, by digest, is for validation."""
LARGEST = 1 << 18
"""Bytes of a file that is read; larger ones are mostly generated tables."""
_LIST = "corpus.json"


@dataclass(frozen=True)
class Source:
    """One file: where it stands below its root (`library` or `packages`), its bytes, its SHA-256 and its split."""

    path: str
    bytes: int
    sha256: str
    split: str


@dataclass(frozen=True)
class Corpus:
    """Both splits as uint8 arrays, and the digest of their list."""

    train: np.ndarray
    valid: np.ndarray
    digest: str


def sources() -> Iterator[tuple[str, Path]]:
    """Yield a name and the path of every Python file: the standard library's first, then the packages', by name."""
    places = sysconfig.get_paths()
    library, packages = Path(places["stdlib"]), Path(places["purelib"])
    for root, path in (("library", library), ("packages", packages)):
        for file in sorted(path.rglob("*.py")):
            if root == "packages" or packages not in file.parents:
                yield f"{root}/{file.relative_to(path).as_posix()}", file


def write_corpus(folder: Path, megabytes: float) -> None:
    """Gather text into a new folder; one that has a corpus is left as it is.

    Args:
        folder: gets `corpus.json`, `train.bin` and `valid.bin`; the list is written last.
        megabytes: text to gather, in units of 10**6 bytes; less where fewer sources are installed.

    Raises:
        ArgumentError: there is no text at all.
    """
    if (folder / _LIST).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    splits: dict[str, bytearray] = {"train": bytearray(), "valid": bytearray()}
    listed = []
    for source, text in _gather(int(megabytes * 10**6)):
        splits[source.split] += text
        listed.append(source.__dict__)
    if not all(splits.values()):
        raise ArgumentError(f"{megabytes:g} MB of Python sources leave a split without text; give more")
    for name, content in splits.items():
        write_whole(folder / f"{name}.bin", bytes(content))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in splits.items()}
    write_whole(folder / _LIST, json.dumps({"splits": digests, "files": listed}, indent=1).encode())


def _gather(size: int) -> Iterator[tuple[Source, bytes]]:
    """Yield different files with their text until there are enough bytes."""
    seen: set[str] = set()
    for name, path in sources():
        try:
            text = path.read_bytes()
        except OSError:
            continue  # a link to nothing: the list says which files were read
        digest = hashlib.sha256(text).hexdigest()
        if not text or len(text) > LARGEST or digest in seen:
            continue
        if size <= 0:
            return
        seen.add(digest)
        size -= len(text)
        yield Source(name, len(text), digest, "valid" if int(digest[:8], 16) % VALID == 0 else "train"), text


def read_corpus(folder: Path) -> Corpus:
    """Return the corpus of a folder.

    Raises:
        FileError: a file is missing, or a split's bytes are not those that the list says.
    """
    try:
        text = (folder / _LIST).read_bytes()
        digests = json.loads(text)["splits"]
        splits = {name: np.fromfile(folder / f"{name}.bin", np.uint8) for name in ("train", "valid")}
        wrong = [name for name, found in splits.items() if hashlib.sha256(found.data).hexdigest() != digests[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"the corpus in {folder} cannot be read: {error}; delete the folder to gather it anew"
        ) from error
    if wrong:
        raise FileError(
            f"{folder / wrong[0]}.bin is not the text that {_LIST} lists; delete {folder} to gather it anew"
        )
    return Corpus(splits["train"], splits["valid"], hashlib.sha256(text).hexdigest())


def batch(text: np.ndarray, sequence: int, count: int, seed: int, step: int) -> np.ndarray:
    """Return the sequences of one step, a function of the seed and the step alone.

    Args:
        text: uint8 bytes.
        sequence: tokens of a sequence; one more byte is read, the last one's successor.
        count: sequences.
        seed, step: the draw's key.

    Returns:
        uint8 [count, sequence + 1].

    Raises:
        ArgumentError: the text is shorter than one sequence.
    """
    if len(text) <= sequence:
        raise ArgumentError(f"{len(text)} bytes of text are less than one sequence of {sequence + 1}; gather more")
    dice = np.random.Generator(np.random.Philox(key=np.array([seed, step], np.uint64)))
    starts = dice.integers(0, len(text) - sequence, count)
    return np.lib.stride_tricks.sliding_window_view(text, sequence + 1)[starts]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, see it on the disk, and rename it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    partial.replace(path)
