"""The GPUs of this machine as nvidia-smi tells of them, and the choice among them."""

from __future__ import annotations

import subprocess

from refnum.errors import ArgumentError

QUERY = ("uuid", "name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm",
         "temperature.gpu", "ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total",
         "ecc.errors.uncorrected.aggregate.total")  # fmt: skip


def smi(device: str | None = None) -> list[dict[str, str]]:
    """Return what nvidia-smi says of each device (or of one, by index or UUID); empty where there is none."""
    chosen = [] if device is None else ["-i", device]
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits", *chosen]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(QUERY, map(str.strip, line.split(",")), strict=False)) for line in text.splitlines() if line]


def published() -> list[dict[str, str]]:
    """Return what a published record says of each device: all that `smi` does but its UUID."""
    return [{name: value for name, value in card.items() if name != "uuid"} for card in smi()]


def chosen_gpus(text: str) -> list[dict[str, str]]:
    """Return the GPUs that an option `--gpus` names: `all`, or indices and UUIDs joined by commas, any more than once.

    Raises ArgumentError when one is asked for that is not here.
    """
    cards = smi()
    if text == "all":
        if not cards:
            raise ArgumentError("--gpus all: nvidia-smi names no GPU on this machine.")
        return cards
    known = {card["uuid"]: card for card in cards} | {str(number): card for number, card in enumerate(cards)}
    for word in text.split(","):
        if word not in known:
            raise ArgumentError(f"--gpus {text}: no GPU {word!r}; this machine has {len(cards)}.")
    return [known[word] for word in text.split(",")]
