import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def host():
    from refnum.gpu import host as module

    usable, reason = module.available()
    if not usable:
        pytest.skip(reason)
    return module


@pytest.fixture(scope="session")
def emulated_machine():
    from refnum.gpu import emulate

    usable, reason = emulate.available()
    if not usable:
        pytest.skip(reason)
    return emulate.Emulator()


@pytest.fixture
def emulator(emulated_machine):
    """The emulated device, with no plan of another test."""
    from refnum.gpu.device import plans

    with emulated_machine.running():
        plans.forget()
        yield emulated_machine
    plans.forget()
    plans.captured.clear()
