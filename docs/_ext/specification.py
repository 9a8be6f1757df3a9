"""The specification as one Markdown file, `docs/specification.md`, with every computed table expanded.

`python docs/_ext/specification.py` writes it from the pages of `docs/specification`, and its SHA-256 into
`CITATION.cff`. The pages stay the source; a test holds the file and the digest equal to them.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from refnum_tables import TABLES  # noqa: E402  (the path comes first)
from value_tables import Table  # noqa: E402

import refnum  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "specification"
TARGET = ROOT / "docs" / "specification.md"
CITATION = ROOT / "CITATION.cff"
FRONT, BACK = ("terms", "conformance", "references"), ("coverage", "errata")
INSTEAD = {"operation": "interface"}
"""Tables that show the state of the repository -> what stands for them in the text that is cited."""

_DIRECTIVE = re.compile(r"^:::\{(?P<kind>[\w-]+)\} ?(?P<words>[^\n]*)\n(?P<body>.*?)^:::$", re.MULTILINE | re.DOTALL)
_TREE = re.compile(r"^```\{toctree\}\n.*?^```\n?", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"^\(N\d+\)=\n", re.MULTILINE)
_ROLE = re.compile(r"\{doc\}`(?:([^<`]+) <([^>]+)>|([^`]+))`", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md\)")
_REVISION = re.compile(r"^\| (\d+) \| (\d{4}-\d\d-\d\d) \|", re.MULTILINE)
_DIGEST = re.compile(r'(value: "sha256:)[0-9a-f]{64}(")')


class Revision(NamedTuple):
    """The newest line of the revision table."""

    number: str
    date: str


def revision() -> Revision:
    """Return the newest revision, as the table of the first page says."""
    found = _REVISION.search((PAGES / "index.md").read_text(encoding="utf-8"))
    assert found, "docs/specification/index.md has no table of revisions"
    return Revision(*found.groups())


def clause_pages() -> list[str]:
    """Return the names of the clauses' pages, in order."""
    return sorted((path.stem for path in PAGES.glob("N*.md")), key=lambda name: int(name[1:]))


def operation_pages() -> list[str]:
    """Return the names of the operations' pages, in the order of their contents."""
    text = (PAGES / "operations" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    return [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]


def build() -> str:
    """Return the text of the file."""
    number, date = revision()
    parts = [_title(number, date), page("index", 1).replace("## Specification\n", "## Introduction\n", 1)]
    parts += [page(name, 1) for name in (*FRONT, *clause_pages())]
    parts += [page("operations/index", 1), *(page(f"operations/{name}", 2) for name in operation_pages())]
    parts += [page(name, 1) for name in BACK]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _title(number: str, date: str) -> str:
    return (
        "<!-- Written by docs/_ext/specification.py from docs/specification. Edit the pages, not this file. -->\n\n"
        "# Bit-exact numerics of FP4 and FP8 training on Hopper GPUs\n\n"
        f"The refnum specification. Revision {number}, {date}, of refnum {refnum.__version__}.\n\n"
        "The SHA-256 of this file is in `CITATION.cff`, and on the title page of the PDF.\n"
    )


def page(name: str, level: int) -> str:
    """Return a page as plain Markdown, its title at a heading level one below `level`."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    text = _LABEL.sub("", _TREE.sub("", text))
    text = _shift(text, level)
    text = _DIRECTIVE.sub(lambda match: _expanded(match, level), text)
    text = _LINK.sub(r"[\1](#\2)", _ROLE.sub(_link, text))
    return f'<a id="{_anchor(name)}"></a>\n\n{text}'


def _anchor(name: str) -> str:
    return {"index": "introduction", "operations/index": "operations"}.get(name, name.rpartition("/")[2])


def _shift(text: str, level: int) -> str:
    """Lower every heading by `level`; headings inside code are comments and stay."""
    lines, code = [], False
    for line in text.split("\n"):
        code ^= line.startswith("```")
        lines.append("#" * level + line if line.startswith("#") and not code else line)
    return "\n".join(lines)


def _expanded(match: re.Match[str], level: int) -> str:
    kind, words, body = match["kind"], match["words"], match["body"]
    if kind == "refnum-table":
        name, *rest = words.split()
        return table(TABLES[INSTEAD.get(name, name)](*rest))
    if kind != "clause":
        raise ValueError(f"no plain form of the directive {kind!r}: add one")
    number, _, title = words.partition(" ")
    ours = body.startswith(":ours:")
    text = body.removeprefix(":ours:\n").strip("\n")
    mark = " (ours)" if ours else ""
    return f'<a id="{number}"></a>\n\n{"#" * (level + 2)} {number} {title}{mark}\n\n{text}'


def table(of: Table) -> str:
    """Return a table in Markdown; operations and anchors in its cells become links."""
    lines = [of.header, ["---"] * len(of.header), *of.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    text = re.sub(r"@([a-z0-9_]+)", r"[`\1`](#\1)", text)
    return re.sub(r"(?<![\w(])#([A-Z][A-Z0-9_]+)", r"`\1`", text).replace("|", "\\|")


def _link(match: re.Match[str]) -> str:
    words, target, alone = match.groups()
    target = (target or alone).strip()
    name = target.rpartition("/")[2]
    if not (PAGES / f"{name}.md").exists() and not (PAGES / "operations" / f"{name}.md").exists():
        return f"`docs{target}.md`" if target.startswith("/") else f"`{target}`"
    shown = words.strip() if words else name
    anchor = _anchor("operations/index" if target.endswith("operations/index") else name)
    return f"[{shown}](#{anchor})"


def digest(text: str) -> str:
    """Return the SHA-256 of the file's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def cited(citation: str, text: str) -> str:
    """Return the text of CITATION.cff with the digest of the specification's text in it."""
    new, count = _DIGEST.subn(rf"\g<1>{digest(text)}\g<2>", citation)
    assert count == 1, "CITATION.cff holds no digest of the specification"
    return new


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def main() -> None:
    """Write the file and its digest."""
    text = build()
    _write(TARGET, text)
    _write(CITATION, cited(CITATION.read_text(encoding="utf-8"), text))


if __name__ == "__main__":
    main()
