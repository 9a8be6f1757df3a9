"""Become an executable that ends when the process that started it ends, however that ends (Linux).

Started by `kin.started` as `python -I -S mortal.py PARENT FD PATH`. The number of an error that keeps PATH
from being executed is written to FD; otherwise exec closes FD. Standard library only, and little of it: it runs once a
start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): it outlives exec, but not a fork."""


def main(parent: int, line: int, path: str) -> None:
    """Replace this process by `path`; end without it where `parent` has ended before it could be tied to."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and exec would hand it on
        signal.signal(ignored, signal.SIG_DFL)
    os.set_inheritable(line, False)
    try:
        os.execv(path, [path])
    except OSError as error:
        os.write(line, str(error.errno).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
