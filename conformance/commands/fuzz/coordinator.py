"""The coordinator plans rounds, commits and launches shards, collects results, and survives failures of workers.

There is one thread and one writer. Shards are committed before they are launched, and results are committed before
further shards are launched. If the coordinator is killed at any moment, `resume` continues from the database to the
same result.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...cases.levels import Outcome
from .budget import LAG, Budget
from .database import Database, understood
from .errors import CampaignError, WorkerError
from .executors import Executor
from .findings import SLOW, Desk
from .quarantine import TRIES, Action, after_loss
from .shards import Address, address_of, recipe_of
from .worker_process import HUNG, RESTARTED, Event

GRACE = 30.0
"""Seconds that work under way gets to end after time is up."""
LEFT_BEHIND = 3.0
"""Seconds in which the processes of a killed coordinator end."""
AHEAD = 2
"""Shards kept in hand a free place, so that planning is never waited for."""


@dataclass
class Limits:
    """The limits of a campaign: sampled cases and seconds of work, or None for no limit."""

    cases: int | None = None
    seconds: float | None = None


def _taken(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the campaign folder for one coordinator; CampaignError when another one has it.

    The processes of a coordinator that was killed hold it until they have ended too.
    """
    with open(folder / "lock", "w") as stream:
        end = time.monotonic() + LEFT_BEHIND
        while not _taken(stream):
            if time.monotonic() > end:
                raise CampaignError(f"Another process works on the campaign in {folder}.")
            time.sleep(0.05)
        yield


