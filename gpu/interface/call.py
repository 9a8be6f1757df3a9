"""One call of an operation: the checks that all back ends share, and what each of them must say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError

from .. import checks
from ..checks import BFLOAT16, BLOCK, KINDS

U8, F32, I64 = np.dtype(np.uint8), np.dtype(np.float32), np.dtype(np.int64)
HALF_BITS = (BFLOAT16, np.dtype(np.uint16))
"""Dtypes of bfloat16 values."""
FLOATS = "float32, bfloat16, float16 and uint16 (bfloat16 bits)"


class Array(Protocol):
    """What the checks read of an array: a device's `View`, or a NumPy array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""


A = TypeVar("A", bound=Array)
F = TypeVar("F", bound=Callable[..., Any])
Wanted = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and dtype of every output."""
Rules = tuple[int, int, int]
"""The fields of `Policy` in the headers: scale rule, whether infinities saturate, byte of a zero block."""
Layouts = tuple[str, str]
"""Storage layouts of the scales that are read and written (N6.5)."""
PLAIN: Layouts = ("bytes", "bytes")


class Rows(NamedTuple, Generic[A]):
    """The checked arguments of a conversion along rows.

    x: floats or codes. k: elements of a row. scales: those of codes. tall: rows that share a scale. kind: the
    `FloatKind` of dequantised values. mode: how a tile's scale is chosen. random, key: of stochastic rounding.
    """

    x: A
    k: int
    scales: A | None = None
    rules: Rules = (0, 0, 0)
    tall: int = 1
    kind: int = 0
    layouts: Layouts = PLAIN
    mode: str = ""
    random: A | None = None
    key: tuple[int, int, int, int] | None = None


class Call(Generic[A]):
    """One call of an operation. A back end says how an array is read, which ones it takes, and how it makes one.

    operation: its name. inputs: all arrays that it reads. wanted: shapes and dtypes of the outputs.
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.inputs: Sequence[A] = ()
        self.wanted: Wanted = ()
        self._results: list[A] | None = None

    @property
    def results(self) -> list[A]:
        """The outputs; new ones are made when they are first needed, so that a back end's own checks come before."""
        if self._results is None:
            self._results = [self.empty(shape, np.dtype(dtype), self.inputs[0]) for shape, dtype in self.wanted]
        return self._results

    def look(self, name: str, x: Any) -> A:
        """Return an array as the back end reads it; DtypeError for anything that it does not take."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], beside: A) -> A:
        """Return a new array for an output, of an input's library and on its device."""
        raise NotImplementedError

    def check_rows(self, x: A) -> None:
        """Raise ShapeError where the elements of a row must be neighbours and are not."""

    def check_finite(self, name: str, scales: A) -> None:
        """Raise ScaleError for a scale that is NaN or Inf, where the back end sees values."""

    def check_last(self, x: A) -> None:
        """Raise ShapeError where neighbours along the last axis of an array of any axes must lie side by side."""

    def check_elements(self, x: A) -> None:
        """Raise ShapeError where the elements of an array of any shape must be neighbours and are not."""

    def check_beside(self, x: A, beside: A) -> None:
        """Raise ArgumentError unless two inputs can be read by one kernel."""

    def check_whole(self, x: A, layout: str) -> None:
        """Raise ArgumentError unless scales in a layout lie as the back end needs them."""

    def check_items(self, name: str, x: A) -> None:
        """Raise ArgumentError unless the items of a vector lie where the back end can read them."""

    def check_indices(self, name: str, x: A, limit: int | None, what: str) -> None:
        """Raise the named error of integers that the back end refuses: allowed are 0 to `limit` - 1."""

    def check_experts(self, splits: list[int], align: int) -> None:
        """Raise UnsupportedError for more experts or padded rows than the back end counts."""

    def check_random(self, name: str, words: A, bits: int) -> None:
        """Raise the named error of random words of so many bits that the back end does not take."""

    def check_output(self, name: str, x: A, inputs: Sequence[A]) -> None:
        """Raise ArgumentError unless an array of `out`, of the right shape and dtype, can be written."""

    def check_outputs(self, out: Sequence[A]) -> None:
        """Raise ArgumentError when the arrays of `out` cannot be written together."""

    def matrix(self, name: str, x: Any, multiple: int, beside: A | None = None) -> A:
        """Return a 2-D array whose last axis is a multiple of `multiple`; `beside` is another input."""
        view = self.look(name, x)
        if len(view.shape) != 2 or view.shape[1] % multiple:
            raise ShapeError(f"{name} has shape {view.shape}; allowed is [rows, n] with n a multiple of {multiple}")
        self.check_rows(view)
        if beside is not None:
            self.check_beside(view, beside)
        return view

    def floats(self, name: str, x: Any) -> A:
        """Return the [M, K] input of a quantiser."""
        view = self.matrix(name, x, BLOCK)
        if view.dtype not in KINDS:
            hint = ": round float64 to float32 yourself" if view.dtype == np.float64 else ""
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed are {FLOATS}{hint}")
        return view

    def codes(self, name: str, x: Any, multiple: int, beside: A | None = None) -> A:
        """Return a uint8 matrix of codes."""
        view = self.matrix(name, x, multiple, beside)
        if view.dtype != U8:
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed is uint8")
        return view

    def scales(self, x: Any, shape: tuple[int, int], beside: A, layout: str = "bytes") -> A:
        """Return the array that holds E8M0 bytes of this shape, uint8 unless in another layout (N6.5)."""
        laid = bool(checks.choice("layout_in", layout, checks.LAYOUTS))
        view = self.look("scales", x)
        wanted, dtype = checks.layout_of(*shape, layout)
        if view.dtype != dtype:
            hint = (
                f"the layout {layout} is of {dtype}"
                if laid
                else "allowed is uint8, one E8M0 byte a scale: convert it first"
            )
            raise ScaleError(f"scales has dtype {view.dtype}; {hint}")
        if view.shape != wanted:
            hint = f"{shape} scales in the layout {layout} need {wanted}" if laid else f"these codes need {shape}"
            raise ShapeError(f"scales has shape {view.shape}; {hint}")
        if laid:
            self.check_whole(view, layout)
        else:
            self.check_rows(view)
        self.check_beside(view, beside)
        return view

    def mxfp4(self, packed: Any, scales: Any, layout: str = "bytes") -> tuple[A, A, int, int]:
        """Return the codes u8 [M, K/2] and the scales of [M, K/32] of an MXFP4 matrix, M and K."""
        view = self.codes("packed", packed, BLOCK // 2)
        m, k = view.shape[0], 2 * view.shape[1]
        return view, self.scales(scales, (m, k // BLOCK), view, layout), m, k

    def tiles(self, codes: Any, scales: Any, tall: int = 1, layout: str = "bytes") -> tuple[A, A, int, int]:
        """Return the codes u8 [M, K] and the scales of tiles of `tall` rows of an FP8 matrix, M and K."""
        view = self.codes("codes", codes, BLOCK)
        m, k = view.shape
        return view, self.scales(scales, (-(-m // tall), checks.tiles(k)), view, layout), m, k

    def random_bits(
        self, rbits: Any, x: A, name: str = "rbits", bits: int = 8, of_codes: tuple[int, int] | None = None
    ) -> A:
        """Return random words, one unsigned integer below 2**bits for each element of x, or of codes of a shape."""
        view, what = self.look(name, rbits), "that of x" if of_codes is None else "that of the codes"
        if view.shape != (of_codes or x.shape):
            raise ShapeError(f"{name} has shape {view.shape}; allowed is {what}, {of_codes or x.shape}")
        self.check_rows(view)
        self.check_beside(view, x)
        self.check_random(name, view, bits)
        return view

    def vector(self, name: str, x: Any, beside: A, count: int | None, why: str) -> A:
        """Return a 1-D array of `count` items, any number if None; `why` tells the reason of the count."""
        view = self.look(name, x)
        if len(view.shape) != 1 or (count is not None and view.shape != (count,)):
            wanted = "[n]" if count is None else f"({count},)"
            raise ShapeError(f"{name} has shape {view.shape}; {why}, so it must be {wanted}")
        self.check_beside(view, beside)
        return view

    def weights(self, name: str, x: Any, beside: A, count: int, why: str) -> A:
        """Return a float32 vector of `count` items."""
        view = self.vector(name, x, beside, count, why)
        if view.dtype != F32:
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed is float32")
        return view

    def indices(self, name: str, x: Any, beside: A, count: int | None, why: str, limit: int | None, what: str) -> A:
        """Return a vector of `count` integers, each from 0 to `limit` - 1: what the back end can see of it."""
        view = self.vector(name, x, beside, count, why)
        if view.dtype.kind not in "iu":
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed are integers")
        self.check_items(name, view)
        self.check_indices(name, view, limit, what)
        return view

    def outputs(self, out: Any, wanted: Wanted, inputs: Sequence[A]) -> None:
        """Provide the outputs: new arrays, or those of `out` where they fit. inputs: all arrays that are read."""
        if out is not None:
            given = self._given(list(out) if isinstance(out, tuple | list) else [out], wanted, inputs)
            self.check_outputs(given)
            self._results = given
        self.inputs, self.wanted = inputs, wanted

    def _given(self, out: list[Any], wanted: Wanted, inputs: Sequence[A]) -> list[A]:
        if len(out) != len(wanted):
            raise ArgumentError(f"out holds {len(out)} arrays; allowed is {len(wanted)}")
        names = [f"out[{number}]" for number in range(len(out))]
        views = [self.look(name, x) for name, x in zip(names, out, strict=True)]
        for name, view, (shape, dtype) in zip(names, views, wanted, strict=True):
            if view.dtype != dtype and not (dtype == BFLOAT16 and view.dtype == np.uint16):
                raise DtypeError(f"{name} has dtype {view.dtype}; allowed is {dtype}")
            if view.shape != shape:
                raise ShapeError(f"{name} has shape {view.shape}; allowed is {shape}")
            self.check_output(name, view, inputs)
        return views


def public(described: Callable[..., Any], run: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that makes a function the public one of an operation.

    Args:
        described: the operation's description, whose name, docstring and signature it gets.
        run: the function of the back end, whose module it gets and whose source is shown for it.
    """
    signature = inspect.signature(described)
    without_call = signature.replace(
        parameters=list(signature.parameters.values())[1:], return_annotation=signature.empty
    )

    def decorate(function: F) -> F:
        dressed = cast(Any, function)
        dressed.__name__ = dressed.__qualname__ = described.__name__
        dressed.__doc__, dressed.__module__ = described.__doc__, run.__module__
        dressed.__signature__, dressed.__wrapped__ = without_call, run
        return function

    return decorate
