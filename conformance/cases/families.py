"""The parts of an operation are found by name: in the module of its family, under the operation's own name.

Corners, domains, coverpoints, and the questions and second answers of the vectors each have a folder with a module a
family. There is no table beside `operation.OPERATIONS`: a new operation is written into the modules of its family, and
`tests/test_rows.py` names the module that still lacks it.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def part_of(room: str, family: str, operation: str) -> Any:
    """Return what a room has for an operation.

    Args:
        room: the package that has a module a family, for example `refnum.conformance.cases.corners`.
        family: the operation's family.
        operation: the operation's name.

    Returns:
        The attribute of the operation's name in the module `room.family`; None if either does not exist.
    """
    name = f"{room}.{family}"
    try:
        return getattr(importlib.import_module(name), operation, None)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
