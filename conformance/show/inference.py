"""What `refnum infer` prints: the profile, each choice, and the inputs that rule the others out."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from refnum.profiles import profile_name

from ..infer import FIELDS, Inference


def tell(found: Inference, out: Console) -> int:
    """Print what was found and return the exit status: 0 when one profile explains every answer, else 1."""
    verb = "follows" if found.exact else "comes closest to"
    out.print(
        f"{escape(found.subject)} {verb} [bold]{profile_name(found.best)}[/] on {found.operation}", soft_wrap=True
    )
    out.print(f"{found.cases} cases compared, {found.refused} refused, {len(found.unexplained)} not explained")
    for name in FIELDS:
        value = getattr(found.best, name)
        out.print(f"  {name} = {_text(name, value)}")
        for w in found.choices.get(name, []):
            out.print(
                f"    not {_text(name, w.instead)}: {escape(w.given)} -> {escape(w.place)} is {w.kernel}, "
                f"would be {w.other}   ({escape(w.case)})",
                soft_wrap=True,
            )
        if name in found.undecided:
            others = ", ".join(_text(name, value) for value in found.undecided[name])
            out.print(f"    no input tried tells it from {others}")
    for text in found.unexplained[:5]:
        out.print(f"  not explained by any profile: {escape(text)}", soft_wrap=True)
    if found.exact:
        out.print(f"judge it with: refnum check --profile {profile_name(found.best)}")
    return int(not found.exact)


def _text(name: str, value: Any) -> str:
    return f"0x{value:08X}" if name == "amax_floor" and value is not None else str(value)
