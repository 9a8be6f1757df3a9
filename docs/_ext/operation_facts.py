"""Where everything about an operation is: found in the repository by the operation's name, never typed in."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

from value_tables import Table

import refnum
from refnum import gpu
from refnum.conformance.cases.domains import domains_for
from refnum.conformance.cases.entry import Operation
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.primitives import VECTOR_OPERATIONS
from refnum.conformance.subjects.peers import subjects as peers
from refnum.gpu import __all__ as launchers
from refnum.gpu.ops.compiled import units
from refnum.gpu.subjects import subjects as our_kernels

ROOT = Path(__file__).resolve().parents[2]


GENERIC = {"encode_element": refnum.encode, "decode_element": refnum.decode}
"""Operation -> the golden function that does it for every format."""
_ROOMS = (refnum, refnum.layouts, refnum.philox)


def golden_function(name: str) -> Any:
    """Return the golden function of an operation, or None while it is being written."""
    named = (getattr(room, name) for room in _ROOMS if hasattr(room, name))
    return GENERIC.get(name) or next(named, None)


def source(function: Any) -> Path:
    """Return the file of a function, from the root of the repository."""
    return Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve().relative_to(ROOT)


def place(function: Any) -> str:
    """Return `module.name` and the file of a function, as code."""
    path = source(function)
    public = ".".join(path.with_suffix("").parts) if path.parts[0] != "refnum" else "refnum"
    public += f".{path.stem}" if path.stem in ("layouts", "philox") else ""
    public += ".oracle" if path.parts[:2] == ("refnum", "oracle") else ""
    return f"`{public}.{function.__name__}` in `{path.as_posix()}`"


@cache
def _texts(folder: str, suffixes: tuple[str, ...]) -> dict[str, str]:
    root = ROOT / folder
    paths = sorted(p for p in root.rglob("*") if p.suffix in suffixes and "__pycache__" not in p.parts)
    return {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8", errors="replace") for p in paths}


def mentions(name: str, folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files under a folder whose text holds the name as a whole word."""
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9_])")
    return [path for path, text in _texts(folder, suffixes).items() if name in text and word.search(text)]


def kernels(name: str) -> list[str]:
    """Return the kernel files of an operation: those that bear its name or are launched for it, and a header of it.

    A scalar decoder is a function of its format's header, `e2m1_decode` in `e2m1.cuh`; payload and SwiGLU have one
    header a clause, which its first line names. None for an operation that our kernels do not offer.
    """
    if not any(name in entry["operations"] for entry in our_kernels()):
        return []
    texts = _texts("gpu/kernels", (".cuh", ".cu"))
    stems = {name, *(unit.kernel for unit in units(name))}
    own = [path for path in texts if Path(path).stem in stems]
    if any(path.endswith(".cuh") for path in own):
        return own
    cast = re.compile(rf"REFNUM_HD [\w ]+ {'_'.join(reversed(name.split('_')))}\(")
    shared = f"(clause {OPERATIONS[name].clause})"
    headers = {path: text for path, text in texts.items() if path.endswith(".cuh")}
    return own + (
        [path for path, text in headers.items() if cast.search(text)]
        or [p for p, t in headers.items() if Path(p).stem not in OPERATIONS and shared in t.partition("\n")[0]]
    )


@cache
def _shipped() -> list[tuple[str, set[str]]]:
    entries = [*our_kernels(), *peers()]
    return [(entry["name"], set(entry["operations"])) for entry in entries]


def subjects(name: str) -> list[str]:
    """Return the shipped subjects that have an operation: our kernels first, then peers, installed or not."""
    return [subject for subject, operations in _shipped() if name in operations]


def tests(name: str) -> list[str]:
    """Return the test files that name an operation, those of the documentation left out."""
    return [path for path in mentions(name, "tests", (".py",)) if not path.startswith("tests/docs/")]


def vectors(name: str) -> list[str]:
    """Return the vector files of an operation: a file or a folder under `vectors/` bears its name."""
    root = ROOT / "vectors"
    found = [p for p in root.rglob("*") if p.is_file() and (p.parent.name == name or p.name.split(".")[0] == name)]
    return sorted(p.relative_to(ROOT).as_posix() for p in found)


def signature(name: str) -> str:
    """Return the call of the golden function without its annotations."""
    function = golden_function(name)
    return signature_of(function) if function else f"{name}(...)"


