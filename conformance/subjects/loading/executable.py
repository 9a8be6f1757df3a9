"""An executable as a subject: it reads cases as lines of hexadecimal text and answers in the same form.

The lines are the guide `docs/guides/line-protocol.md`, with the schema `schema/lines.schema.json` here. Every parameter
is sent, those at their default too. An executable refuses a case by one line `unsupported REASON`: all else that is no
answer, its death above all, is a fault, and it is started again for the next case.
"""

from __future__ import annotations

import atexit
import math
import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import FileError, UnsupportedError

from ...cases.case import DESCRIPTIVE, Case, plain
from ...cases.operation import OPERATIONS, as_bits, outputs_of, select
from ..isolation import process_tree
from .failure import LINES, KernelFailed, see
from .shapes import case_of, output_specs

SECONDS = 60.0
"""Without an answer for so long it is stopped, if the harness's own limit for a call has not done it before."""
MOST = 1 << 28
"""Bytes of one answer; one that goes on beyond them will not end."""


def from_executable(command: str) -> dict[str, Any]:
    """Return the subject entry of an executable: `PATH`, or `PATH:operation,operation` for some operations only.

    Raises FileError when the file does not exist or cannot be executed, ArgumentError for an unknown operation.
    """
    path_text, _, names = command.partition(":")
    path = Path(path_text)
    if not path.is_file() or not os.access(path, os.X_OK):
        found = shutil.which(path_text)
        if found is None:
            mend = f"run `chmod +x {path}`" if path.is_file() else "give --subject exec:PATH[:OPERATION,...]"
            raise FileError(f"{path} is no executable file; {mend}, {see(LINES)}.")
        path = Path(found)
    process = _Process(path.resolve())
    chosen = [operation.name for operation in select(names.split(",") if names else None)]
    return {
        "name": path.stem,
        "operations": {name: _asked(process, name) for name in chosen},
        "arrays": "numpy",
        "describe": lambda: {"executable": path},
    }


def _asked(process: _Process, name: str) -> Any:
    def call(**keywords: Any) -> tuple[np.ndarray, ...]:
        case = whole(case_of(OPERATIONS[name], keywords))
        specs = output_specs(case)
        names = [output.name for output in outputs_of(case)]
        answer = process.ask(question(case, list(zip(names, specs, strict=True))))
        try:
            return tuple(read(answer, dtype, shape, name) for name, (shape, dtype) in zip(names, specs, strict=True))
        except ValueError as error:
            raise KernelFailed(str(error), LINES) from error

    call.declares = True  # type: ignore[attr-defined]
    return call


def whole(case: Case) -> Case:
    """Return the case of a call with the parameters that the call left out, at their defaults."""
    defaults = {name: value for name, value in OPERATIONS[case.operation].defaults().items() if name not in DESCRIPTIVE}
    return case.with_inputs(params={**defaults, **case.params})


def question(case: Case, outputs: Iterable[tuple[str, tuple[tuple[int, ...], np.dtype]]]) -> str:
    """Return the lines of a question; outputs are names with (shape, dtype)."""
    words = [f"{name}={_word(value)}" for name, value in plain(case.params).items()]
    lines = [" ".join(["case", case.operation, f"profile={case.profile}", *words])]
    for name, array in case.inputs.items():
        bits = as_bits(array)
        lines.append(f"in {name} {_head(array.dtype, array.shape)}")
        large = bits.astype(bits.dtype.newbyteorder(">")).reshape(_rows(array.shape))
        lines += [row.tobytes().hex(" ", bits.dtype.itemsize) for row in large]
    lines += [f"out {name} {_head(dtype, shape)}" for name, (shape, dtype) in outputs]
    return "\n".join([*lines, "end", ""])


