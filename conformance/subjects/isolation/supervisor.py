"""Run a command's work in a child process, so that a run which vanishes is a failure.

A subject may end its process with status 0 from C code, `os._exit` or an exit handler. The child therefore writes its
status to a pipe as its last action; without that status the command fails. A child that stops itself is continued.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable

from .die_with_parent import DIE_WITH_PARENT

VANISHED = 1
"""Exit status of a command whose process ended before its work did."""
UNWRITABLE = 2
"""Exit status of a command that could not write, which is no verdict."""
STOPPED = 1.0
"""Seconds after which a stopped child is continued; a child suspended together with this process continues with it."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.ENAMETOOLONG}
"""Errors of a place and not of the program."""
_BY_KERNEL = 0x80
"""SI_KERNEL: a signal from the terminal, which the child received too."""


def supervised(work: Callable[[], object]) -> None:
    """Run some work in a child process and exit with its status; fail if the work did not finish.

    Call it while this process has one thread. On systems other than Linux the work runs in this process.

    Args:
        work: ends by returning or with SystemExit.

    Raises:
        SystemExit: with the status of the work, or VANISHED.
    """
    if sys.platform != "linux":
        work()
        return
    reader, writer = os.pipe()
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent, child = os.getpid(), os.fork()
    if not child:
        os.close(reader)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(VANISHED)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _work(work, writer)
        return
    os.close(writer)
    sys.exit(_status(_ended(child, watched), reader))


def _work(work: Callable[[], object], writer: int) -> None:
    """Run the work, write its status to the pipe, and exit normally."""
    status = 0
    try:
        try:
            work()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        where = f"{error.filename}: " if error.filename else "cannot write: "
        print(f"refnum: {where}{error.strerror}.", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer has no place either
        status = UNWRITABLE
    os.write(writer, bytes([status & 0xFF]))
    sys.exit(status)


def _ended(child: int, watched: set[signal.Signals]) -> int:
    """Forward signals to a process until it ends, and return its exit status, negative for a signal."""
    while True:
        found, how = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFSTOPPED(how):
            if os.WSTOPSIG(how) == signal.SIGSTOP:
                time.sleep(STOPPED)
                os.kill(child, signal.SIGCONT)
        elif found:
            return os.waitstatus_to_exitcode(how)
        else:
            said = signal.sigwaitinfo(watched)
            if said.si_signo != signal.SIGCHLD and said.si_code != _BY_KERNEL:
                os.kill(child, said.si_signo)


def _status(code: int, reader: int) -> int:
    """Return the status that the work wrote; if it wrote none, the exit status of the process, or VANISHED for 0."""
    os.set_blocking(reader, False)
    try:
        said = os.read(reader, 1)
    except BlockingIOError:  # a process left behind by the work holds the pipe
        said = b""
    if code < 0:
        _end_by(-code)
        return 128 - code
    if said:
        return said[0] or code
    print(f"refnum: the run vanished: something in its process ended it with exit status {code}.", file=sys.stderr)
    return code or VANISHED


def _end_by(number: int) -> None:
    """End this process by the signal that ended the work, without a second core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
