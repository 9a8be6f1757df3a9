"""What a person reads of a run, in the terminal and as Markdown: the same rows, sorted, in two renderings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...reports import terminal as show
from .document import agreement, factors, shapes, timed

COLUMNS = ("kernel", "who", "us", "quartiles", "TB/s", "of copy", "of a copy as long", "factor", "golden model")

PRODUCT_COLUMNS = ("product", "who", "M x N x K", "us", "quartiles", "T multiply-adds/s", "factor", "golden model")

HOW = """\
Median of {repeat} calls between CUDA events, fewer of calls over 25 ms, all queued ahead of the device, on buffers in
turn that together are several times the L2. Bytes are what the contender reads and writes, each once, in the formats
that it takes. *Of copy* is against the copy above, *of a copy as long* against one that moves as many bytes. *Factor*
is a peer's time over the subject's. *Golden model* says whether all bytes of a result equal the model's. A share above
100 % is no error: a copy is half reads and half writes, which is not the fastest mix. A product has multiply-adds a
second instead; peers that sum on tensor cores are many times as quick as a model of them on CUDA cores."""


def rows(found: dict[str, Any], shape: str) -> Iterator[list[str]]:
    """Yield the rows of one shape: lines by the subject's share of copy, greatest first, its peers below each."""
    records = timed(found, shape)
    own = {r["line"]: r["of_copy"] for r in records if r["is_subject"] and "of_copy" in r}
    ratio = factors(found)
    places = {line: place for place, line in enumerate(sorted(own, key=lambda line: -own[line]))}
    order = sorted(
        (r for r in records if r["line"] in places),
        key=lambda r: (places[r["line"]], not r["is_subject"], r["us"]["median"]),
    )
    for r in order:
        factor = ratio.get((shape, r["line"], r["contender"]))
        us = r["us"]
        yield [
            r["line"], r["contender"], f"{us['median']:.1f}", f"{us['q1']:.1f} to {us['q3']:.1f}", f"{r['tb_s']:.2f}",
            f"{100 * r['of_copy']:.1f} %", f"{100 * r['of_same']:.1f} %", f"{factor:.2f}" if factor else "",
            agreement(r),
        ]  # fmt: skip


def products(found: dict[str, Any], shape: str) -> list[list[str]]:
    """Return the rows of the products of one shape: the subject, then its peers."""
    ratio = factors(found)
    own = [r["line"] for r in timed(found, shape) if r["is_subject"] and "terms" in r]
    some = [r for r in timed(found, shape) if r["line"] in own]
    return [
        [
            r["line"], r["contender"], " x ".join(map(str, (*r["matrix"], r["terms"]))), f"{r['us']['median']:.1f}",
            f"{r['us']['q1']:.1f} to {r['us']['q3']:.1f}", f"{r['tma_s']:.4g}",
            f"{factor:.3g}" if (factor := ratio.get((shape, r["line"], r["contender"]))) else "", agreement(r),
        ]
        for r in sorted(some, key=lambda r: (own.index(r["line"]), not r["is_subject"], r["us"]["median"]))
    ]  # fmt: skip


