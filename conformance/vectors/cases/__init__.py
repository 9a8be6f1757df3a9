"""The questions of the vectors: for an operation the `Questions` of its name in the module of its family."""

from __future__ import annotations

from ...cases.families import part_of
from ...cases.primitives import VECTOR_OPERATIONS
from ..draft import Questions
from ..errors import VectorFileError


def questions(operation: str) -> Questions:
    """Return the questions about an operation.

    Raises:
        VectorFileError: the module of its family has none.
    """
    family = VECTOR_OPERATIONS[operation].family
    found = part_of(__name__, family, operation)
    if not isinstance(found, Questions):
        raise VectorFileError(f"{operation} has no questions; write `{operation}` in vectors/cases/{family}.py.")
    return found
