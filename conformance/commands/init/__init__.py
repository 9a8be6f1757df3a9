"""`refnum init`: writes a subject file, a pytest file and a CI workflow into someone's repository."""

from __future__ import annotations

import inspect
import json
from importlib import metadata
from importlib.resources import files as resources
from pathlib import Path
from string import Template

import refnum
from refnum.errors import ArgumentError, FileError
from refnum.profiles import get_profile, profile_name

from ...cases.entry import DATA_PARAMS, Operation
from ...cases.operation import OPERATIONS, near
from ...reports import files

SUBJECT = "kernels_under_test.py"
WRITTEN = {
    SUBJECT: "subject.py.txt",
    "test_conformance.py": "test_conformance.py.txt",
    ".github/workflows/conformance.yml": "conformance.yml.txt",
}
"""File in the user's repository -> template."""


def write(folder: Path, operation: str, profile: str, install: str | None = None) -> list[Path]:
    """Write the files and return their paths; FileError when any of them exists: nothing is overwritten then.

    operation: that of the first function. profile: which it follows (passed over where the operation has none).
    install: what pip installs in CI, by default what `requirement` says.
    Raises ArgumentError or ProfileError for unknown names.
    """
    if operation not in OPERATIONS:
        raise ArgumentError(
            f"No operation is named {operation!r}{near(operation)}; choose from {', '.join(OPERATIONS)}."
        )
    wanted = requirement() if install is None else install
    words = {**_words(OPERATIONS[operation], profile_name(get_profile(profile))), **_source(wanted)}
    there = [str(folder / name) for name in WRITTEN if (folder / name).exists()]
    if there:
        raise FileError(f"{', '.join(there)} exists already; nothing was written. Give another folder, or remove it.")
    for name, template in WRITTEN.items():
        text = (resources(__name__) / "templates" / template).read_text()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / name, Template(text).substitute(words))
    return [folder / name for name in WRITTEN]


def requirement() -> str:
    """Return what pip installs to have this very package elsewhere.

    Empty where it came from a place that only this machine has, such as a folder or a file.
    """
    try:
        found = metadata.distribution("refnum")
    except metadata.PackageNotFoundError:
        return ""
    text = found.read_text("direct_url.json")
    if text is None:  # from an index
        return f"refnum=={found.version}"
    origin = json.loads(text)
    if not str(origin["url"]).startswith("https://"):
        return ""
    version = origin.get("vcs_info")
    where = f"{version['vcs']}+{origin['url']}@{version['commit_id']}" if version else origin["url"]
    return f"refnum @ {where}"


def _source(wanted: str) -> dict[str, str]:
    """Return the words of the workflow's setting for what pip installs."""
    if any(sign in wanted for sign in "'\n"):
        raise ArgumentError(f"install={wanted!r} has a quote or a line's end; give one requirement as pip takes it.")
    told = "this is where it came from; the repository variable REFNUM overrides it."
    return {"requirement": wanted, "origin": told if wanted else "set the repository variable REFNUM to where it is."}


def _words(operation: Operation, profile: str) -> dict[str, str]:
    """Return what stands in the templates' places."""
    said = f', profile="{profile}"' if operation.profiled else ""
    arguments = _arguments(operation)
    call = [argument if argument in operation.inputs else f"{argument}={argument}" for argument in arguments]
    return {
        "operation": operation.name,
        "name": f"my_{operation.name}",
        "file": SUBJECT,
        "module": Path(SUBJECT).stem,
        "subject": SUBJECT,
        "declared": f'{said}, arrays="numpy"',
        "marked": said,
        "arguments": ", ".join(f"{argument}{default}" for argument, default in arguments.items()),
        "takes": ", ".join(operation.inputs),
        "gives": ", ".join(output.name for output in operation.outputs),
        "call": ", ".join([*call, f'profile="{profile}"'] if operation.profiled else call),
    }


def _arguments(operation: Operation) -> dict[str, str]:
    """Return the golden function's arguments that a case may bring, each with `=DEFAULT` or nothing."""
    brought = {*operation.inputs, *operation.optional, *operation.params, *DATA_PARAMS} - {"rbits"}
    function = getattr(refnum, operation.name)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name in brought]
    defaults = {**{p.name: p.default for p in parameters if p.default is not p.empty}, **operation.defaults()}
    return {p.name: f"={_plain(defaults[p.name])!r}" if p.name in defaults else "" for p in parameters}


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
