"""Without torch only the tests of policies, plans and data run; ranks that fork from one process for all tests."""

import importlib.util
import multiprocessing.forkserver
import os
import types
from pathlib import Path

import pytest

FREE = {"test_train_data.py", "test_plan.py", "test_policies.py"}
"""Tests that need no torch."""

if importlib.util.find_spec("torch") is None:
    collect_ignore = sorted({path.name for path in Path(__file__).parent.glob("test_*.py")} - FREE)


@pytest.fixture(scope="module")
def forked_ranks():
    """Start ranks with quick products as forks of a process that has imported torch, for two seconds and more.

    A fork is as much a process. Its parent is the one that it forks from, which ends when this process does.
    """
    from layer_ranks import forks, rank

    from refnum.training import spawn

    context = forks()
    multiprocessing.forkserver.ensure_running()
    parent = multiprocessing.forkserver._forkserver._forkserver_pid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "processes", types.SimpleNamespace(get_context=lambda method: context))
        patch.setattr(spawn, "_rank", rank)
        patch.setattr(spawn, "os", types.SimpleNamespace(**{**vars(os), "getpid": lambda: parent}))
        yield
