"""The seal of a campaign: one number over all rows of its database, updated by each transaction of refnum.

The number of a row is the first 128 bits of SHA-256 over its table and values; the seal is the sum of the numbers.
Triggers on refnum's own connections add new rows and subtract removed ones, so a row changed by another program
disagrees with the seal. The seal is not a signature: anyone who runs this code can make one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

TABLES = ("meta", "targets", "shards", "corpus", "findings", "workers", "sessions")
KEY = "seal"
"""Its entry in `meta`, the only row that it does not cover."""
_MODULUS = 1 << 128
_EVENTS = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
_SIGN = {"OLD": -1, "NEW": 1}


def number_of(table: str, *values: Any) -> int:
    """Return the number of one row. 2 and 2.0 are the same value, as in a REAL column."""
    plain = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    return int.from_bytes(hashlib.sha256(repr((table, plain)).encode("utf-8", "surrogatepass")).digest()[:16], "big")


def total(raw: sqlite3.Connection) -> str:
    """Return the seal that the rows give: 32 hexadecimal digits."""
    found = 0
    for table in TABLES:
        covered = f" WHERE key != '{KEY}'" if table == "meta" else ""
        found += sum(number_of(table, *row) for row in raw.execute(f"SELECT * FROM {table}{covered}"))
    return f"{found % _MODULUS:032x}"


class Seal:
    """Follows the changes of one connection: `begin` a transaction, `write` the seal before it is committed."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw, self.change = raw, 0
        raw.execute("PRAGMA temp_store = MEMORY")
        raw.create_function("refnum_sealed", -1, self._add)
        for table in TABLES:
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            for event, sides in _EVENTS.items():
                raw.execute(_trigger(table, columns, event, sides))

    def _add(self, sign: int, table: str, *values: Any) -> None:
        self.change += sign * number_of(table, *values)

    def begin(self) -> None:
        """Forget the changes of a transaction that was rolled back."""
        self.change = 0

    def write(self) -> None:
        """Update the seal by the changes of this transaction; other writers wait for the transaction."""
        if self.change:
            old = self.raw.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()[0]
            new = f"{(int(old, 16) + self.change) % _MODULUS:032x}"
            self.raw.execute("UPDATE meta SET value = ? WHERE key = ?", (new, KEY))
        self.change = 0


def _trigger(table: str, columns: list[str], event: str, sides: tuple[str, ...]) -> str:
    when = f"WHEN {sides[0]}.key != '{KEY}' " if table == "meta" else ""
    calls = "".join(
        f"SELECT refnum_sealed({_SIGN[side]}, '{table}', {', '.join(f'{side}.{name}' for name in columns)}); "
        for side in sides
    )
    return f"CREATE TEMP TRIGGER sealed_{table}_{event} AFTER {event} ON main.{table} {when}BEGIN {calls}END"
