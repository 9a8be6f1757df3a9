"""How fast the runs of `convergence.py` are, and how many steps and seeds there is time for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

FEW = 5
"""Steps of each run before speed is measured."""
SLACK = 1.12
"""Time that is allowed for what was measured to take."""
BEGINNING = 25.0
"""Seconds before runs that begin again make steps."""
MANY = 99


class Pace:
    """How many steps all runs make in a second, measured once for some seconds from when each has made a few.

    steps: gives the steps that a run has made. seconds: 0 for no measurement.
    """

    def __init__(self, steps: Callable[[str], int], jobs: list[list[str]], seconds: float) -> None:
        self.steps, self.seconds, self.names = steps, seconds, [name for job in jobs for name in job]
        self.rate, self.done = 0.0, 0
        self._begun: tuple[float, int] | None = None

    def measured(self) -> bool:
        """Return whether the measurement has ended just now."""
        if not self.seconds or self.rate or not self.names:
            return False
        steps = [self.steps(name) for name in self.names]
        now, self.done = time.monotonic(), sum(steps)
        if self._begun is None:
            self._begun = (now, self.done) if min(steps) >= FEW else None
            return False
        if now - self._begun[0] < self.seconds:
            return False
        self.rate = (self.done - self._begun[1]) / (now - self._begun[0])
        return True


def fitted(pace: Pace, steps: int, left: float, more: int, runs: int) -> tuple[int, int]:
    """Return the steps of each run that there is time for, and of so many further seeds how many.

    Args:
        pace: what was measured.
        steps: of each run, as planned.
        left: seconds.
        more: further seeds that are wanted.
        runs: of a further seed.
    """
    most = pace.rate * left / SLACK
    need = steps * len(pace.names) - pace.done
    if need > most:
        return max(1, int(pace.rate * max(left - BEGINNING, 0.0) / SLACK / len(pace.names))), 0
    return steps, min(more, int((most - need) / (steps * runs))) if more else 0


def room(running: int) -> int:
    """Return how many more runs the GPUs have memory for, by what those that run have taken; many where none is."""
    command = ["nvidia-smi", "--query-gpu=memory.used,memory.free", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return MANY
    used, free = (sum(float(line.split(",")[at]) for line in text.splitlines()) for at in range(2))
    return int(0.85 * free / (used / max(1, running)))
