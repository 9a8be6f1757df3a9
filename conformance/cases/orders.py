"""The named orders of a product's sums (N19.4) that a K may have, those of the same sums once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refnum.product import parse_order
from refnum.tensor_core import INSTRUCTIONS

MOST_PARTS = 64
BLOCK = 128


def candidates(k: int, by_block: bool, instruction: str = "wgmma_fp8") -> list[list[str]]:
    """Return the named orders of a K, the likely ones first; names of the same sums stand together."""
    facts, found = INSTRUCTIONS[instruction], dict[Any, list[str]]()
    for name in _names(k, by_block):
        parts = parse_order(name, facts).ranges(k)
        flat = [runs[0] for runs in parts] if all(len(runs) == 1 for runs in parts) else parts
        key = flat[0] if len(parts) == 1 and len(parts[0]) > 1 else flat
        found.setdefault(str(key), []).append(name)
    return list(found.values())


def _names(k: int, by_block: bool) -> Iterator[str]:
    blocks = -(-k // BLOCK)
    parts = [s for s in range(2, MOST_PARTS + 1) if s <= blocks and -(-blocks // s) != -(-blocks // (s - 1))]
    yield "promote128"
    if not by_block:
        yield "chain"
    yield from (f"split{s}" for s in parts)
    if not by_block:
        yield from (f"split{s}-chain" for s in parts)
    runs = (n for n in (32, 64, 256, 512, 1024, 2048, 4096) if n < k and (n < BLOCK or not by_block))
    yield from (f"promote{n}" for n in runs)
