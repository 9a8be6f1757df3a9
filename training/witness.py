"""The witness: while a layer trains, a share of its work is computed again by the model and compared bit for bit.

It looks at single conversions and products, parts of them, drawn at random; and at whole steps of a layer, in which the
rows of one expert are followed from the sender's tokens to the gradients, saved tensors included. Nothing is changed
and, unless it is told to, nothing is stopped.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from refnum.errors import RefnumError
from refnum.swiglu import swiglu_backward

from . import golden, golden_parts, samples
from .compare import different, on_device_of, to_array, to_own_array
from .evidence import save_arrays, save_sample

if TYPE_CHECKING:
    from .layer import MoELayer
    from .products import Parts, Tensor


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


class Witness:
    """Samples a layer's work and computes it again.

    One conversion or product in about `1 / rate` is looked at, `rows` rows of it, as long as the time for this stays
    below `share` of the time that passes. Every `every` steps a whole step of each layer is followed, `rows` rows of
    one expert, which the step's number chooses; all ranks do this at the same time. Give `step` the number of the
    training step before each.

    Args:
        folder: where mismatches are written.
        rate: probability that a conversion or a product is looked at.
        every: steps from one whole step to the next, 0 for none.
        rows: rows of a sample, None for all.
        share: of the run's time that conversions and products may take; 1.0 is no limit.
        stop: whether a mismatch ends the run with WitnessError.
        seed: of the draws; give each rank its own.
    """

    def __init__(
        self,
        folder: Path | str = ".refnum/witness",
        rate: float = 1 / 64,
        every: int = 1000,
        rows: int | None = 16,
        share: float = 0.01,
        stop: bool = False,
        seed: int = 0,
    ) -> None:
        self.folder, self.rate, self.every, self.share, self.stop = Path(folder), rate, every, share, stop
        self.rows = sys.maxsize if rows is None else rows
        self.step = 0
        self.judged: Counter[str] = Counter()
        self.elements = 0
        self.spent = 0.0
        self.orders: Counter[str] = Counter()
        self.mismatches: list[Mismatch] = []
        self._draw = random.Random(seed)
        self._started = time.perf_counter()
        self._left = self._gap()
        self._layer: MoELayer | None = None
        self._way = ""

    def summary(self) -> str:
        """Return one line: what was judged, and how many mismatches there are."""
        counted = ", ".join(f"{self.judged[kind]} {kind}" for kind in ("conversions", "products", "layer steps"))
        return f"witness: {counted} judged, {self.elements} elements, {len(self.mismatches)} mismatches"

    def restart(self) -> None:
        """Count the time that passes, and the share of it that was spent, from now."""
        self.spent, self._started = 0.0, time.perf_counter()

    # --------------------------------------------------------------------------- what the layer calls

    def enter(self, layer: MoELayer, backward: bool) -> None:
        """Take note of the layer whose conversions and products follow."""
        self._layer, self._way = layer, "backward" if backward else "forward"

    def conversion(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], results: Any) -> None:
        """Look at one conversion, if it is drawn."""
        if self._drawn():
            start = time.perf_counter()
            sample = samples.of_conversion(name, arguments, named, results, self.rows, self._draw)
            if sample is not None:
                self._judge("conversions", name, sample, self._expert(sample.row, sample.of))
            self.spent += time.perf_counter() - start

    def product(self, name: str, operands: Callable[[], tuple[Parts, Parts]], result: Tensor) -> None:
        """Look at one product, if it is drawn. A bfloat16 product of a library has no order that is known."""
        if self._drawn() and not (result.is_cuda and self._layer is not None and not self._layer.edges.fp8):
            start = time.perf_counter()
            a, b = operands()
            local = re.search(r"\[(\d+)\]", name)
            first = 0 if self._layer is None else self._layer.first
            expert = first + int(local[1]) if local else None
            self._judge("products", name, samples.of_product(a, b, result, self.rows, self._draw), expert)
            self.spent += time.perf_counter() - start

    def follows(self) -> bool:
        """Return whether it is this step's turn to be followed."""
        return bool(self.every) and self.step % self.every == 0

    def forward(self, layer: MoELayer, inputs: Mapping[str, Any], found: Mapping[str, Any]) -> Any:
        """Look at a forward step, if it is this step's turn; what it returns goes to `backward`."""
        if not self.follows():
            return None
        route = inputs["route"]
        tokens = layer.ranks.rows(inputs["x"].detach()[route.tokens], route.send, route.receive)
        owners = [at for at, count in enumerate(route.splits) if count]
        if not owners:
            return (None,)
        turn = self.step // self.every
        with on_device_of(layer.w1):
            followed = _Followed.of(layer, owners[turn % len(owners)], tokens, inputs, self.rows, turn)
            self._compare(layer, followed, followed.forward(found), "forward")
        return (followed,)

    def backward(self, layer: MoELayer, kept: Any, found: Mapping[str, Any]) -> None:
        """Look at the backward step of a forward step that was looked at."""
        if kept is None:
            return
        route = found["route"]
        sent = layer.ranks.rows(found["grad"][route.tokens], route.send, route.receive)
        if kept[0] is not None:
            with on_device_of(layer.w1):
                self._compare(layer, kept[0], kept[0].backward({**found, "grad_sent": sent}), "backward")
            self.judged["layer steps"] += 1

    # ----------------------------------------------------------------------------------------- judging

    def _gap(self) -> int:
        """Return after how many calls the next one is looked at."""
        if self.rate >= 1:
            return 1
        return 1 + int(self._draw.expovariate(self.rate)) if self.rate > 0 else sys.maxsize

    def _drawn(self) -> bool:
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._gap()
        return self.share >= 1 or self.spent <= self.share * (time.perf_counter() - self._started)

    def _judge(self, kind: str, name: str, sample: samples.Sample, expert: int | None) -> None:
        cuda = self._layer is not None and self._layer.w1.is_cuda
        orders = samples.ORDERS if sample.operation == "matmul_fp8" and cuda else ("",)
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
        self.judged[kind] += 1
        self.elements += sum(one.size for one in sample.observed.values())
        if wrong:
            self._report(f"{self._way} {name}", expert, sum(wrong.values()), sample)

    def _compare(self, layer: MoELayer, followed: _Followed, pairs: Mapping[str, Any], way: str) -> None:
        wrong = {name: different(got, want) for name, (got, want) in pairs.items()}
        self.elements += sum(want.size for _, want in pairs.values())
        for name, count in wrong.items():
            if count:
                self._report(f"{way} {name}", layer.first + followed.expert, count, pairs, name)

    def _report(self, what: str, expert: int | None, count: int, evidence: Any, name: str = "") -> None:
        layer = "layer" if self._layer is None else self._layer.name
        label = f"step {self.step}, {layer}, {what}" + ("" if expert is None else f", expert {expert}")
        if isinstance(evidence, samples.Sample):
            elements = sum(one.size for one in evidence.observed.values())
            file = save_sample(evidence, label, self.folder)
        else:
            elements = evidence[name][1].size
            file = save_arrays({f"{key}.{side}": one for key, pair in evidence.items()
                                for side, one in zip(("found", "expected"), pair, strict=True)},
                               label, self.folder)  # fmt: skip
        self.mismatches.append(Mismatch(self.step, layer, expert, what, count, elements, file))
        print(f"witness: {self.mismatches[-1]}", file=sys.stderr, flush=True)
        if self.stop:
            raise WitnessError(f"{self.mismatches[-1]}; the run was told to stop at a mismatch")

    def _expert(self, row: int, rows: int) -> int | None:
        """Return the expert that has a row, where a call's rows are those of experts."""
        layer = self._layer
        if layer is None or layer.active is None or rows != sum(layer.active.rows):
            return None
        return layer.first + int(np.searchsorted(np.cumsum(layer.active.rows), row, side="right"))


