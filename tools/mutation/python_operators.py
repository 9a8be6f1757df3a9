"""The mutation operators for Python: what the golden model and the comparator are broken by, each with an example.

An operator looks at a node of the syntax tree and yields replacements of source text. Docstrings, annotations, what is
raised and the checks of arguments that raise it are left alone.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.source import Lines

Edit = tuple[int, int, str]
"""Start, end, new text."""


@dataclass(frozen=True)
class PythonOperator:
    """One way to break Python. edits: (node, source) -> replacements. example: (text, what its mutants are)."""

    name: str
    words: str
    edits: Callable[[ast.AST, _Source], Iterator[Edit]]
    example: tuple[str, tuple[str, ...]]


class _Source:
    """A text with its nodes' places as offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Return (start, end) of a node."""
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return self._starts[first - 1] + node.col_offset, self._starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Edit]:
        """Yield the change of an operator's sign between two operands."""
        start, end = self.place(left)[1], self.place(right)[0]
        at = self.text.find(old, start, end)
        if at >= 0:
            yield at, at + len(old), new


_SIGNS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"), ast.FloorDiv: ("//", "*"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
_TWINS = {
    "where": "",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
}


def _binary(*kinds: type[ast.AST]) -> Callable[[ast.AST, _Source], Iterator[Edit]]:
    def edits(node: ast.AST, source: _Source) -> Iterator[Edit]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
            yield from source.between(node.left, node.right, *_SIGNS[type(node.op)])
        if isinstance(node, ast.AugAssign) and isinstance(node.op, kinds):
            yield from source.between(node.target, node.value, *_SIGNS[type(node.op)])

    return edits


def _compared(node: ast.AST, source: _Source) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        operands = itertools.pairwise([node.left, *node.comparators])
        for (left, right), sign in zip(operands, map(type, node.ops), strict=True):
            if sign in _SIGNS:
                yield from source.between(left, right, *_SIGNS[sign])


def _joined(node: ast.AST, source: _Source) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        for left, right in itertools.pairwise(node.values):
            yield from source.between(left, right, *_SIGNS[type(node.op)])


def _constant(node: ast.AST, source: _Source) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        start, end = source.place(node)
        for other in (node.value + 1, node.value - 1):
            if other >= 0:
                yield start, end, hex(other) if source.text[start : start + 2] == "0x" else str(other)


def _unary(node: ast.AST, source: _Source) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp):
        start, end = source.place(node)[0], source.place(node.operand)[0]
        sign, _, _ = source.text[start:end].partition("(")
        yield start, start + len(sign), ""


def _called(node: ast.AST, source: _Source) -> Iterator[Edit]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TWINS):
        return
    if node.func.attr != "where":
        end = source.place(node.func)[1]
        yield end - len(node.func.attr), end, _TWINS[node.func.attr]
    elif len(node.args) == 3:
        (start, middle), (after, end) = source.place(node.args[1]), source.place(node.args[2])
        yield start, end, source.text[after:end] + source.text[middle:after] + source.text[start:middle]


OPERATORS: tuple[PythonOperator, ...] = (
    PythonOperator("constant", "a whole number, one more or one less", _constant, ("x & 7", ("x & 6", "x & 8"))),
    PythonOperator("comparison", "a bound in or out, or the opposite", _compared, ("a < b", ("a <= b",))),
    PythonOperator("boolean", "all conditions, or one of them", _joined, ("a and b", ("a or b",))),
    PythonOperator("sum", "a sum for a difference", _binary(ast.Add, ast.Sub), ("a + b", ("a - b",))),
    PythonOperator("quotient", "a product for a quotient", _binary(ast.FloorDiv), ("a // b", ("a * b",))),
    PythonOperator("shift", "the other way", _binary(ast.LShift, ast.RShift), ("a << b", ("a >> b",))),
    PythonOperator("bits", "one of, or both", _binary(ast.BitAnd, ast.BitOr, ast.BitXor), ("a & b", ("a | b",))),
    PythonOperator("sign", "a sign, a complement or a `not` is lost", _unary, ("x = -a", ("x = a",))),
    PythonOperator(
        "choice", "the other branch, the other extreme", _called, ("xp.where(c, a, b)", ("xp.where(c, b, a)",))
    ),
)


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a Python file, in the order of its text."""
    source, lines = _Source(text), Lines(text)
    found: dict[Edit, str] = {}
    for node in _code(ast.parse(text)):
        for operator in OPERATORS:
            for edit in operator.edits(node, source):
                found.setdefault(edit, operator.name)
    numbers: dict[tuple[int, str], int] = {}
    made = []
    for (start, end, new), name in sorted(found.items()):
        line = lines.number(start)
        numbers[line, name] = n = numbers.get((line, name), 0) + 1
        made.append(Mutant(file, line, name, n, start, end, text[start:end], new))
    return made


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that decide an answer: no annotations, no raised errors, no conditions that only lead to one."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert):
                continue
            if isinstance(child, ast.If) and all(isinstance(step, ast.Raise) for step in child.body):
                for other in child.orelse:
                    yield from _code(other)
                continue
            yield from _code(child)
