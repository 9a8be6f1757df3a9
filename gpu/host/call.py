"""A call of the host build: NumPy arrays, outputs, and the functions of its library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError

from .. import checks
from ..interface.call import U8, Call, public
from .build import address, library

Array = np.ndarray[Any, Any]
P = ParamSpec("P")
T = TypeVar("T")


class HostCall(Call[Array]):
    """A call of a host twin. It reads arrays of any strides, and writes contiguous ones."""

    def __init__(self, operation: str) -> None:
        super().__init__(operation)
        self._arrays: list[Array] | None = None
        self._laid: tuple[int, Array, Array] | None = None

    def look(self, name: str, x: Any) -> Array:
        """Return a NumPy array; DtypeError for anything else."""
        if not checks.plain(x):
            raise DtypeError(f"{name} is a {type(x).__name__}; the host build takes NumPy arrays")
        return cast(Array, x)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], beside: Array) -> Array:
        """Return a new array."""
        return np.empty(shape, dtype)

    def check_indices(self, name: str, x: Array, limit: int | None, what: str) -> None:
        """Raise ArgumentError for an integer that is negative, or `limit` or more."""
        assert limit is not None  # splits on a device are the only integers without a limit
        bad = np.flatnonzero((x < 0) | (x >= limit))
        if bad.size:
            raise ArgumentError(
                f"{name}[{bad[0]}] is {x[bad[0]]}; allowed are 0..{limit - 1}, there are {limit} {what}"
            )

    def check_finite(self, name: str, scales: Array) -> None:
        """Raise ScaleError for a byte 255, or a float32 that is NaN or Inf."""
        bad = scales == 255 if scales.dtype == U8 else ~np.isfinite(scales)
        if bad.any():
            raise ScaleError(f"{name} holds a NaN or an Inf (byte 255); allowed are finite scales: quantise again")

    def check_random(self, name: str, words: Array, bits: int) -> None:
        """Raise the named error unless random words are unsigned integers below 2**bits."""
        if words.dtype.kind != "u":
            raise DtypeError(f"{name} has dtype {words.dtype}; allowed are unsigned integers")
        if words.size and int(words.max()) >> bits:
            raise ArgumentError(f"{name} holds {int(words.max())}; allowed are {bits} bits an element")

    def check_output(self, name: str, x: Array, inputs: Sequence[Array]) -> None:
        """Raise ArgumentError unless an array of `out` can be written and shares no memory with an input."""
        if not x.flags.writeable:
            raise ArgumentError(f"{name} is read-only; give an array that can be written")
        if any(np.may_share_memory(x, each) for each in inputs):
            raise ArgumentError(f"{name} shares memory with an input; give storage of its own")

    @property
    def arrays(self) -> list[Array]:
        """The arrays to write: contiguous ones, the outputs themselves where they are."""
        if self._arrays is None:
            self._arrays = [x if x.flags.c_contiguous else np.empty(x.shape, x.dtype) for x in self.results]
        return self._arrays

    def bytes_of(self, scales: Array, shape: tuple[int, int], layout: str) -> Array:
        """Return the E8M0 bytes of scales in a layout; a float32 that is no power of two gives byte 255 (N6.5)."""
        number = checks.LAYOUTS.index(layout)
        if number == 0:
            return scales
        found = np.empty(shape, U8)
        self.run("read_scales", scales, *shape, number, found)
        return found

    def scales_to_write(self, shape: tuple[int, int], layout: str, stored: Array | None = None) -> Array:
        """Return the array for the scale bytes of an output, the last unless given; `finish` stores them (N6.5)."""
        number = checks.LAYOUTS.index(layout)
        stored = self.arrays[-1] if stored is None else stored
        if number == 0:
            return stored
        self._laid = number, np.empty(shape, U8), stored
        return self._laid[1]

    def drawn_bytes(
        self, random: Array | None, key: tuple[int, int, int, int] | None, shape: tuple[int, ...]
    ) -> Array | None:
        """Return the random bytes of a shape that were given, or those of a key (N13.5); None if there is neither."""
        if key is None:
            return random if random is None else np.ascontiguousarray(random, dtype=U8)
        made = np.empty(shape, U8)
        self.run("philox_bytes", *key, made.size, made)
        return made

    def run(self, function: str, *arguments: Any) -> None:
        """Call a function of the library; an array among the arguments is given by its address."""
        copies, given = [], []
        for x in arguments:
            if isinstance(x, np.ndarray):
                if not x.flags.c_contiguous:
                    x = x.copy()
                    copies.append(x)  # until the call returns
                x = address(x)
            given.append(x)
        getattr(library(), f"refnum_{function}")(*given)

    def finish(self) -> Any:
        """Return the outputs, a tuple unless there is one."""
        if self._laid is not None:
            number, scales, stored = self._laid
            self.run("lay_scales", scales, *scales.shape, number, stored)
        for result, written in zip(self.results, self.arrays, strict=True):
            if result is not written:
                result[...] = written
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def twin(
    described: Callable[Concatenate[HostCall, P], T],
) -> Callable[[Callable[[HostCall, T], None]], Callable[P, Any]]:
    """Return a decorator that makes a host twin of an operation out of the function that runs the host build.

    Args:
        described: the operation's description, which checks the arguments.

    Returns:
        A decorator of a function of the call and the checked arguments.
    """

    def decorate(run: Callable[[HostCall, T], None]) -> Callable[P, Any]:
        @public(described, run)
        def function(*args: P.args, **kwargs: P.kwargs) -> Any:
            call = HostCall(described.__name__)
            run(call, described(call, *args, **kwargs))
            return call.finish()

        return function

    return decorate
