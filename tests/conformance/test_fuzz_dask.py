"""Campaigns on a Dask cluster: the same shards, the same digest, whoever dies on the way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fuzz_tools import PLANTED, campaign, done, go_on, right_subject

from refnum.conformance.commands.fuzz.database import create
from refnum.conformance.commands.fuzz.executors.cluster import DaskExecutor, exposed
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.errors import ArgumentError

pytest.importorskip("distributed")
CASES = 300


@pytest.mark.parametrize("address", ["nowhere", "tcp://nowhere", "tls://nowhere:eight", "tcp://nowhere:99999"])
def test_an_address_without_a_port_is_refused_before_it_is_tried(tmp_path, address):
    with pytest.raises(ArgumentError, match=f"--scheduler {address} has no port"):
        DaskExecutor(make_spec([right_subject(tmp_path)], None, None), address)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    _, db = campaign(folder / "camp", right_subject(folder), CASES, round_shards=16)
    return db.digest()


def begin(tmp_path, subject=None, **more):
    options = {"cases": 5, "elements": 4096, "round_shards": 16, **more}
    create(tmp_path / "camp", make_spec([subject or right_subject(tmp_path)], **options)).close()
    return tmp_path / "camp", make_spec([subject or right_subject(tmp_path)], **options)


@pytest.fixture
def cluster():
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.worker.daemon": True}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
    ):
        yield cluster


def test_workers_killed_by_sigkill_cost_nothing_but_time(tmp_path, cluster, undisturbed):
    folder, spec = begin(tmp_path)
    dead = []

    def kill_now_and_then():
        for _ in range(3):
            time.sleep(1.2)
            alive = [info["nanny"] for info in cluster.scheduler_info["workers"].values() if info.get("nanny")]
            pids = cluster.workers and [worker.pid for worker in cluster.workers.values() if worker.pid]
            if alive and pids:
                dead.append(pids[len(dead) % len(pids)])
                os.kill(dead[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    end, db = go_on(folder, CASES, executor=DaskExecutor(spec, cluster.scheduler_address))
    killer.join()
    assert end == "complete" and db.digest() == undisturbed and len(done(folder)) * 5 == CASES
    assert dead and not db.rows("SELECT * FROM findings")
    assert {row["key"].split(":")[0] for row in db.rows("SELECT key FROM workers WHERE shards > 0")}


@pytest.mark.slow
def test_a_kernel_that_dies_is_found_on_a_cluster_and_kills_no_worker(tmp_path, cluster):
    before = {worker.pid for worker in cluster.workers.values()}
    folder, spec = begin(tmp_path, f"{PLANTED}:FEW", elements=2048, timeout=1.0)
    _, db = go_on(folder, 100, executor=DaskExecutor(spec, cluster.scheduler_address))
    found = {(row["target"].split()[0], row["outcome"]) for row in db.rows("SELECT * FROM findings")}
    assert found == {("faulty", "fault"), ("one_point", "mismatch")}
    assert {worker.pid for worker in cluster.workers.values()} == before


@pytest.fixture
def secured(tmp_path):
    """Dask's own configuration with a fresh authority and certificate, for this process and the workers it starts."""
    import dask

    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, own = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", own]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True)
    tls = {"ca-file": str(own)}
    for role in ("scheduler", "worker", "client"):
        tls |= {f"{role}.cert": str(own), f"{role}.key": str(key)}
    settings = {f"distributed.comm.tls.{name}": value for name, value in tls.items()}
    with dask.config.set({**settings, "distributed.comm.require-encryption": True}):
        yield


@pytest.mark.slow
def test_a_campaign_over_tls_ends_like_one_of_this_machine(tmp_path, secured, undisturbed):
    from distributed import Client, LocalCluster, Security

    folder, spec = begin(tmp_path)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tls://",
                      security=Security()) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        assert address.startswith("tls://") and not exposed(address)
        with pytest.raises((OSError, RuntimeError)):  # in plain text nobody is let in
            Client(address.replace("tls://", "tcp://"), timeout=3, security=Security(require_encryption=False))
        end, db = go_on(folder, CASES, executor=DaskExecutor(spec, address))
    assert end == "complete" and db.digest() == undisturbed and len(done(folder)) * 5 == CASES


def dask(*words):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-m", "dask", *map(str, words)], env=environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_the_scheduler_may_be_restarted(tmp_path, undisturbed):
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    started = []

    def start():
        started.append(dask("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"))
        for _ in range(2):
            started.append(dask("worker", address, "--nthreads", 1, "--no-dashboard", "--local-directory", tmp_path))

    def restart():
        while not done(folder):
            time.sleep(0.1)
        started[0].kill()
        time.sleep(0.5)
        for process in started:
            process.kill()
        start()

    folder, spec = begin(tmp_path)
    try:
        start()
        executor = DaskExecutor(spec, address)
        restarter = threading.Thread(target=restart)
        restarter.start()
        end, db = go_on(folder, CASES, executor=executor)
        restarter.join()
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert len(started) == 6
    assert end == "complete" and db.digest() == undisturbed


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://localhost:8786", False),
        ("127.0.0.1:8786", False),
        ("tls://192.0.2.7:8786", False),
        ("tcp://192.0.2.7:8786", True),
        ("192.0.2.7:8786", True),
    ],
)
def test_plain_text_beyond_this_machine_is_told_of(address, told):
    assert exposed(address) is told
