"""The state of a campaign: a summary as data, and its rendering by Rich, live or once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from ...cases.contracts import contract_words
from ...cases.coverpoints import expected
from ...reports.report import EXIT_MISMATCH, EXIT_NOTHING, EXIT_VERIFIED
from .confidence import statement, upper_bound
from .database import Database

WRONG = ("mismatch", "fault", "timeout", "compile-error", "flaky", "flaky-fault", "golden", "broken-card")

COUNTED = ("shards", "cases", "compared", "failing", "faults", "unsupported", "undeclared")
SHOWN = 20
"""Findings that a summary prints; all of them are in the database and in --json."""


class Watcher:
    """Reads a campaign's database into a summary; constant parts are computed once."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.targets = {target.name: target for target in db.spec.targets}
        self.expected = {name: expected(*target.key) for name, target in self.targets.items()}

    def summary(self) -> dict[str, Any]:
        """Return the whole state as JSON values: totals, one row a subject and operation, findings, workers."""
        db = self.db
        rows = self._rows()
        totals: Counter[str] = Counter()
        for row in rows:
            for name in (*COUNTED, "points", "expected"):
                totals[name] += row[name]
        open_ones = db.rows("SELECT state, count(*) FROM shards WHERE state != 'done' GROUP BY state")
        states = {**({"done": totals["shards"]} if totals["shards"] else {}), **{row[0]: row[1] for row in open_ones}}
        seconds = float(db.get("seconds", "0"))
        findings = self.findings()
        return {
            "folder": str(db.path.parent), "seed": db.spec.seed, "model": db.spec.model, "end": db.get("end"),
            "seconds": seconds, "rate": totals["compared"] / seconds if seconds else 0.0, "totals": dict(totals),
            "shards": states, "rows": rows, "findings": findings, "workers": self.workers(),
            "contracts": {record["name"]: contract_words(record.get("inputs", ())) for record in db.spec.records
                          if record.get("inputs")},
            "bugs": dict(Counter(bug_of(finding) for finding in findings)), "exit": exit_status(totals, findings),
            "bound": upper_bound(totals["cases"] + totals["faults"], totals["failing"] + totals["faults"]),
            "statement": statement(totals["cases"] + totals["faults"], totals["failing"] + totals["faults"]),
        }  # fmt: skip

    def _rows(self) -> list[dict[str, Any]]:
        hit: dict[str, set[str]] = {}
        for row in self.db.rows("SELECT target, point FROM corpus"):
            hit.setdefault(row["target"], set()).add(row["point"])
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.db.rows("SELECT * FROM targets"):
            target = self.targets[row["name"]]
            key = target.subject, target.operation
            sums = found.setdefault(key, {"subject": key[0], "operation": key[1], "variants": 0, "holes": {},
                                          "seconds": 0.0, "refusal": "",
                                          **dict.fromkeys((*COUNTED, "points", "expected"), 0)})  # fmt: skip
            for name in (*COUNTED, "seconds"):
                sums[name] += row[name] if name != "undeclared" or row["compared"] else 0
            if sums["undeclared"] and not sums["refusal"]:
                sums["refusal"] = self._refusal(row["name"])
            wanted = self.expected[row["name"]]
            holes = [point for point in wanted if point not in hit.get(row["name"], set())]
            sums["variants"] += 1
            sums["expected"] += len(wanted)
            sums["points"] += len(wanted) - len(holes)
            if holes:
                sums["holes"][target.variant] = holes
        for sums in found.values():
            sums["bound"] = upper_bound(sums["cases"] + sums["faults"], sums["failing"] + sums["faults"])
        return list(found.values())

    def _refusal(self, target: str) -> str:
        """Return the words of the first refusal of a target that was not declared, an empty string without one."""
        query = ("SELECT json_extract(result, '$.refusal') FROM shards WHERE target = ? AND state = 'done' "
                 "AND json_extract(result, '$.undeclared') > 0 ORDER BY id LIMIT 1")  # fmt: skip
        return next((str(row[0]) for row in self.db.rows(query, (target,))), "")

    def findings(self) -> list[dict[str, Any]]:
        """Return every finding, its record decoded; what its coverpoints say of the cause stands first in `points`."""
        found = []
        for row in self.db.rows("SELECT * FROM findings WHERE state != 'withdrawn' ORDER BY id"):
            finding = {**dict(row), "record": json.loads(row["record"] or "null"), "recipe": None}
            if finding["record"]:
                finding["record"]["points"].sort(key=self.shares(row["target"]))
            found.append(finding)
        return found

    def shares(self, target: str) -> Callable[[str], Any]:
        """Return a sort key by which the coverpoints that tell failing cases from right ones stand first.

        A point that most failing cases hit and hardly any right one does is where the kernel is wrong.
        """
        query = "SELECT point, cases, failing FROM corpus WHERE target = ?"
        counts = {row["point"]: (row["cases"], row["failing"]) for row in self.db.rows(query, (target,))}

        def key(point: str) -> tuple[float, str]:
            cases, failing = counts.get(point, (0, 0))
            return -(failing * failing / cases if cases else 0.0), point

        return key

    def workers(self) -> list[dict[str, Any]]:
        """Return every worker process of the campaign, with its identity."""
        rows = self.db.rows("SELECT * FROM workers ORDER BY joined")
        return [{**dict(row), "identity": json.loads(row["identity"])} for row in rows]


