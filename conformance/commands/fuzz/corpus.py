"""The corpus: the smallest case that hits each coverpoint of each target, stored as an address of a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...cases.operation import run_golden
from ...cases.structure.levels import case_of
from ...reports import files
from ...verdicts.judge_worker import points
from .coordinator import locked
from .database import FILE, Database, understood
from .findings import Desk
from .shards import recipe_of
from .worker_process import WorkerProcess


def cover(db: Database) -> list[dict[str, Any]]:
    """Return, for each target, few small cases that together hit every coverpoint the campaign has hit.

    Greedy: take the case with the most new points, the smallest of equals, until no case has a new point.
    """
    targets = {target.name: target for target in db.spec.targets}
    chosen = []
    for name in [row[0] for row in db.rows("SELECT DISTINCT target FROM corpus ORDER BY target")]:
        wanted = {row[0] for row in db.rows("SELECT point FROM corpus WHERE target = ?", (name,))}
        places = db.rows("SELECT DISTINCT shard, number FROM corpus WHERE target = ?", (name,))
        recipes = [recipe_of(db.spec, targets[name], db.address(shard), number) for shard, number in places]
        cases = [case_of(recipe) for recipe in recipes]
        hits = [set(points(case, run_golden(case))) for case in cases]
        while wanted:
            best = max(range(len(cases)), key=lambda i: (len(hits[i] & wanted), -cases[i].elements))
            gained = hits[best] & wanted
            if not gained:
                break
            chosen.append({"target": targets[name].variant, "points": sorted(gained),
                           "elements": cases[best].elements, "recipe": recipes[best].to_json()})  # fmt: skip
            wanted -= gained
    return list({json.dumps(entry, sort_keys=True): entry for entry in chosen}.values())


def minimise(folder: Path) -> tuple[int, int]:
    """Shrink the findings that the campaign did not; return (findings shrunk, cases in `corpus.json`)."""
    db = Database(folder / FILE)
    with locked(folder):
        desk = Desk(db, {target.name: target for target in db.spec.targets}, folder.resolve())
        cells: dict[str, WorkerProcess] = {}
        done = 0
        for row in db.rows("SELECT * FROM findings WHERE state = 'confirmed'"):
            with understood(db.path):
                task = desk.task("shrink", row)
            worker = cells.setdefault(task["device"], WorkerProcess(db.spec))
            event = next(event for event in worker.run(task) if event.what in ("done", "lost"))
            with db.transaction():
                if event.what == "done":
                    desk.made_small(task, event)
                    done += 1
                else:
                    desk.lost({**task, "tries": 2}, event)
        for worker in cells.values():
            worker.close()
        with understood(db.path):
            kept = cover(db)
        files.write_json(folder / "corpus.json", {"schema": "refnum.corpus/1", "model": db.spec.model, "cases": kept})
    db.close()
    return done, len(kept)
