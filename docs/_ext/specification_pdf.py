"""The specification as a PDF: `python docs/_ext/specification_pdf.py [OUT]`, from the text of `docs/specification.md`.

Markdown is read by markdown-it and set by Typst, whose wheel brings its compiler and fonts: nothing is fetched. The
same text gives the same bytes. OUT is `docs/_build/refnum-specification.pdf` unless it is given.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import typst
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from specification import ROOT, TARGET, digest, revision

import refnum

OUT = ROOT / "docs" / "_build" / "refnum-specification.pdf"
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_POWER = re.compile(r"(?<=[\w)])\^(\((?:[^()]|\([^()]*\))*\)|-?[\w.]*\w)")
_CLAUSE = re.compile(r"\bN\d+(?:\.\d+)?\b")
_WIDE = 6
"""Columns from which a table is set smaller."""

STYLE = """
#set document(title: {title}, author: "The refnum authors", date: datetime(year: {year}, month: {month}, day: {day}))
#set page(paper: "a4", margin: (x: 22mm, y: 24mm), numbering: "1",
  header: context if here().page() > 1 [#set text(8pt); refnum specification, revision {number} #h(1fr) {date}])
#set text(font: "Libertinus Serif", size: 10pt, lang: "en")
#show raw: set text(font: "DejaVu Sans Mono", size: 8pt)
#show raw.where(block: true): block.with(fill: luma(245), inset: 6pt, width: 100%, radius: 2pt)
#show link: set text(fill: rgb("#1a4d80"))
#show heading.where(level: 1): it => pagebreak(weak: true) + text(16pt, it) + v(4pt)
#show heading.where(level: 2): it => v(6pt) + text(11.5pt, it) + v(2pt)
#set table(stroke: 0.4pt + luma(180), inset: 4pt)
#set par(justify: true, leading: 0.6em)

#align(center)[#v(45mm) #text(24pt, weight: "bold", {title}) #v(8mm)
  #text(14pt)[The refnum specification] #v(14mm)
  #grid(columns: 2, align: left, inset: 5pt,
    [Revision], [{number}], [Date], [{date}], [Version of refnum], [{version}],
    [SHA-256 of `docs/specification.md`], [#raw("{first}") \\ #raw("{second}")], [Licence], [Apache-2.0])
  #v(1fr) The refnum authors]
#pagebreak()
#outline(depth: 2, indent: auto)
"""


def typeset(text: str) -> str:
    """Return the Typst source of the specification's Markdown text."""
    tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))
    title = next(node for node in tree.children if node.type == "heading").children[0].content
    number, day = revision()
    when, sha = date.fromisoformat(day), digest(text)
    head = STYLE.format(
        title=json.dumps(title), number=number, date=day, version=refnum.__version__, first=sha[:32], second=sha[32:],
        year=when.year, month=when.month, day=when.day,
    )  # fmt: skip
    return head + "\n".join(Typesetter(set(_ANCHOR.findall(text))).document(tree))


