"""Threads that are used again: each job finds a new thread's float mode and context, and a late one is left behind."""

import ctypes
import os
import platform
import struct
import threading

import numpy as np
import pytest

from refnum.conformance.subjects.calls.float_mode import default_float_mode, float_mode
from refnum.conformance.subjects.calls.threads import in_a_thread


def test_a_thread_is_used_again_with_a_context_of_its_own():
    seen = []

    def job():
        seen.append((threading.get_ident(), np.geterr()["over"]))
        np.seterr(over="raise")

    for _ in range(3):
        assert in_a_thread(job)(5)
    assert len({ident for ident, _ in seen}) == 1 and {over for _, over in seen} == {"warn"}
    assert np.geterr()["over"] == "warn"


def test_two_jobs_run_at_the_same_time():
    barrier = threading.Barrier(2, timeout=5)
    waits = [in_a_thread(barrier.wait) for _ in range(2)]
    assert all(wait(5) for wait in waits) and not barrier.broken


def test_a_late_job_is_left_behind_and_its_thread_not_used_again():
    go, seen = threading.Event(), []

    def late():
        seen.append(threading.get_ident())
        go.wait(10)

    assert not in_a_thread(late)(0.05)
    assert in_a_thread(lambda: seen.append(threading.get_ident()))(5)
    go.set()
    assert seen[0] != seen[1]


def test_a_forked_process_has_threads_of_its_own():
    assert in_a_thread(lambda: None)(5)
    child = os.fork()
    if child == 0:
        os._exit(0 if in_a_thread(lambda: None)(5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_that_comes_back_from_a_job_ends_and_tells_nothing():
    children, go = [], threading.Event()

    def forks():
        child = os.fork()
        if child:
            children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert in_a_thread(forks)(5) and children == [1]
    assert not in_a_thread(lambda: go.wait(10))(0.05)  # the same thread, whose end nobody but itself tells
    go.set()


def test_a_forked_process_that_waits_for_a_job_of_its_parent_ends():
    go = threading.Event()
    wait = in_a_thread(lambda: go.wait(10))
    child = os.fork()
    if child == 0:
        wait(5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    go.set()
    assert wait(5)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the bits of MXCSR")
@pytest.mark.parametrize("bits", [0x2000, 0x4000, 0x6000, 0x8000, 0x0040], ids=["down", "up", "cut", "ftz", "daz"])
def test_each_float_mode_shows_and_is_taken_back(bits):
    library, environment, mode = ctypes.CDLL(None), ctypes.create_string_buffer(32), float_mode()
    library.fegetenv(environment)
    changed = struct.unpack_from("I", environment, 28)[0] | bits
    struct.pack_into("I", environment, 28, changed)
    library.fesetenv(environment)
    seen = float_mode()
    default_float_mode()
    assert seen != mode and float_mode() == mode
