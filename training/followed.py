"""Rows of one expert that are followed through a whole step, from the senders' tokens to the gradients.

The model computes them again from the tokens and the expert's weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from refnum.swiglu import swiglu_backward

from . import golden, golden_parts
from .compare import to_array, to_own_array
from .products import Tensor

if TYPE_CHECKING:
    from .layer import MoELayer
    from .policies import Policy


AFTER_TORCH = frozenset({"fc2_input", "fc2", "saved_fc2_input"})
"""What is computed from the SwiGLU of forward steps."""


def left_out(policy: Policy, on_cuda: bool) -> frozenset[str]:
    """Return what is not compared: on CUDA, `bf16` has torch's SwiGLU, which rounds otherwise than clause N11."""
    return AFTER_TORCH if on_cuda and policy.operands == "bfloat16" else frozenset()


@dataclass
class Followed:
    """Some rows of one expert in a step, and what the model makes of them.

    expert: its number on this rank. taken: the received rows. places: the rows among those of all experts.
    but: names that are not compared.
    """

    expert: int
    policy: Any
    hidden: int
    taken: np.ndarray
    places: np.ndarray
    made: dict[str, Any]
    but: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, layer: MoELayer, expert: int, tokens: Tensor, inputs: Mapping[str, Any], most: int, turn: int
    ) -> Followed:
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
        return cls(expert, policy, layer.hidden, taken, places, made, left_out(policy, layer.w1.is_cuda))

    def forward(self, found: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return what was found and what is right, by name."""
        pairs = {"received": (self._received(found["received"]), self.made["received"])}
        for name in ("fc1_input", "fc2_input"):
            pairs |= self._parts(name, found[name], self.made[name])
        pairs |= {name: (self._rows(found[name]), self._cut(self.made[name])) for name in ("fc1", "fc2")}
        return self._compared(pairs)

    def backward(self, found: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return what was found and what is right: of the saved tensors as they are now, and of the gradients."""
        made, policy, kept = self.made, self.policy, found["kept"]
        pairs = {"saved_input": (self._received(kept[0][0]), made["saved_input"])}
        pairs |= self._parts("saved_activation", kept[1], made["saved_activation"])
        pairs |= self._parts("saved_fc2_input", kept[2], made["saved_fc2_input"])
        count, filled = len(self.taken), golden_parts.filled(made["splits"])
        grad = golden_parts.padded(self._received(found["grad_sent"]), [count])
        outer = golden_parts.rows_operand((grad,), "bfloat16", policy)
        dact = golden_parts.product(outer, golden_parts.transposed(made["fc2_weight"], policy), policy, [count])
        saved = golden_parts.padded(made["saved_input"], [count])
        saved_parts = golden_parts.from_wire(saved, policy.saved_input, self.hidden)
        fc1 = golden_parts.activation_again(made["saved_activation"], saved_parts, made["fc1_weight"], policy, [count])
        dgate, dup, dprob = swiglu_backward(
            dact, fc1[:, : fc1.shape[1] // 2], fc1[:, fc1.shape[1] // 2 :], made["prob"]
        )
        inner = golden_parts.gradient(np.concatenate([dgate, dup], axis=1), policy, filled)[0]
        dx = golden_parts.product(inner, golden_parts.transposed(made["fc1_weight"], policy), policy, [count])
        pairs |= {"received": (self._received(found["received"]), self._received(found["grad_sent"]))}
        pairs |= self._parts("fc2_grad", found["fc2_grad"], outer) | self._parts("fc1_grad", found["fc1_grad"], inner)
        right = {"dact": dact, "dprob": dprob, "dx_rows": dx}
        return self._compared(pairs | {name: (self._rows(found[name]), self._cut(one)) for name, one in right.items()})

    def _compared(self, pairs: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {name: pair for name, pair in pairs.items() if name.partition(".")[0] not in self.but}

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
