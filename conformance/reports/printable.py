"""A report's words as text that every format holds: XML has no control characters, UTF-8 no lone surrogates."""

from __future__ import annotations

import re
from typing import Any

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(value: Any) -> Any:
    """Return JSON values in which all text, keys too, shows such characters as `\\x1b` or `\\udcff`.

    A subject's name, the words of its errors and the name of a file can have any.
    """
    if isinstance(value, str):
        return _UNPRINTABLE.sub(_escape, value)
    if isinstance(value, dict):
        return {printable(key): printable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [printable(entry) for entry in value]
    return value


_UNSHOWN = re.compile(f"{_UNPRINTABLE.pattern}|[\r\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Return text for a terminal: no control character and none that turns the direction of what follows."""
    return _UNSHOWN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
