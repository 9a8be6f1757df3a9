"""Named errors of the vectors."""

from refnum.errors import FileError, RefnumError


class VectorFileError(FileError):
    """A vector file is missing, malformed, against its schema or against the lint: it cannot be used."""


class VectorMismatchError(RefnumError):
    """A well-formed vector or file differs from what the model, the oracle or the manifest gives."""
