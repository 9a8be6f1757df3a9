"""Named errors. Every message says what was given, what is allowed and what to do."""

from typing import Any


class RefnumError(Exception):
    """Base of every error that refnum raises on purpose."""


class DtypeError(RefnumError, TypeError):
    """An array has a dtype that the operation does not take."""


class ShapeError(RefnumError, ValueError):
    """An array has a shape that the operation does not take, or two shapes do not fit together."""


class ScaleError(RefnumError, ValueError):
    """A scale cannot be stored as an E8M0 byte, or a scale array is malformed."""


class ProfileError(RefnumError, ValueError):
    """A profile, format, rule or mode is unknown or its fields contradict each other."""


class ArgumentError(RefnumError, ValueError):
    """An argument has a value outside what the operation allows."""


class FileError(RefnumError, OSError):
    """A file is missing, truncated, malformed or of a kind that is refused."""


class UnsupportedError(RefnumError):
    """Something needed is not there (a compiler, a GPU, an optional package); the message says what."""


def shown(value: Any) -> str:
    """Return how a message shows what was given: an array by its type, dtype and shape, the rest by its start."""
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple) and value.shape:
        return f"a {type(value).__name__} of {value.dtype}, shape {value.shape}"
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python writes no more than 4300 digits
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # such an integer inside, or a class that cannot show itself
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= 80 else f"{text[:77]}..."
