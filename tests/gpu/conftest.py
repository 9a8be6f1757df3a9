import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def host():
    from gpu import host as module

    usable, reason = module.available()
    if not usable:
        pytest.skip(reason)
    return module
