"""State of the process that other code's arithmetic and random numbers depend on: a call must leave it as it was."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any

from numpy.random import MT19937
from numpy.random.mtrand import get_bit_generator

State = Mapping[str, Any]
"""What state is -> its value."""
NUMPY = "NumPy's global random numbers"
_MERSENNE_BYTES = 4 * 624 + 4
"""Of the state of an MT19937: its words and the place of the next one."""


def process_state() -> State:
    """Return the state as it is now; that of torch where something has imported it."""
    generator = get_bit_generator()
    found: dict[str, Any] = {}
    if isinstance(generator, MT19937):  # read in place: a copy by its own method takes fifty times as long
        found[NUMPY] = ctypes.string_at(generator.ctypes.state_address, _MERSENNE_BYTES)
    return found | {name: get() for name, (get, _) in _of_torch().items()}


def changed(before: State) -> list[str]:
    """Return what of the state is other than it was; what was not known then counts as it is."""
    now = process_state()
    return [name for name, value in before.items() if name in now and not _equal(value, now[name])]


def restore(before: State) -> None:
    """Set what of the state is other than it was."""
    setters = {name: put for name, (_, put) in _of_torch().items()}
    for name in changed(before):
        if name == NUMPY:
            address = get_bit_generator().ctypes.state_address
            ctypes.memmove(address, before[name], _MERSENNE_BYTES)
        else:
            setters[name](before[name])


def _equal(one: Any, other: Any) -> bool:
    return bool((one == other).all()) if hasattr(one, "all") else bool(one == other)


def _of_torch() -> Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return what the state of torch is -> how it is read, and set."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "set_float32_matmul_precision"):  # not imported, or not to its end
        return {}
    assert torch is not None
    return {
        "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "whether torch records gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled),
        "torch's precision of float32 products": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        "torch's choice of deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "torch's global random numbers": (torch.get_rng_state, torch.set_rng_state),
    }