def _conversions(found: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    """Return the factors of all lines but products, whose peers sum on other units."""
    without = {r["line"] for r in found["records"] if "terms" in r}
    return {key: value for key, value in factors(found).items() if key[1] not in without}


def quicker(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the lines on which a peer is quicker at some shape: its factor there, what its results are."""
    agree = {(r["shape"], r["line"], r["contender"]): agreement(r) for r in timed(found)}
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for (shape, line, peer), value in _conversions(found).items():
        if (shown := f"{value:.2f}") < "1":
            lines.setdefault((line, peer), {})[shape] = shown
    columns = shapes(found)
    return [
        [
            line,
            peer,
            *(at.get(shape, "") for shape in columns),
            _alike({shape: agree[shape, line, peer] for shape in at}),
        ]
        for (line, peer), at in sorted(lines.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


def _alike(verdicts: dict[str, str]) -> str:
    """Return the verdict of some shapes, with their names where it is not the same at all."""
    places: dict[str, list[str]] = {}
    for shape, verdict in verdicts.items():
        places.setdefault(verdict, []).append(shape)
    if len(places) == 1:
        return next(iter(places))
    return "; ".join(f"{verdict} at {', '.join(where)}" for verdict, where in places.items())


def failures(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield who failed and where, in which words, and on which lines; lines that failed alike, together."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for r in found["records"]:
        if r["status"] == "failed":
            places.setdefault((r["contender"], r["words"], r["line"]), []).append(r["shape"])
    alike: dict[tuple[str, str], list[str]] = {}
    for (who, words, line), where in places.items():
        alike.setdefault((f"{who} at {', '.join(where)}", words), []).append(line)
    for call in found["calls"]:
        if call.get("words"):
            alike.setdefault(("host time of a call", call["words"]), []).append(call["operation"])
    for (place, words), lines in alike.items():
        yield place, words, "; ".join(lines)


def not_offered(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subject's records of lines that it does not have."""
    return [r for r in found["records"] if r["status"] == "not offered" and r["is_subject"]]


def device_words(found: dict[str, Any]) -> str:
    """Return the device and the copy in a sentence."""
    head = found["header"]
    device = head["device"]
    copy, again = (head[f"copy{which}_bytes_per_second"] / 1e12 for which in ("", "_again"))
    driver = f", driver {device['driver']}" if device.get("driver") else ""
    cuda = f"CUDA runtime {_version(device['cuda_runtime'])}"
    if device.get("cuda_driver"):
        cuda += f" on a driver for CUDA {_version(device['cuda_driver'])}"
    return (
        f"{device['name']}{driver}, {cuda}. A copy of 512 MiB runs at {copy:.2f} TB/s, read plus written; "
        f"again at the end: {again:.2f}."
    )


def _version(number: int) -> str:
    """Return a version of CUDA, which gives 13000 for 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def terminal(found: dict[str, Any]) -> None:
    """Print everything."""
    out = show.console()
    out.print(device_words(found), soft_wrap=True)
    for shape in shapes(found):
        for columns, body in ((COLUMNS, list(rows(found, shape))), (PRODUCT_COLUMNS, products(found, shape))):
            if body:
                show.table(out, shape, columns, ([show.escape(cell) for cell in row] for row in body))
    if found["calls"]:
        show.table(out, "Host time of a call, us", ("operation", "fresh outputs", "out given"), _calls(found))
    for place, words, failed in failures(found):
        out.print(show.escape(f"failed: {place}: {words}: {failed}"), soft_wrap=True)
    for item in found["header"]["missing"]:
        out.print(show.escape(f"not run: {item['name']}: {item['reason']}"), soft_wrap=True)
    lines = {r["line"]: r["words"] for r in not_offered(found)}
    for line, words in lines.items():
        out.print(show.escape(f"not offered: {line}: {words}"), soft_wrap=True)


def _calls(found: dict[str, Any]) -> Iterator[list[str]]:
    for call in found["calls"]:
        fresh = "failed" if call["fresh_us"] is None else f"{call['fresh_us']:.1f}"
        yield [call["operation"], fresh, "" if call["out_us"] is None else f"{call['out_us']:.1f}"]


def _table(columns: Sequence[str], body: Iterator[list[str]] | Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _summary(found: dict[str, Any]) -> Iterator[str]:
    """Yield, for each peer, over how many lines it was timed and by what factors, the first shape by itself."""
    first, *others = shapes(found)
    for name in dict.fromkeys(r["contender"] for r in timed(found) if not r["is_subject"]):
        mine = [(value, line, shape) for (shape, line, peer), value in _conversions(found).items() if peer == name]
        parts = [_range([one for one in mine if one[2] == first]), _range([one for one in mine if one[2] in others])]
        words = [f"{part}{place}" for part, place in zip(parts, (f" at {first}", " at the other shapes"), strict=True)
                 if part]  # fmt: skip
        if words:
            yield f"- {name}: {'; '.join(words)}."


def _range(mine: list[tuple[float, str, str]]) -> str:
    if not mine:
        return ""
    (least, where, _), (most, there, _) = min(mine), max(mine)
    return f"{len(mine)} lines, {least:.2f} ({where}) to {most:.2f} ({there}) times as long"


def markdown(found: dict[str, Any], title: str, figures: str = "", picture: str = "") -> str:
    """Return the page of a run. figures, picture: names of the files beside it."""
    head = found["header"]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    text = [
        f"# {title}", "",
        f"{device_words(found)} {versions}. Date: {head['date'][:10]}. Golden model {head['model_digest'][:23]}.", "",
        f"Command: `{head['command']}`" + (f". Figures: [{figures}]({figures})." if figures else "."), "",
        HOW.format(repeat=head["repeat"]), "",
    ]  # fmt: skip
    if picture:
        text += [f"![Share of copy bandwidth by kernel]({picture})", ""]
    text += ["## Contenders", ""]
    text += [f"- **{one['name']}**: {one['note']}." for one in head["contenders"]]
    text += [f"- {item['name']}: not run, {item['reason']}." for item in head["missing"]]
    summary = list(_summary(found))
    if summary:
        text += ["", "## Beside the peers", "", *summary]
    ahead = quicker(found)
    if ahead:
        text += ["", "## Where a peer is quicker", "", "Its time over the subject's, where that is below 1.", ""]
        text += _table(("kernel", "who", *shapes(found), "golden model"), ahead)
    for shape in shapes(found):
        text += ["", f"## {_shape_words(shape)}"]
        for columns, body in ((COLUMNS, list(rows(found, shape))), (PRODUCT_COLUMNS, products(found, shape))):
            text += ["", *_table(columns, body)] if body else []
    if found["calls"]:
        text += [
            "",
            "## Host time of a call",
            "",
            "Microseconds a call on a matrix of 32 x 1024, from the second on.",
            "",
        ]
        text += _table(("operation", "fresh outputs", "`out` given"), list(_calls(found)))
    failed = [f"- {place}: `{words}`: {alike}." for place, words, alike in failures(found)]
    if failed:
        text += ["", "## Failed", "", *failed]
    if not_offered(found):
        text += ["", "## Not offered", ""]
        text += [f"- {line}: {words}." for line, words in {r["line"]: r["words"] for r in not_offered(found)}.items()]
    return "\n".join(text) + "\n"


def _shape_words(shape: str) -> str:
    parts = shape.split("-")
    if len(parts) != 5:
        return shape.replace("x", " x ")
    return "{} tokens, {} experts, hidden {}, top-{}, feed-forward {}".format(*parts)
