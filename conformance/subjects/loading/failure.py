"""What is wrong with a kernel that is not Python, or with what declares it: words that lead to the guide.

A kernel that fails in a call is a fault whatever it is asked, and never a refusal.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from refnum.errors import ArgumentError, UnsupportedError

LIBRARY, LINES = "c-abi", "line-protocol"
"""Guides to the two contracts, by the name that `refnum docs` takes."""
SCHEMAS = {LIBRARY: "library", LINES: "lines"}
"""Guide -> the schema of its contract, a file of the folder `schema`."""


class KernelFailed(RuntimeError):
    """A kernel died, gave no answer, or broke its contract. Its words name the guide to that contract."""

    def __init__(self, words: str, guide: str) -> None:
        """Say what happened, and where the contract stands."""
        super().__init__(f"{words}; {see(guide)}")


def see(guide: str) -> str:
    """Return the words that lead to a guide."""
    return f"see `refnum docs {guide}`"


def schema_file(guide: str) -> Path:
    """Return the file of a contract's JSON schema."""
    return Path(__file__).parent / "schema" / f"{SCHEMAS[guide]}.schema.json"


def require_schema(document: Any, guide: str, where: Path) -> None:
    """Raise ArgumentError with the first place where a document is not as the schema of a guide says."""
    problems = sorted(_validator(guide).iter_errors(document), key=lambda problem: [str(p) for p in problem.path])
    if problems:
        place = ".".join(map(str, problems[0].path)) or "the top"
        raise ArgumentError(f"{where}: at {place}: {problems[0].message[:300]}; {see(guide)}.")


@functools.cache
def _validator(guide: str) -> Any:
    try:
        import jsonschema  # here, because it is slow to import and only libraries need it
    except ModuleNotFoundError as error:
        raise UnsupportedError("Reading a declaration needs the package jsonschema; install it.") from error
    return jsonschema.Draft202012Validator(json.loads(schema_file(guide).read_text(encoding="utf-8")))
