"""Campaigns from strangers: whatever their database holds, a command succeeds or says one sentence, in bounded time."""

import contextlib
import shutil
import sqlite3
import time

import pytest
from fuzz_tools import campaign, right_subject
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.fuzz.database import FILE, Database
from refnum.conformance.commands.fuzz.errors import CampaignError
from refnum.conformance.commands.fuzz.seal import KEY, TABLES, total

SECONDS = 10.0
"""No command may take longer on a campaign as small as these."""
VERBS = (("status", "--holes"), ("export", "--out", "vectors"), ("minimise", "--trust"),
         ("resume", "--cases", "10", "--workers", "1", "--trust"))  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a campaign of four shards."""
    room = tmp_path_factory.mktemp("whole")
    campaign(room / "camp", right_subject(room), 8, cases=2, elements=256)[1].close()
    return room / "camp"


def copied(whole, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(whole / FILE) as source, sqlite3.connect(folder / FILE) as target:
        source.backup(target)
    return folder


def changed(folder, *statements, reseal=False):
    raw = sqlite3.connect(folder / FILE, isolation_level=None)
    for statement, values in statements:
        with contextlib.suppress(sqlite3.IntegrityError):  # a value that the table itself refuses
            raw.execute(statement, values)
    if reseal:
        raw.execute("UPDATE meta SET value = ? WHERE key = ?", (total(raw), KEY))
    raw.close()
    return folder


def runs_or_says_one_sentence(folder, verb, *words):
    began = time.monotonic()
    result = CliRunner().invoke(app, ["fuzz", verb, *([] if verb == "merge" else [str(folder)]), *map(str, words)])
    assert time.monotonic() - began < SECONDS
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    if result.exit_code == 2:
        assert result.stderr.startswith("refnum: ") and result.stderr.count("\n") == 1
    return result


SPOILT = [
    "UPDATE shards SET state = 'planned' WHERE id = 1",
    "UPDATE shards SET state = 'held' WHERE id = (SELECT max(id) FROM shards)",
    "UPDATE shards SET result = NULL WHERE id = 1",
    "UPDATE shards SET result = '{' WHERE id = 1",
    "UPDATE shards SET result = replace(result, '\"failing\":0', '\"failing\":1') WHERE id = 1",
    "UPDATE shards SET digest = 'x' WHERE id = 1",
    "UPDATE shards SET seed = x'' WHERE id = 1",
    "UPDATE shards SET target = 'nobody' WHERE id = 1",
    "UPDATE shards SET round = 1000000000000 WHERE id = 1",
    "DELETE FROM shards WHERE id = 1",
    "DELETE FROM shards",
    "UPDATE targets SET cases = cases + 1000",
    "UPDATE targets SET name = 'nobody' WHERE name = (SELECT name FROM targets)",
    "UPDATE targets SET failing = 'many'",
    "DELETE FROM targets",
    "UPDATE corpus SET hits = hits + 1",
    "UPDATE corpus SET shard = 99999",
    "UPDATE meta SET value = '{}' WHERE key = 'spec'",
    "UPDATE meta SET value = '[1]' WHERE key = 'spec'",
    "UPDATE meta SET value = 'null' WHERE key = 'spec'",
    "UPDATE meta SET value = replace(value, '\"seed\":0', '\"seed\":\"x\"') WHERE key = 'spec'",
    "UPDATE meta SET value = replace(value, 'mxfp4_to_fp8', 'no_such_operation') WHERE key = 'spec'",
    "UPDATE meta SET value = 'soon' WHERE key = 'seconds'",
    "DELETE FROM meta WHERE key = 'spec'",
    "INSERT INTO meta VALUES ('limits', '[1, 2, 3]')",
    "INSERT INTO workers (key, identity) VALUES ('w', 'me')",
    "INSERT INTO findings (shard, number, target, kind, state, record) VALUES (99, 0, 'nobody', 'odd', 'done', '[]')",
    "INSERT INTO findings (shard, number, target, kind, state) VALUES (1, 0, 'nobody', 'mismatch', 'confirmed')",
    "UPDATE meta SET value = x'ff00fe' WHERE key = 'end'",
]


@pytest.mark.parametrize("statement", SPOILT)
def test_changed_rows_are_noticed(whole, tmp_path, monkeypatch, statement):
    monkeypatch.chdir(tmp_path)
    folder = changed(copied(whole, tmp_path / "camp"), (statement, ()))
    for verb in VERBS:
        result = runs_or_says_one_sentence(folder, *verb)
        assert result.exit_code == 2 and "do not give its seal" in result.stderr
    assert runs_or_says_one_sentence(folder, "merge", tmp_path / "both", folder).exit_code == 2


@pytest.mark.parametrize("statement", SPOILT)
def test_rows_under_a_new_seal_are_read_or_refused_in_one_sentence(whole, tmp_path, monkeypatch, statement):
    monkeypatch.chdir(tmp_path)
    folder = changed(copied(whole, tmp_path / "camp"), (statement, ()), reseal=True)
    for verb in (*VERBS[:3], ("merge", tmp_path / "both", folder)):
        runs_or_says_one_sentence(folder, *verb)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["PRAGMA user_version = 1"], "form 1; this version reads form 3"),
        (["DROP TABLE corpus"], "its tables are not those"),
        (["ALTER TABLE meta RENAME TO m",
          "CREATE VIEW meta AS WITH RECURSIVE n(key, value) AS (VALUES (1, 1) UNION ALL SELECT key + 1, 1 FROM n) "
          "SELECT * FROM n"], "its tables are not those"),
        (["CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM shards; END"], "its tables are not those"),
        (["DELETE FROM meta WHERE key = 'seal'"], "do not give its seal"),
    ],
)  # fmt: skip
def test_other_tables_are_no_campaign(whole, tmp_path, statements, words):
    folder = changed(copied(whole, tmp_path / "camp"), *((statement, ()) for statement in statements))
    assert words in runs_or_says_one_sentence(folder, "status").stderr


def test_damaged_files_are_told(whole, tmp_path):
    data = (copied(whole, tmp_path / "camp") / FILE).read_bytes()
    for number, spoilt in enumerate(
        [b"", b"x" * 4096, data[: len(data) // 2], data[:5000] + bytes(4096) + data[9096:], data[:100] + bytes(4000)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE).write_bytes(spoilt)
        assert runs_or_says_one_sentence(folder, "status").exit_code == 2


@settings(max_examples=40, deadline=None, database=None)
@given(st.data())
def test_any_byte_of_the_file_may_be_another(whole, tmp_path_factory, data):
    folder = copied(whole, tmp_path_factory.mktemp("bytes"))
    spoilt = bytearray((folder / FILE).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(spoilt) - 1), min_size=1, max_size=8)):
        spoilt[place] ^= data.draw(st.integers(1, 255))
    (folder / FILE).write_bytes(spoilt)
    runs_or_says_one_sentence(folder, "status")
    shutil.rmtree(folder)


WORDS = ["{}", "[]", "[" * 100_000, '{"digest":1}', "1e999", "NaN", "done", "planned"]
VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=20), st.binary(max_size=9),
    st.sampled_from(WORDS),
)  # fmt: skip


@pytest.mark.parametrize("name", ["failing", "faults"])
def test_any_number_of_failures_has_a_bound(whole, tmp_path, name):
    """The bound was found in a step a failure, a hundred times over: of 10^8 of them it did not end."""
    for number in (10**5, 10**8, 2**62):
        folder = copied(whole, tmp_path / str(number))
        changed(folder, (f"UPDATE targets SET cases = 2 * ?1, {name} = ?1", (number,)), reseal=True)
        assert runs_or_says_one_sentence(folder, "status", "--json").exit_code in (0, 1, 2)


@settings(max_examples=60, deadline=None, database=None)
@given(st.data())
def test_any_cell_may_hold_anything(whole, tmp_path_factory, data):
    room = tmp_path_factory.mktemp("cells")
    folder = copied(whole, room / "camp")
    raw = sqlite3.connect(folder / FILE)
    table = data.draw(st.sampled_from(TABLES))
    column = data.draw(st.sampled_from([row[1] for row in raw.execute(f"PRAGMA table_info({table})")]))
    raw.close()
    statement = (f"UPDATE OR IGNORE {table} SET {column} = ?", (data.draw(VALUES),))
    changed(folder, statement, reseal=data.draw(st.booleans()))
    verb = data.draw(st.sampled_from([("status", "--json"), ("merge", room / "both", folder), ("status", "--holes")]))
    runs_or_says_one_sentence(folder, *verb)
    shutil.rmtree(room)


def test_the_seal_follows_every_write_of_ours(whole, tmp_path):
    folder = copied(whole, tmp_path / "camp")
    db, other = Database(folder / FILE), Database(folder / FILE)
    for each in (db, other, db):
        with each.transaction():
            each.put("note", time.monotonic())
            each.raw.execute("UPDATE targets SET seconds = 2, cases = cases + 1.0")
    with pytest.raises(KeyError), db.transaction():
        db.put("note", "lost")
        raise KeyError
    with db.transaction():
        db.raw.execute("DELETE FROM sessions")
        db.raw.execute("INSERT OR IGNORE INTO targets (name) SELECT name FROM targets")
    Database(folder / FILE, readonly=True).close()
    db.raw.execute("UPDATE targets SET cases = 7")  # outside of a transaction of ours
    with pytest.raises(CampaignError, match="seal"):
        Database(folder / FILE, readonly=True)
