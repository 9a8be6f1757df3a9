"""The database of a campaign: SQLite with a write-ahead log, one writer, and one transaction a step.

A shard is `planned`, `launched`, `held` (a fault in it waits for confirmation) or `done`. Each result counts once: a
second result of a finished shard is ignored. Per-target sums, the corpus and the seal over all rows are updated in the
transaction that writes the results, so they always agree with the results.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ...reports import files
from .errors import CampaignError, DiskFullError
from .seal import KEY, TABLES, Seal, total
from .shards import Address, address_of
from .spec import Spec

FILE = "campaign.sqlite"
VERSION = 3
SUMS = ("shards", "cases", "compared", "failing", "faults", "unsupported", "undeclared")

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE targets (name TEXT PRIMARY KEY, shards INT DEFAULT 0, cases INT DEFAULT 0, compared INT DEFAULT 0,
    failing INT DEFAULT 0, faults INT DEFAULT 0, unsupported INT DEFAULT 0, undeclared INT DEFAULT 0,
    seconds REAL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE shards (id INTEGER PRIMARY KEY, seed TEXT NOT NULL, target TEXT NOT NULL, stratum TEXT NOT NULL,
    number INT NOT NULL, round INT NOT NULL, state TEXT NOT NULL DEFAULT 'planned', lost INT DEFAULT 0,
    worker TEXT, launched REAL, finished REAL, digest TEXT, result TEXT, UNIQUE (seed, target, stratum, number));
CREATE INDEX shards_by_state ON shards (state, id) WHERE state != 'done';
CREATE INDEX shards_by_round ON shards (round);
CREATE TABLE corpus (target TEXT, point TEXT, hits INT, elements INT, shard INT, number INT, cases INT, failing INT,
    PRIMARY KEY (target, point)) WITHOUT ROWID;
CREATE TABLE findings (id INTEGER PRIMARY KEY, shard INT, number INT, target TEXT, kind TEXT, level INT, finding TEXT,
    words TEXT, worker TEXT, device TEXT, state TEXT NOT NULL DEFAULT 'reported', outcome TEXT, seen TEXT,
    record TEXT, replay TEXT, recipe TEXT, UNIQUE (shard, number, kind));
CREATE TABLE workers (key TEXT PRIMARY KEY, identity TEXT, joined REAL, left REAL, words TEXT, shards INT DEFAULT 0,
    cases INT DEFAULT 0, compared INT DEFAULT 0, seconds REAL DEFAULT 0);
CREATE TABLE sessions (id INTEGER PRIMARY KEY, started REAL, ended REAL, seconds REAL DEFAULT 0, argv TEXT,
    workers INT, words TEXT);
"""

STORED = {
    "TEXT": ("text", "null"), "REAL": ("real", "null"), "INT": ("integer", "null"), "INTEGER": ("integer", "null"),
}  # fmt: skip
"""Declared type of a column -> what SQLite may have stored there, which takes any type in any column."""


