import sys
from pathlib import Path

import pytest

from refnum.conformance.vectors.oracle import remembered

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def _oracle_remembers():
    """Ask the oracle once for each distinct quotient of a file: it takes a millisecond of exact rationals."""
    with remembered():
        yield
