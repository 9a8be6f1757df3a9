"""What the compiler made of a changed host build is kept by its content, under pytest's cache."""

import functools
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

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
