"""Where the vectors are: the data-only folder `vectors` beside this package, in a checkout and in a wheel."""

from __future__ import annotations

from pathlib import Path

import refnum

from .errors import VectorFileError

AUTHORED = ("README.md", "notes.json", "history.json", "schema")
"""What people write; everything else in the folder is generated."""
FOREIGN = ("proofs", "captured")
"""What others keep in the folder: carried over, with digests of its own."""
MANIFEST = "MANIFEST.sha256"


def vectors_folder() -> Path:
    """Return the installed vectors folder. Raises VectorFileError when the installation lacks it."""
    folder = Path(refnum.__file__).parent / "vectors"
    if not (folder / "notes.json").is_file():
        raise VectorFileError(f"No vectors in {folder}; install the whole distribution, or name a folder.")
    return folder


def data_files(folder: Path) -> list[str]:
    """Return every file of the folder but the manifest, as sorted posix paths; hidden files are left out."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    kept = (p for p in found if not any(part.startswith((".", "__")) for part in p.parts))
    return sorted(p.as_posix() for p in kept if p.as_posix() != MANIFEST and p.parts[0] not in FOREIGN)
