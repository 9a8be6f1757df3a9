"""The stages of a finding: reported, confirmed in another process, shrunk, written as a replay file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refnum.errors import RefnumError

from ...cases.levels import Outcome
from ...mismatches import replay
from .database import Database
from .quarantine import Judgement, after_mismatch
from .shards import address_of
from .spec import Target
from .worker_process import START, Event

OPEN = 8
"""Findings of one target that are confirmed; what fails beyond them is counted only."""
SHRUNK = {"mismatch": 3, "fault": 1}
"""Findings of one subject, operation and kind that are made small at once; `refnum fuzz minimise` does the rest."""
SLOW = "timeout"
"""`finding` of a case that did not answer in time; seen once and never again, a compiler may have taken the time."""
LIMIT = START + 120.0
"""Seconds between two signs of a task that tries cases in a process of its own."""


class Desk:
    """Turns findings into tasks and the tasks' results into findings. Runs inside the coordinator's transactions."""

    def __init__(self, db: Database, targets: Mapping[str, Target], folder: Path) -> None:
        self.db, self.targets, self.folder = db, targets, folder
        self.shrunk: dict[tuple[str, str, str], int] = {}

    def waiting(self) -> list[dict[str, Any]]:
        """Return the tasks of findings that an earlier session left unfinished."""
        tasks = []
        for row in self.db.rows("SELECT * FROM findings WHERE state IN ('reported', 'confirmed')"):
            task = self.task("confirm" if row["state"] == "reported" else "shrink", row)
            if task["kind"] == "confirm" or self.deserves(row):
                tasks.append(task)
        return tasks

    def task(self, kind: str, row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the task that confirms a finding or makes it small."""
        shard = self.db.rows("SELECT * FROM shards WHERE id = ?", (row["shard"],))[0]
        suspicion = {name: row[name] for name in ("kind", "level", "finding", "words", "outcome", "device")}
        address = address_of(shard)
        return {
            "id": f"{kind} {row['id']}", "kind": kind, "find": row["id"], "shard": row["shard"], "seed": address.seed,
            "target": address.target, "stratum": address.stratum, "number": address.number,
            "case": row["number"], "suspicion": suspicion, "folder": str(self.folder / "cases"), "limit": LIMIT,
            "device": self.targets[address.target].device, "avoid": row["device"], "only": "",
            "fresh": row["kind"] != "fault", **more,  # a fault is tried in a process apart anyway
        }  # fmt: skip

    def report(self, shard: int, target: str, entry: Mapping[str, Any], event: Event) -> list[dict[str, Any]]:
        """Record a finding and return its confirmation task, unless it is known or the target has enough findings."""
        have = self.db.rows("SELECT count(*) FROM findings WHERE target = ?", (target,))[0][0]
        if have >= OPEN and entry["kind"] != "fault":
            return []
        self.db.report(shard, target, entry, event.worker, event.device)
        row = self.find(shard, entry["number"], entry["kind"])
        return [self.task("confirm", row)] if row["state"] == "reported" else []

    def give_up(self, shard: int, target: str, entry: Mapping[str, Any], event: Event) -> None:
        """Record a fault that no worker will run again."""
        self.db.report(shard, target, entry, event.worker, event.device)
        self.db.raw.execute("UPDATE findings SET state = 'done', outcome = 'fault' WHERE shard = ? AND kind = 'fault'",
                            (shard,))  # fmt: skip

    def find(self, shard: int, number: int, kind: str) -> Mapping[str, Any]:
        """Return the finding of a case, or None."""
        query = "SELECT * FROM findings WHERE shard = ? AND number = ? AND kind = ?"
        return self.db.rows(query, (shard, number, kind))[0]

    def row(self, finding: int) -> Mapping[str, Any]:
        """Return a finding by its number."""
        return self.db.rows("SELECT * FROM findings WHERE id = ?", (finding,))[0]

    def fault_of(self, shard: int) -> dict[str, Any] | None:
        """Return the first settled fault of a shard; its case is not run again."""
        rows = self.db.rows("SELECT * FROM findings WHERE shard = ? AND kind = 'fault' AND state != 'reported' "
                            "AND outcome IN ('fault', 'timeout', 'compile-error', 'flaky-fault') ORDER BY number",
                            (shard,))  # fmt: skip
        if not rows:
            return None
        row = rows[0]
        return {"number": row["number"], "outcome": row["outcome"], "words": row["words"],
                "recipe": json.loads(row["recipe"])}  # fmt: skip

    def confirmed(self, task: Mapping[str, Any], event: Event) -> list[dict[str, Any]]:
        """Settle a finding by the result of its confirmation and return the tasks that follow."""
        row, result = self.row(task["find"]), event.result
        seen = f"{result['shown']} of {result['of']} on {event.device}"
        if row["kind"] == "fault":
            shown = bool(result["shown"])
            words = (
                result["words"] or row["words"] if shown else f"once on {row['device']} ({row['words']}), never again"
            )
            judgement = Judgement(result["outcome"] if shown else str(Outcome.FLAKY), words)
            if not shown and row["finding"] == SLOW:
                self.db.raw.execute("UPDATE findings SET state = 'withdrawn', outcome = 'flaky', words = ? "
                                    "WHERE id = ?", (words, row["id"]))  # fmt: skip
                return []
        elif row["kind"] == "golden":
            judgement = Judgement("golden", result["words"])
        else:
            judgement = after_mismatch(result, row["device"], event.device, bool(task.get("second")))
        if judgement.again:
            return [self.task("confirm", row, second=True, only=row["device"], avoid="")]
        worth = judgement.outcome in (Outcome.MISMATCH, Outcome.FAULT, Outcome.TIMEOUT)
        state = "confirmed" if worth else "done"
        self.db.raw.execute("UPDATE findings SET state = ?, outcome = ?, words = ?, seen = ? WHERE id = ?",
                            (state, judgement.outcome, judgement.words, seen, row["id"]))  # fmt: skip
        row = self.row(row["id"])
        return [self.task("shrink", row)] if worth and self.deserves(row) else []

    def deserves(self, row: Mapping[str, Any]) -> bool:
        """Return whether a finding is shrunk automatically: the first few of a subject, operation and kind are."""
        target = self.targets[row["target"]]
        key = target.subject, target.operation, f"{row['kind']} {row['finding']} {row['outcome']}"
        self.shrunk[key] = self.shrunk.get(key, 0) + 1
        return self.shrunk[key] <= SHRUNK[row["kind"]]

    def made_small(self, task: Mapping[str, Any], event: Event) -> None:
        """Write the replay file of a finding; after a failure the finding says so, and resume tries again."""
        result = event.result
        record = {**result["record"], "points": result["points"]}
        try:
            path = str(replay.save(result["document"], self.folder / "cases"))
        except RefnumError as error:
            record["unsaved"], path = str(error), None
        self.db.raw.execute("UPDATE findings SET state = ?, record = ?, replay = ? WHERE id = ?",
                            ("done" if path else "confirmed", json.dumps(record), path, task["find"]))  # fmt: skip

    def lost(self, task: Mapping[str, Any], event: Event) -> list[dict[str, Any]]:
        """Retry a confirmation or shrinking after its worker was lost, twice at most; then record that and stop."""
        tries = task.get("tries", 0) + 1
        if tries < 3:
            return [{**task, "tries": tries}]
        words = f"; {task['kind']} was given up after {tries} workers were lost at it: {event.words}"
        outcome = "fault" if task["kind"] == "confirm" else self.row(task["find"])["outcome"]
        self.db.raw.execute("UPDATE findings SET state = 'done', outcome = ?, words = words || ? WHERE id = ?",
                            (outcome, words, task["find"]))  # fmt: skip
        return []
