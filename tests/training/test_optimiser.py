"""A step of the optimiser is one of torch's AdamW, bit for bit, and goes on from a checkpoint."""

import torch

from refnum.training.dispatch import Ranks
from refnum.training.optimiser import BETAS, DECAY, Optimiser


class Model:
    """Two matrices, one of them owned, and a vector."""

    def __init__(self):
        dice = torch.Generator().manual_seed(0)
        made = [torch.randn(shape, generator=dice) for shape in ((8, 9), (7,), (5, 4))]
        self.parameters = [torch.nn.Parameter(one) for one in (made[0], made[1], made[2].bfloat16())]

    def shared(self):
        return {"a": self.parameters[0], "b": self.parameters[1]}

    def owned(self):
        return {"c": self.parameters[2]}


def test_steps_are_those_of_torch():
    model, dice = Model(), torch.Generator().manual_seed(1)
    ours = Optimiser(model, Ranks(), 1e-2, 2, 10)
    masters = [one.clone() for one in ours.masters]
    groups = [{"params": [one for one in masters if one.dim() > 1]},
              {"params": [one for one in masters if one.dim() == 1], "weight_decay": 0.0}]  # fmt: skip
    adam = torch.optim.AdamW(groups, betas=BETAS, weight_decay=DECAY, foreach=True)
    for number in range(6):
        for master, parameter in zip(masters, ours.parameters, strict=True):
            parameter.grad = torch.randn(master.shape, generator=dice).to(parameter.dtype) * 2**-7
            master.grad = parameter.grad.float()
        _, rate = ours.step(number)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        assert all(torch.equal(one, other) for one, other in zip(ours.masters, masters, strict=True)), number
        if number == 3:
            kept = {name: one.clone() for name, one in ours.tensors().items()}
            ours = Optimiser(model, Ranks(), 1e-2, 2, 10)
            ours.load(kept)
