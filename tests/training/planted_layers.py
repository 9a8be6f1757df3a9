"""Layers of others, with bugs that public projects had; each is a subject of `refnum check -o moe_layer`."""

import planted
import torch

from refnum.training.subject import moe_layer as right


def _with(bug):
    def moe_layer(*given):
        undo = planted.plant(bug)
        try:
            return right(*given)
        finally:
            undo()

    return moe_layer


scales_of_another_rank = _with("scales of another rank")
scales_that_differ_by_rank = _with("scales that differ by rank")
experts_without_rows = _with("experts without rows are skipped")
bytes_not_moved = _with("bytes not moved")


def a_rank_without_tokens_leaves(x, *given):
    if not len(x):
        return {"out": x}
    return right(x, *given)


def out_in_float32(*given):
    return {"out": right(*given)["out"].float()}


def not_finished(*given):
    raise RuntimeError("no kernel for this")


def names_of_its_own(*given):
    return {"out": right(*given)["out"], "hidden": torch.zeros(1)}


def only_out(*given):
    return {"out": right(*given)["out"]}


right.policy = "mxfp4"
