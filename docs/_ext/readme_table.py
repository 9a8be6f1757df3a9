"""The README's table of operations, written from the code. `python docs/_ext/readme_table.py` brings it up to date."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from operation_facts import ROOT, kernels, subjects  # noqa: E402  (the path comes first)

from conformance.domains import domains_for  # noqa: E402
from conformance.operation import OPERATIONS, Operation  # noqa: E402
from gpu import __all__ as launchers  # noqa: E402

README = ROOT / "README.md"
BEGIN = "<!-- operations: written by docs/_ext/readme_table.py -->"
END = "<!-- end of operations -->"


def table() -> str:
    """Return the table in Markdown: one line an operation."""
    header = ["operation", "clause", "tried completely at level standard", "kernel", "subjects"]
    lines = [header, ["---"] * len(header)]
    for operation in OPERATIONS.values():
        page = f"docs/specification/operations/{operation.name}.md"
        lines.append([
            f"[`{operation.name}`]({page})", f"[{operation.clause}](docs/specification/{operation.clause}.md)",
            domains(operation), kernel(operation.name), ", ".join(subjects(operation.name)) or "-",
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def domains(operation: Operation) -> str:
    """Return the size of what a standard run tries completely, over all variants of the default profile."""
    sizes = [d.size for p in operation.variants() for d in domains_for(operation.name, "HOPPER", p, "standard")]
    if not sizes:
        return "none: corners and samples only"
    return f"{sum(sizes):,} inputs, {len(sizes)} domain{'s' if len(sizes) > 1 else ''}"


def kernel(name: str) -> str:
    """Return the kernel files of an operation as links, headers before all, a device launcher last; or a dash."""
    files = kernels(name)
    headers = [path for path in files if path.endswith(".cuh")]
    links = [f"[`{Path(path).name}`]({path})" for path in headers or files]
    links += ["launcher"] if name in launchers else []
    return ", ".join(links) or "-"


def updated(text: str) -> str:
    """Return the README's text with the table between the markers written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Rewrite the README."""
    text = updated(README.read_text(encoding="utf-8"))
    temporary = README.with_suffix(".md.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, README)


if __name__ == "__main__":
    main()
