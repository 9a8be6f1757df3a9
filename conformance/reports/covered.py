"""What the word `verified` covers: level of agreement, dtypes, sizes, and what of the asked structure was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..cases.contracts import CONTRACTS, contract_words

Result = Mapping[str, Any]
SHOWN = 12
"""Levels of a factor that are named where some were refused or never tested."""


def worst_level(results: Sequence[Result]) -> str:
    """Return the loosest level of agreement that a result which holds reached, `L0` where every byte is right."""
    return max((r["level"]["reached"] or "L0" for r in _held(results)), default="L0")


def narrow(results: Sequence[Result]) -> bool:
    """Whether some of what was asked is outside of what the subjects declare to take, or of the forms they take."""
    held = {(result["subject"], result["operation"]) for result in _held(results)}
    return any(
        result["refused"] or result["outcome"] == "unsupported" or result.get("structure", {}).get("forms")
        for result in results
        if (result["subject"], result["operation"]) in held
    )


def contract(results: Sequence[Result]) -> str:
    """Return ` within its contract`, with the contract of inputs where one is declared, or an empty string."""
    names = {name for result in _held(results) for name in result.get("outside", {}).get("contract", ())}
    words = contract_words(name for name in CONTRACTS if name in names)
    return f" within its contract {words}".rstrip() if words or narrow(results) else ""


def extent(results: Sequence[Result]) -> list[str]:
    """Return in words the agreement, dtypes, rows and columns answered, and the share of structure refused."""
    asked = [result["structure"] for result in _held(results) if result.get("structure", {}).get("cases")]
    if not asked:
        return _steady(results)
    found = [f"agreement {worst_level(results)}"]
    dtypes = sorted(
        {str(r["params"][name]) for r in _held(results) for name in ("input", "dtype") if name in r["params"]}
    )
    found += [f"dtypes {' and '.join(dtypes)}"] if dtypes else []
    found += [
        words for name in ("rows", "columns") if (words := _span(name, [one[name] for one in asked if one[name]]))
    ]
    refused, total = sum(one["refused"] for one in asked), sum(one["refused"] + one["cases"] for one in asked)
    return [*found, f"{100 * refused / total:.1f} % of structure refused", *_steady(results)]


def _steady(results: Sequence[Result]) -> list[str]:
    """Return in words the rate of flips that the calls of every variant that holds exclude (95 %), if any do."""
    rates = [result["calls"]["excludes"] for result in _held(results) if result.get("calls")]
    return [f"flips above 1 in {min(rates):,} calls excluded"] if rates and min(rates) else []


def coverage(results: Sequence[Result]) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield subject, factor, levels, levels answered and, in words, those refused or never tested."""
    lines: dict[tuple[str, str], list[Any]] = {}
    for result in _answered(results):
        for line in result.get("structure", {}).get("factors", ()):
            kept = lines.setdefault((result["subject"], line["factor"]), [0, 0, {}])
            kept[0] += line["levels"]
            kept[1] += line["answered"]
            kept[2].update(dict.fromkeys(line["refused"], "refused"), **dict.fromkeys(line["never"], "never tested"))
    for (subject, factor), (levels, answered, rest) in lines.items():
        named = [f"{level} {how}" for level, how in islice(rest.items(), SHOWN)]
        more = len(rest) - len(named)
        yield subject, factor, levels, answered, ", ".join([*named, f"and {more} more"] if more else named)


def forms(results: Sequence[Result]) -> Iterator[tuple[str, str, str, str]]:
    """Yield subject, refused form of a call, the operations that refuse it, and the first reason."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        for form, words in result.get("structure", {}).get("forms", {}).items():
            found.setdefault((result["subject"], form), {}).setdefault(result["operation"], words)
    for (subject, form), reasons in found.items():
        yield subject, form, ", ".join(reasons), next(iter(reasons.values()))


def _answered(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result["outcome"] not in ("unsupported", "malformed")]


def _held(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result["outcome"] == "pass"]


def _span(name: str, spans: list[list[int]]) -> str:
    return f"{name} {min(low for low, _ in spans)} to {max(high for _, high in spans)}" if spans else ""
