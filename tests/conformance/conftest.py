"""What the compiler made of a changed host build, kept by its content under pytest's cache; two kernels in a folder."""

import functools
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest
from cli_tools import alone, failed_run

KEPT = Path(__file__).resolve().parents[2] / ".pytest_cache" / "objects"
WEEK = 7 * 24 * 3600.0


@pytest.fixture(scope="session")
def _kept_objects():
    """Compile a unit of a changed copy of the sources once a machine: the tests change them in the same few ways."""
    room = pytest.importorskip("refnum.gpu.mutation.host")
    compiled, plan = room.HostSources._compile, functools.cache(room.host_build.plan)

    def kept(self, copy, unit, level):
        total = hashlib.sha256("\n".join((plan().version, plan().machine, *self._command(unit, level))).encode())
        for path in sorted((*copy.glob("kernels/*"), *copy.glob("host/*"))):
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        known = KEPT / f"{total.hexdigest()}.o"
        if not known.exists():
            compiled(self, copy, unit, level)  # what is refused is refused each time
            temporary = known.with_suffix(f".{os.getpid()}")
            shutil.copyfile(copy / f"{unit}.o", temporary)
            os.replace(temporary, known)
        os.utime(known)
        shutil.copyfile(known, copy / f"{unit}.o")

    KEPT.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room.HostSources, "_compile", kept)
        yield
    for path in KEPT.iterdir():
        if time.time() - path.stat().st_mtime > WEEK:
            path.unlink(missing_ok=True)


@pytest.fixture(scope="module", autouse=True)
def _mutants_from_kept_objects(request):
    if request.module.__name__ in ("test_museum", "test_mutants_run", "test_mutants_sole_killers"):
        request.getfixturevalue("_kept_objects")


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch):
    """Go to a folder with a right and a wrong kernel, where no subject is installed."""
    alone(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def failed_once(tmp_path_factory):
    """Return a finished run of the wrong kernel and its folder, whose contents several tests read."""
    folder = tmp_path_factory.mktemp("failed")
    return failed_run(folder), folder


@pytest.fixture
def failed(failed_once, tmp_path):
    """Return a finished run of the wrong kernel, with what it left behind in the test's folder."""
    done, folder = failed_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return done


@pytest.fixture(scope="session")
def harness():
    """Import everything once for all runs of pytest in this process: a run forgets what it has imported itself."""
    from refnum.casts import encode_e2m1
    from refnum.conformance import judge_kernel

    judge_kernel(encode_e2m1, "encode_e2m1", level="smoke", examples=1, save=False)
    judge_kernel(abs, "decode_e2m1", level="smoke", examples=1, save=False)
