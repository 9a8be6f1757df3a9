"""The mutation operators for kernel arithmetic: a literal table, each with an example that is its test.

An operator is a pattern on source text without comments and strings (`source.masked`), and what a match may become:
templates of `re.Match.expand`, or a function of the match. Every application is one mutant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .source import Lines, masked, regions

Change = Callable[[re.Match[str]], Iterator[str]]


@dataclass(frozen=True)
class Operator:
    """One way to break arithmetic. example: (text, what its mutants are, in order).

    where: what it sees: `code`, that is all but comments, strings and the heads of loops; `loops`; or `all`.
    """

    name: str
    words: str
    pattern: re.Pattern[str]
    changes: tuple[str, ...] | Change
    example: tuple[str, tuple[str, ...]]
    where: str = "code"

    def of(self, found: re.Match[str]) -> Iterator[str]:
        """Yield what a match becomes, never itself."""
        made = (
            self.changes(found)
            if callable(self.changes)
            else (re.sub(r"\\(\d)", lambda number: found[int(number[1])] or "", change) for change in self.changes)
        )
        seen = {found.group(0)}
        for text in made:
            if text not in seen:
                seen.add(text)
                yield text


def _near(group: int = 1) -> Change:
    """Return the change of a decimal number by one, in both directions; never below zero."""

    def change(found: re.Match[str]) -> Iterator[str]:
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        text, value = found.group(0), int(found.group(group))
        for other in (value + 1, value - 1):
            if other >= 0:
                yield f"{text[:start]}{other}{text[end:]}"

    return change


def _bits(found: re.Match[str]) -> Iterator[str]:
    """Take the lowest and the highest bit off a hexadecimal mask."""
    digits, suffix = found[2], found[3]
    value, wide = int(digits, 16), len(digits)
    for other in (value & (value - 1), value & ~(1 << max(value.bit_length() - 1, 0))):
        if value:
            yield f"{found[1]}0x{other:0{wide}X}{suffix}"


def _entry(found: re.Match[str]) -> Iterator[str]:
    """Flip the lowest bit that is set of a hexadecimal constant."""
    value, wide = int(found[1], 16), len(found[1])
    yield f"0x{value ^ (value & -value or 1):0{wide}X}{found[2]}"


def _selectors(found: re.Match[str]) -> Iterator[str]:
    """Swap the lower two and the upper two bytes that a permute picks."""
    a, b, c, d = tuple(found[1])
    yield f"0x{a}{b}{d}{c}"
    yield f"0x{b}{a}{c}{d}"


def _operator(
    name: str,
    words: str,
    pattern: str,
    changes: tuple[str, ...] | Change,
    example: str,
    *mutants: str,
    where: str = "code",
) -> Operator:
    return Operator(name, words, re.compile(pattern), changes, (example, mutants), where)


OPERATORS: tuple[Operator, ...] = (
    _operator(
        "tie rule",
        "the parity of the kept part is left out of a rounding, or always counted",
        r"\((\w+(?: >> \w+)?) & (1|0x0*1(?:0*1)*u?)\)",
        (r"(0u)", r"(\2)"),
        "kept + (2 * rest + (kept & 1) > half)",
        "kept + (2 * rest + (0u) > half)",
        "kept + (2 * rest + (1) > half)",
    ),
    _operator(
        "sticky lost",
        "what was cut off no longer decides",
        r"(?:\b\w+\.)?\b(?:rest|sticky)\b(?= *[)+&,<>])",
        ("0u",),
        "code += rest + (code & 1) > half;",
        "code += 0u + (code & 1) > half;",
    ),
    _operator(
        "shift off by one",
        "a shift by a constant or by a name, one place more or less",
        r"(?<= )(<<|>>)(=?) (\d+)\b(?! *\*)",
        _near(3),
        "h >> 9",
        "h >> 10",
        "h >> 8",
    ),
    _operator(
        "shift off by one",
        "",
        r"(?<= )(<<|>>)(=?) ((?:\w+\.)?[a-z_]\w*\b|\([^()]*\))(?![(\[:.<])",
        (r"\1\2 \3 + 1",),
        "significand >> places",
        "significand >> places + 1",
    ),
    _operator(
        "mask",
        "a mask without its lowest or its highest bit, or none",
        r"((?<![&])& ~?)0x([0-9A-Fa-f]+)(u?)\b",
        _bits,
        "bits & 0x7FFF",
        "bits & 0x7FFE",
        "bits & 0x3FFF",
    ),
    _operator(
        "mask",
        "",
        r"(?<!&)& (~?)([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b",
        (r"& ~0u",),
        "packed & NIBBLE_MAGNITUDES",
        "packed & ~0u",
    ),
    _operator(
        "mask",
        "",
        r"\bchoose\((\w+), (\w+), ",
        (r"choose(\2, \1, ",),
        "choose(a, b, mask)",
        "choose(b, a, mask)",
    ),
    _operator(
        "table entry",
        "the lowest bit of a constant is flipped",
        r"(?<![\w&~] )(?<!& )(?<!& ~)0x(?![0-7]{4}\b)([0-9A-Fa-f]+)(u?)\b",
        _entry,
        "{0x3C383000u, 1}",
        "{0x3C382000u, 1}",
    ),
    _operator(
        "comparison",
        "a bound in or out, or the opposite",
        r" (<|>) ",
        (r" \1= ",),
        "code < most",
        "code <= most",
    ),
    _operator("comparison", "", r" (<|>)= ", (r" \1 ",), "byte >= 10", "byte > 10"),
    _operator(
        "comparison",
        "",
        r" (==|!=) ",
        lambda found: iter([" != " if found[1] == "==" else " == "]),
        "byte == NAN_BYTE",
        "byte != NAN_BYTE",
    ),
    _operator(
        "comparison",
        "",
        r" (&&|\|\|) ",
        lambda found: iter([" || " if found[1] == "&&" else " && "]),
        "special && nan",
        "special || nan",
    ),
    _operator(
        "sign",
        "a sum for a difference, or a sign that is lost",
        r"(?<=[\w\])]) ([+-]) (?=[\w(-])",
        lambda found: iter([" - " if found[1] == "+" else " + "]),
        "emax - byte",
        "emax + byte",
    ),
    _operator("sign", "", r"(?<=[(,:?] )-(?=[\w(])|(?<=\()-(?=[\w(])", ("",), "table(-shift)", "table(shift)"),
    _operator("sign", "", r"\b(sign|signs) \| ", ("",), "return sign | bits;", "return bits;"),
    _operator(
        "clamp bound",
        "a bound that is off by one, or a maximum for a minimum",
        r"(?<=[?:] )(\d+)\b(?=[ ;,)])",
        _near(),
        "k > 15 ? 15 : k",
        "k > 15 ? 16 : k",
        "k > 15 ? 14 : k",
    ),
    _operator(
        "clamp bound",
        "",
        r"\b(min|max)_lanes\(",
        lambda found: iter(["max_lanes(" if found[1] == "min" else "min_lanes("]),
        "min_lanes(h, most)",
        "max_lanes(h, most)",
    ),
    _operator(
        "clamp bound",
        "",
        r"(?:(?<= [<>] )|(?<= [<>]= ))(\d+)\b(?=[ ;,)]|$)",
        _near(),
        "field > 30",
        "field > 31",
        "field > 29",
    ),
    _operator(
        "scale bias",
        "a constant in a sum, off by one",
        r"(?<=[\w)\]] )([+-] )(\d+)\b",
        _near(2),
        "byte - 127",
        "byte - 128",
        "byte - 126",
    ),
    _operator(
        "scale bias",
        "",
        r"\b([A-Z]\w*_(?:EMAX|BYTE))(?=[ ;,)])(?! =)",
        (r"\1 + 1",),
        "part ? part : ONE_BYTE;",
        "part ? part : ONE_BYTE + 1;",
    ),
    _operator(
        "scale bias",
        "",
        r"\b(E\dM\d_EMAX|MAX_BYTE|ONE_BYTE|spread|emax|offset|down|up|absent) = (\d+)",
        _near(2),
        "MAX_BYTE = 254",
        "MAX_BYTE = 255",
        "MAX_BYTE = 253",
    ),
    _operator(
        "nibble order",
        "two of the bytes that a permute picks are swapped",
        r"0x([0-7]{4})\b",
        _selectors,
        "permute(a, b, 0x5140)",
        "permute(a, b, 0x5104)",
        "permute(a, b, 0x1540)",
    ),
    _operator(
        "lane index",
        "the neighbour of a word, of a lane, of a thread",
        r"(?<=\w)\[(\d)\]",
        lambda found: iter([f"[{int(found[1]) ^ 1}]"]),
        "w[2]",
        "w[3]",
    ),
    _operator("lane index", "", r"(?<=\w)\[(\d) \* (\w+)\]", (r"[\1 * \2 + 1]",), "w[2 * i]", "w[2 * i + 1]"),
    _operator("lane index", "", r"(?<=\w)\[(\d) \* (\w+) \+ (\d)\]", (r"[\1 * \2]",), "w[2 * i + 1]", "w[2 * i]"),
    _operator(
        "lane index",
        "",
        r"\bthreadIdx\.x % (\d+)",
        (r"threadIdx.x % (\1 / 2)",),
        "threadIdx.x % 32",
        "threadIdx.x % (32 / 2)",
    ),
    _operator(
        "lane index",
        "",
        r"(?<=; )(\w+)(?= < )",
        (r"\1 + 1",),
        "for (int i = 0; i < 4; ++i)",
        "for (int i = 0; i + 1 < 4; ++i)",
        where="loops",
    ),
    _operator("lane index", "", r"\bi & 1 \?", ("!(i & 1) ?",), "i & 1 ? high : low", "!(i & 1) ? high : low"),
    _operator(
        "tail guard",
        "what does not exist is read or written",
        r"\bif \([^()]*\b(?:exists|rows|tokens|valid|mapped|chunks|tiles|segments)\b[^()]*\) (?:return|continue);",
        ("",),
        "if (token >= a.tokens) return;",
        "",
    ),
    _operator("tail guard", "", r"\bif \([\w\[\].]*\.exists\) ", ("",), "if (chunks[u].exists) load(x);", "load(x);"),
    _operator(
        "tail guard",
        "",
        r"\.exists = [^;]*;",
        (".exists = true;",),
        "chunk.exists = step < here;",
        "chunk.exists = true;",
    ),
    _operator(
        "barrier removed",
        "threads no longer wait for each other",
        r"\b__sync(?:threads|warp)\(\);",
        ("",),
        "a(); __syncthreads(); b();",
        "a();  b();",
    ),
    _operator(
        "wrong stride",
        "rows, or their scales, lie elsewhere",
        r"(?<=\* )((?:\w+\.)?\w*stride)\b",
        (r"(\1 + 16)",),
        "row * a.x_stride",
        "row * (a.x_stride + 16)",
    ),
    _operator(
        "ftz on",
        "an instruction flushes subnormals",
        r"\b(mul|add)\.rn\.(f32|f16x2)\b",
        (r"\1.rn.ftz.\2",),
        'asm("mul.rn.f32 %0");',
        'asm("mul.rn.ftz.f32 %0");',
        where="all",
    ),
)


@dataclass(frozen=True)
class Mutant:
    """One change of one file. n: its number among those of its operator on its line. side: `device` or `host` where
    the text is compiled for one alone. exhibit: the name in the museum, or empty."""

    file: str
    line: int
    operator: str
    n: int
    start: int
    end: int
    old: str
    new: str
    side: str = ""
    exhibit: str = ""

    @property
    def id(self) -> str:
        """Its name: the museum's, or file, line, operator and number."""
        return self.exhibit or f"{self.file}:{self.line} {self.operator} {self.n}"

    def applied(self, text: str) -> str:
        """Return the file's text with the change made."""
        return text[: self.start] + self.new + text[self.end :]


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a source file, in the order of its text."""
    seen, lines, sides = (
        {"all": text, "loops": masked(text, loops=True), "code": masked(text)},
        Lines(text),
        regions(text),
    )
    found: dict[tuple[int, int, str], tuple[str, str]] = {}
    for operator in OPERATORS:
        for match in operator.pattern.finditer(seen[operator.where]):
            for new in operator.of(match):
                found.setdefault((match.start(), match.end(), new), (operator.name, match.group(0)))
    numbers: dict[tuple[int, str], int] = {}
    made = []
    for (start, end, new), (name, old) in sorted(found.items()):
        line = lines.number(start)
        numbers[line, name] = n = numbers.get((line, name), 0) + 1
        side = next((side for first, last, side in sides if first <= start < last), "")
        made.append(Mutant(file, line, name, n, start, end, old, new, side))
    return made