class Typesetter:
    """Walks a Markdown tree and gives Typst markup. labels: anchors that links may point to."""

    def __init__(self, labels: set[str]) -> None:
        self.labels = labels
        self.pending = ""

    def document(self, tree: SyntaxTreeNode) -> Iterator[str]:
        """Yield the blocks of the document from its first anchor on; what stands before it is the title page's."""
        begun = False
        for node in tree.children:
            begun = begun or (node.type == "paragraph" and bool(_ANCHOR.match(node.children[0].content)))
            if begun:
                yield self.block(node)

    def block(self, node: SyntaxTreeNode) -> str:
        """Return one block."""
        make: Callable[[SyntaxTreeNode], str] | None = getattr(self, f"_{node.type}", None)
        if make is None:
            raise ValueError(f"no typesetting of Markdown's {node.type}: add one")
        return make(node)

    def _children(self, node: SyntaxTreeNode) -> str:
        return "".join(self.block(child) for child in node.children)

    def _heading(self, node: SyntaxTreeNode) -> str:
        level = int(node.tag[1]) - 1
        label = f" <{self.pending}>" if self.pending else ""
        self.pending, quiet = "", self.labels
        self.labels = set()  # no links in headings
        words = self._children(node)
        self.labels = quiet
        return f"#heading(level: {level})[{words}]{label}\n"

    def _paragraph(self, node: SyntaxTreeNode) -> str:
        content = self._children(node)
        return f"{content}\n\n" if content else ""

    def _inline(self, node: SyntaxTreeNode) -> str:
        return self._children(node)

    def _html_block(self, node: SyntaxTreeNode) -> str:
        return self._html_inline(node)

    def _html_inline(self, node: SyntaxTreeNode) -> str:
        found = _ANCHOR.search(node.content)
        self.pending = found[1] if found else self.pending
        return ""

    def _text(self, node: SyntaxTreeNode) -> str:
        out, end = "", 0
        for match in _CLAUSE.finditer(node.content):
            if match[0] in self.labels:
                out += _words(node.content[end : match.start()]) + f"#link(<{match[0]}>)[{match[0]}]"
                end = match.end()
        return out + _words(node.content[end:])

    def _softbreak(self, node: SyntaxTreeNode) -> str:
        return " "

    _hardbreak = _softbreak

    def _code_inline(self, node: SyntaxTreeNode) -> str:
        return f"#raw({json.dumps(node.content, ensure_ascii=False)})"

    def _strong(self, node: SyntaxTreeNode) -> str:
        return f"#strong[{self._children(node)}]"

    def _em(self, node: SyntaxTreeNode) -> str:
        return f"#emph[{self._children(node)}]"

    def _link(self, node: SyntaxTreeNode) -> str:
        target = str(node.attrs["href"])
        to = f"<{target[1:]}>" if target.startswith("#") else json.dumps(target)
        return f"#link({to})[{self._children(node)}]"

    def _fence(self, node: SyntaxTreeNode) -> str:
        language = json.dumps(node.info or "text")
        return f"#raw(block: true, lang: {language}, {json.dumps(node.content.rstrip(), ensure_ascii=False)})\n\n"

    _code_block = _fence

    def _bullet_list(self, node: SyntaxTreeNode) -> str:
        return f"#list({', '.join(f'[{self._children(item)}]' for item in node.children)})\n\n"

    def _table(self, node: SyntaxTreeNode) -> str:
        head, *rest = (row for part in node.children for row in part.children)
        cells = [f"[{self._children(cell)}]" for row in rest for cell in row.children]
        width = len(head.children)
        titles = [self._children(cell) for cell in head.children]
        bold = ", ".join(f"[#strong[{title}]]" for title in titles)
        header = [f"table.header({bold})"] if any(titles) else []
        size = "7pt" if width >= _WIDE else "8.5pt"
        inner = f"#show raw: set text({size}); #table(columns: {width}, align: left, {', '.join([*header, *cells])})"
        return f"#block[#set text({size}); #set par(justify: false); {inner}]\n\n"


def _words(text: str) -> str:
    """Return running text as Typst strings, powers raised."""
    out, end = "", 0
    for match in _POWER.finditer(text):
        raised = match[1][1:-1] if match[1].startswith("(") else match[1]
        out += _string(text[end : match.start()]) + f"#super[{_string(raised)}]"
        end = match.end()
    return out + _string(text[end:])


def _string(text: str) -> str:
    return f"#{json.dumps(text, ensure_ascii=False)};" if text else ""


def pdf(text: str) -> bytes:
    """Return the PDF of the specification's text."""
    return bytes(typst.compile(typeset(text).encode(), ignore_system_fonts=True))


def main(words: list[str]) -> None:
    """Write the PDF."""
    out = Path(words[0]) if words else OUT
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f"{out.name}.tmp")
    temporary.write_bytes(pdf(TARGET.read_text(encoding="utf-8")))
    temporary.replace(out)
    print(out)


if __name__ == "__main__":
    main(sys.argv[1:])
