"""Named errors. Every message says what was given, what is allowed and what to do."""


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
