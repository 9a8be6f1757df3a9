"""Bugs that layers of public projects had, planted in ours: each must be seen."""

from __future__ import annotations

import torch

from refnum.training import edges, layer
from refnum.training.dispatch import Ranks


def _scales_of_another_rank(rows):
    """Scale bytes stay in the order of the sender's ranks while the codes move (seen after an all-to-all)."""

    def received(self, x, send, receive):
        out = rows(self, x, send, receive)
        if out.dtype == torch.uint8 and len(out) > 1:
            codes = out.shape[1] // 17 * 16
            out = torch.cat([out[:, :codes], out[:, codes:].roll(receive[0] or 1, 0)], dim=1)
        return out

    return received


def _scales_that_differ_by_rank(rows):
    """A rank's codes are relative to its own largest scale, and the receiver takes its own for theirs."""

    def received(self, x, send, receive):
        out = rows(self, x, send, receive)
        if out.dtype == torch.uint8 and len(x) and len(out):
            codes, starts = out.shape[1] // 17 * 16, [sum(receive[:rank]) for rank in range(self.count)]
            parts = [out[start : start + count] for start, count in zip(starts, receive, strict=True)]
            own = x[:, codes:].amax()
            scales = [
                part[:, codes:] + own - part[:, codes:].amax() if len(part) else part[:, codes:] for part in parts
            ]
            out = torch.cat([out[:, :codes], torch.cat(scales)], dim=1)
        return out

    return received


def _bytes_not_moved(dispatched):
    """The last rows of the receive buffer are never written."""

    def received(ranks, rows, route):
        out = dispatched(ranks, rows, route).clone()
        out[-1:] = 0
        return out

    return received


def _experts_without_rows_are_skipped(product):
    """Weights are counted among the experts that have tokens."""

    def skipping(self, name, a, b, route):
        place = [sum(count > 0 for count in route.splits[:expert]) for expert in range(len(route.splits))]
        return product(self, name, a, tuple(one[place] for one in b), route)

    return skipping


def _summed_in_bfloat16(summed):
    """A token's rows are added in bfloat16."""

    def narrow(self, rows, row_map, splits, tokens, align):
        if align == 1:
            return summed(self, rows, row_map, splits, tokens, align)
        out, start = torch.zeros((tokens, rows.shape[1]), dtype=torch.bfloat16), 0
        for tokens_of_expert in row_map.split(splits):
            out[tokens_of_expert] += rows[start : start + len(tokens_of_expert)]
            start += -(-len(tokens_of_expert) // align) * align
        return out

    return narrow


def _probability_left_out(activation):
    """FC2's input is not weighted in the backward pass or in the forward pass."""

    def unweighted(self, fc1, prob):
        return activation(self, fc1, torch.ones_like(prob))

    return unweighted


def _wrong_gradient_slot(probabilities):
    """The gradient of a weight goes to the first expert of the token."""

    def first_slot(ranks, route, dprob):
        return probabilities(ranks, route, dprob).sort(dim=1, descending=True).values

    return first_slot


BUGS = {
    "scales of another rank": (Ranks, "rows", _scales_of_another_rank),
    "scales that differ by rank": (Ranks, "rows", _scales_that_differ_by_rank),
    "bytes not moved": (layer, "_dispatched", _bytes_not_moved),
    "experts without rows are skipped": (edges.Edges, "product", _experts_without_rows_are_skipped),
    "sums in bfloat16": (edges.Edges, "summed", _summed_in_bfloat16),
    "the probability is left out": (edges.Edges, "activation", _probability_left_out),
    "a gradient in the wrong slot": (layer, "_probabilities", _wrong_gradient_slot),
}
"""Name -> (owner, attribute, function from the right one to the wrong one)."""


def plant(name):
    """Put a bug in its place, in this process; an empty name is none. Return what puts it right again."""
    if not name:
        return lambda: None
    owner, attribute, wrong = BUGS[name]
    right = getattr(owner, attribute)
    setattr(owner, attribute, wrong(right))
    return lambda: setattr(owner, attribute, right)
