"""`refnum docs`: the guides and the schemas of contracts, printed or opened; they come with the package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from refnum.errors import ArgumentError, FileError

from ..reports import terminal
from ..subjects.loading.failure import SCHEMAS, schema_file
from .options import told

_EXAMPLES = "docs/guides/examples/"
_INCLUDE = re.compile(r"^```\{literalinclude\} (\S+)\n((?::.*\n)*)```$", re.MULTILINE)
_ROLE, _MARK = re.compile(r"\{(?:doc|ref)\}`([^`<]+?)(?: <[^`]*)?`"), re.compile(r"^<!-- runnable.*-->\n", re.MULTILINE)


@told
def docs(
    guide: Annotated[str | None, typer.Argument(help="Name of a guide; without one they are listed.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the guide's contract.")] = False,
    opened: Annotated[bool, typer.Option("--open", help="Open the file in the program that is set for it.")] = False,
) -> None:
    """Print or open a guide, such as those on C libraries and executables."""
    if guide is None:
        _list()
        return
    path = schema_of(guide) if schema else guide_file(guide)
    if opened:
        raise typer.Exit(typer.launch(str(path)))
    out = terminal.console()
    if schema or not out.is_terminal:
        print(path.read_text(encoding="utf-8") if schema else readable(path), end="")
    else:
        out.print(Markdown(readable(path)))


def _list() -> None:
    rows = [[path.stem, _title(path), "--schema" if path.stem in SCHEMAS else ""] for path in guides()]
    terminal.table(terminal.console(), "Guides: refnum docs NAME", ("name", "title", "contract"), rows)


def folder() -> Path:
    """Return the folder of the guides: of the installed package, or of the checkout."""
    here = Path(__file__).resolve()
    for place in (here.parents[1] / "guides", here.parents[2] / "docs" / "guides"):
        if place.is_dir():
            return place
    raise FileError(f"The guides are not in {here.parents[1]}; install the package whole.")


def guides() -> list[Path]:
    """Return the guides, in the order of their names."""
    return sorted(path for path in folder().glob("*.md") if path.stem != "index")


def guide_file(name: str) -> Path:
    """Return the file of a guide; ArgumentError names those that there are."""
    found = {path.stem: path for path in guides()}
    if name not in found:
        raise ArgumentError(f"No guide is named {name!r}; choose from {', '.join(found)}.")
    return found[name]


def schema_of(name: str) -> Path:
    """Return the file of a guide's schema; ArgumentError names the guides with one."""
    guide_file(name)
    if name not in SCHEMAS:
        raise ArgumentError(f"The guide {name} has no schema; those with one are {', '.join(SCHEMAS)}.")
    return schema_file(name)


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def readable(path: Path) -> str:
    """Return a guide as Markdown without directives: its examples stand in it, and outside of a checkout in `.`."""
    text = _INCLUDE.sub(lambda found: _fenced(path.parent / found[1], found[2]), path.read_text(encoding="utf-8"))
    text = _ROLE.sub(r"`\1`", _MARK.sub("", text))
    return text if Path(_EXAMPLES).is_dir() else text.replace(_EXAMPLES, "")


def _fenced(path: Path, options: str) -> str:
    """Return a file as a code block, under a line that names it."""
    language = next((line.split()[1] for line in options.splitlines() if line.startswith(":language:")), "")
    return f"`{path.name}`:\n\n```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```"
