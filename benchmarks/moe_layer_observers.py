"""Observers of `moe_layer.py`: what a step of the layer converts and multiplies, in which order, and its least time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from refnum.gpu import torch as launchers

ORDERS = ("promote128", "split2", "split3", "split4", "split5", "split6", "split7", "split8")


class Looking:
    """An observer that looks at nothing."""

    def enter(self, layer: Any, backward: bool) -> None:
        """Nothing to note."""

    def wants(self, calls: int) -> bool:
        """Every call is shown."""
        return True

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Nothing to look at."""

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Nothing to look at."""

    def follows(self) -> bool:
        """Intermediates are not wanted."""
        return False

    def forward(self, layer: Any, inputs: Any, found: Any) -> None:
        """Nothing to keep."""

    def backward(self, layer: Any, kept: Any, found: Any) -> None:
        """Nothing to compare."""


class Orders(Looking):
    """An observer that finds in which order of N19.4 a library computed each product."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = {}

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Find the first order that gives every bit of a product."""
        a, b = operands()
        key = f"{name.partition('[')[0]} {len(a[0])}x{len(b[0])}x{a[0].shape[1]}"
        self.found.setdefault(key, Counter())[self._order(a, b, result)] += 1

    def _order(self, a: Any, b: Any, result: Any) -> str:
        codes, scales = [x[0].contiguous() for x in (a, b)], [x[1].contiguous() for x in (a, b)]
        for order in ORDERS[: -(-a[0].shape[1] // 128)]:
            want = launchers.matmul_fp8(*codes, *scales, order, torch.bfloat16)
            if torch.equal(want.view(torch.int16), result.contiguous().view(torch.int16)):
                return order
        return "no named order"


class Traffic(Looking):
    """An observer that writes down every conversion: its name, and dtypes and bytes of what it reads and writes."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def enter(self, layer: Any, backward: bool) -> None:
        """Mark the direction."""
        self.calls.append("backward" if backward else "forward")

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Write down one conversion."""
        outputs = results if isinstance(results, tuple) else (results,)
        self.calls.append(f"{name}: {_traffic(arguments)} -> {_traffic(outputs)}")

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Write down the first expert's product of each kind."""
        if f"{name.partition('[')[0]}[0]" == name:
            a, b = operands()
            self.calls.append(f"{name}: {_traffic((*a, *b))} -> {_traffic((result,))}")


def _traffic(values: Any) -> str:
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    return " ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}={t.numel() * t.element_size()}B"
                    for t in tensors)  # fmt: skip


class Limits(Looking):
    """An observer that adds up what a step must do: bytes that conversions read and write, operations of products.

    least: name -> seconds that its calls take at least, by the speeds that are given. bytes, flops: name -> sums.
    """

    def __init__(self, bytes_a_second: float, flops_a_second: float) -> None:
        self.copy, self.peak = bytes_a_second, flops_a_second
        self.least: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.flops: Counter[str] = Counter()

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Count a conversion's bytes: each tensor once, of gathers and sums the rows alone that they read."""
        outputs = results if isinstance(results, tuple) else (results,)
        self._add(name, _bytes((*arguments, *outputs)), 0)

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Count a product's operations and bytes."""
        a, b = operands()
        rows, columns = result.shape
        self._add(f"products {name.partition('[')[0]}", _bytes((*a, *b, result)), 2 * rows * columns * a[0].shape[1])

    def _add(self, name: str, size: int, flops: int) -> None:
        self.bytes[name] += size
        self.flops[name] += flops
        self.least[name] += max(size / self.copy, flops / self.peak)


def _bytes(values: Iterable[Any]) -> int:
    return sum(one.nbytes for one in values if isinstance(one, torch.Tensor))
