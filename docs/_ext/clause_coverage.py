"""Which vectors hold each part of the clauses: measured by the clean-room implementation, kept as a table beside it.

`python docs/_ext/clause_coverage.py` compiles `tests/clean_room`, lets it read every part wrongly, one at a time, and
writes down how many vectors see it. A part that no vector can hold has an entry in `ELSEWHERE`, which says why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from value_tables import Table

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "tests" / "clean_room"
MEASURED = ROOM / "coverage.tsv"
COMPILE = ("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror")
HEAD = "part\twrong reading\tvectors that see it\tthe first of them"

ELSEWHERE: dict[str, tuple[str, str]] = {
    "N0.11": ("refusals have no result", "tests/refnum/test_nonsense.py"),
    "N0.12": ("vectors name every argument", "tests/docs/test_docs_specification.py"),
    "N6.3": ("refusals have no result", "tests/refnum/test_layouts.py"),
    "N7.3": ("a theorem on N7.1", "tests/docs/test_docs_claims.py"),
    "N7.4": ("informative", "tests/docs/test_docs_examples.py"),
    "N7.5": ("informative", "tests/docs/test_docs_claims.py"),
    "N8.8": ("a theorem on N8.4", "tests/docs/test_docs_claims.py"),
    "N9.5": ("a theorem on N9.4", "tests/docs/test_docs_claims.py"),
    "N12.4": (
        "refusals have no result, and vectors ask nothing that a host refuses",
        "tests/gpu/test_payload_kernels.py",
    ),
    "N13.4": ("about the interface", "tests/refnum/test_model_equals_oracle.py"),
    "N14.1": ("about names", "tests/refnum/test_profiles.py"),
    "N14.2": ("claims about libraries", "tests/conformance/test_peers.py"),
    "N14.3": ("its fields are held under N2, N3 and N4", "tests/refnum/test_profiles.py"),
    "N14.4": ("refusals have no result", "tests/refnum/test_inputs.py"),
    "N14.5": ("about names", "tests/refnum/test_profiles.py"),
    "N19.7": ("a theorem, and a definition of bounds", "tests/refnum/test_product_bounds.py"),
    "N19.9": ("another instruction, which no vector asks", "tests/refnum/test_captured_products.py"),
    "N21.8": ("informative", "tests/refnum/test_nvfp4.py"),
    "N21.9": ("informative", "tests/refnum/test_nvfp4.py"),
    "N22.4": ("a theorem on N22.2 and N22.3", "tests/refnum/test_hadamard.py"),
    "N22.7": ("informative", "tests/refnum/test_hadamard.py"),
    "N22.8": ("a theorem on N21.2 and N21.3", "tests/refnum/test_hadamard.py"),
    "N24.5": ("a theorem", "tests/refnum/test_tetrajet.py"),
    "N24.6": ("no vector asks for a composition", "tests/refnum/test_tetrajet.py"),
    "N24.8": ("no operation with vectors", "tests/refnum/test_oscillation.py"),
    "N24.13": ("no operation with vectors", "tests/refnum/test_tetrajet_v2.py"),
    "N24.16": ("informative", "tests/refnum/test_tetrajet.py"),
    "N23.7": ("a theorem on N23.4 and N23.5", "tests/refnum/test_logarithmic.py"),
    "N23.10": ("two calls of N23.8", "tests/refnum/test_logarithmic.py"),
    "N23.11": ("a number, of which no kernel is judged", "tests/refnum/test_logarithmic.py"),
    "N23.12": ("a sum, of which no kernel is judged", "tests/refnum/test_logarithmic.py"),
    "N23.13": ("a number, of which no kernel is judged", "tests/refnum/test_logarithmic.py"),
    "N23.14": ("informative", "tests/refnum/test_logarithmic.py"),
    "N25.5": ("a function without vectors", "tests/refnum/test_estimators.py"),
    "N25.6": ("informative", "tests/refnum/test_estimators.py"),
    "N26.6": ("informative", "tests/refnum/test_integer.py"),
    "N26.9": ("informative", "tests/refnum/test_llm_quantisers.py"),
    "N27.5": ("informative", "tests/refnum/test_optimisers.py"),
    "N27.7": ("its parts are held under N27.2 and N27.3", "tests/refnum/test_updates.py"),
    "N19.10": ("informative", "tests/refnum/test_captured_products.py"),
}
"""Part without a result of its own -> why, and the test that holds it."""
JUDGING = ("N15", "N16", "N17", "N18")
"""Clauses about judging and proving, which have no results."""
UNWRITTEN: tuple[str, ...] = ("N20", "N28")
"""Clauses whose operations nobody has written a second time from the text, so that no wrong reading was measured."""


class Reading(NamedTuple):
    """A wrong reading of a part: its name, what it says, how many vectors see it, and the first of them."""

    name: str
    wrong: str
    vectors: int
    first: list[str]

    @property
    def part(self) -> str:
        """The part that is read wrongly."""
        return self.name.partition("/")[0]


def compile_room(out: Path) -> Path:
    """Compile the clean-room implementation into a folder and return the program."""
    program = out / "clean_room"
    subprocess.run([*COMPILE, "-o", str(program), str(ROOM / "clean_room.cpp")], check=True)
    return program


def measure(program: Path, vectors: Path = ROOT / "vectors") -> str:
    """Return the table that the program measures, as the text of the file."""
    done = subprocess.run([str(program), str(vectors), "--parts"], check=True, capture_output=True, text=True)
    return f"{HEAD}\n{done.stdout}"


def readings(text: str | None = None) -> list[Reading]:
    """Return the readings of the committed table, in the order of the clauses."""
    lines = (MEASURED.read_text(encoding="utf-8") if text is None else text).splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [Reading(name, wrong, int(count), first.split()) for name, wrong, count, first in rows]


def _order(part: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", part))


def coverage() -> Table:
    """Each part with its wrong readings and the vectors that see them, or why it has none."""
    rows = [
        [r.part, r.wrong, f"{r.vectors:,}", ", ".join(f"`{entry.partition(':')[2]}`" for entry in r.first[:1])]
        for r in readings()
    ]
    rows += [[part, f"none: {why}", "-", f"`{test}`"] for part, (why, test) in ELSEWHERE.items()]
    rows.sort(key=lambda row: _order(row[0]))
    return Table(["part", "a wrong reading of it", "vectors that see it", "for example, or held by"], rows)


def main() -> None:
    """Measure again and rewrite the file."""
    with tempfile.TemporaryDirectory() as folder:
        text = measure(compile_room(Path(folder)))
    temporary = MEASURED.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, MEASURED)


if __name__ == "__main__":
    sys.exit(main())
