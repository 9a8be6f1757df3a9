"""One session of work on a campaign: choose the executor, show progress, and shut down cleanly."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.live import Live

from refnum.errors import ArgumentError

from ...reports import terminal
from ...reports.gpus import chosen_gpus, smi
from .coordinator import Coordinator, Limits
from .database import FILE, Database, understood
from .errors import CampaignError
from .executors import Executor
from .executors.cluster import DaskExecutor, exposed
from .executors.local import LocalExecutor
from .spec import Spec
from .status import Watcher, render

UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
REDRAW = 1.0


def duration(text: str) -> float:
    """Return seconds of `8h`, `90m`, `30s`, `1h30m` or a bare number of seconds. Raises ArgumentError."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip().lower().replace(" ", ""):
        raise ArgumentError(f"{text!r} is no duration; write 8h, 90m, 30s or 1h30m.")
    total = 0.0
    for number, unit in parts:
        if unit and unit not in UNITS:
            raise ArgumentError(f"{text!r} has the unit {unit!r}; units are {', '.join(UNITS)}.")
        total += float(number) * UNITS.get(unit, 1)
    return total


def devices(text: str, spec: Spec) -> list[str]:
    """Return the GPUs to use: `all`, `none`, or indices and UUIDs; ArgumentError when one is needed and absent."""
    if "gpu" not in spec.devices or text == "none":
        if "gpu" in spec.devices:
            raise ArgumentError("--gpus none leaves no worker for the subjects that need a GPU.")
        return []
    return [card["uuid"] for card in chosen_gpus(text)]


def executor_for(
    spec: Spec, workers: int | None, gpus: str, scheduler: str | None, warn: Callable[[str], None]
) -> Executor:
    """Return the executor of a session: a Dask cluster's when there is a scheduler, else this machine's."""
    if scheduler is not None:
        if exposed(scheduler):
            warn(f"{scheduler} is plain text beyond this machine: anyone who reaches it can run code on your workers. "
                 f"Use tls:// with Dask's distributed.comm.tls settings.")  # fmt: skip
        return DaskExecutor(spec, scheduler)
    cpus = len(os.sched_getaffinity(0)) if workers is None else workers
    places = devices(gpus, spec)
    if "cpu" in spec.devices and not cpus:
        raise ArgumentError("--workers 0 leaves no worker for the subjects that run on the CPU.")
    return LocalExecutor(spec, cpus if "cpu" in spec.devices else 0, places)


def work(
    folder: Path, limits: Limits, workers: int | None = None, gpus: str = "all", scheduler: str | None = None,
    quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Work on a campaign until a limit is reached or Ctrl-C, and return its summary."""
    db = Database(folder / FILE)
    executor = executor_for(db.spec, workers, gpus, scheduler, lambda words: print(f"refnum: {words}", file=sys.stderr))
    watcher, err = Watcher(db), terminal.console(stderr=True)
    places = sum(executor.free(device) for device in db.spec.devices)
    with db.transaction():
        session = db.raw.execute("INSERT INTO sessions (started, argv, workers) VALUES (?, ?, ?)",
                                 (time.time(), " ".join(sys.argv[1:]), places)).lastrowid  # fmt: skip
    words, begun = "interrupted", time.time()
    live = Live(console=err, refresh_per_second=4, transient=True) if not quiet and err.is_terminal else None
    state = {"at": 0.0, "compared": 0, "time": time.monotonic(), "rate": 0.0}

    def look() -> None:
        now = time.monotonic()
        if live is None or now - state["at"] < REDRAW:
            return
        summary = watcher.summary()
        compared = summary["totals"].get("compared", 0)
        if state["at"]:
            fresh = (compared - state["compared"]) / (now - state["at"])
            state["rate"] += (fresh - state["rate"]) * (0.3 if state["rate"] else 1.0)
        state["at"], state["compared"] = now, compared
        live.update(render(summary, executor.health(), state["rate"] or None))

    with understood(db.path):
        coordinator = Coordinator(folder, db, executor, limits, look)
    start = time.monotonic()
    try:
        if live is not None:
            live.start()
        words = coordinator.run()
    except KeyboardInterrupt:
        pass
    finally:
        if live is not None:
            live.stop()
        executor.close()
        _part(db, begun)
        _leave(db, session, time.monotonic() - start, words)
    summary = watcher.summary()
    db.close()
    return summary


def _part(db: Database, since: float) -> None:
    """Record the final ECC counts, clocks and temperature of the device of each worker of this machine."""
    cards = {card["uuid"]: card for card in smi()}
    try:
        with db.transaction():
            for row in db.rows("SELECT key, identity FROM workers WHERE joined >= ?", (since,)):
                who = json.loads(row["identity"])
                if who["host"] == platform.node() and who["device"] in cards:
                    who["card_at_end"] = cards[who["device"]]
                    db.raw.execute("UPDATE workers SET identity = ? WHERE key = ?",
                                   (json.dumps(who, sort_keys=True), row["key"]))  # fmt: skip
            db.raw.execute("UPDATE workers SET left = ?, words = 'the session ended' WHERE left IS NULL "
                           "AND joined >= ?", (time.time(), since))  # fmt: skip
    except CampaignError:
        pass  # the disk is full: what matters is said by the error on its way


def _leave(db: Database, session: int | None, seconds: float, words: str) -> None:
    """Record how the session ended, unless the disk is full."""
    try:
        with db.transaction():
            db.raw.execute("UPDATE sessions SET ended = ?, seconds = ?, words = ? WHERE id = ?",
                           (time.time(), round(seconds, 3), words, session))  # fmt: skip
    except CampaignError:
        pass  # the disk is full: what matters is said by the error on its way
