"""Proofs shared among processes: the same digests, the same refutation, and no chunk lost with a process."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.prove.catalogue import CATALOGUE
from refnum.conformance.commands.prove.chunk import Refuted
from refnum.conformance.commands.prove.processes import Place, Processes, ProcessLost, places_on
from refnum.conformance.commands.prove.run import Stopped, Watch, prove
from refnum.conformance.reports import gpus
from refnum.conformance.subjects.choose import choose
from refnum.errors import ArgumentError

CARDS = [{"uuid": "GPU-a", "name": "NVIDIA H200"}, {"uuid": "GPU-b", "name": "NVIDIA H200"}]


@pytest.fixture(scope="module")
def host():
    return choose(["host"]).usable[0]


@pytest.fixture
def cards(monkeypatch):
    monkeypatch.setattr(gpus, "smi", lambda: CARDS)


def test_the_options_give_places_of_their_own_kind(host, cards):
    device = dataclasses.replace(host, name="device", arrays="cupy")
    assert places_on(host, None, None) == places_on(device, None, None) == []
    assert [place.settings["CUDA_VISIBLE_DEVICES"] for place in places_on(host, None, 3)] == ["", "", ""]
    found = places_on(device, "1,0,1,GPU-a", None)
    assert [place.settings["CUDA_VISIBLE_DEVICES"] for place in found] == ["GPU-b", "GPU-a", "GPU-b", "GPU-a"]
    assert len(places_on(device, "all", None)) == 2
    with pytest.raises(ArgumentError, match="--gpus is for subjects on a GPU; host is not"):
        places_on(host, "all", None)
    with pytest.raises(ArgumentError, match="--workers is for subjects on the processor; device is on a GPU"):
        places_on(device, None, 2)
    with pytest.raises(ArgumentError, match="--gpus 0,2: no GPU '2'; this machine has 2"):
        places_on(device, "0,2", None)


def test_unlike_gpus_share_no_proof(host, monkeypatch):
    device = dataclasses.replace(host, name="device", arrays="cupy")
    monkeypatch.setattr(gpus, "smi", lambda: [*CARDS, {"uuid": "GPU-c", "name": "NVIDIA L4"}])
    assert len(places_on(device, "0,1", None)) == 2 and len(places_on(device, "2", None)) == 1
    for choice in ("all", "1,GPU-c"):
        with pytest.raises(ArgumentError, match=f"--gpus {choice}: the GPUs are unlike, NVIDIA H200 and NVIDIA L4"):
            places_on(device, choice, None)
    with closing(Processes("host", places_on(device, "2", None))) as processes:
        for name in ("NVIDIA L4", "NVIDIA L4 MIG 1g.6gb"):
            processes.like(name)
        with pytest.raises(ArgumentError, match="unlike, NVIDIA H200 and NVIDIA L4"):
            processes.like("NVIDIA H200")  # this process would have compiled for another
    with closing(Processes("host", places_on(host, None, 2))) as processes:
        processes.like("")


def test_a_certificate_counts_the_processes_that_judged_and_their_gpus():
    places = [Place({"CUDA_VISIBLE_DEVICES": card["uuid"]}, card["name"]) for card in (*CARDS, CARDS[0])]
    done = ("0" * 32, 1, 1, 1)
    with closing(Processes("host", places)) as processes:
        assert processes.record() == {}  # nothing was left to judge
        answers = [((7, "GPU-a"), done), ((8, "GPU-b"), done), ((7, "GPU-a"), done), ((9, "GPU-a"), done)]
        assert list(processes.results(answers)) == [done] * 4
        assert processes.record() == {"processes": "3 on 2 GPUs"}
        assert list(processes.results([((8, "GPU-b"), done)])) == [done]  # the next proof has one chunk
        assert processes.record() == {"processes": "1 on 1 GPUs"}
        assert list(processes.results([((8, ""), done)])) == [done]
        assert processes.record() == {"processes": "1"}


def test_processes_give_the_digests_of_one_and_one_that_is_killed_loses_no_chunk(host, tmp_path):
    proof = CATALOGUE["scalars"]
    whole = prove(proof, host)
    seen = []

    def kill_one(*_):
        seen.append(1)
        if len(seen) == 4:
            os.kill(next(iter(processes.pool._processes)), signal.SIGKILL)

    with (
        closing(Processes("host", places_on(host, None, 2))) as processes,
        pytest.raises(ProcessLost, match="judged chunks of scalars ended by itself"),
    ):
        prove(proof, host, tmp_path, Watch(advance=kill_one), processes=processes)
    with closing(Processes("host", places_on(host, None, 2))) as processes:
        done = []
        with pytest.raises(Stopped, match=f"of {proof.made.chunks} chunks done"):
            prove(proof, host, tmp_path, Watch(lambda *start: done.append(start[2])), most=2, processes=processes)
        assert done[0] >= 4
        document = prove(proof, host, tmp_path, processes=processes)
    assert document["digest"]["chunks"] == whole["digest"]["chunks"] and document["result"] == whole["result"]
    assert document["run"]["resumed"] == 2 and document["machine"]["processes"] in ("1", "2")


KILLED = """
import os, signal
from refnum.conformance.subjects.choose import choose
from refnum.conformance.commands.prove.catalogue import CATALOGUE
from refnum.conformance.commands.prove.processes import Processes, places_on
from refnum.conformance.commands.prove.run import Watch, prove

