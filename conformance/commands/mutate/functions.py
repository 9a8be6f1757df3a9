"""Small functions proved equal: the original and the mutant in one program, asked every argument that callers may give.

A domain is a row of a literal table that a workshop brings. What holds for a function holds for every build and every
operation that calls it, so a mutant whose change lies in a proved function is `enumerated`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Semaphore
from typing import Any

from .ledger import Ledger
from .operators import Mutant
from .verdict import ENUMERATED, OUTSIDE, SURVIVED, Verdict
from .workshop import Workshop

SPACE = "refnum"
PARTS = 64
"""Pieces that the first axis of a large domain is cut into, so that all processors have work."""
LARGE = 1 << 30


@dataclass(frozen=True)
class FunctionDomain:
    """All arguments of a function, and what is compared.

    file, function: where it is defined; several names with `|` where one is a part of the other, an overloaded one with
    its parameters as they are written. axes: `name first last; ...`, integers, both ends in it. value: a C++ expression
    of the axes, with `at::` for the headers' namespace; a number or `all(...)` of some. where: a condition on the axes;
    others are not asked. lines: a pattern; where it is given, only changes in such lines of the function are settled.
    because: why what is not asked cannot matter, or why nothing is left out.
    """

    file: str
    function: str
    axes: str
    value: str
    where: str = ""
    lines: str = ""
    because: str = "every argument"

    @property
    def names(self) -> list[str]:
        """The functions, an overloaded one with its parameters."""
        return self.function.split("|")

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """The axes as (name, first, last)."""
        found = [axis.split() for axis in self.axes.split(";")]
        return [(name, int(first, 0), int(last, 0)) for name, first, last in found]

    @property
    def size(self) -> int:
        """How many points the axes span."""
        total = 1
        for _, first, last in self.ranges:
            total *= last - first + 1
        return total

    def has(self, mutant: Mutant, text: str) -> bool:
        """Whether a change of a file's text lies in the function, and in one of its lines."""
        if mutant.file != self.file:
            return False
        line = text[text.rfind("\n", 0, mutant.start) + 1 : text.find("\n", mutant.end)]
        places = [definition(text, name) for name in self.names]
        inside = any(start <= mutant.start and mutant.end <= end for start, end in places)
        return inside and (not self.lines or re.search(self.lines, line) is not None)


@dataclass(frozen=True)
class Found:
    """What asking gave. asked: points. witness: the first point that differs, or what went wrong; empty if none."""

    domain: FunctionDomain
    asked: int
    witness: str


def definition(text: str, function: str) -> tuple[int, int]:
    """Return (start, end) of the one definition of a function, its head included.

    function: a name, with the parameters as they are written where it has overloads. Raises ValueError.
    """
    parameters = r"\([^;{}]*\)" if "(" not in function else ""
    heads = list(re.finditer(rf"^[^\n/;=(]*\b{re.escape(function)}{parameters}[^;{{}}()]*\{{", text, re.M))
    if len(heads) != 1:
        raise ValueError(f"{function} has {len(heads)} definitions; name one, by its parameters")
    depth, end = 1, heads[0].end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return heads[0].start(), end


_CHOICE = re.compile(
    r"(?<![-+*/&|^%] )([\w.\[\]]+) [<>]=? (-?[\w.\[\]]+) \? (-?[\w.\[\]]+) : (-?[\w.\[\]]+)(?![ \w.(]* [-+*&|?])"
)


def chooses_between_equals(mutant: Mutant, text: str) -> bool:
    """Whether a change lets equality in or out of `a < b ? a : b` or its like: then both values are one."""
    if mutant.old.strip().rstrip("=") != mutant.new.strip().rstrip("=") or mutant.old.strip()[:1] not in ("<", ">"):
        return False
    choices = (c for c in _CHOICE.finditer(text) if c.start() <= mutant.start and mutant.end <= c.end())
    return any({c[1], c[2]} == {c[3], c[4]} for c in choices)


@dataclass(frozen=True)
class Rows:
    """A workshop's table of domains. prelude: C++ in front of every program. compiler: its command. flags: more."""

    domains: tuple[FunctionDomain, ...]
    prelude: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Rows:
        """Return the rows of a workshop's table: `domain`, a list, `prelude` and `compiler`."""
        domains = tuple(FunctionDomain(**row) for row in table.get("domain", ()))
        return cls(domains, table.get("prelude", ""), tuple(table["compiler"]), tuple(table.get("flags", ())))

    def digest(self, mutant: Mutant, text: str) -> str:
        """Return a digest of what a proof about a change of a file's text asks: its domains, the prelude, the flags."""
        asked = [domain for domain in self.domains if domain.has(mutant, text)]
        return hashlib.sha256(repr((asked, self.prelude, self.flags)).encode()).hexdigest()


