"""How many workers one coordinator feeds: the real coordinator and database over workers that only pretend to work.

A pretended worker hands back a real shard's result at once, so what is measured is all that is not judging: planning,
commits, launches, results, the summary, resuming, merging. Run: python -m benchmarks.coordinator [--shards 20000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import deque
from pathlib import Path

from refnum.conformance.commands.fuzz.context import WorkerContext
from refnum.conformance.commands.fuzz.coordinator import Coordinator, Limits
from refnum.conformance.commands.fuzz.database import FILE, Database, create
from refnum.conformance.commands.fuzz.merge import merge
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.commands.fuzz.status import Watcher
from refnum.conformance.commands.fuzz.work import shard
from refnum.conformance.commands.fuzz.worker_process import Event

WORKERS = (10, 100, 1000)
BATCH = 64
"""Results that arrive together, at most: at 1000 workers and ten-second shards a poll of 0.2 s brings 20."""


class Pretended:
    """Workers that finish every task at once with the result of a shard judged before."""

    def __init__(self, workers: int, results: dict[str, dict]) -> None:
        self.workers, self.results = workers, results
        self.flying: deque[dict] = deque()

    def free(self, device: str) -> int:
        return self.workers - len(self.flying)

    def submit(self, task, fresh=False, avoid="", only="") -> None:
        self.flying.append(task)

    def poll(self, seconds: float) -> list[Event]:
        count = min(BATCH, len(self.flying))
        tasks = [self.flying.popleft() for _ in range(count)]
        return [Event("done", "pretended", "none", task, self.results[task["target"]]) for task in tasks]

    def health(self) -> dict[str, int]:
        return {"up": self.workers, "starting": 0}

    def close(self) -> None:
        pass


def real_results(spec) -> dict[str, dict]:
    """Judge one real shard of every target, so that results have their true size."""
    context = WorkerContext(spec)
    task = {"seed": 0, "stratum": "mixed", "number": 0}
    return {target.name: shard(context, {**task, "target": target.name}, _silent) for target in spec.targets}


def _silent(number: int, warming: bool = False) -> None:
    """Nobody listens to which case begins."""


def measure(folder: Path, spec, results, workers: int, shards: int) -> dict[str, float]:
    create(folder, spec).close()
    db = Database(folder / FILE)
    start = time.perf_counter()
    Coordinator(folder, db, Pretended(workers, results), Limits(cases=shards * spec.cases)).run()
    run = time.perf_counter() - start
    start = time.perf_counter()
    Watcher(db).summary()
    summary = time.perf_counter() - start
    start = time.perf_counter()
    Coordinator(folder, db, Pretended(workers, results), Limits(cases=shards * spec.cases)).run()
    resume = time.perf_counter() - start
    start = time.perf_counter()
    digest = db.digest()
    digest_time = time.perf_counter() - start
    db.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    start = time.perf_counter()
    merge(folder.with_name(folder.name + "-merged"), [folder, folder]).close()
    merged = time.perf_counter() - start
    assert digest
    return {"workers": workers, "shards": shards, "shards/s": shards / run, "bytes a shard":
            (folder / FILE).stat().st_size / shards, "summary s": summary, "resume s": resume, "digest s": digest_time,
            "merge shards/s": 2 * shards / merged}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=20000)
    parser.add_argument("--subject", default="host")
    wanted = parser.parse_args()
    spec = make_spec([wanted.subject], cases=25, elements=1 << 13, round_shards=4 * max(WORKERS))
    results = real_results(spec)
    print(f"{len(spec.targets)} targets, {spec.cases} cases a shard")
    room = Path(tempfile.mkdtemp(prefix="refnum-coordinator-"))
    try:
        rows = [measure(room / str(workers), spec, results, workers, wanted.shards) for workers in WORKERS]
    finally:
        shutil.rmtree(room)
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{value:.4g}" for value in row.values()) + " |")


if __name__ == "__main__":
    main()
