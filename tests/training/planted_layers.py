"""Layers of others, with bugs that public projects had; each is a subject of `refnum check -o moe_layer`."""

import planted
import torch
import torch.distributed as dist

from refnum.training.subject import moe_layer as right


def _with(bug):
    def moe_layer(*given):
        undo = planted.plant(bug)
        try:
            return right(*given)
        finally:
            undo()

    return moe_layer


ORDER = ["scales that differ by rank", "scales of another rank", "bytes not moved", "experts without rows are skipped"]
experts_without_rows = _with("experts without rows are skipped")
_left = list(ORDER)


def one_bug_after_the_other(*given):
    """Each call has the next bug of ORDER."""
    return _with(_left.pop(0))(*given)


def leaves_or_fails(x, experts, *given):
    """A rank without tokens leaves the exchange out; one expert a token is not supported."""
    if not len(x):
        return {"out": x}
    if experts.shape[1] == 1:
        raise RuntimeError("no kernel for this")
    return {"out": right(x, experts, *given)["out"]}


def _gate(w1):
    return w1.shape[1] // 2


WHERE = {
    "one expert a token": lambda x, experts, probs, w1, w2, grad: experts.shape[1] == 1,
    "all experts": lambda x, experts, probs, w1, w2, grad: experts.shape[1] == 2 * len(w1) == 4,
    "many rows": lambda x, experts, probs, w1, w2, grad: len(x) == 150,
    "experts of 128 rows": lambda x, experts, probs, w1, w2, grad: len(x) == 100,
    "experts of 129 rows": lambda x, experts, probs, w1, w2, grad: len(x) == 128,
    "experts of 400 rows": lambda x, experts, probs, w1, w2, grad: len(x) > 256,
    "one tile": lambda x, experts, probs, w1, w2, grad: x.shape[1] == 128 and len(w1) == 2,
    "an odd number of tiles": lambda x, experts, probs, w1, w2, grad: x.shape[1] // 128 == 3,
    "many tiles": lambda x, experts, probs, w1, w2, grad: x.shape[1] > 512,
    "a wide expert": lambda x, experts, probs, w1, w2, grad: _gate(w1) > 512,
    "a deep row": lambda x, experts, probs, w1, w2, grad: x.shape[1] > 4096,
    "a tall expert": lambda x, experts, probs, w1, w2, grad: _gate(w1) > 2048,
    "many tokens": lambda x, experts, probs, w1, w2, grad: len(x) > 1024,
    "hundreds of experts": lambda x, experts, probs, w1, w2, grad: len(w1) > 128,
    "no gradient": lambda x, experts, probs, w1, w2, grad: len(x) and not grad.any(),
    "special weights of experts": lambda x, experts, probs, w1, w2, grad: not w1.isfinite().all(),
    "two experts": lambda x, experts, probs, w1, w2, grad: len(w1) == 1 and w1.shape[1:] == (256, 256),
    "many experts": lambda x, experts, probs, w1, w2, grad: len(w1) == 17,
    "an odd number of experts a rank": lambda x, experts, probs, w1, w2, grad: len(w1) % 2 == 1 < len(w1),
    "ranks of other magnitude": lambda x, experts, probs, w1, w2, grad: len(x) and x.abs().max() > 300,
    "blocks of other magnitude": lambda x, experts, probs, w1, w2, grad: len(x) and 0 < x.abs().max(1)[0].min() < 0.1,
    "experts of other magnitude": lambda x, experts, probs, w1, w2, grad: w1.abs().max() > 64,
    "special numbers": lambda x, experts, probs, w1, w2, grad: not x.isfinite().all(),
    "special gradients": lambda x, experts, probs, w1, w2, grad: not grad.isfinite().all(),
    "special weights of tokens": lambda x, experts, probs, w1, w2, grad: bool((probs == 0).any()),
    "experts in another order": lambda x, experts, probs, w1, w2, grad: bool((probs.diff(dim=1) > 0).any()),
    "equal tokens": lambda x, experts, probs, w1, w2, grad: len(x) > 1 and bool((x[0] == x[1]).all()),
    "one gradient for all": lambda x, experts, probs, w1, w2, grad: grad.stride(0) == 0,
    "views": lambda x, experts, probs, w1, w2, grad: x.stride(0) > x.shape[1],
    "transposed": lambda x, experts, probs, w1, w2, grad: len(x) > 1 and x.stride(0) == 1,
    "an expert without a token": lambda x, experts, probs, w1, w2, grad: len(x) and int(experts.min()) == 1,
    "the last expert without a token": lambda x, experts, probs, w1, w2, grad: 3 not in experts and 2 in experts,
    "one expert for all": lambda x, experts, probs, w1, w2, grad: len(x) > 1 and len(experts.unique()) == 1,
    "one token": lambda x, experts, probs, w1, w2, grad: len(x) == 1,
    "a rank without a token": lambda x, experts, probs, w1, w2, grad: len(x) == 16,
    "the first rank without a token": lambda x, experts, probs, w1, w2, grad: len(x) == 9,
    "a rank whose experts have no token": lambda x, experts, probs, w1, w2, grad: len(x) and int(experts.max()) == 1,
    "no token at all": lambda x, experts, probs, w1, w2, grad: len(x) == 0,
    "four ranks": lambda x, experts, probs, w1, w2, grad: dist.get_world_size() == 4 and len(x) == 30,
    "a rank of four that is loud": lambda x, experts, probs, w1, w2, grad: dist.get_world_size() == 4 and len(x) == 7,
    "three ranks": lambda x, experts, probs, w1, w2, grad: dist.get_world_size() == 3,
}
"""Case -> where a layer may be wrong that no other case before it need tell."""
_before = {}


def wrong_where(*given):
    """Is wrong where one of WHERE holds on a rank, and gives what it gave before for the same sizes."""
    x, _, _, w1, _, _ = given
    wrong = torch.tensor(int(any(told(*given) for told in WHERE.values())))
    dist.all_reduce(wrong)
    if wrong:
        return {"out": torch.zeros_like(x), "dw1": torch.ones_like(w1)}
    sizes = tuple(tuple(one.shape) for one in given)
    found = _before.setdefault(sizes, right(*given))
    return {name: found[name].clone() for name in ("out", "dw1")}


_taken = {}


def weights_taken_once(x, experts, probs, w1, w2, grad):
    """Keeps what it made of the weights by their address."""
    _, *kept = _taken.setdefault(w1.data_ptr(), (w1, w1.clone(), w2.clone()))
    return {"out": right(x, experts, probs, *kept, grad)["out"]}


def gradients_now_and_then(x, experts, probs, w1, w2, grad):
    """Returns no gradient of tokens where there is none of the output."""
    found = right(x, experts, probs, w1, w2, grad)
    return {name: found[name] for name in (("out", "dx") if grad.any() else ("out",))}


_buffer = torch.empty(20 * 256, dtype=torch.bfloat16)


def breaks_its_contract(x, experts, probs, w1, w2, grad):
    """Gives a part of one buffer, and scales the weights where they are."""
    found = right(x.clone(), experts, probs.clone(), w1, w2, grad)["out"]
    out = _buffer[: found.numel()].view(found.shape)
    out.copy_(found)
    w2.mul_(2)
    return {"out": out}
