"""`refnum operations` and `refnum profiles`: what can be judged, and by which choices."""

from __future__ import annotations

import dataclasses
import json as encoder
from typing import Annotated, Any

import typer

from refnum.profiles import PROFILES, Profile, get_profile

from ..cases.entry import Operation
from ..cases.operation import select
from ..reports import terminal
from .options import told

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@told
def operations(
    name: Annotated[list[str] | None, typer.Argument(help="Names or patterns; all when left out.")] = None,
    json: Json = False,
) -> None:
    """List the operations: inputs, outputs, and parameters with their choices, the default first."""
    found = select(name)
    if json:
        print(encoder.dumps([_operation(one) for one in found], indent=1))
        return
    columns = ("operation", "clause", "inputs", "outputs", "parameters")
    terminal.table(terminal.console(), "Operations", columns, map(_operation_row, found))


def _operation(one: Operation) -> dict[str, Any]:
    return {
        "name": one.name,
        "clause": one.clause,
        "inputs": list(one.inputs),
        "optional": list(one.optional),
        "outputs": [output.name for output in one.outputs],
        "params": {name: list(choices) for name, choices in one.params.items() if name != "input"},
        "dtypes": list(one.params.get("input", ())),
        "profile": one.profiled,
        "splits": one.ragged or one.grouped,
    }


def _operation_row(one: Operation) -> list[str]:
    params = [f"{name}={_choices(choices)}" for name, choices in _operation(one)["params"].items()]
    told = [*params, *(["splits"] if _operation(one)["splits"] else []), *(["profile"] if one.profiled else [])]
    inputs = [*one.inputs, *(f"{name}?" for name in one.optional)]
    return [
        one.name, one.clause, ", ".join(inputs), ", ".join(output.name for output in one.outputs),
        ", ".join(told) or "-",
    ]  # fmt: skip


def _choices(choices: list[Any]) -> str:
    return " | ".join("x".join(map(str, one)) if isinstance(one, list) else str(one) or "''" for one in choices)


@told
def profiles(
    name: Annotated[
        list[str] | None, typer.Argument(help="Names, such as OCP or OCP+ties=away; a table of all when left out.")
    ] = None,
    json: Json = False,
) -> None:
    """List the profiles: scale rule, rounding, and the policies of special values; named ones in full."""
    found = [get_profile(one) for one in name or PROFILES]
    if json:
        print(encoder.dumps([dataclasses.asdict(one) for one in found], indent=1))
        return
    out = terminal.console()
    if name:
        for one in found:
            fields = [[key, _text(key, value)] for key, value in dataclasses.asdict(one).items() if value != ""]
            terminal.table(out, "", ("field", "value"), fields)
        return
    columns = ("profile", "scale rule", "rounding", "nonfinite", "zero block", "also")
    terminal.table(out, "Profiles", columns, map(_profile_row, found))
    out.print("All fields of one: refnum profiles NAME. One with other fields: NAME+field=value, as in OCP+ties=away.")


def _profile_row(one: Profile) -> list[str]:
    rounding = f"ties {one.ties}" if one.rounding == "nearest" else one.rounding
    also = [
        *(["-0 becomes +0"] if one.negative_zero == "drop" else []),
        *([f"overflow={one.overflow}"] if one.overflow != "saturate" else []),
        *([f"amax at least {_text('amax_floor', one.amax_floor)}"] if one.amax_floor else []),
    ]
    return [one.name, one.scale_rule, rounding, one.nonfinite, f"byte {one.zero_scale}", ", ".join(also) or "-"]


def _text(name: str, value: Any) -> str:
    return f"0x{value:08X}" if name == "amax_floor" and value is not None else terminal.escape(str(value))
