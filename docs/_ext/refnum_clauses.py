"""Numbered clauses: a `clause` directive with an anchor such as `N3.2`, and links wherever the text cites one.

    :::{clause} N3.2 The rceil rule
    Text.
    :::

The number is the HTML anchor, and plain text such as "see N3.2" becomes a link. A citation of a clause that
does not exist is a warning, so a build with `-W` fails. `:ours:` marks a choice on which the sources are silent.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

NUMBER = re.compile(r"\bN(?:[12][0-9]|[0-9])(?:\.[0-9]+)?\b")
_SKIP = (nodes.literal, nodes.literal_block, nodes.reference, nodes.title, addnodes.pending_xref, nodes.raw)


class Clause(SphinxDirective):
    """`:::{clause} N3.2 Title` with a body in MyST."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"ours": directives.flag}  # noqa: RUF012  (docutils' own interface)

    def run(self) -> list[nodes.Node]:
        """Return the clause as a container whose id is its number."""
        number = self.arguments[0]
        if not NUMBER.fullmatch(number):
            raise self.error(f"{number!r} is no clause number; write N3.2")
        node = nodes.container(classes=["clause"], ids=[number])
        head = nodes.paragraph(classes=["clause-head"])
        head += nodes.reference("", number, refid=number, internal=True, classes=["clause-number"])
        if len(self.arguments) > 1:
            head += [nodes.Text(" "), nodes.inline("", self.arguments[1], classes=["clause-title"])]
        if "ours" in self.options:
            head += nodes.inline("", "ours", classes=["clause-ours"])
        node += head
        self.state.nested_parse(self.content, self.content_offset, node)
        _note_label(self.env, number, self.env.docname, number)
        self.env.metadata[self.env.docname].setdefault("clauses", []).append(number)
        return [node]


def _note_label(env: Any, number: str, docname: str, anchor: str) -> None:
    standard = env.get_domain("std")
    key = number.lower()
    if key in standard.labels and standard.labels[key][0] != docname:
        raise ValueError(f"clause {number} is defined in {standard.labels[key][0]} and in {docname}")
    standard.labels[key] = (docname, anchor, number)
    standard.anonlabels[key] = (docname, anchor)


class LinkClauses(SphinxTransform):
    """Turn clause numbers in running text into references."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        """Replace every matching text node outside literals, titles and links."""
        for text in list(self.document.findall(nodes.Text)):
            if not NUMBER.search(text) or _inside(text):
                continue
            text.parent.replace(text, self._split(str(text)))

    def _split(self, text: str) -> list[nodes.Node]:
        out: list[nodes.Node] = []
        end = 0
        for match in NUMBER.finditer(text):
            if match.start() > end:
                out.append(nodes.Text(text[end : match.start()]))
            out.append(clause_reference(self.env.docname, match.group()))
            end = match.end()
        if end < len(text):
            out.append(nodes.Text(text[end:]))
        return out


def clause_reference(docname: str, number: str) -> nodes.Node:
    """Return a pending reference to a clause, shown as its number."""
    return addnodes.pending_xref(
        "", nodes.inline("", number), refdomain="std", reftype="ref", reftarget=number.lower(),
        refexplicit=True, refwarn=True, refdoc=docname,
    )  # fmt: skip


def _inside(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, _SKIP) or "clause-title" in getattr(node, "attributes", {}).get("classes", ()):
            return True
    return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the transform."""
    app.add_directive("clause", Clause)
    app.add_transform(LinkClauses)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
