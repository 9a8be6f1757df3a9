"""The witness: while a layer trains, a share of its work is computed again by the model and compared bit for bit.

It looks at single conversions and products, parts of them, drawn at random; and at whole steps of a layer, in which the
rows of one expert are followed from the sender's tokens to the gradients, saved tensors included. Nothing is changed
and, unless it is told to, nothing is stopped.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from refnum.errors import RefnumError

from . import samples
from .compare import different, on_device_of
from .evidence import save_arrays, save_sample
from .followed import Followed

if TYPE_CHECKING:
    from .layer import MoELayer
    from .products import Parts, Tensor


FIRST = {"matmul_fp8": 0.05, "matmul_bf16": 0.05}
OTHERS = 0.002
"""Seconds that judging a part is taken to last before one of its kind was judged: of products, and of conversions."""
MOST_LOGGED = 10_000


class WitnessError(RefnumError):
    """A result differs from the model, and the witness was told to stop the run."""


@dataclass(frozen=True)
class Mismatch:
    """What differed: where, what, how many elements of how many, and the file that has it.

    expert: its number among all experts, None where rows belong to no expert.
    """

    step: int
    layer: str
    expert: int | None
    what: str
    differing: int
    elements: int
    file: Path | None

    def __str__(self) -> str:
        where = f"step {self.step}, {self.layer}" + ("" if self.expert is None else f", expert {self.expert}")
        return f"{where}: {self.what}: {self.differing} of {self.elements} elements differ from the model; {self.file}"


@dataclass(frozen=True)
class _Taken:
    """A part of a call that waits to be judged: what it is, where it was, and whether a library multiplied it."""

    kind: str
    sample: samples.Sample
    step: int
    layer: str
    what: str
    expert: int | None
    library: bool


class Witness:
    """Samples a layer's work and computes it again.

    One conversion or product in about `1 / rate` is drawn, and `rows` rows of it are copied on the device's stream,
    without a wait. They are judged later, before a forward step, when the time for it is there: this may take `share`
    of the time that passes, half of it for products, and what there is no time for is not taken. Every `every` steps a
    whole step of each layer is followed, `rows` rows of one expert, which the step's number chooses; this may take
    `share` of the time again, the first time excepted, and all ranks do it or none. Give `step` the number of the
    training step before each, and call `settle` at the end.

    Calls and their parts are drawn from the seed, the step, the layer and the direction: time decides only which of
    them are taken, and `log` names those.

    Args:
        folder: where mismatches are written.
        rate: probability that a conversion or a product is drawn.
        every: steps from one whole step to the next, 0 for none.
        rows: rows of a sample, None for all.
        share: of the run's time that samples of all ranks may take, and whole steps again; 1.0 is no limit, and all
            is judged at once.
        stop: whether a mismatch ends the run with WitnessError.
        seed: of the draws; give each rank its own.
    """

    def __init__(
        self,
        folder: Path | str = ".refnum/witness",
        rate: float = 1 / 64,
        every: int = 1000,
        rows: int | None = 16,
        share: float = 0.005,
        stop: bool = False,
        seed: int = 0,
    ) -> None:
        self.folder, self.rate, self.every, self.share, self.stop = Path(folder), rate, every, share, stop
        self.rows = sys.maxsize if rows is None else rows
        self.seed, self.step = seed, 0
        self.judged: Counter[str] = Counter()
        self.elements = 0
        self.followed = 0.0
        """Seconds that whole steps took."""
        self.orders: Counter[str] = Counter()
        self.mismatches: list[Mismatch] = []
        self.log: list[str] = []
        """Step, layer, direction, name and first row of what was taken, `MOST_LOGGED` at most."""
        self._draw = random.Random(seed)
        self._started = time.perf_counter()
        self._spent = {True: 0.0, False: 0.0}
        self._left = self._gap()
        self._layer: MoELayer | None = None
        self._way = ""
        self._waiting: deque[_Taken] = deque()
        self._costs = dict(FIRST)
        self._turn = (-1, False)

    @property
    def spent(self) -> float:
        """Seconds that samples took."""
        return sum(self._spent.values())

    def summary(self) -> str:
        """Return one line: what was judged, and how many mismatches there are."""
        counted = ", ".join(f"{self.judged[kind]} {kind}" for kind in ("conversions", "products", "layer steps"))
        return f"witness: {counted} judged, {self.elements} elements, {len(self.mismatches)} mismatches"

    def restart(self) -> None:
        """Count the time that passes, and the share of it that was spent, from now."""
        self._spent = {True: 0.0, False: 0.0}
        self.followed, self._started = 0.0, time.perf_counter()

    def idle(self, seconds: float) -> None:
        """Leave out time in which the layer ran without this witness."""
        self._started += seconds

    def settle(self) -> None:
        """Judge all that waits, whatever time it takes."""
        while self._waiting:
            self._judge(self._waiting.popleft())

    # --------------------------------------------------------------------------- what the layer calls

    def enter(self, layer: MoELayer, backward: bool) -> None:
        """Take note of the layer whose conversions and products follow; before a forward step judge what waits."""
        self._layer, self._way = layer, "backward" if backward else "forward"
        if not backward:
            self._judge_some()
        self._draw.seed(f"{self.seed} {self.step} {layer.name} {self._way}")
        self._left = self._gap()

    def wants(self, calls: int) -> bool:
        """Return whether one of so many calls that follow is drawn; if none is, they are passed over."""
        if self._left > calls:
            self._left -= calls
            return False
        return True

    def conversion(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], results: Any) -> None:
        """Take a part of one conversion, if it is drawn and there is time."""
        if (draw := self._drawn(name)) is not None:
            with self._spending(name):
                sample = samples.of_conversion(name, arguments, named, results, self.rows, draw)
                if sample is not None:
                    self._take("conversions", name, sample, self._expert(sample.row, sample.of))

    def product(self, name: str, operands: Callable[[], tuple[Parts, Parts]], result: Tensor) -> None:
        """Take a part of one product, likewise. A bfloat16 product of a library has no order that is known."""
        draw = self._drawn("matmul_fp8")
        if draw is None or (result.is_cuda and self._layer is not None and not self._layer.edges.fp8):
            return
        with self._spending("matmul_fp8"):
            a, b = operands()
            local = re.search(r"\[(\d+)\]", name)
            first = 0 if self._layer is None else self._layer.first
            expert = first + int(local[1]) if local else None
            self._take("products", name, samples.of_product(a, b, result, self.rows, draw), expert)

    def follows(self) -> bool:
        """Return whether it is this step's turn to be followed.

        Where products have a recipe (N28.4) none is: the scale of an operand is that of all rows, and few are followed.
        """
        simulated = self._layer is not None and self._layer.policy.recipe is not None
        return not simulated and bool(self.every) and self.step % self.every == 0

    def forward(self, layer: MoELayer, inputs: Mapping[str, Any], found: Mapping[str, Any]) -> Any:
        """Look at a forward step, if it is this step's turn; what it returns goes to `backward`."""
        if not self.follows() or not self._together(layer):
            return None
        route = inputs["route"]
        tokens = layer.ranks.rows(inputs["x"].detach()[route.tokens], route.send, route.receive)
        owners = [at for at, count in enumerate(route.splits) if count]
        if not owners:
            return (None,)
        turn = self.step // self.every
        with self._following("forward"), on_device_of(layer.w1):
            followed = Followed.of(layer, owners[turn % len(owners)], tokens, inputs, self.rows, turn)
            self._compare(layer, followed, followed.forward(found), "forward")
        return (followed,)

    def backward(self, layer: MoELayer, kept: Any, found: Mapping[str, Any]) -> None:
        """Look at the backward step of a forward step that was looked at."""
        if kept is None:
            return
        route = found["route"]
        sent = layer.ranks.rows(found["grad"][route.tokens], route.send, route.receive)
        if kept[0] is not None:
            with self._following("backward"), on_device_of(layer.w1):
                self._compare(layer, kept[0], kept[0].backward({**found, "grad_sent": sent}), "backward")
            self.judged["layer steps"] += 1

    # ------------------------------------------------------------------------------------------- time

    @contextlib.contextmanager
    def _spending(self, operation: str) -> Iterator[None]:
        """Count the time of what is done for samples, of products and of conversions."""
        start = time.perf_counter()
        yield
        self._spent[operation in FIRST] += time.perf_counter() - start

    @contextlib.contextmanager
    def _following(self, way: str) -> Iterator[None]:
        """Count the time of a whole step, but for the first, in which much is compiled."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.followed += seconds if way in self._costs else 0.0
        self._costs[way] = min(seconds, self._costs.get(way, seconds))

    def _affords(self, operation: str, more: float = 0.0) -> bool:
        """Return whether there is time for a sample that lasts as long as the last one of its operation.

        Products and conversions have half of the time each: the many that are cheap leave those that are not theirs.
        """
        ranks = 1 if self._layer is None else self._layer.ranks.count  # each waits for what another does
        seconds = self._spent[operation in FIRST] + self._costs.get(operation, OTHERS) + more
        return self.share >= 1 or seconds <= self.share / 2 / ranks * self._passed()

    def _passed(self) -> float:
        return time.perf_counter() - self._started

    def _together(self, layer: MoELayer) -> bool:
        """Return whether all ranks have the time to follow this step, in all its layers; the first is followed."""
        if self._turn[0] == self.step:
            return self._turn[1]
        known = [self._costs[way] for way in ("forward", "backward") if way in self._costs]
        mine = not known or self.share >= 1 or self.followed + sum(known) <= self.share * self._passed()
        if layer.ranks.count > 1:
            told = torch.full((layer.ranks.count, 1), int(mine), dtype=torch.int64, device=layer.w1.device)
            mine = bool(layer.ranks.numbers(told).all())
        self._turn = self.step, mine
        return mine

    # ----------------------------------------------------------------------------------------- judging

    def _gap(self) -> int:
        """Return after how many calls the next one is looked at."""
        if self.rate >= 1:
            return 1
        return 1 + int(self._draw.expovariate(self.rate)) if self.rate > 0 else sys.maxsize

    def _drawn(self, operation: str) -> random.Random | None:
        """Return the draws of a call's part, None if it is not drawn, or if there is no time to judge it."""
        self._left -= 1
        if self._left > 0:
            return None
        draw = random.Random(self._draw.getrandbits(64))
        self._left = self._gap()
        others = [one.sample.operation for one in self._waiting]
        waiting = sum(self._costs.get(one, OTHERS) for one in others if (one in FIRST) == (operation in FIRST))
        return draw if self._affords(operation, waiting) else None

    def _take(self, kind: str, name: str, sample: samples.Sample, expert: int | None) -> None:
        layer = "layer" if self._layer is None else self._layer.name
        library = self._layer is not None and self._layer.w1.is_cuda
        taken = _Taken(kind, sample, self.step, layer, f"{self._way} {name}", expert, library)
        if len(self.log) < MOST_LOGGED:
            self.log.append(f"step {self.step}, {layer}, {taken.what}, row {sample.row}")
        if self.share >= 1:
            self._judge(taken)
        else:
            self._waiting.append(taken)

    def _judge_some(self) -> None:
        """Judge of what waits as much as there is time for."""
        for _ in range(len(self._waiting)):
            taken = self._waiting.popleft()
            if not self._affords(taken.sample.operation):
                self._waiting.append(taken)
                continue
            with self._spending(taken.sample.operation):
                self._judge(taken)

    def _judge(self, taken: _Taken) -> None:
        start, sample = time.perf_counter(), taken.sample.landed()
        orders = samples.ORDERS if sample.operation == "matmul_fp8" and taken.library else ("",)
        wrong: dict[str, int] = {}
        for order in orders:
            try:
                expected = sample.expected(**({"order": order} if order else {}))
            except RefnumError:  # an order of more parts than K has blocks
                continue
            counts = {one: different(sample.observed[one], expected[one]) for one in expected}
            if not sum(counts.values()):
                self.orders[order or "golden"] += 1
                wrong = {}
                break
            wrong = wrong or counts
        self.judged[taken.kind] += 1
        self.elements += sum(one.size for one in sample.observed.values())
        self._costs[sample.operation] = time.perf_counter() - start
        if wrong:
            self._report(taken.step, taken.layer, taken.what, taken.expert, sum(wrong.values()), sample)

    def _compare(self, layer: MoELayer, followed: Followed, pairs: Mapping[str, Any], way: str) -> None:
        wrong = {name: different(got, want) for name, (got, want) in pairs.items()}
        self.elements += sum(want.size for _, want in pairs.values())
        for name, count in wrong.items():
            if count:
                expert = layer.first + followed.expert
                self._report(self.step, layer.name, f"{way} {name}", expert, count, pairs, name)

    def _report(
        self, step: int, layer: str, what: str, expert: int | None, count: int, evidence: Any, name: str = ""
    ) -> None:
        label = f"step {step}, {layer}, {what}" + ("" if expert is None else f", expert {expert}")
        if isinstance(evidence, samples.Sample):
            elements = sum(one.size for one in evidence.observed.values())
            file = save_sample(evidence, label, self.folder)
        else:
            elements = evidence[name][1].size
            file = save_arrays({f"{key}.{side}": one for key, pair in evidence.items()
                                for side, one in zip(("found", "expected"), pair, strict=True)},
                               label, self.folder)  # fmt: skip
        self.mismatches.append(Mismatch(step, layer, expert, what, count, elements, file))
        print(f"witness: {self.mismatches[-1]}", file=sys.stderr, flush=True)
        if self.stop:
            raise WitnessError(f"{self.mismatches[-1]}; the run was told to stop at a mismatch")

    def _expert(self, row: int, rows: int) -> int | None:
        """Return the expert that has a row, where a call's rows are those of experts."""
        layer = self._layer
        if layer is None or layer.active is None or rows != sum(layer.active.rows):
            return None
        return layer.first + int(np.searchsorted(np.cumsum(layer.active.rows), row, side="right"))