def settled(
    workshop: Workshop,
    rows: Rows,
    verdicts: Sequence[Verdict],
    folder: Path,
    workers: int,
    ledger: Ledger | None = None,
) -> list[Verdict]:
    """Return the verdicts with survivors settled whose function is the same at every argument; `ledger` keeps them.

    One that differs stays a survivor, and is told the arguments: a case is missing that gives them. What a build has no
    code of is asked too: a compiler may have made the same code of a place and of its change.
    """
    turn = Semaphore(workers)

    def one(numbered: tuple[int, Verdict]) -> Verdict:
        number, verdict = numbered
        if verdict.status not in (SURVIVED, OUTSIDE):
            return verdict
        if chooses_between_equals(verdict.mutant, workshop.texts[verdict.mutant.file]):
            return replace(verdict, status=ENUMERATED, how="a choice between two values, changed where they are equal")
        proved = ledger.proof(workshop, verdict.mutant) if ledger is not None else None
        if proved is not None:
            return replace(verdict, status=ENUMERATED, how=proved.how)
        found = _asked_all(rows, verdict.mutant, workshop.texts, folder / str(number), turn)
        if not found:
            return verdict
        wrong = next((one for one in found if one.witness), None)
        if wrong is not None:
            words = f"{wrong.domain.function} differs: {wrong.witness}"
            return verdict if verdict.status == OUTSIDE else replace(verdict, how=words)
        points = sum(one.asked for one in found)
        words = f"{found[0].domain.function} is the same at {points} points: {found[0].domain.because}"
        return replace(verdict, status=ENUMERATED, how=words)

    def kept(numbered: tuple[int, Verdict]) -> Verdict:
        verdict = one(numbered)
        if ledger is not None and verdict is not numbered[1]:
            ledger.write(workshop, verdict)
        return verdict

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(kept, enumerate(verdicts)))


def _asked_all(rows: Rows, mutant: Mutant, texts: Mapping[str, str], folder: Path, turn: Semaphore) -> list[Found]:
    domains = [domain for domain in rows.domains if domain.has(mutant, texts[mutant.file])]
    found = []
    for number, domain in enumerate(domains):
        found.append(_asked(rows, domain, mutant, texts, folder / str(number), turn))
        if found[-1].witness:
            break
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _asked(
    rows: Rows, domain: FunctionDomain, mutant: Mutant, texts: Mapping[str, str], folder: Path, turn: Semaphore
) -> Found:
    for name, changed in (("original", {}), ("changed", {mutant.file: mutant.applied(texts[mutant.file])})):
        (folder / name).mkdir(parents=True)
        for file, text in {**texts, **changed}.items():
            (folder / name / file).write_text(text.replace(f"namespace {SPACE}", f"namespace {name}"))
    (folder / "ask.cpp").write_text(program(domain, rows.prelude))
    command = [*rows.compiler, "-std=c++17", "-O2", "-march=native", "-w", *rows.flags, "-o", "ask", "ask.cpp"]
    with turn:
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if made.returncode:
        error = next((line for line in made.stderr.splitlines() if "error" in line), made.stderr[:200])
        return Found(domain, 0, f"no point: {error[:200]}")
    _, first, last = domain.ranges[0]
    whole = [first, last + 1]
    cuts = [first + (last + 1 - first) * i // PARTS for i in range(PARTS + 1)] if domain.size > LARGE else whole
    with ThreadPoolExecutor(PARTS) as pool:
        parts = [(start, end) for start, end in pairwise(cuts) if start < end]
        done = list(pool.map(lambda part: _ran(folder, part[0], part[1], turn), parts))
    wrong = next((words for code, words in done if code), "")
    asked = sum(int(words) for code, words in done if not code)
    return Found(domain, asked, wrong or ("" if asked else "no point of it was asked"))


def _ran(folder: Path, first: int, after: int, turn: Semaphore) -> tuple[int, str]:
    with turn:
        command = ["./ask", str(first), str(after - 1)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.strip() or f"ended with {done.returncode}"


def program(domain: FunctionDomain, prelude: str) -> str:
    """Return the C++ program that asks both about a part of the first axis: exit status 1 at a difference."""
    ranges = domain.ranges
    names = [name for name, _, _ in ranges]
    bounds = [("std::atoll(argv[1])", "std::atoll(argv[2])"), *((f"{a}ll", f"{b}ll") for _, a, b in ranges[1:])]
    loops = [
        f"for (int64_t {name}_ = {first}; {name}_ <= {last}; ++{name}_) {{ "
        f"const auto {name} = ({'uint32_t' if low >= 0 else 'int32_t'}){name}_;"
        for (name, low, _), (first, last) in zip(ranges, bounds, strict=True)
    ]
    point = " ".join(f"{name}=%lld" for name in names)
    values = ", ".join(f"(long long){name}_" for name in names)
    differs = f"""const bool given = {domain.where or "true"};
const bool differs = given && !([&] {{ namespace at = original; return {domain.value}; }}() ==
                                [&] {{ namespace at = changed; return {domain.value}; }}());"""
    return f"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include "original/{domain.file}"
#include "changed/{domain.file}"
template <class... T> std::tuple<T...> all(T... x) {{ return std::tuple<T...>{{x...}}; }}
{prelude}
int main(int, char** argv) {{
long long asked = 0;
{" ".join(loops[:-1])}
uint32_t wrong = 0, count = 0;
{loops[-1]}
{differs}
wrong |= differs, count += given;
}}
asked += count;
if (!wrong) {"continue" if len(loops) > 1 else 'return std::printf("%lld", asked), 0'};
{loops[-1]}
{differs}
if (differs) return std::printf("{point}", {values}), 1;
}}
{"}" * (len(loops) - 1)}
std::printf("%lld", asked);
}}
"""