def _head(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return " ".join(map(str, (dtype.name, *shape)))


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    return (1, math.prod(shape)) if len(shape) < 2 else (shape[0], math.prod(shape[1:]))


def read(lines: Iterator[str], dtype: np.dtype, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return one array of an answer; ValueError says what was expected where the lines do not fit."""
    rows, wide = _rows(shape)
    bits = np.zeros((rows, wide), f"u{dtype.itemsize}")
    for row in range(rows if wide else 0):
        words = next(lines, "end").split()
        if len(words) != wide:
            raise ValueError(f"row {row} of {name} has {len(words)} words; the shape {list(shape)} asks for {wide}")
        widest = max(words, key=len, default="")
        if len(widest) > 2 * dtype.itemsize:
            raise ValueError(f"row {row} of {name} has the word {widest}; allowed are {8 * dtype.itemsize} bits")
        bits[row] = [int(word, 16) for word in words]
    return bits.reshape(shape).view(dtype)


class _Ended(RuntimeError):
    """The executable closed its output before an answer was complete."""


class _Process:
    """The running executable; started when first asked, stopped with the program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process: subprocess.Popen[bytes] | None = None
        self.mark = ""
        self.served = False
        self.turn = threading.Lock()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End it, and what it has started, for good or until the next question."""
        if self.process is not None:
            process_tree.end(self.process, self.mark)
            self.process = None

    def ask(self, text: str) -> Iterator[str]:
        """Return the lines of its answer; UnsupportedError or KernelFailed otherwise."""
        with self.turn:  # one line to the process: threads take turns
            return self._asked(text)

    def _asked(self, text: str) -> Iterator[str]:
        try:
            try:
                lines = self._exchange(self._started(), text.encode())
            except _Ended:
                if not self.served:
                    raise
                self.stop()  # it had answered before and ended then; a new one has not
                lines = self._exchange(self._started(), text.encode())
        except _Ended as error:
            self.stop()
            raise KernelFailed(str(error), LINES) from error
        except BaseException:
            self.stop()
            raise
        self.served = True
        if lines and lines[0].startswith("unsupported"):
            raise UnsupportedError(lines[0].partition(" ")[2] or "it says that it does not support this case")
        return iter(lines[:-1])

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.stop()
            self.process, self.mark = process_tree.started(self.path)
            self.served = False
        return self.process

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes) -> list[str]:
        """Write and read at once, so that neither side waits for a full pipe."""
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        until, sent, got = time.monotonic() + SECONDS, 0, b""
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            while True:
                events = ready.select(until - time.monotonic())
                if not events or time.monotonic() > until:
                    raise KernelFailed(f"no answer within {SECONDS:g} s", LINES)
                for key, _ in events:
                    if key.fileobj is process.stdin:
                        try:
                            sent += os.write(key.fd, question[sent : sent + 65536])
                        except BlockingIOError:
                            continue
                        except BrokenPipeError:  # it reads no more; what it still says decides
                            sent = len(question)
                        if sent == len(question):
                            ready.unregister(process.stdin)
                        continue
                    part = os.read(key.fd, 1 << 20)
                    if not part:
                        raise _Ended(f"it {_end(process)} in the middle of a case")
                    got += part
                    if len(got) > MOST:
                        raise KernelFailed(f"its answer has more than {MOST} bytes and no end", LINES)
                    lines = _complete(got)
                    if lines:
                        return lines


def _end(process: subprocess.Popen[bytes]) -> str:
    try:
        return f"ended with status {process.wait(1.0)}"
    except subprocess.TimeoutExpired:
        return "closed its output"


def _complete(got: bytes) -> list[str]:
    """Return the lines of a finished answer, or nothing: it ends with `end` or is one line `unsupported`."""
    if not got.endswith(b"\n") or (got[-256:].split()[-1:] != [b"end"] and b"unsupported" not in got[:4096]):
        return []
    lines = [line for line in got.decode("ascii", "replace").splitlines() if line.strip() and line[0] != "#"]
    done = bool(lines) and (lines[-1].strip() == "end" or lines[0].startswith("unsupported"))
    return lines if done else []
