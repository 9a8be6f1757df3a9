"""Choose subjects by what the user typed: names, kinds, patterns, `peers`, `all`, or a Python file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from refnum.errors import ArgumentError

from ..cases.levels import checked_level, level_name
from .controls.right import model
from .isolation.parent import isolated
from .loading import discover
from .loading.declare import declared
from .named import is_file, refuse_path
from .source_lines import sources
from .subject import Subject, from_dict

Kernel = Callable[..., Any] | Mapping[str, Any] | Subject | str
"""What can be judged: a callable, operation -> callable, a Subject, or the words that come after `--subject`."""


class Choice:
    """The subjects chosen, split into usable ones and (subject, reason) for the others; and failed loads."""

    def __init__(self) -> None:
        self.usable: list[Subject] = []
        self.unusable: list[tuple[Subject, str]] = []
        self.broken: list[tuple[str, str]] = []

    def add(self, found: list[Subject]) -> None:
        """Take subjects in, each once. Raises ArgumentError when two different ones have the same name."""
        known = {item.name: item for item in (*self.usable, *(item for item, _ in self.unusable))}
        for item in found:
            if item.name in known:
                if known[item.name].origin != item.origin:
                    places = " and ".join(where.origin or "an installed package" for where in (known[item.name], item))
                    raise ArgumentError(f"Two subjects are named {item.name}, from {places}; rename one.")
                continue
            known[item.name] = item
            try:
                usable, reason = item.available()
            except Exception as error:  # a foreign probe may fail in any way
                usable, reason = False, f"its availability probe failed: {type(error).__name__}: {error}"
            if usable:
                self.usable.append(item)
            else:
                self.unusable.append((item, reason))

    def records(self) -> list[dict[str, Any]]:
        """Return the header records of all chosen subjects."""
        return [
            *(_record(item, True, "") for item in self.usable),
            *(_record(item, False, reason) for item, reason in self.unusable),
        ]


def _record(item: Subject, available: bool, reason: str) -> dict[str, Any]:
    try:
        facts = dict(item.describe()) if available else {}
    except Exception as error:
        facts = {"describe": f"failed: {type(error).__name__}: {error}"}
    return {
        "name": item.name,
        "kind": item.kind,
        "available": available,
        "reason": reason,
        "operations": sorted(item.operations),
        "profiles": [*(item.profiles or ()), *(f"{p} ({name})" for name, more in item.further.items() for p in more)],
        "level": level_name(item.level),
        "inputs": list(item.inputs),
        "source": sources(item),
        "describe": {str(key): str(value) for key, value in facts.items()},
    }


def choose(names: list[str] | None, isolate: bool | None = False) -> Choice:
    """Return the subjects of some names; without names every installed one that is no peer and not on request.

    isolate: whether they live in processes of their own (`isolation.parent`); None: those of files and libraries do.
    Raises ArgumentError for a name that selects nothing, FileError for a file that cannot be loaded.
    """
    choice = Choice()
    kernels, choice.broken = discover.installed()
    if not names:
        found = [item for item in kernels if item.kind != "peer" and not item.on_request]
        choice.add(_isolated(found) if isolate else found)
        return choice
    others: list[Subject] = []
    if any(not is_file(name) for name in names):
        shipped, broken = discover.peers()
        choice.broken += broken
        others = [*shipped, *_model()]
    for name in names:
        if is_file(name):
            choice.add(_from_file(name, isolate is not False))
        else:
            found = _named(name, kernels, others)
            choice.add(_isolated(found) if isolate else found)
    return choice


def _from_file(name: str, isolate: bool) -> list[Subject]:
    """An executable is a process of its own already."""
    return isolated(name) if isolate and not name.startswith("exec:") else discover.from_file(name)


def _isolated(found: list[Subject]) -> list[Subject]:
    """Return the subjects as they are in processes of their own, one each."""
    return [replace(one, origin="") for item in found for one in isolated(item.name) if one.name == item.name]


def resolve(text: str) -> list[Subject]:
    """Return the subjects of one file or name, in this process; ArgumentError or FileError when there is none."""
    if is_file(text):
        return discover.from_file(text)
    return _named(text, discover.installed()[0], [*discover.peers()[0], *_model()])


def _named(name: str, kernels: list[Subject], others: list[Subject]) -> list[Subject]:
    everyone = [*kernels, *others]
    if name == "all":
        return everyone
    if name == "peers":
        found = [item for item in everyone if item.kind == "peer"]
    else:
        found = [
            item for item in everyone if (item.kind == name and not item.on_request) or fnmatchcase(item.name, name)
        ]
    if not found:
        refuse_path(name)
        known = ", ".join(sorted(item.name for item in everyone)) or "none is installed"
        raise ArgumentError(f"No subject is named {name!r}; known are {known}; or give path/to/file.py:NAME.")
    return found


def _model() -> list[Subject]:
    """Return the golden model as a subject: on the host, and its very lines run by CuPy on a device."""
    host = {"name": "model", **model.SUBJECT}
    device = {**host, "name": "model-cupy", "arrays": "cupy", "available": _cupy_device, "profiles": ("HOPPER", "OCP")}
    return [from_dict(entry, "refnum.conformance.subjects.controls.right.model") for entry in (host, device)]


def _cupy_device() -> tuple[bool, str]:
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount()), "no CUDA device"
    except Exception as error:  # an absent or broken installation says why in its own words
        return False, f"CuPy cannot be used: {type(error).__name__}: {error}"


def as_subject(kernel: Kernel, operation: str | None = None, agreement: int | str | None = None) -> Subject:
    """Return what is given as a Subject; ArgumentError when it is none, or not exactly one.

    agreement: the level of agreement that is enough, in the place of what the kernel claims; None leaves that.
    """
    subject = _subject(kernel, operation)
    return subject if agreement is None else replace(subject, level=checked_level(agreement, subject.name), levels={})


def _subject(kernel: Kernel, operation: str | None) -> Subject:
    if isinstance(kernel, str):
        chosen = choose([kernel], None)
        found = [*chosen.usable, *(subject for subject, _ in chosen.unusable)]
        if len(found) != 1:
            names = ", ".join(subject.name for subject in found)
            raise ArgumentError(f"{kernel} has {len(found)} subjects, {names}; name one: {kernel}:NAME.")
        return found[0]
    if isinstance(kernel, Subject):
        return kernel
    for declaration in declared([kernel]):
        return from_dict(declaration, "judge_kernel")
    if isinstance(kernel, Mapping):
        return from_dict(kernel if "operations" in kernel else {"name": "kernel", "operations": kernel}, "judge_kernel")
    if not callable(kernel) or operation is None:
        raise ArgumentError("Give a callable with the operation it implements, or a dict of operation -> callable.")
    name = getattr(kernel, "__name__", type(kernel).__name__)
    return from_dict({"name": name, "operations": {operation: kernel}}, "judge_kernel")
