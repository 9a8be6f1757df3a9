"""What the tests of campaigns share: small specs, a right subject file, and the command line in a process."""

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

from refnum.conformance.commands.fuzz.context import WorkerContext
from refnum.conformance.commands.fuzz.coordinator import Coordinator, Limits
from refnum.conformance.commands.fuzz.database import FILE, Database, create
from refnum.conformance.commands.fuzz.executors.local import LocalExecutor
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.commands.fuzz.work import TASKS
from refnum.conformance.commands.fuzz.worker_process import Event

PLANTED = str(Path(__file__).with_name("planted_cpu.py"))
RIGHT = """
import refnum

def mxfp4_to_fp8(packed, scales, scale):
    return refnum.mxfp4_to_fp8(packed, scales, scale)

def decode_e4m3(codes, dtype):
    import refnum
    return refnum.decode_e4m3(codes, dtype)
"""


def right_subject(folder):
    """Write a subject file that calls the model and return its name."""
    path = folder / "right.py"
    path.write_text(RIGHT)
    return str(path)


class Here:
    """An executor without processes, for subjects that do no harm: results come back in an order that is drawn."""

    def __init__(self, spec, places=1):
        self.context, self.places, self.flying, self.dice = WorkerContext(spec), places, [], random.Random(places)

    def free(self, device):
        return self.places - len(self.flying)

    def submit(self, task, fresh=False, avoid="", only=""):
        self.flying.append(task)

    def poll(self, seconds):
        task = self.flying.pop(self.dice.randrange(len(self.flying)))
        return [Event("done", "here", "cpu", task, TASKS[task["kind"]](self.context, task, lambda *_: None))]

    def health(self):
        return {"up": 1, "starting": 0}

    def close(self):
        pass


def campaign(folder, subjects, limit, workers=0, executor=None, **more):
    """Run a campaign up to a number of cases and return (its end, its database).

    Without worker processes its subjects have none of their own either.
    """
    options = {"cases": 5, "elements": 4096, "isolate": None if workers else False, **more}
    spec = make_spec([subjects] if isinstance(subjects, str) else subjects, **options)
    create(folder, spec).close()
    return go_on(folder, limit, workers, executor)


def go_on(folder, cases, workers=0, executor=None):
    """Resume a campaign with so many worker processes; with none its shards are judged in this process."""
    db = Database(folder / FILE)
    own = executor or (LocalExecutor(db.spec, workers) if workers else Here(db.spec))
    try:
        end = Coordinator(folder, db, own, Limits(cases=cases)).run()
    finally:
        own.close()
    return end, db


def command(*words, **more):
    """Start `refnum fuzz` in a process of its own group."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen([sys.executable, "-m", "refnum.conformance.cli", "fuzz", *map(str, words)], env=environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            **more)  # fmt: skip


def done(folder):
    """Return the finished shards of a campaign that nobody works on, after checking that it holds together."""
    raw = sqlite3.connect(folder / FILE)
    assert raw.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    shards = raw.execute("SELECT seed, target, stratum, number, digest FROM shards WHERE state = 'done'").fetchall()
    assert len({shard[:4] for shard in shards}) == len(shards)
    counted = raw.execute("SELECT coalesce(sum(shards), 0) FROM targets").fetchone()[0]
    assert counted == len(shards)  # each was added to the sums once
    raw.close()
    return set(shards)
