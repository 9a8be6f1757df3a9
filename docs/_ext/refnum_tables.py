"""Directives that print tables computed from the model when the page is built.

    :::{refnum-table} midpoints E2M1
    :::

The first word is an entry of `TABLES`; the rest are its arguments. Cells are text; `...` in a cell is code,
`@name` is a link to the page of that operation, and `#NAME` one to an anchor of the same page.
"""

from __future__ import annotations

import re
from typing import Any

import bug_classes
import clause_coverage
import operation_facts
import rule_tables
import value_tables
from docutils import nodes
from refnum_clauses import NUMBER, clause_reference
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from value_tables import Table

from refnum.conformance.cases.primitives import VECTOR_OPERATIONS

TABLES = {
    "formats": value_tables.formats,
    "format-sources": value_tables.format_sources,
    "values": value_tables.values,
    "e2m1-codes": value_tables.e2m1_codes,
    "e8m0-codes": value_tables.e8m0_codes,
    "midpoints": value_tables.midpoints,
    "stochastic": value_tables.stochastic,
    "e4m3-overflow": value_tables.e4m3_overflow,
    "scales": rule_tables.scales,
    "specials": rule_tables.specials,
    "tile-specials": rule_tables.tile_specials,
    "profiles": rule_tables.profiles,
    "profile-sources": rule_tables.profile_sources,
    "exactness": rule_tables.exactness,
    "fp8-scales": rule_tables.fp8_scales,
    "underflow": rule_tables.underflow,
    "e8m0-conversions": rule_tables.e8m0_conversions,
    "philox": rule_tables.philox,
    "stream": rule_tables.stream,
    "stream-bits": rule_tables.stream_bits,
    "silu-digests": rule_tables.silu_digests,
    "coverage": clause_coverage.coverage,
    "defaults": operation_facts.defaults,
    "interface": operation_facts.interface,
    "operation": operation_facts.facts,
    "operations": operation_facts.operations,
    "domains": operation_facts.domains,
    "scale-constants": rule_tables.scale_constants,
    "levels": rule_tables.levels,
    "instructions": rule_tables.instructions,
    "classes": rule_tables.classes,
    "bug-classes": bug_classes.overview,
    "vectors": bug_classes.frozen,
}
WRAP = {
    "vectors",
    "coverage",
    "defaults",
    "interface",
    "domains",
    "operation",
    "operations",
    "profile-sources",
    "format-sources",
    "bug-classes",
    "levels",
    "classes",
}
"""Tables whose cells hold prose and may break lines."""

_MARK = re.compile(r"`([^`]+)`|@([a-z0-9_]+)|(?<![\w])#([A-Z][A-Z0-9_]+)|(" + NUMBER.pattern + ")")


class RefnumTable(SphinxDirective):
    """`:::{refnum-table} name [arguments]`."""

    required_arguments = 1
    optional_arguments = 3

    def run(self) -> list[nodes.Node]:
        """Compute the table and return it as nodes."""
        name, *rest = self.arguments
        if name not in TABLES:
            raise self.error(f"no table is named {name!r}; known are {', '.join(TABLES)}")
        table = TABLES[name](*rest)
        outer = nodes.container(classes=["refnum-table", *(["wrap"] if name in WRAP else [])])
        outer += build(table, self.env.docname)
        return [outer]


def build(table: Table, docname: str) -> nodes.table:
    """Return a docutils table."""
    node, group = nodes.table(), nodes.tgroup(cols=len(table.header))
    node += group
    for _ in table.header:
        group += nodes.colspec(colwidth=1)
    if any(table.header):
        head = nodes.thead()
        head += _row(table.header, docname)
        group += head
    body = nodes.tbody()
    for row in table.rows:
        body += _row(row, docname)
    group += body
    return node


def _row(cells: list[str], docname: str) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry, paragraph = nodes.entry(), nodes.paragraph()
        paragraph += inline(cell, docname)
        entry += paragraph
        row += entry
    return row


def inline(text: str, docname: str) -> list[nodes.Node]:
    """Return a cell's text as nodes: code, links to operations and to clauses."""
    out: list[nodes.Node] = []
    end = 0
    for match in _MARK.finditer(text):
        out.append(nodes.Text(text[end : match.start()]))
        code, operation, anchor, clause = match.groups()
        if code:
            out.append(nodes.literal(code, code))
        elif operation:
            out.append(_operation_link(docname, operation))
        elif anchor:
            out.append(nodes.reference("", anchor, refid=anchor, internal=True))
        else:
            out.append(clause_reference(docname, clause))
        end = match.end()
    out.append(nodes.Text(text[end:]))
    return [node for node in out if not isinstance(node, nodes.Text) or str(node)]


def _operation_link(docname: str, name: str) -> nodes.Node:
    if name not in VECTOR_OPERATIONS:
        return nodes.literal(name, name)
    return addnodes.pending_xref(
        "", nodes.literal(name, name), refdomain="std", reftype="doc",
        reftarget=f"/specification/operations/{name}", refexplicit=True, refwarn=True, refdoc=docname,
    )  # fmt: skip


class BugClasses(SphinxDirective):
    """`:::{refnum-bug-classes}`: a section for every note of `vectors/notes.json`."""

    def run(self) -> list[nodes.Node]:
        """Return one section a note."""
        return bug_classes.sections(self.env.docname, inline)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("refnum-table", RefnumTable)
    app.add_directive("refnum-bug-classes", BugClasses)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
