"""Without torch only the tests of policies, plans and data run."""

import importlib.util
from pathlib import Path

FREE = {"test_train_data.py", "test_plan.py", "test_policies.py"}
"""Tests that need no torch."""

if importlib.util.find_spec("torch") is None:
    collect_ignore = sorted({path.name for path in Path(__file__).parent.glob("test_*.py")} - FREE)
