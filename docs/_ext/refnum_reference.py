"""Directives that print the public Python interface and the command line, as the code states them.

:::{refnum-api} refnum.layouts
:::
:::{refnum-command} check
:::
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import typer
from docutils import nodes
from operation_facts import signature_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.testing import CliRunner

from refnum.conformance.cli import app as command_line

WIDTH = 96


def public(module_name: str) -> list[tuple[str, Any]]:
    """Return (name, object) of the public functions and classes of a module, in the order of its text."""
    module = importlib.import_module(module_name)
    own = [
        (name, thing)
        for name, thing in vars(module).items()
        if not name.startswith("_") and (inspect.isfunction(thing) or inspect.isclass(thing))
    ]
    if module_name == "refnum":
        return sorted(own, key=lambda item: (inspect.isclass(item[1]), item[0]))
    if hasattr(module, "__all__"):  # which may have names of other modules
        return [(name, dict(own)[name]) for name in module.__all__ if name in dict(own)]
    return [(name, thing) for name, thing in own if thing.__module__ == module_name]


class Api(SphinxDirective):
    """`:::{refnum-api} module`: each public name with its call and its docstring."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return one definition a name."""
        out: list[nodes.Node] = []
        for name, thing in public(self.arguments[0]):
            head = name if inspect.isclass(thing) else signature_of(thing)
            item = nodes.container(classes=["api"], ids=[f"{self.arguments[0]}.{name}"])
            item += nodes.paragraph("", "", nodes.literal(head, head))
            text = inspect.getdoc(thing) or ""
            item += nodes.literal_block(text, text, language="text")
            out.append(item)
        return out


def help_text(command: str) -> str:
    """Return what `refnum COMMAND --help` prints, or that the command needs an extra which is not installed."""
    result = CliRunner().invoke(
        command_line,
        [*command.split(), "--help"],
        prog_name="refnum",
        env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"},
    )
    if result.exit_code and "install refnum[" not in result.output:
        raise RuntimeError(f"refnum {command} --help gives exit status {result.exit_code}")
    return "\n".join(line.rstrip() for line in result.output.strip("\n").splitlines())


def commands() -> list[str]:
    """Return the names of the commands."""
    group: Any = typer.main.get_command(command_line)
    return list(group.list_commands(None))


class Command(SphinxDirective):
    """`:::{refnum-command} name`: the help text of a command; without a name, all commands one after another."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return literal blocks."""
        names = self.arguments or commands()
        texts = [help_text(name) for name in names]
        return [nodes.literal_block(text, text, language="text") for text in texts]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("refnum-api", Api)
    app.add_directive("refnum-command", Command)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
