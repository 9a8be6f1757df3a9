"""Explain one sum of `unpermute`: the rows of a token, their weights, and the sum in expert order (clause N12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arguments import require_integer, row_counts
from .float_steps import Chain, Explained, Place, Room, agreed, bits_at, float_text, result_bits, taken
from .payload import _placement, unpermute

_ONE = 0x3F800000


def _unpermuted(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "rows row_map splits tokens", "align")
    weights = arguments.get("weights")
    result, chain = unpermute(**given, weights=weights), Chain("N12.3")
    token, column = at
    places = _placement(row_counts(given["splits"]), int(given.get("align", 32)))[0]
    own = [order for order, one in enumerate(np.asarray(given["row_map"]).tolist()) if int(one) == token]
    chain.say("element", f"token {token} has {len(own)} rows, {own} in expert order", "N0")
    total = None
    for order in own:
        x = bits_at(given["rows"], (int(places[order]), column))
        weight = _ONE if weights is None else bits_at(weights, (order,))
        term = chain.multiply(f"w * x of row {order}", weight, x)
        total = term if total is None else chain.add(f"sum to row {order}", total, term)
    bits = 0 if total is None else total
    chain.say("values", float_text(bits) if own else f"a token without rows: {float_text(0)}")
    return chain.steps, agreed({"values": bits}, values=result_bits(result, at))


def _shape(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    return require_integer("tokens", arguments["tokens"], 0), *np.shape(arguments["rows"])[1:]


PAYLOAD: Room = {"unpermute": (_shape, _unpermuted)}
