"""What `refnum infer` prints: the profile, each choice, and the inputs that rule the others out."""

from __future__ import annotations

import shlex
from typing import Any

from rich.console import Console
from rich.markup import escape

from refnum.profiles import profile_name

from ...reports.terminal import table
from . import FIELDS, Inference, Witness
from .nibbles import OURS
from .orders import OrderInference
from .scales import WrongScales

MOST = 8
"""Ways of wrong scales that are shown."""


def tell(found: Inference, out: Console) -> int:
    """Print what was found and return the exit status: 0 when one profile explains every answer, else 1."""
    verb = "follows" if found.exact else "comes closest to"
    packed = "" if found.nibbles == OURS else f", its codes packed {found.nibbles}"
    out.print(
        f"{escape(found.subject)} {verb} [bold]{profile_name(found.best)}[/] on {found.operation}{packed}",
        soft_wrap=True,
    )
    out.print(f"{found.cases} cases compared, {found.refused} refused, {len(found.unexplained)} not explained")
    if not found.exact:
        _disagreement(found, out)
    for name in FIELDS:
        _choice(found, name, out)
    for text in found.unexplained[:5]:
        out.print(f"  not explained by it: {escape(text)}", soft_wrap=True)
    _next(found, out)
    return int(not found.exact)


def _disagreement(found: Inference, out: Console) -> None:
    out.print("no profile explains every answer; with this one")
    for name, (agreed, total) in found.agreement.items():
        share = 100 * agreed / total if total else 0.0
        out.print(f"  {name}: {agreed:,} of {total:,} elements agree ({share:.3g} %)")
    for words in found.recoded:
        out.print(f"  {escape(words)}", soft_wrap=True)
    if found.scales:
        title = "Wrong scales, in powers of two from the right one"
        columns = ("off by", "blocks", "share", "where right is", "for example")
        table(out, title, columns, [_scales(one, found.agreement["scales"][1]) for one in found.scales[:MOST]])
    if len(found.scales) > MOST:
        out.print(f"and {len(found.scales) - MOST} other differences")


def _scales(one: WrongScales, total: int) -> list[str]:
    where = f"0x{one.least:02X}" if one.least == one.most else f"0x{one.least:02X} to 0x{one.most:02X}"
    right, given = one.example
    share = f"{100 * one.blocks / total:.3g} %"
    return [one.off, f"{one.blocks:,}", share, where, f"0x{given:02X}, right is 0x{right:02X}"]


def _next(found: Inference, out: Console) -> None:
    """Say what must be declared first, if anything, and the command that judges the kernel by what was found."""
    best = profile_name(found.best)
    if found.nibbles != OURS:
        mark = f'@implements("{found.operation}", profile="{best}", nibbles="{found.nibbles}")'
        out.print(f"declare the order of its nibbles first: {escape(mark)}", soft_wrap=True)
    elif found.claimed and best not in found.claimed:
        out.print(f"it declares {', '.join(found.claimed)}: declare {best} first", soft_wrap=True)
    words = ["refnum", "check", "-s", found.asked, "-o", found.operation, "-p", best]
    verb = "judge it with" if found.exact else "see how it differs with"
    out.print(f"{verb}: {escape(shlex.join(words))}", soft_wrap=True)


def _choice(found: Inference, name: str, out: Console) -> None:
    out.print(f"  {name} = {_text(name, getattr(found.best, name))}")
    for witness in found.choices.get(name, []):
        out.print(f"    {_witness(name, witness)}", soft_wrap=True)
    for values, words in (
        (found.undecided.get(name), "no input tried tells it from"),
        (found.unclear.get(name), "the kernel agrees with it nowhere where it differs from"),
    ):
        if values:
            out.print(f"    {words} {', '.join(_text(name, value) for value in values)}")


def _witness(name: str, w: Witness) -> str:
    return (
        f"not {_text(name, w.instead)}: {escape(w.given)} -> {escape(w.place)} is {w.kernel}, "
        f"would be {w.other}   ({escape(w.case)})"
    )


def _text(name: str, value: Any) -> str:
    return f"0x{value:08X}" if name == "amax_floor" and value is not None else str(value)


def tell_order(found: OrderInference, out: Console) -> int:
    """Print the order of a product's sums and what rules the others out; return 0 where a named order fits, else 1."""
    m, n, k = found.shape
    what = f"{escape(found.name)} at M, N, K = {m}, {n}, {k}, scales {found.scales}, {found.dtype}"
    if found.exact:
        out.print(f"{what}: order [bold]{found.fits[0]}[/], every bit of {found.compared} results", soft_wrap=True)
        if found.same:
            out.print(f"  other names of these sums at this K: {', '.join(found.same)}", soft_wrap=True)
        if found.untold:
            out.print(f"  these results do not tell it from {', '.join(found.untold)}", soft_wrap=True)
    else:
        out.print(f"{what}: no named order gives every bit of {found.compared} results", soft_wrap=True)
    digits = 8 if found.dtype == "float32" else 4
    for one in sorted(found.ruled_out, key=lambda one: one.differing)[:8]:
        out.print(
            f"  not {one.order}: {one.differing} differ; [{one.row}, {one.column}] is 0x{one.got:0{digits}X}, "
            f"would be 0x{one.would_be:0{digits}X}", soft_wrap=True,
        )  # fmt: skip
    if len(found.ruled_out) > 8:
        out.print(f"  and {len(found.ruled_out) - 8} others are ruled out")
    if found.tree:
        out.print(f"  terms of K, added in this order, sums in brackets first: {found.tree}", soft_wrap=True)
    return int(not found.exact)
