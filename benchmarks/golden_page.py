"""How the results of `golden.py` are shown and written: a table on the terminal, a Markdown page, files."""

import os

from rich.table import Table


def show(made, console):
    table = Table(title=f"M elements a second, {made['cpu']}, median of {made['rounds']} rounds")
    for name, side in (
        ("operation", "left"),
        ("by", "left"),
        ("threads", "right"),
        ("M/s", "right"),
        ("M/CPU s", "right"),
        ("model is", "right"),
        ("same bytes", "left"),
        ("note", "left"),
    ):
        table.add_column(name, justify=side)
    for result in made["results"]:
        for number, entry in enumerate(result["contenders"]):
            name = result["operation"] if number == 0 else ""
            last = number == len(result["contenders"]) - 1
            table.add_row(name, *cells_of(entry, first=number == 0), end_section=last)
    console.print(table)
    if made["absent"]:
        console.print(f"Not installed, so not timed: {', '.join(made['absent'])}.")


def markdown(made):
    """The results as a Markdown page, figures and all that they depend on."""
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    lines = [
        f"# Golden model, {made['date']}", "",
        f"Elements a second, in millions; {made['data']}.",
        f"Median of {made['rounds']} rounds in which the contenders took turns, in one process.",
        "One thread is compared by its own CPU time, more threads by the wall clock.",
        "*same bytes*: whether the result is the model's, where a contender gives the same kind of result.", "",
        f"- command: `{made['command']}`", f"- CPU: {made['cpu']}, {made['cores']} cores", f"- versions: {versions}",
        f"- load average before and after: {made['load_average'][0]}, {made['load_average_after'][0]} (1 minute)", "",
        "| operation | by | threads | M/s | M/CPU s | model is faster by | same bytes | note |",
        "|---|---|--:|--:|--:|--:|---|---|",
    ]  # fmt: skip
    for result in made["results"]:
        for number, entry in enumerate(result["contenders"]):
            cells = cells_of(entry, first=number == 0)
            lines.append(f"| {result['operation'] if number == 0 else ''} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def cells_of(entry, first):
    """One contender's cells, from its name on."""
    faster = "" if first else f"{entry['model_is_faster_by']:.2f}x"
    agrees = {None: "", True: "yes", False: "no"}[entry["same_bytes"]]
    return (entry["library"], str(entry["threads"]), f"{entry['elements_per_second'] / 1e6:.1f}",
            f"{entry['elements_per_cpu_second'] / 1e6:.1f}", faster, agrees, entry["note"])  # fmt: skip


def write(path, text):
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text)
    os.replace(temporary, path)
