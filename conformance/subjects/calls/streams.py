"""Calls on a stream of the caller's own, and under CUDA graph capture, for the libraries that have streams.

The side stream is held up before the inputs are written in it, so that a kernel launched on any other stream reads
what was there before. A graph is captured once and launched twice, with other data in the same storage in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ...cases.case import Case
from ...cases.layouts import stored_inputs
from ...cases.levels import Outcome
from ...cases.same_bytes import same
from ..arrays import overwrite, to_numpy
from ..subject import Subject, arguments_for
from .call import Called, call_on, lay_out, other_data, raw, where_it_lives

HOLD_BYTES, HOLDS = 1 << 28, 40
"""What a side stream fills before the inputs come: some milliseconds of an H200."""


class Streams(Protocol):
    """What is needed of an array library with streams."""

    def side(self) -> Any:
        """Return a context in which a new stream, ordered with no other, is the current one."""

    def hold(self) -> None:
        """Keep the current stream busy for some milliseconds."""

    def wait(self) -> None:
        """Return when everything on every stream is done."""

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Capture a call on the current stream; return what it returned and a function that launches the graph."""


class _Cupy:
    @contextmanager
    def side(self) -> Iterator[None]:
        import cupy

        with cupy.cuda.Stream(non_blocking=True):
            yield

    def hold(self) -> None:
        import cupy

        block = cupy.empty(HOLD_BYTES, np.uint8)
        for _ in range(HOLDS):
            block.fill(0)

    def wait(self) -> None:
        import cupy

        cupy.cuda.Device().synchronize()

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        import cupy

        stream = cupy.cuda.get_current_stream()
        stream.begin_capture()
        try:
            result = function()
        finally:
            graph = stream.end_capture()
        return result, lambda: graph.launch(stream)


class _Torch:
    @contextmanager
    def side(self) -> Iterator[None]:
        import torch

        with torch.cuda.stream(torch.cuda.Stream()):
            yield

    def hold(self) -> None:
        import torch

        block = torch.empty(HOLD_BYTES, dtype=torch.uint8, device="cuda")
        for _ in range(HOLDS):
            block.zero_()

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            result = function()
        return result, graph.replay


STREAMED: dict[str, Streams] = {"cupy": _Cupy(), "torch-cuda": _Torch()}
"""Array library -> its streams."""


@where_it_lives
def on_side_stream(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with the inputs written late on a side stream, and results read when that stream is done."""
    streams = STREAMED[subject.arrays]
    late = lay_out(subject, case)
    given = lay_out(subject, other_data(case))
    streams.wait()

    def written_late() -> Mapping[str, Any]:
        streams.hold()
        for name, array in given.items():
            array[...] = late[name]
        return given

    with streams.side():
        called = call_on(subject, case, written_late, seconds)
        streams.wait()
    return called


@where_it_lives
def under_graph(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Capture a call in a graph and launch it twice; return (second case, first call, second call).

    A subject that cannot be captured gives a first call with an outcome other than pass and its own words.
    """
    streams, second_case = STREAMED[subject.arrays], other_data(case)
    given = lay_out(subject, case)
    streams.wait()

    def call() -> Any:
        return subject.operations[case.operation](**arguments_for(subject, case, given))

    def collected(result: Any, of: Case) -> Called:
        streams.wait()
        parts = result if isinstance(result, tuple | list) else (result,)
        live = tuple(part for part in parts if part is not None)
        for name, array in stored_inputs(of).items():
            if not same(raw(to_numpy(given[name])), raw(array)):
                return Called((), live, Outcome.MISMATCH, f"the graph changed its input {name}", "input-mutated")
        return Called(tuple(np.array(to_numpy(part), copy=True) for part in live), live)

    try:
        with streams.side():
            for _ in range(2):  # compiled, and its memory in the pool, before the capture
                call()
            streams.wait()
            result, launch = streams.capture(call)
            launch()
            first = collected(result, case)
            for name, data in stored_inputs(second_case).items():
                overwrite(given[name], data, subject.arrays)
            streams.wait()
            launch()
            return second_case, first, collected(result, second_case)
    except Exception as error:  # capture forbids much: whatever it raises is why it cannot be captured
        streams.wait()
        words = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
        refused = Called(outcome=Outcome.FAULT, words=words)
        return second_case, refused, refused
