"""The command line: a table of commands, each imported when it is chosen.

Exit status: 0 all verified, 1 mismatch, 2 usage or bad input, 3 nothing verified.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .subjects.isolation.supervisor import supervised

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("check.command:check", "Judge kernels bit for bit against the golden model: the main job."),
    "replay": (
        "rerun:replay",
        "Run a saved case again: always the golden model, a subject only if you name it or trust the file.",
    ),
    "shrink": ("rerun:shrink", "Shrink a saved case and write it as a new replay file."),
    "explain": ("explain:explain", "Show every step of the golden model for one element."),
    "doctor": (
        "doctor:doctor",
        "Inspect this machine: float modes, compilers, GPU, flags, subjects and caches.",
    ),
    "init": (
        "init.command:init",
        "Write a subject file, a pytest file and a CI workflow into a repository; nothing is overwritten.",
    ),
    "infer": (
        "infer.command:infer",
        "Find the profile that a kernel follows, and for each choice the input that decides it.",
    ),
    "subjects": (
        "subjects:subjects",
        "List the subjects that can be judged here, and why others cannot.",
    ),
    "operations": ("listings:operations", "List the operations: inputs, outputs, and parameters with their choices."),
    "profiles": ("listings:profiles", "List the profiles: scale rule, rounding, and the policies of special values."),
    "docs": ("docs:docs", "Print or open a guide, such as those on C libraries and executables."),
    "bench": (
        "bench.command:bench",
        "Time a subject's kernels on a GPU, beside a device copy and public alternatives.",
    ),
    "prove": (
        "prove.command:prove",
        "Prove a kernel equal to the model on whole domains, with certificates; verify certificates anywhere.",
    ),
    "matrix": (
        "matrix.command:matrix",
        "Compare every installed peer with every profile: the first difference of each, and whether it is known.",
    ),
    "vectors": ("vectors:vectors_app", "Frozen test vectors: build, verify, show, export."),
    "report": (
        "report:report_app",
        "Show a report of `refnum check --report FILE`, and make HTML, JUnit, SARIF and Markdown from it.",
    ),
    "fuzz": (
        "fuzz.command:fuzz_app",
        "Campaigns of sampled cases that survive faults, hangs and reboots: run, status, resume, merge, minimise, "
        "export.",
    ),
    "mutate": (
        "mutate.command:mutate_app",
        "Mutation: broken copies of a subject's sources, and a museum.",
    ),
    "train": (
        "refnum.training.train_command:train",
        "Train a small mixture-of-experts model under a policy; samples are compared with the golden model.",
    ),
    "plan": (
        "refnum.training.plan_command:plan",
        "Compute the device memory and the dispatched bytes of a large model under a policy.",
    ),
    "policies": (
        "refnum.training.policies_command:policies",
        "List the training policies, or show one as a graph of quantised, sent and stored tensors.",
    ),
}
"""Command -> its place, `module:name` of a function or of a Typer application, and its help.

A module stands under `commands`; one of another package has its whole name, and needs that package's extra.
"""


def load(name: str) -> Any:
    """Import a command and return it as the command-line library's object."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    if module.startswith("refnum."):
        found = _of_another_package(name, module, attribute)
    else:
        found = getattr(import_module(f".commands.{module}", __package__), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _of_another_package(name: str, module: str, attribute: str) -> Any:
    """Import a command's function whose errors are told as those of all commands; a package may lack its extra."""
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{name} needs {error.name}; install refnum[{module.split('.')[1]}]") from error
    return import_module(".commands.options", __package__).told(found)


class _Table(TyperGroup):
    """The commands of the table. Help needs their names and sentences only, so nothing is imported for it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=sentence) for name, (_, sentence) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to be run, imported."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest


class _Supervised(typer.Typer):
    """An application whose process must not vanish; tests that invoke its commands do without the supervisor."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run a command and end with its exit status."""
        return supervised(partial(super().__call__, *arguments, **keywords))


app = _Supervised(
    cls=_Table,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        environment = import_module(".reports.environment", __package__)
        print(f"refnum {environment.versions().get('refnum', 'from a folder')}, model {environment.model_digest()}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the golden model's digest."
        ),
    ] = False,
) -> None:
    """Bit-exact FP4 numerics: judge any kernel against the golden model.

    `refnum init FOLDER` writes a file to start from, `refnum check FILE` judges it, `refnum docs` prints the guides.
    """


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