def bug_of(finding: dict[str, Any]) -> str:
    """Return the name under which a finding is counted: its bug class, else its breach, else its outcome."""
    if finding["outcome"] in ("fault", "timeout", "compile-error", "flaky", "flaky-fault", "golden", "broken-card"):
        return str(finding["outcome"])
    classes = (finding["record"] or {}).get("bug_classes") or []
    return str(classes[0]["id"] if classes else finding["finding"] or finding["outcome"] or "not confirmed yet")


def exit_status(totals: Counter[str], findings: list[dict[str, Any]]) -> int:
    """Return 1 when anything is wrong or still under suspicion, 3 when nothing was compared, or legal calls of an
    operation that was compared were refused without a declaration, else 0."""
    if findings or totals["failing"] or totals["faults"]:
        return EXIT_MISMATCH
    return EXIT_VERIFIED if totals["compared"] and not totals["undeclared"] else EXIT_NOTHING


def render(summary: dict[str, Any], health: dict[str, int] | None = None, rate: float | None = None) -> Group:
    """Return the summary for a terminal."""
    parts: list[Any] = [_head(summary, health, rate), _operations(summary["rows"])]
    if summary["findings"]:
        parts.append(_findings(summary["findings"]))
    return Group(*parts)


def _head(summary: dict[str, Any], health: dict[str, int] | None, rate: float | None) -> str:
    totals, states = summary["totals"], summary["shards"]
    spent = time.strftime("%H:%M:%S", time.gmtime(summary["seconds"]))
    bugs = ", ".join(f"{escape(name)} {count}" for name, count in sorted(summary["bugs"].items())) or "none"
    lines = [
        f"[bold]{escape(summary['folder'])}[/]  seed {summary['seed']}  {spent}  {summary['end']}".rstrip(),
        f"cases {totals.get('cases', 0)}  elements {totals.get('compared', 0):.4g}  "
        f"rate {(rate if rate is not None else summary['rate']) / 1e6:.4g} M elements/s",
        f"coverpoints {totals.get('points', 0)} of {totals.get('expected', 0)}  "
        f"shards {', '.join(f'{states[name]} {name}' for name in sorted(states)) or 'none'}",
        f"findings {bugs}",
    ]
    lines += [f"{escape(name)}: within its contract {words}; elements outside of it are replaced"
              for name, words in summary["contracts"].items()]  # fmt: skip
    lines += [f"{escape(row['subject'])} {row['operation']}: {row['undeclared']} legal calls were refused that it does "
              f"not declare to refuse, for example: {escape(row['refusal'])}"
              for row in summary["rows"] if row["undeclared"]]  # fmt: skip
    if health is not None:
        lines.append("workers " + ", ".join(f"{count} {name}" for name, count in health.items()))
    return "\n".join(lines)


def _operations(rows: list[dict[str, Any]]) -> Table:
    table = Table("subject", "operation", "variants", "cases", "unsupported", "elements", "failing", "faults",
                  "coverpoints", "bound", box=None, header_style="bold")  # fmt: skip
    table.columns[1].no_wrap = True
    for row in rows:
        bad = "[bold red]" if row["failing"] or row["faults"] else ""
        table.add_row(
            escape(row["subject"]), row["operation"], str(row["variants"]), str(row["cases"]), str(row["unsupported"]),
            f"{row['compared']:.4g}", f"{bad}{row['failing']}", f"{bad}{row['faults']}",
            f"{row['points']}/{row['expected']}", f"{row['bound']:.2g}",
        )  # fmt: skip
    return table


def _findings(findings: list[dict[str, Any]]) -> Table:
    table = Table("finding", "target", "what", "smallest case", "coverpoint", "replay", box=None, header_style="bold")
    for finding in findings[:SHOWN]:
        record = finding["record"] or {}
        words = f"{finding['outcome'] or finding['state']}: {bug_of(finding)}"
        table.add_row(str(finding["id"]), escape(finding["target"]), escape(words), escape(record.get("case", "")),
                      escape((record.get("points") or [""])[0]), escape(finding["replay"] or ""))  # fmt: skip
    return table


def show(out: Console, summary: dict[str, Any], holes: bool = False) -> None:
    """Print the summary once, with the statement about the failure rate."""
    out.print(render(summary))
    if holes:
        for row in summary["rows"]:
            for name, points in row["holes"].items():
                out.print(f"hole  {escape(row['subject'])} {escape(name)}: {escape(', '.join(points))}")
    for finding in [finding for finding in summary["findings"] if finding["words"]][:SHOWN]:
        out.print(f"{finding['id']}: {escape(finding['words'])}"
                  + (f" ({finding['seen']})" if finding["seen"] else ""))  # fmt: skip
    out.print(summary["statement"] + ".")
