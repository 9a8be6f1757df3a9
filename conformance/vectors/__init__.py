"""Frozen test vectors: made from the golden model, checked against the second oracle, exported for any language.

`cases` say what to ask, `build` freezes the answers, `verify` makes them again and compares, `export` writes
them for readers without Python. The data lives in the folder `vectors` beside the packages.
"""

from .errors import VectorFileError, VectorMismatchError
from .folder import vectors_folder
from .load import Vector, load_vectors

__all__ = ["Vector", "VectorFileError", "VectorMismatchError", "load_vectors", "vectors_folder"]
