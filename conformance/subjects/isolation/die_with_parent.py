"""Become an executable that is killed when the process that started it ends for any reason (Linux).

Started by `process_tree.started` as `python -I -S die_with_parent.py PARENT FD PATH`. If PATH cannot be executed, the
error number is written to FD; otherwise exec closes FD. It imports little of the standard library, because it runs at
every start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): the setting survives exec but not fork."""


def main(parent: int, line: int, path: str) -> None:
    """Replace this process by `path`, or exit with status 1 if `parent` ended before the setting took effect."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would keep them ignored
        signal.signal(ignored, signal.SIG_DFL)
    os.set_inheritable(line, False)
    try:
        os.execv(path, [path])
    except OSError as error:
        os.write(line, str(error.errno).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
