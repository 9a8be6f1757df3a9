"""Layers of others, with bugs that public projects had; each is a subject of `refnum check -o moe_layer`."""

import planted

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