def signature_of(function: Any) -> str:
    """Return a function's call without its annotations; a profile or a format is shown by its name."""
    full = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in full.parameters.values()]
    text = str(full.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    named = r"(?:Profile|Format)\(name='(\w+)'.*?source='[^']*'\)|(?<==)'(HOPPER|E2M1)'"
    return function.__name__ + re.sub(named, lambda found: found[1] or found[2], text)


def interface(name: str) -> Table:
    """What an operation takes and gives: the part of its fact box that belongs to the specification."""
    operation = VECTOR_OPERATIONS[name]
    inputs = [f"`{i}`" for i in operation.inputs] + [f"`{i}` (optional)" for i in operation.optional]
    rows = [
        ["clause", operation.clause],
        ["call", f"`{signature(name)}`"],
        ["inputs", ", ".join(inputs)],
        ["outputs", _outputs(operation)],
        ["parameters", _parameters(operation)],
        ["takes a profile", "yes" if operation.profiled else "no"],
    ]
    return Table(["", ""], rows)


def facts(name: str) -> Table:
    """The fact box of an operation's page: its interface, and where everything about it is."""
    function, oracle = golden_function(name), getattr(refnum.oracle, name, None)
    rows = [
        *interface(name).rows,
        ["golden function", place(function) if function else "-"],
        ["second oracle", place(oracle) if oracle else "none of this name: its parts are checked, see the tests"],
        ["kernel", _paths(kernels(name), _NOT_JUDGED if name not in OPERATIONS else "none yet")],
        ["device launcher", f"`gpu.{name}` in `{source(getattr(gpu, name))}`" if name in launchers else "-"],
        ["subjects", ", ".join(f"`{subject}`" for subject in subjects(name)) or "none beside the model"],
        ["vectors", _paths(vectors(name), "none yet")],
        ["tests", _paths(tests(name), "none yet")],
    ]
    return Table(["", ""], rows)


_NOT_JUDGED = "none: a primitive that has vectors and is not judged by itself"


def defaults() -> Table:
    """Every argument of every operation: those that a caller must give, and the defaults of the others (N0.12)."""
    rows = []
    for name in VECTOR_OPERATIONS:
        parameters = inspect.signature(golden_function(name)).parameters.values()
        required = [f"`{p.name}`" for p in parameters if p.default is inspect.Parameter.empty]
        optional = [f"`{p.name}` {_default(p.default)}" for p in parameters if p.default is not inspect.Parameter.empty]
        rows.append([f"@{name}", ", ".join(required), ", ".join(optional) or "-"])
    return Table(["operation", "arguments that are required", "defaults of the others"], rows)


def _default(value: Any) -> str:
    if value is None:
        return "none"
    named = value.name if isinstance(value, refnum.Profile | refnum.Format) else value
    return f"= `{named}`" if named != "" else "empty"


def _outputs(operation: Operation) -> str:
    shown = []
    for output in operation.outputs:
        element = output.element.removeprefix("@")
        shown.append(f"`{output.name}`" + (f" ({output.kind}, {element})" if element else f" ({output.kind})"))
    return ", ".join(shown)


def _parameters(operation: Operation) -> str:
    parts = []
    for name, choices in operation.params.items():
        listed = ", ".join(_choice(choice) for choice in choices)
        parts.append(f"`{name}`: {listed}")
    return "; ".join(parts) or "none"


def _paths(paths: list[str], otherwise: str) -> str:
    return ", ".join(f"`{path}`" for path in paths) if paths else otherwise


def operations() -> Table:
    """Every operation: what it does is on its page; this is where it is."""
    rows = []
    for operation in VECTOR_OPERATIONS.values():
        rows.append([f"@{operation.name}", operation.clause, ", ".join(f"`{i}`" for i in operation.inputs),
                     ", ".join(f"`{o.name}`" for o in operation.outputs), _parameters(operation)])  # fmt: skip
    return Table(["operation", "clause", "inputs", "outputs", "parameters, the default first"], rows)


def domains(name: str) -> Table:
    """What a run tries completely: every domain of the operation's variants under the default profile."""
    operation, rows = OPERATIONS[name], []
    for params in operation.variants():
        shown = ", ".join(f"{key}={_choice(value)}" for key, value in params.items()) or "-"
        standard = {domain.name for domain in domains_for(name, "HOPPER", params, "standard")}
        for domain in domains_for(name, "HOPPER", params, "exhaustive"):
            level = "standard" if domain.name in standard else "exhaustive"
            rows.append([shown, domain.name, f"{domain.size:,}", level])
    return Table(
        ["variant", "domain", "members", "from level"],
        rows or [["all", "none: corner cases and samples only", "-", "-"]],
    )


def _choice(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
