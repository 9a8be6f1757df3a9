"""What a person reads: the table of verdicts and the page of a mismatch. Everything comes from the report's JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .verdict import BAD, CLASSES, Outcome

PLAIN_WIDTH = 200
_STYLES = {"pass": "green", "unsupported": "yellow", "not-run": "yellow", "not-verified": "yellow"}
_ORDER = (*BAD, Outcome.NOT_VERIFIED, Outcome.NOT_RUN, Outcome.UNSUPPORTED, Outcome.PASS)


def console(stderr: bool = False) -> Console:
    """Return a console: Rich on a terminal, plain and wide when piped."""
    stream = sys.stderr if stderr else sys.stdout
    return (
        Console(file=stream, highlight=False)
        if stream.isatty()
        else Console(file=stream, highlight=False, width=PLAIN_WIDTH, color_system=None)
    )


def table(out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: with rules on a terminal, in plain aligned columns that never wrap otherwise."""
    if not out.is_terminal:
        _plain_table(out, title, columns, rows)
        return
    grid = Table(title=title)
    for column in columns:
        grid.add_column(column, overflow="fold", justify="right" if column in _NUMBERS else "left")
    for row in rows:
        grid.add_row(*row)
    out.print(grid)


def _plain_table(out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [list(columns), *([Text.from_markup(cell).plain for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [title] if title else []
    for row in cells:
        aligned = [
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    out.print(Text("\n".join(lines)), soft_wrap=True)


_NUMBERS = frozenset(
    {
        "variants",
        "cases",
        "elements",
        "proved",
        "seconds",
        "results",
        "saturated",
        "to zero",
        "distance",
        "MXFP4 dB",
        "FP8 dB",
        "FP8 to zero",
    }
)


def outcome_text(name: str) -> str:
    """Return an outcome in its colour."""
    return f"[{_STYLES.get(name, 'bold red')}]{name}[/]"


def worst(outcomes: Iterable[str]) -> str:
    """Return the worst of some outcomes."""
    found = set(outcomes)
    return next((outcome.value for outcome in _ORDER if outcome.value in found), Outcome.NOT_VERIFIED.value)


def verdicts(out: Console, report: Mapping[str, Any]) -> None:
    """Print one line a subject, operation and profile: the worst outcome and what it rests on."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for result in report["results"]:
        groups.setdefault((result["subject"], result["operation"], result["profile"]), []).append(result)
    rows = []
    for (subject, operation, profile), results in groups.items():
        judged = [result for result in results if result["outcome"] != "unsupported"] or results
        proved = sum(d["points"] for r in results for d in r["domains"] if d["verdict"] == "proved")
        reached = max((r["level"]["reached"] or "" for r in results), key=lambda name: (name == "none", name))
        rows.append(
            [
                escape(subject),
                operation,
                profile,
                outcome_text(worst(r["outcome"] for r in judged)),
                reached,
                _variants(results),
                f"{sum(r['cases'] for r in results):,}",
                f"{sum(r['compared'] for r in results):,}",
                f"{proved:,}" if proved else "-",
                f"{sum(r['seconds'] for r in results):.1f}",
            ]
        )
    if rows:
        table(
            out,
            "Verdicts",
            (
                "subject",
                "operation",
                "profile",
                "outcome",
                "level",
                "variants",
                "cases",
                "elements",
                "proved",
                "seconds",
            ),
            rows,
        )


def _variants(results: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(result["outcome"] for result in results)
    return str(len(results)) if len(counts) == 1 else " ".join(f"{n} {name}" for name, n in sorted(counts.items()))


def not_verified(out: Console, report: Mapping[str, Any]) -> None:
    """Print, loudly, everything that was not verified and why; equal reasons are one line."""
    lines: Counter[tuple[str, str, str]] = Counter()
    for result in report["results"]:
        if result["outcome"] in ("unsupported", "not-run", "not-verified"):
            lines[(result["outcome"], f"{result['subject']} {result['operation']}", result["words"])] += 1
        elif result["refused"]:
            lines[("refused", f"{result['subject']} {result['operation']}", result["refusal"])] += 1
    for subject, name, operations, words in _refused_probes(report["results"]):
        lines[("refused", f"{subject}, {name}, in {operations}", f"for example: {words}")] += 1
    for row in report["data"]:
        if row["outcome"] in ("unsupported", "not-run", "not-verified"):
            lines[(row["outcome"], f"{row['subject']} {row['tensor']}", row["words"])] += 1
    for subject in report["header"]["subjects"]:
        if not subject["available"]:
            lines[("unavailable", subject["name"], subject["reason"])] += 1
    for broken in report["header"]["broken_subjects"]:
        lines[("broken", broken["name"], broken["reason"])] += 1
    for (outcome, who, words), count in lines.items():
        times = f" ({count} variants)" if count > 1 else ""
        out.print(f"[yellow]{outcome}[/]: {escape(who)}: {escape(words)}{times}", soft_wrap=True)


def _refused_probes(results: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, str, str, str]]:
    """Yield (subject, probe, the operations that refuse it, the first reason)."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        for name, words in result["probes"].items():
            if words:
                found.setdefault((result["subject"], name), {}).setdefault(result["operation"], words)
    for (subject, name), reasons in found.items():
        yield subject, name, ", ".join(reasons), next(iter(reasons.values()))


def classes(out: Console, report: Mapping[str, Any]) -> None:
    """Print the result by input class (N17) of every quantiser that is not right at every byte."""
    rows = []
    for result in report["results"]:
        if result["classes"] and any(entry["wrong"] for entry in result["classes"].values()):
            cells = []
            for letter in CLASSES:
                entry = result["classes"].get(letter)
                cells.append(
                    "-"
                    if entry is None
                    else "L0"
                    if not entry["wrong"]
                    else f"{entry['level']} {entry['wrong']:,}/{entry['blocks']:,}"
                )
            rows.append([escape(result["subject"]), escape(result["variant"]), *cells])
    if rows:
        table(
            out,
            "Blocks that differ, by input class: level reached, wrong/all (F finite, T tiny, H huge, Z zero, "
            "I Inf, N NaN)",
            ("subject", "variant", *CLASSES),
            rows,
        )


def holes(out: Console, report: Mapping[str, Any]) -> None:
    """Print the coverpoints that no case hit."""
    for result in report["results"]:
        if result["holes"]:
            out.print(
                f"[yellow]not covered[/]: {escape(result['subject'])} {escape(result['variant'])}: "
                f"{escape(', '.join(result['holes']))}"
            )


def failure(out: Console, result: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Print the page of one failing case."""
    page = record["page"]
    breach = f"  {record['finding']}" if record["finding"] else f"  fails {record['fails']}"
    head = "MISMATCH" if result["outcome"] != "pass" else "NEXT LEVEL"
    out.print(f"\n[bold red]{head}[/]  {escape(result['variant'])}  subject={escape(result['subject'])}{breach}")
    if record["words"]:
        out.print(f"  {escape(record['words'])}", soft_wrap=True)
    if page:
        element(out, page)
    for bug in record["bug_classes"]:
        if bug["words"] == record["words"]:
            continue
        note = bug.get("note") or {}
        effect = f" ({note['effect']})" if note.get("effect") else ""
        out.print(f"  like      {escape(bug['id'])}: {escape(bug['words'])}{escape(effect)}", soft_wrap=True)
    if not record["bug_classes"] and page:
        out.print("  like      no known bug class gives these bits")
    from_label = f" [{record['label']}]" if record["label"] else ""
    size = (
        f"shrunk    from {record['shrunk_from']}{from_label} to {record['case']}"
        if record["shrunk"]
        else f"case      {record['case']}{from_label}"
    )
    out.print(f"  {escape(size)}; shown in {record['reproduced']} runs", soft_wrap=True)
    if record["command"]:
        out.print(f"  replay    {escape(record['command'])}", soft_wrap=True)


def element(out: Console, page: Mapping[str, Any]) -> None:
    """Print the element that differs: inputs, scale, both codes by field, and the rule that decides."""
    out.print(
        f"  {escape(page['place'])}   in {escape(page['output'])}; differing: "
        + escape(", ".join(f"{name} {count}" for name, count in page["differing"].items()))
    )
    for entry in page["input"]:
        out.print(f"    {entry['name']:<9} {entry['bits']:<11} {entry['fields']:<14} {escape(entry['value'])}")
    if page["scale"]:
        same = page["scale"]["expected"] == page["scale"]["observed"]
        both = (
            page["scale"]["expected"]
            if same
            else f"expected {page['scale']['expected']}  observed {page['scale']['observed']}"
        )
        out.print(f"    scale     {both}")
    for side in ("expected", "observed"):
        tail = (
            f"   ({page['rule']})"
            if side == "expected" and page["rule"]
            else f"   {page['differs']}"
            if side == "observed"
            else ""
        )
        cells = page[side]
        out.print(f"    {side:<9} {cells['bits']:<11} {cells['fields']:<14} {escape(cells['value'])}{escape(tail)}")


def everything(out: Console, report: Mapping[str, Any]) -> None:
    """Print a whole report: table, what is not verified, classes, mismatches, and the verdict line."""
    from .show_data import tensors

    if report["results"] or not report["data"]:
        verdicts(out, report)
    tensors(out, report)
    classes(out, report)
    not_verified(out, report)
    holes(out, report)
    more: list[str] = []
    for result in [*report["results"], *report["data"]]:
        for record in result["failures"]:
            if result["outcome"] == "pass":
                continue
            if record["shrunk"] or record["reproduced"][:1] != "3" or report["footer"]["status"] == "partial":
                failure(out, result, record)
            else:
                like = ", ".join(bug["id"] for bug in record["bug_classes"]) or "no known bug class"
                more.append(f"{result['variant']}  subject={result['subject']}  like {like}  {record['command']}")
        if result["outcome"] in ("fault", "timeout", "compile-error"):
            out.print(
                f"\n[bold red]{result['outcome'].upper()}[/]  {escape(result['variant'])}  "
                f"subject={escape(result['subject'])}\n  {escape(result['words'])}"
            )
    if more:
        out.print(f"\n{len(more)} more failing variants, not shrunk:")
        for line in more:
            out.print(f"  {escape(line)}", soft_wrap=True)
    for line in report["harness"]:
        out.print(f"[bold red]HARNESS[/]  {escape(line)}")
    style = {0: "green", 1: "bold red"}.get(report["footer"]["exit"], "yellow")
    out.print(f"\n[{style}]{escape(report['footer']['verdict'])}[/]", soft_wrap=True)