class Database:
    """The database of one campaign. Only the coordinator writes; there may be any number of readers."""

    def __init__(self, path: Path, readonly: bool = False) -> None:
        if not path.is_file():
            raise CampaignError(f"{path.parent} holds no campaign: there is no {path.name}; start one with "
                                f"`refnum fuzz run {path.parent}`.")  # fmt: skip
        self.path = path
        self.raw = sqlite3.connect(f"file:{path}?mode={'ro' if readonly else 'rw'}", uri=True, isolation_level=None,
                                   timeout=60.0)  # fmt: skip
        self.raw.row_factory = sqlite3.Row
        with told(path):
            self.raw.execute("PRAGMA synchronous = FULL")  # a launch is on the disk before a worker sees it
            self.raw.execute("PRAGMA trusted_schema = OFF")
            self.raw.execute("BEGIN")  # one state of it, whoever writes meanwhile
            _check(path, self.raw)
            self.raw.execute("COMMIT")
            self.seal = None if readonly else Seal(self.raw)
        with understood(path):
            self.spec = Spec.from_json(self.get("spec"))

    def get(self, key: str, default: str = "") -> str:
        """Return an entry of `meta`."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else default

    def put(self, key: str, value: Any) -> None:
        """Write an entry of `meta`."""
        self.raw.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                         (key, str(value)))  # fmt: skip

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction; DiskFullError when the disk is full, after which everything committed earlier remains."""
        with told(self.path):
            assert self.seal is not None, "this connection only reads"
            self.raw.execute("BEGIN IMMEDIATE")
            self.seal.begin()
            try:
                yield
                self.seal.write()
                self.raw.execute("COMMIT")
            except BaseException:
                if self.raw.in_transaction:
                    self.raw.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a query, with columns by number or by name."""
        with told(self.path):
            return self.raw.execute(query, values).fetchall()

    def plan(self, number: int, addresses: Iterable[Address]) -> None:
        """Write the shards of a round; existing shards stay unchanged."""
        self.raw.executemany(
            "INSERT OR IGNORE INTO shards (seed, target, stratum, number, round) VALUES (?, ?, ?, ?, ?)",
            [(str(a.seed), a.target, a.stratum, a.number, number) for a in addresses],
        )

    def launch(self, shards: Iterable[int]) -> None:
        """Record that shards are about to be launched."""
        now = time.time()
        self.raw.executemany("UPDATE shards SET state = 'launched', launched = ? WHERE id = ? AND state = 'planned'",
                             [(now, shard) for shard in shards])  # fmt: skip

    def take_back(self) -> None:
        """Plan again the shards that an earlier session launched; shards with unconfirmed faults stay held."""
        self.raw.execute("UPDATE shards SET state = 'planned' WHERE state = 'launched'")

    def finish(self, shard: int, worker: str, result: Mapping[str, Any]) -> bool:
        """Record a shard's result once; return whether it was new."""
        text = json.dumps(result, separators=(",", ":"), sort_keys=True)
        changed = self.raw.execute(
            "UPDATE shards SET state = 'done', worker = ?, finished = ?, digest = ?, result = ? "
            "WHERE id = ? AND state != 'done'",
            (worker, time.time(), result["digest"], text, shard),
        ).rowcount
        if changed:
            row = self.raw.execute("SELECT * FROM shards WHERE id = ?", (shard,)).fetchone()
            self.add(row["target"], shard, result)
            self.raw.execute(
                "UPDATE workers SET shards = shards + 1, cases = cases + ?, compared = compared + ?, "
                "seconds = seconds + ? WHERE key = ?",
                (result["cases"], result["compared"], result["seconds"], worker),
            )
        return bool(changed)

    def add(self, target: str, shard: int, result: Mapping[str, Any]) -> None:
        """Add a result to its target's sums and to the corpus."""
        self.raw.execute("INSERT OR IGNORE INTO targets (name) VALUES (?)", (target,))
        sums = {**result, "shards": 1, "faults": int(result["fault"] is not None)}
        self.raw.execute(
            f"UPDATE targets SET {', '.join(f'{name} = {name} + ?' for name in SUMS)}, seconds = seconds + ? "
            "WHERE name = ?",
            (*(sums[name] for name in SUMS), result["seconds"], target),
        )
        self.raw.executemany(
            "INSERT INTO corpus VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (target, point) DO UPDATE SET "
            "hits = hits + excluded.hits, cases = cases + excluded.cases, failing = failing + excluded.failing, "
            "shard = CASE WHEN excluded.elements < elements THEN excluded.shard ELSE shard END, "
            "number = CASE WHEN excluded.elements < elements THEN excluded.number ELSE number END, "
            "elements = min(elements, excluded.elements)",
            [(target, point, hits, elements, shard, number, cases, failing)
             for point, (hits, elements, number, cases, failing) in result["points"].items()],
        )  # fmt: skip

    def report(self, shard: int, target: str, entry: Mapping[str, Any], worker: str, device: str) -> None:
        """Record an unconfirmed finding; an existing finding stays unchanged."""
        self.raw.execute(
            "INSERT OR IGNORE INTO findings "
            "(shard, number, target, kind, level, finding, words, worker, device, recipe) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (shard, entry["number"], target, entry["kind"], entry["level"], entry["finding"], entry["words"], worker,
             device, json.dumps(entry.get("recipe"))),
        )  # fmt: skip

    def joined(self, key: str, identity: Mapping[str, Any]) -> None:
        """Record the identity of a worker."""
        self.raw.execute("INSERT OR IGNORE INTO workers (key, identity, joined) VALUES (?, ?, ?)",
                         (key, json.dumps(identity, sort_keys=True), time.time()))  # fmt: skip

    def left(self, key: str, words: str) -> None:
        """Record that a worker is gone, with the reason."""
        self.raw.execute("UPDATE workers SET left = ?, words = ? WHERE key = ? AND left IS NULL",
                         (time.time(), words, key))  # fmt: skip

    def digest(self) -> str:
        """Return SHA-256 over all finished shards in the order of their addresses: equal for equal evidence."""
        state = hashlib.sha256()
        rows = self.raw.execute("SELECT seed, target, stratum, number, digest FROM shards WHERE state = 'done' "
                                "ORDER BY seed, target, stratum, number")  # fmt: skip
        for row in rows:
            state.update(json.dumps(list(row)).encode() + b"\n")
        return state.hexdigest()

    def address(self, shard: int) -> Address:
        """Return a shard's address."""
        return address_of(self.rows("SELECT * FROM shards WHERE id = ?", (shard,))[0])

    def close(self) -> None:
        """Close the connection; the last connection removes the log."""
        self.raw.close()