class Coordinator:
    """One session of work on a campaign. `run` returns a word: `complete`, `time is up`, or `nothing left`."""

    def __init__(
        self, folder: Path, db: Database, executor: Executor, limits: Limits, look: Callable[[], None] | None = None
    ) -> None:
        self.folder, self.db, self.executor, self.limits = folder, db, executor, limits
        self.look = look or (lambda: None)
        self.spec = db.spec
        self.targets = {target.name: target for target in self.spec.targets}
        self.desk = Desk(db, self.targets, folder.resolve())
        self.budget = Budget(self.spec)
        self.rounds = 0
        self.planned: dict[str, deque[dict[str, Any]]] = {"cpu": deque(), "gpu": deque()}
        self.pending: deque[dict[str, Any]] = deque()
        self.flying: dict[str, dict[str, Any]] = {}
        self.open_rounds: dict[int, int] = {}
        self.exhausted = False
        self.have = self._count()
        self.before = float(db.get("seconds", "0"))
        self.start = time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds of work in this and all earlier sessions."""
        return self.before + time.monotonic() - self.start

    def run(self) -> str:
        """Work until a limit is reached. Committed work remains after any error."""
        with locked(self.folder):
            with understood(self.db.path):
                self._take_up()
            ended: float | None = None
            while True:
                late = self.limits.seconds is not None and self.spent >= self.limits.seconds
                if late and ended is None:
                    ended = time.monotonic()
                if not late:
                    self._plan()
                self._launch(shards=not late)
                if not self.flying and (late or not (self.pending or any(self.planned.values()))):
                    return self._end("time is up" if late else "complete" if self._reached() else "nothing left")
                if ended is not None and time.monotonic() - ended > GRACE:
                    return self._end("time is up")
                events = self.executor.poll(0.2)
                with self.db.transaction():
                    for event in events:
                        self._apply(event)
                    self.db.put("seconds", round(self.spent, 3))
                self.look()

    def _end(self, words: str) -> str:
        with self.db.transaction():
            self.db.take_back()
            self.db.put("seconds", round(self.spent, 3))
            self.db.put("end", words)
        return words

    def _take_up(self) -> None:
        """Read the state that earlier sessions left: shards to run again, findings to confirm, rounds to add."""
        with self.db.transaction():
            self.db.take_back()
            self.db.put("end", "")
        last = self.db.rows("SELECT max(round) FROM shards")[0][0]
        while last is not None and self.rounds <= last:
            self._next_round()
        self.pending.extend(self.desk.waiting())
        for row in self.db.rows("SELECT round, count(*) AS n FROM shards WHERE state != 'done' GROUP BY round"):
            self.open_rounds[row["round"]] = row["n"]
        for row in self.db.rows("SELECT * FROM shards WHERE state = 'planned' ORDER BY id"):
            self._queue(row)
        confirming = {task["shard"] for task in self.pending if task["kind"] == "confirm"}
        for row in self.db.rows("SELECT * FROM shards WHERE state = 'held'"):
            if row["id"] not in confirming:  # its finding was settled just before the end
                self._queue(row)

    def _queue(self, row: Mapping[str, Any]) -> None:
        address = address_of(row)
        device = self.targets[address.target].device
        self.planned[device].append(
            {"id": f"shard {row['id']}", "kind": "shard", "shard": row["id"], "seed": address.seed,
             "target": address.target, "stratum": address.stratum, "number": address.number, "device": device}
        )  # fmt: skip

    def _next_round(self) -> list[Address]:
        """Make the next round, after adding the results of the round LAG rounds earlier."""
        if self.rounds >= LAG:
            rows = self.db.rows("SELECT target, stratum, result FROM shards WHERE round = ? AND state = 'done'",
                                (self.rounds - LAG,))  # fmt: skip
            self.budget.fold((row["target"], row["stratum"], json.loads(row["result"])) for row in rows)
        addresses = self.budget.plan(self.rounds)
        self.rounds += 1
        return addresses

    def _count(self) -> int:
        """Return the number of shards in the database. It reads all rows, so call it once a round."""
        return int(self.db.rows("SELECT count(*) FROM shards")[0][0])

    def _reached(self) -> bool:
        """Return whether enough shards are planned for the requested number of cases."""
        if self.limits.cases is None:
            return False
        return self.have * self.spec.cases >= self.limits.cases

    def _plan(self) -> None:
        """Plan further rounds while too few shards are waiting and the rounds that they depend on are done."""
        for device in self.spec.devices:
            while (
                len(self.planned[device]) < AHEAD * max(1, self.executor.free(device))
                and not self.exhausted
                and not self._reached()
                and not any(number <= self.rounds - LAG for number in self.open_rounds)
            ):
                if not self._write_round():
                    return

    def _write_round(self) -> bool:
        number, addresses = self.rounds, self._next_round()
        if not addresses:
            self.exhausted = True
            return False
        if self.limits.cases is not None:
            have = self.db.rows("SELECT count(*) FROM shards WHERE round < ?", (number,))[0][0]
            addresses = addresses[: -(-self.limits.cases // self.spec.cases) - have]
        with self.db.transaction():
            self.db.plan(number, addresses)
        rows = self.db.rows("SELECT * FROM shards WHERE round = ? AND state = 'planned' ORDER BY id", (number,))
        self.have = self._count()
        self.open_rounds[number] = len(rows)
        for row in rows:
            self._queue(row)
        return True

    def _launch(self, shards: bool) -> None:
        """Commit, then submit a task for each free place, findings first."""
        chosen: list[dict[str, Any]] = []
        for device in sorted(self.spec.devices):
            free = self.executor.free(device)
            for task in [task for task in self.pending if task["device"] == device][:free]:
                self.pending.remove(task)
                chosen.append(task)
                free -= 1
            while shards and free > 0 and self.planned[device]:
                chosen.append(self.planned[device].popleft())
                free -= 1
        if not chosen:
            return
        with self.db.transaction():
            self.db.launch(task["shard"] for task in chosen if task["kind"] == "shard")
            for task in chosen:
                if task["kind"] == "shard":
                    task["fault"] = self.desk.fault_of(task["shard"])
        for task in chosen:
            self.flying[task["id"]] = task
            self.executor.submit(task, task.get("fresh", False), task.get("avoid", ""), task.get("only", ""))

    def _apply(self, event: Event) -> None:
        """Apply one event; called inside a transaction."""
        if event.what == "joined":
            self.db.joined(event.worker, event.result)
        elif event.what == "left":
            self.db.left(event.worker, event.words)
        elif event.what == "unable":
            health = self.executor.health()
            if not health["up"] and not health["starting"]:
                raise WorkerError(f"No worker can be started: {event.words}.")
        elif event.what in ("done", "lost"):
            task = self.flying.pop(event.task.get("id", ""), None)
            if task is None:
                return  # a second copy of something that is settled
            if task["kind"] == "shard":
                self._shard_done(task, event) if event.what == "done" else self._shard_lost(task, event)
            elif event.what == "lost":
                self._after(task, self.desk.lost(task, event))
            elif task["kind"] == "confirm":
                self._after(task, self.desk.confirmed(task, event))
            else:
                self.desk.made_small(task, event)

    def _shard_done(self, task: dict[str, Any], event: Event) -> None:
        fault = event.result["fault"]
        if fault is not None and not task.get("fault"):
            slow = SLOW if fault["outcome"] == Outcome.TIMEOUT else ""
            self._suspect(task, event, {**fault, "kind": "fault", "level": 0, "finding": slow})
            return
        if self.db.finish(task["shard"], event.worker, event.result):
            for entry in event.result["failures"]:
                self.pending.extend(self.desk.report(task["shard"], task["target"], entry, event))
        number = self.db.rows("SELECT round FROM shards WHERE id = ?", (task["shard"],))[0][0]
        self.open_rounds[number] -= 1
        if not self.open_rounds[number]:
            del self.open_rounds[number]

    def _suspect(self, task: dict[str, Any], event: Event, entry: dict[str, Any]) -> None:
        """Hold a shard until the fault of one of its cases is confirmed."""
        follow = self.desk.report(task["shard"], task["target"], entry, event)
        if follow:
            self.db.raw.execute("UPDATE shards SET state = 'held' WHERE id = ?", (task["shard"],))
            self.pending.extend(follow)
            return
        self._again(task, self._losses(task) + 1)  # seen before and not confirmed then: another loss of this shard

    def _losses(self, task: Mapping[str, Any]) -> int:
        return int(self.db.rows("SELECT lost FROM shards WHERE id = ?", (task["shard"],))[0][0])

    def _again(self, task: Mapping[str, Any], losses: int) -> None:
        """Run a shard again; a shard lost too often ends at its last suspect case, as an intermittent fault."""
        self.db.raw.execute("UPDATE shards SET state = 'planned', lost = ? WHERE id = ?", (losses, task["shard"]))
        if losses >= TRIES:
            self.db.raw.execute("UPDATE findings SET outcome = 'flaky-fault', state = 'done' WHERE shard = ? "
                                "AND kind = 'fault' AND outcome = 'flaky'", (task["shard"],))  # fmt: skip
        row = self.db.rows("SELECT * FROM shards WHERE id = ?", (task["shard"],))[0]
        self._queue(row)

    def _shard_lost(self, task: dict[str, Any], event: Event) -> None:
        losses = self._losses(task) + (event.why != RESTARTED)
        action = after_loss(event, losses) if event.why != RESTARTED else Action.RETRY
        number = event.number or 0
        slow = SLOW if event.why == HUNG else ""
        entry = {"number": number, "kind": "fault", "level": 0, "finding": slow, "words": event.words,
                 "recipe": self._recipe(task, number)}  # fmt: skip
        if action is Action.CONFIRM:
            self._suspect(task, event, entry)
            return
        if action is Action.GIVE_UP:
            entry["words"] = f"{losses} workers were lost with this shard before a case of it began: {event.words}"
            self.desk.give_up(task["shard"], task["target"], entry, event)
        self._again(task, losses)

    def _recipe(self, task: Mapping[str, Any], number: int) -> dict[str, Any]:
        address = address_of(task)
        return recipe_of(self.spec, self.targets[address.target], address, number).to_json()

    def _after(self, task: Mapping[str, Any], follow: list[dict[str, Any]]) -> None:
        """Queue the tasks that follow a finding's task, and its shard once a fault in the shard is settled."""
        self.pending.extend(follow)
        settled = task["suspicion"]["kind"] == "fault" and not any(t["kind"] == "confirm" for t in follow)
        if task["kind"] == "confirm" and settled:
            if self.desk.row(task["find"])["outcome"] == "flaky":
                self._again(task, self._losses(task) + 1)
            else:
                self.db.raw.execute("UPDATE shards SET state = 'planned' WHERE id = ?", (task["shard"],))
                self._queue(self.db.rows("SELECT * FROM shards WHERE id = ?", (task["shard"],))[0])
