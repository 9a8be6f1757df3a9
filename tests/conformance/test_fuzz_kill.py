"""A campaign killed at random moments, or out of disk: nothing finished is lost, nothing counted twice."""

import fcntl
import random
import resource
import signal
import sqlite3
import threading
import time

import pytest
from fuzz_tools import campaign, command, done, go_on, right_subject

from refnum.conformance.commands.fuzz.database import FILE, Database, create
from refnum.conformance.commands.fuzz.errors import CampaignError, DiskFullError
from refnum.conformance.commands.fuzz.spec import make_spec

CASES = 300


def spec_of(tmp_path, **more):
    return make_spec([right_subject(tmp_path)], **{"cases": 5, "elements": 4096, "round_shards": 16, **more})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    _, db = campaign(folder / "camp", right_subject(folder), CASES, round_shards=16)
    return db.digest(), done(folder / "camp")


def wait_for(folder, process, shards):
    """Wait until so many shards are finished, or the process ends by itself."""
    raw = sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True)
    query = "SELECT count(*) FROM shards WHERE state = 'done'"
    while process.poll() is None and raw.execute(query).fetchone()[0] < shards:
        time.sleep(0.002)
    raw.close()


def killed_again_and_again(tmp_path, kills, seed):
    folder, dice = tmp_path / "camp", random.Random(seed)
    create(folder, spec_of(tmp_path)).close()
    finished, cut = set(), 0
    while cut < kills:
        process = command("resume", folder, "--trust", "--cases", CASES, "--workers", 2)
        share = (CASES // 5 - len(finished)) // (kills - cut + 1)
        wait_for(folder, process, len(finished) + dice.randint(0, max(1, 2 * share)))
        time.sleep(dice.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        cut += process.wait() == -signal.SIGKILL
        now = done(folder)
        assert finished <= now
        finished = now
        if len(now) * 5 >= CASES:  # it was done before all its kills: begin another one
            break
    return folder, cut


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_like_an_undisturbed_run(tmp_path, undisturbed, kills):
    left, number = kills, 0
    while left > 0:
        room = tmp_path / str(number)
        room.mkdir()
        folder, cut = killed_again_and_again(room, left, seed=number)
        end, db = go_on(folder, CASES, workers=2)
        assert end == "complete"
        # targets carry the subject's name, not its path, so that campaigns of both folders agree
        assert (db.digest(), done(folder)) == undisturbed
        left, number = left - cut, number + 1


def test_a_full_disk_ends_the_session_and_nothing_else(tmp_path, undisturbed, monkeypatch):
    folder = tmp_path / "camp"
    create(folder, spec_of(tmp_path)).close()
    original = Database.__init__

    def small(self, *args, **more):
        original(self, *args, **more)
        pages = self.raw.execute("PRAGMA page_count").fetchone()[0]
        self.raw.execute(f"PRAGMA max_page_count = {pages + 12}")

    monkeypatch.setattr(Database, "__init__", small)
    with pytest.raises(DiskFullError, match="every committed shard is kept"):
        go_on(folder, CASES)
    monkeypatch.undo()
    kept = done(folder)
    assert 0 < len(kept) < CASES // 5
    end, db = go_on(folder, CASES)
    assert end == "complete" and kept <= done(folder)
    assert (db.digest(), done(folder)) == undisturbed


def test_a_file_that_may_not_grow_is_told_in_one_sentence(tmp_path):
    folder = tmp_path / "camp"
    create(folder, spec_of(tmp_path)).close()
    room = 400_000

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    process = command("resume", folder, "--trust", "--cases", 100_000, "--workers", 1, preexec_fn=limit)
    words = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "every committed shard is kept" in words and "Traceback" not in words
    kept = done(folder)
    end, _ = go_on(folder, (len(kept) + 8) * 5)
    assert end == "complete" and kept < done(folder)


def test_two_coordinators_do_not_share_a_folder(tmp_path):
    from refnum.conformance.commands.fuzz.coordinator import locked

    create(tmp_path / "camp", spec_of(tmp_path)).close()
    with locked(tmp_path / "camp"), pytest.raises(CampaignError, match="Another process"):
        go_on(tmp_path / "camp", 10)


def test_a_torn_or_foreign_database_is_told(tmp_path):
    with pytest.raises(CampaignError, match="holds no campaign"):
        Database(tmp_path / FILE)
    (tmp_path / FILE).write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises((CampaignError, sqlite3.DatabaseError)):
        Database(tmp_path / FILE)
    create(tmp_path / "camp", spec_of(tmp_path)).close()
    with pytest.raises(CampaignError, match="already"):
        create(tmp_path / "camp", spec_of(tmp_path))


def test_what_a_killed_coordinator_left_behind_is_waited_for(tmp_path):
    from refnum.conformance.commands.fuzz.coordinator import locked

    with open(tmp_path / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.2, held.close).start()
        with locked(tmp_path):
            assert held.closed