@dataclass
class _Followed:
    """Some rows of one expert in a step, and what the model makes of them.

    expert: its number on this rank. taken: the received rows. places: the rows among those of all experts.
    """

    expert: int
    policy: Any
    hidden: int
    taken: np.ndarray
    places: np.ndarray
    made: dict[str, Any]

    @classmethod
    def of(
        cls, layer: MoELayer, expert: int, tokens: Tensor, inputs: Mapping[str, Any], most: int, turn: int
    ) -> _Followed:
        """Follow rows of an expert from the tokens that the senders have."""
        route = inputs["route"]
        first, count = sum(route.splits[:expert]), route.splits[expert]
        start = turn * most % count if most < count else 0
        part = slice(first + start, first + min(start + most, count))
        taken, places = to_array(route.row_map[part]), to_array(route.places[part])
        x = to_own_array(tokens[route.row_map[part]])
        weights = to_own_array(inputs["prob"][route.places[part]])[:, None]
        policy = layer.policy
        sent = golden_parts.to_wire(golden_parts.encode(x, policy.dispatched))
        w1, w2 = (to_own_array(w[expert : expert + 1]) for w in (layer.w1, layer.w2))
        made = golden.expert_forward(sent, np.zeros((len(x), 1), np.int64), weights, w1, w2, policy)
        return cls(expert, policy, layer.hidden, taken, places, made)

    def forward(self, found: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return what was found and what is right, by name."""
        pairs = {"received": (self._received(found["received"]), self.made["received"])}
        for name in ("fc1_input", "fc2_input"):
            pairs |= self._parts(name, found[name], self.made[name])
        pairs |= {name: (self._rows(found[name]), self._cut(self.made[name])) for name in ("fc1", "fc2")}
        return pairs

    def backward(self, found: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return what was found and what is right: of the saved tensors as they are now, and of the gradients."""
        made, policy, kept = self.made, self.policy, found["kept"]
        pairs = {"saved_input": (self._received(kept[0][0]), made["saved_input"])}
        pairs |= self._parts("saved_activation", kept[1], made["saved_activation"])
        pairs |= self._parts("saved_fc2_input", kept[2], made["saved_fc2_input"])
        count, filled = len(self.taken), golden_parts.filled(made["splits"])
        grad = golden_parts.padded(self._received(found["grad_sent"]), [count])
        outer = golden_parts.rows_operand((grad,), "bfloat16", policy)
        dact = golden_parts.product(outer, golden_parts.transposed(made["fc2_weight"], policy), policy, filled)
        saved = golden_parts.padded(made["saved_input"], [count])
        saved_parts = golden_parts.from_wire(saved, policy.saved_input, self.hidden)
        fc1 = golden_parts.activation_again(made["saved_activation"], saved_parts, made["fc1_weight"], policy, filled)
        dgate, dup, dprob = swiglu_backward(
            dact, fc1[:, : fc1.shape[1] // 2], fc1[:, fc1.shape[1] // 2 :], made["prob"]
        )
        inner = golden_parts.gradient(np.concatenate([dgate, dup], axis=1), policy, filled)[0]
        dx = golden_parts.product(inner, golden_parts.transposed(made["fc1_weight"], policy), policy, filled)
        pairs |= {"received": (self._received(found["received"]), self._received(found["grad_sent"]))}
        pairs |= self._parts("fc2_grad", found["fc2_grad"], outer) | self._parts("fc1_grad", found["fc1_grad"], inner)
        right = {"dact": dact, "dprob": dprob, "dx_rows": dx}
        return pairs | {name: (self._rows(found[name]), self._cut(one)) for name, one in right.items()}

    def _received(self, x: Tensor) -> np.ndarray:
        return to_own_array(x[_index(self.taken, x)])

    def _rows(self, x: Tensor) -> np.ndarray:
        return to_own_array(x[_index(self.places, x)])

    def _cut(self, x: np.ndarray) -> np.ndarray:
        return x[: len(self.taken)]

    def _parts(self, name: str, got: Sequence[Tensor], want: Sequence[np.ndarray]) -> dict[str, Any]:
        pairs = zip(got, want, strict=True)
        return {f"{name}.{at}": (self._rows(one), self._cut(other)) for at, (one, other) in enumerate(pairs)}


def _index(rows: np.ndarray, like: Tensor) -> Tensor:
    return torch.as_tensor(rows, device=like.device)
