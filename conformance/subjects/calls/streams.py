"""Calls on streams of the caller's own, on another device and under CUDA graph capture, for libraries with streams.

The side stream is held up before the inputs are written in it, so that a kernel launched on any other stream reads what
was there before; from then on all multiprocessors are busy, so that results of a kernel for which the side stream does
not wait are read before they are there. A graph is captured once and launched twice, with other data in the same
storage in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...cases.case import Case
from ...cases.layouts import stored_inputs
from ...cases.levels import Outcome
from ...cases.operation import golden_like
from ...cases.same_bytes import same
from ..arrays import overwrite, to_library, to_numpy
from ..subject import Subject, arguments_for
from .call import Called, call, call_on, given_back, lay_out, other_data, raw, where_it_lives

HOLD_BYTES, HOLDS = 1 << 28, 40
"""What a side stream fills before the inputs come: some milliseconds of an H200."""


Call = Callable[[], Any]


class Streams(Protocol):
    """What is needed of an array library with streams."""

    def devices(self) -> int:
        """Return how many devices there are, 0 where the library cannot be used."""

    def device(self) -> int:
        """Return the current device of this thread."""

    def on_device(self, number: int) -> AbstractContextManager[Any]:
        """Return a context in which a device is this thread's current one."""

    def stream(self) -> AbstractContextManager[Any]:
        """Return a context, which may be entered again, in which a new stream, ordered with no other, is current."""

    def hold(self) -> None:
        """Keep the current stream busy for some milliseconds."""

    def mark(self) -> Any:
        """Return what is done when the current stream has done all that is in it now."""

    def behind(self, mark: Any) -> None:
        """Let the current stream wait for a mark of another one."""

    def wait(self) -> None:
        """Return when everything on every stream is done."""

    def capture(self, function: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Capture a call on the current stream; return what it returned and a function that launches the graph."""


class _Cupy:
    def devices(self) -> int:
        try:
            import cupy

            return int(cupy.cuda.runtime.getDeviceCount())
        except Exception:  # not installed, or without a driver
            return 0

    def device(self) -> int:
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def on_device(self, number: int) -> AbstractContextManager[Any]:
        import cupy

        return cupy.cuda.Device(number)

    def stream(self) -> AbstractContextManager[Any]:
        import cupy

        return cupy.cuda.Stream(non_blocking=True)

    def hold(self) -> None:
        import cupy

        block = cupy.empty(HOLD_BYTES, np.uint8)
        for _ in range(HOLDS):
            block.fill(0)

    def mark(self) -> Any:
        import cupy

        return cupy.cuda.get_current_stream().record()

    def behind(self, mark: Any) -> None:
        import cupy

        cupy.cuda.get_current_stream().wait_event(mark)

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
    def devices(self) -> int:
        try:
            import torch

            return int(torch.cuda.device_count())
        except Exception:  # not installed, or broken
            return 0

    def device(self) -> int:
        import torch

        return int(torch.cuda.current_device())

    def on_device(self, number: int) -> AbstractContextManager[Any]:
        import torch

        return torch.cuda.device(number)

    def stream(self) -> AbstractContextManager[Any]:
        import torch

        return torch.cuda.stream(torch.cuda.Stream())

    def hold(self) -> None:
        import torch

        block = torch.empty(HOLD_BYTES, dtype=torch.uint8, device="cuda")
        for _ in range(HOLDS):
            block.zero_()

    def mark(self) -> Any:
        import torch

        return torch.cuda.current_stream().record_event()

    def behind(self, mark: Any) -> None:
        import torch

        torch.cuda.current_stream().wait_event(mark)

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


@cache
def two_streams(library: str, _device: int) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return contexts of two streams that nothing orders, the same for all calls on a device: memory goes with them."""
    streams = STREAMED[library]
    return streams.stream(), streams.stream()


def wait_for(library: str) -> None:
    """Return when everything on every stream of a library is done; at once where it has none."""
    if library in STREAMED:
        STREAMED[library].wait()


def here(library: str, job: Call) -> Call:
    """Return a job as another thread is to do it: on this thread's device."""
    if library not in STREAMED:
        return job
    streams = STREAMED[library]
    device = streams.device()

    def on_this_device() -> Any:
        with streams.on_device(device):
            return job()

    return on_this_device


def in_turn(library: str, calls: Sequence[Call], times: int) -> None:
    """Make two calls in turn, each on a stream of its own, which both begin when the first one is no more held up."""
    streams = STREAMED[library]
    pair = two_streams(library, streams.device())
    streams.wait()
    with pair[0]:
        streams.hold()
        mark = streams.mark()
    with pair[1]:
        streams.behind(mark)
    for _ in range(times):
        for stream, one in zip(pair, calls, strict=True):
            with stream:
                one()
    streams.wait()


@where_it_lives
def on_another_device(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with another device as the current one, where the inputs are too."""
    streams = STREAMED[subject.arrays]
    with streams.on_device((streams.device() + 1) % streams.devices()):
        called = call(subject, case, seconds)
        streams.wait()
    return called


@where_it_lives
def on_side_stream(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with the inputs written late on a side stream, and results read when that stream is done."""
    return _written_late(subject, case, lay_out(subject, case), lay_out(subject, other_data(case)), seconds)


@where_it_lives
def with_late_splits(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call as `on_side_stream` does, with `splits` on the device written as late.

    Before, the first expert has all rows: no output has more of them then, so that who reads too early stays in `out`.
    """
    counts, outs = list(case.params["splits"]), [to_library(like.copy(), subject.arrays) for like in golden_like(case)]
    late, early = lay_out(subject, case), lay_out(subject, other_data(case))
    for laid, given in ((late, counts), (early, [sum(counts), *[0] * (len(counts) - 1)])):
        laid["splits"] = to_library(np.array(given, np.int32), subject.arrays)
    called = _written_late(subject, case, late, early, seconds, out=tuple(outs) if len(outs) > 1 else outs[0])
    if called.outcome is not Outcome.PASS or called.finding:
        return called
    return Called(tuple(np.array(to_numpy(out), copy=True) for out in outs), tuple(outs))


def _written_late(
    subject: Subject, case: Case, late: Mapping[str, Any], given: Mapping[str, Any], seconds: float, **extra: Any
) -> Called:
    """Call on arrays that get what stands in others late on a side stream, while another one keeps the device busy."""
    streams = STREAMED[subject.arrays]
    busy, _ = two_streams(subject.arrays, streams.device())
    streams.wait()

    def inputs() -> Mapping[str, Any]:
        streams.hold()
        for name, array in given.items():
            array[...] = late[name]
        mark = streams.mark()
        with busy:
            streams.behind(mark)
            streams.hold()
        return given

    with streams.stream():
        # leaves other results in the memory that the next ones may get
        call_on(subject, case, lambda: given, seconds, lambda *_: Called(), **extra)
        streams.wait()
        called = call_on(subject, case, inputs, seconds, **extra)
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

    def made() -> Any:
        return subject.operations[case.operation](**arguments_for(subject, case, given))

    def collected(result: Any, of: Case) -> Called:
        streams.wait()
        live = given_back(result)
        for name, array in stored_inputs(of).items():
            if not same(raw(to_numpy(given[name])), raw(array)):
                return Called((), live, Outcome.MISMATCH, f"the graph changed its input {name}", "input-mutated")
        return Called(tuple(np.array(to_numpy(part), copy=True) for part in live), live)

    try:
        with streams.stream():
            for _ in range(2):  # compiled, and its memory in the pool, before the capture
                made()
            streams.wait()
            result, launch = streams.capture(made)
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
