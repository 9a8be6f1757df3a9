"""A line of Markdown that says what was verified, bound to the report that says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from refnum.errors import FileError

from . import covered
from .report import COMPLETE, EXIT_MISMATCH, EXIT_VERIFIED

_COLOURS = {EXIT_VERIFIED: "2e7d32", EXIT_MISMATCH: "c62828"}
_GREY = "757575"


def digest(document: Mapping[str, Any]) -> str:
    """Return SHA-256 of a report's JSON with sorted keys and no blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def badge(document: Mapping[str, Any], link: str = "") -> str:
    """Return the line. It is green for a complete report that verifies at a level above smoke, and for no other.

    The words beside the image hold the level of the run, the model's digest and the report's, each to 12 digits:
    whoever has the report can check them with `refnum report badge REPORT --check FILE`.
    """
    header, code = document["header"], document["footer"]["exit"]
    harness_failed = code == EXIT_MISMATCH and not document["footer"]["verdict"].startswith("WRONG")
    smoke = header["level"] == "smoke" and code == EXIT_VERIFIED
    if document["footer"]["status"] != COMPLETE or smoke or harness_failed:
        code = -1
    state = {EXIT_VERIFIED: "verified", EXIT_MISMATCH: "wrong"}.get(code, "not verified")
    where = "data" if document["data"] else header["level"]
    if code == EXIT_VERIFIED:
        agreement = covered.worst_level(document["results"])
        state += "" if agreement == "L0" else f" to {agreement} only"
        state += covered.contract(document["results"])
    report, model = (text[7:19] for text in (digest(document), header["environment"]["model_digest"]))
    words = f"refnum: {state}, {where}, model {model}, report {report}"
    message = quote(f"{state} {where} {report}".replace("-", "--").replace("_", "__"))
    image = f"https://img.shields.io/badge/refnum-{message}-{_COLOURS.get(code, _GREY)}"
    line = f"![{words}]({image})"
    return f"[{line}]({link})" if link else line


def stands_in(document: Mapping[str, Any], path: Path) -> bool:
    """Whether the badge of this very report stands in a file, with any link. Raises FileError."""
    try:
        return badge(document) in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
