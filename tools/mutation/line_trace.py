"""A trace of the lines that run, of some files alone, which sees through what is made once and kept."""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN = ("refnum", "tools")
"""Packages that are imported anew: what imports a changed module must see it."""

Lines = frozenset[tuple[str, int]]
"""Lines that ran: (file, number)."""


_LRU_CACHE = functools.lru_cache


def forget() -> None:
    """Make this process import everything of ours anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


def loaded_from(file: str) -> str:
    """Return the path by which Python imports a file: the harness comes in by the link in `refnum`."""
    return file if file.startswith("refnum/") else f"refnum/{file}"


def module_of(file: str) -> str:
    """Return the module that a file of the repository is."""
    return loaded_from(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Recorder:
    """A trace of the lines of some files, in every thread, that sees through what `functools` keeps."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = {str(ROOT / loaded_from(file)): file for file in files}
        self._modules = {module_of(file) for file in self._files.values()}
        self._open: list[set[tuple[str, int]]] = [set()]
        self._making = False
        self.spent = 0.0
        """CPU seconds that went into what is made once and kept."""

    @contextlib.contextmanager
    def listening(self) -> Iterator[set[tuple[str, int]]]:
        """Trace while the context lasts; yields the set that the lines go to."""
        lines: set[tuple[str, int]] = set()
        self._open.append(lines)
        before = sys.gettrace()
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield lines
        finally:
            sys.settrace(before)
            threading.settrace(None)
            self._open = [other for other in self._open if other is not lines]

    @contextlib.contextmanager
    def _untimed(self) -> Iterator[None]:
        """Make something that is kept: whoever happens to ask first does not pay for it."""
        if self._making:
            yield
            return
        self._making, start = True, time.process_time()
        left, again = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        try:
            yield
        finally:
            self._making = False
            self.spent += time.process_time() - start
            signal.setitimer(signal.ITIMER_VIRTUAL, left, again)

    def _called(self, frame: Any, event: str, _: Any) -> Any:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None

        def line(frame: Any, event: str, _: Any) -> Any:
            if event == "line":
                self._open[-1].add((file, frame.f_lineno))
            return line

        return line

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`functools.cache`, and the lines of an entry run anew whenever it is read."""
        kept: dict[Any, tuple[Any, set[tuple[str, int]]]] = {}

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            key = (args, tuple(sorted(named.items())))
            if key not in kept:
                with self.listening() as lines, self._untimed():
                    value = function(*args, **named)
                kept[key] = value, lines
            value, lines = kept[key]
            self._open[-1].update(lines)
            return value

        call.cache_clear = kept.clear  # type: ignore[attr-defined]
        return call

    def _lru_cache(self, maxsize: Any = 128, typed: bool = False) -> Any:
        def made(function: Any) -> Any:
            if function.__module__.partition(".")[0] in OWN:
                return self.cache(function)
            return _LRU_CACHE(maxsize, typed)(function)

        return _LRU_CACHE(maxsize) if callable(maxsize) else made

    def _cached_property(self) -> type:
        recorder = self

        class Kept(functools.cached_property[Any]):
            def __get__(self, instance: Any, owner: Any = None) -> Any:
                if instance is None or self.func.__module__ not in recorder._modules:
                    return super().__get__(instance, owner)
                if "kept" not in vars(self):
                    self.kept = recorder.cache(self.func)
                return self.kept(instance)

        return Kept

    def imported(self, modules: Iterable[str]) -> Lines:
        """Import everything of ours anew, with caches of this recorder; return the lines that ran."""
        forget()
        functools.lru_cache = self._lru_cache  # `functools.cache` calls it
        functools.cached_property = self._cached_property()  # type: ignore[assignment, misc]
        with self.listening() as lines:
            for module in modules:
                importlib.import_module(module)
        return frozenset(lines)
