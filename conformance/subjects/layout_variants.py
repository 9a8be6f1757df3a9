"""Variants beside the ordinary ones: scales in other layouts (N6.5), random bits by a key (N13.5).

They are asked only of subjects whose callables name the keywords `layout_in`, `layout_out` and `philox`: the others
make no claim on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import refnum
from refnum.layouts import LAYOUTS

from ..cases.entry import Operation
from ..cases.layouts import IN, OUT, PLAIN
from ..cases.operation import OPERATIONS
from .subject import Subject, takes

RANDOM, KEYED = "random", "keyed"
KEYWORDS = {IN: IN, OUT: OUT, RANDOM: "philox"}
"""Parameter of a special variant -> the keyword that a callable names for it."""
_WORDS = {
    IN: "scales in layouts other than bytes",
    OUT: "scales in layouts other than bytes",
    RANDOM: "keyed random bits",
}


def special_params(level: str, operation: Operation, keyed: bool) -> Iterator[dict[str, Any]]:
    """Yield the parameters of the special variants: every choice of every parameter at level exhaustive.

    At level standard every layout meets every choice of the operation's last parameter, and the others take turns.
    """
    choices = list(operation.variants())
    last = len(list(operation.params.values())[-1]) if operation.params else 1
    turns, ways = len(choices) // last, [{}, {RANDOM: KEYED}] if keyed else [{}]
    for place, layout in enumerate(_layouts(operation, level)):
        for number, params in enumerate(choices):
            for way, random in enumerate(ways):
                step = place + number % last
                its_turn = number // last == step % turns and way == step % len(ways)
                if (layout or random) and (its_turn or not layout or level == "exhaustive"):
                    yield {**params, **layout, **random}


def _layouts(operation: Operation, level: str) -> Iterator[dict[str, str]]:
    """Yield the layouts of an operation, none first; of two, each beside its neighbour, or every pair."""
    yield {}
    if len(operation.layouts) == 1:
        yield from ({operation.layouts[0]: layout} for layout in operation.stored_as[1:])
    elif operation.layouts:
        pairs = itertools.product(LAYOUTS, LAYOUTS) if level == "exhaustive" else itertools.pairwise((*LAYOUTS, PLAIN))
        for pair in pairs:
            chosen = {name: layout for name, layout in zip(operation.layouts, pair, strict=True) if layout != PLAIN}
            yield from [chosen] if chosen else []


def lacking(subject: Subject, operation: Operation, params: Mapping[str, Any]) -> list[str]:
    """Return the special parameters among some whose keyword a subject's callable does not name."""
    if operation.name not in subject.operations:
        return []
    function = subject.operations[operation.name]
    return [name for name, keyword in KEYWORDS.items() if name in params and not takes(function, keyword)]


def unclaimed(subject: Subject, operation: str, profile: str) -> list[str]:
    """Return in words what a subject is not asked for, because it does not name the keyword."""
    known = OPERATIONS[operation]
    keyed = known.keyed and refnum.get_profile(profile).rounding == "stochastic"
    names = lacking(subject, known, dict.fromkeys([*known.layouts, *([RANDOM] if keyed else [])]))
    return [f"{_WORDS[name]}, as it takes no `{KEYWORDS[name]}`" for name in names]