def create(folder: Path, spec: Spec, **meta: Any) -> Database:
    """Make the database of a new campaign; CampaignError when the folder has one already."""
    path = folder / FILE
    if path.exists():
        raise CampaignError(f"{folder} holds a campaign already; go on with `refnum fuzz resume {folder}`.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CampaignError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    fresh = path.with_name(f".{FILE}.new")
    fresh.unlink(missing_ok=True)
    raw = sqlite3.connect(fresh, isolation_level=None)
    with told(fresh):
        raw.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        raw.executemany("INSERT INTO meta VALUES (?, ?)", [("spec", spec.to_json()), ("likeness", spec.likeness()),
                        *((key, str(value)) for key, value in meta.items())])  # fmt: skip
        raw.executemany("INSERT OR IGNORE INTO targets (name) VALUES (?)", [(t.name,) for t in spec.targets])
        raw.execute("INSERT INTO meta VALUES (?, ?)", (KEY, total(raw)))
        raw.execute("PRAGMA journal_mode = WAL")  # kept in the file, for every connection to come
    raw.close()
    fresh.rename(path)
    return Database(path)


def _check(path: Path, raw: sqlite3.Connection) -> None:
    """Raise CampaignError for a database with another form or other tables, damaged, or changed by another program."""
    stored = raw.execute("PRAGMA user_version").fetchone()[0]
    if stored != VERSION:
        raise CampaignError(f"{path} is a campaign of form {stored}; this version reads form {VERSION}.")
    if _tables(raw) != _own_tables():
        raise CampaignError(f"{path} is no campaign: its tables are not those of form {VERSION}.")
    if raw.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
        raise CampaignError(f"{path} is damaged: SQLite's check of its integrity fails.")
    kept = raw.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    if kept is None or kept[0] != total(raw):
        raise CampaignError(f"{path}: its rows do not give its seal; something other than refnum changed them.")
    for table in TABLES:
        for _, column, declared, *_rest in raw.execute(f"PRAGMA table_info({table})"):
            types = {row[0] for row in raw.execute(f"SELECT DISTINCT typeof({column}) FROM {table}")}
            for other in sorted(types.difference(STORED[declared])):
                raise CampaignError(f"{path}: a row of {table} holds {other} as {column}; allowed is {declared}.")


def _tables(raw: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return sorted(tuple(map(str, row)) for row in raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@functools.cache
def _own_tables() -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(":memory:")) as raw:
        raw.executescript(SCHEMA)
        return _tables(raw)


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn errors caused by rows that no campaign writes into CampaignError: the seal shows changes, not validity."""
    with files.understood(path, CampaignError):
        yield


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into named ones."""
    try:
        yield
    except sqlite3.OperationalError as error:
        words = " ".join(str(error).split())
        if "full" in words or "disk I/O" in words:
            raise DiskFullError(f"No room to write {path} ({words}); every committed shard is kept: "
                                f"make room and run `refnum fuzz resume {path.parent}`.") from error  # fmt: skip
        raise CampaignError(f"Cannot use {path}: {words}.") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: SQLite quotes what it cannot read
        words = " ".join(str(error).split())  # SQLite quotes what it cannot read, lines and all
        raise CampaignError(f"{path} is no readable campaign: {words}.") from error