def stop(*_):
    print(*processes.pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    host = choose(["host"]).usable[0]
    processes = Processes("host", places_on(host, None, 2))
    prove(CATALOGUE["scalars"], host, None, Watch(advance=stop), processes=processes)
"""


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "proof.py").write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, str(tmp_path / "proof.py")], env=environment, stdout=subprocess.PIPE)
    left = {int(word) for word in ended.stdout.split()}
    assert ended.returncode == -signal.SIGKILL and left
    limit = time.monotonic() + 20
    while left and time.monotonic() < limit:
        left = {process for process in left if alive(process)}
        time.sleep(0.05)
    assert not left


def alive(process):
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_refutation_crosses_processes(tmp_path):
    error = Refuted("codes", 3, "title", "words", None, "x[0] = 0x1")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "codes, chunk 3 (title), input x[0] = 0x1; words"
    source = tmp_path / "kernel.py"
    source.write_text(
        "import refnum\n"
        "def decode_e2m1(codes, dtype='float32'):\n    return refnum.decode_e2m1(codes, dtype)\n"
        "def decode_e4m3(codes, dtype='float32'):\n    return refnum.decode_e4m3(codes ^ (codes == 9), dtype)\n"
        "def decode_e8m0(codes, dtype='float32'):\n    return refnum.decode_e8m0(codes ^ (codes == 9), dtype)\n"
    )
    arguments = ["prove", "codes", "-s", str(source), "--out", str(tmp_path), "--state", str(tmp_path)]
    alone, shared = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--workers", "2"]))
    assert alone.exit_code == shared.exit_code == 1
    assert alone.output == shared.output and "decode_e4m3" in alone.output and "= 0x9" in alone.output


ELSEWHERE = """
import os
from refnum import fp8_columns as right

class Two(Exception):
    def __init__(self, code, text):
        super().__init__(text)

def fp8_columns(*arguments, **options):
    raise Two(3, "no workspace")

WRONG = {"name": "raises", "operations": {"fp8_columns": fp8_columns}}
HERE = os.getpid()
GONE = {"name": "gone", "operations": {"fp8_columns": right},
        "available": lambda: (os.environ.get("CUDA_VISIBLE_DEVICES") != "", "no device in this process")}
"""


def test_what_a_process_raises_or_lacks_is_said_by_name(tmp_path, monkeypatch):
    file = tmp_path / "elsewhere.py"
    file.write_text(ELSEWHERE)
    words = ["prove", "fp8-columns", "--workers", "2", "--most", "2", "--out", str(tmp_path), "--state", str(tmp_path)]
    told = CliRunner().invoke(app, [*words, "-s", f"{file}:WRONG"])
    assert told.exit_code and "Two: no workspace" in str(told.output) + str(told.exception)
    assert "ended by itself" not in str(told.output) + str(told.exception)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    told = CliRunner().invoke(app, [*words, "-s", f"{file}:GONE"])
    assert "no device in this process" in str(told.output) + str(told.exception)
    assert not isinstance(told.exception, RuntimeError)
