"""Join campaigns with the same targets and model, e.g. from several machines or with several seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .database import FILE, Database, create, understood
from .errors import ConflictError, UnlikeCampaignError
from .shards import address_of

COLUMNS = "kind, level, finding, words, worker, device, state, outcome, seen, record, replay, recipe"


def merge(into: Path, folders: Sequence[Path]) -> Database:
    """Make a campaign of all finished shards of other campaigns, each once, with findings and workers.

    Raises UnlikeCampaignError for campaigns of another model, other subjects or other shards, ConflictError when a
    shard has two results that differ, CampaignError when `into` has a campaign already.
    """
    sources = [Database(folder / FILE, readonly=True) for folder in folders]
    first = sources[0]
    for source in sources[1:]:
        if source.get("likeness") != first.get("likeness"):
            raise UnlikeCampaignError(
                f"{source.path.parent} and {first.path.parent} judged other subjects, operations or sizes, or with "
                f"another model; only like campaigns can be merged."
            )
    merged = create(into, first.spec, sources=json.dumps([str(folder) for folder in folders]))
    seconds = 0.0
    for source in sources:
        with understood(source.path), merged.transaction():
            _take(merged, source)
            seconds += float(source.get("seconds", "0"))
    with merged.transaction():
        merged.put("seconds", seconds)
        merged.put("end", "merged")
    return merged


def _take(merged: Database, source: Database) -> None:
    for row in source.rows("SELECT * FROM workers"):
        merged.raw.execute("INSERT OR IGNORE INTO workers (key, identity, joined, left, words) VALUES (?, ?, ?, ?, ?)",
                           (row["key"], row["identity"], row["joined"], row["left"], row["words"]))  # fmt: skip
    numbers: dict[int, int] = {}
    for row in source.raw.execute("SELECT * FROM shards WHERE state = 'done' ORDER BY id"):
        address = address_of(row)
        key = (str(address.seed), address.target, address.stratum, address.number)
        merged.plan(row["round"], [address])
        query = "SELECT id, state, digest FROM shards WHERE seed = ? AND target = ? AND stratum = ? AND number = ?"
        have = merged.rows(query, key)[0]
        if have["state"] == "done" and have["digest"] != row["digest"]:
            raise ConflictError(f"Shard {address} has the result {have['digest'][:16]} in one campaign and "
                                f"{row['digest'][:16]} in {source.path.parent}.")  # fmt: skip
        numbers[row["id"]] = have["id"]
        merged.finish(have["id"], row["worker"], json.loads(row["result"]))
    for row in source.rows("SELECT * FROM findings"):
        if row["shard"] in numbers:
            merged.raw.execute(
                f"INSERT OR IGNORE INTO findings (shard, number, target, {COLUMNS}) VALUES ({', '.join('?' * 15)})",
                (numbers[row["shard"]], row["number"], row["target"], *(row[name] for name in COLUMNS.split(", "))),
            )
