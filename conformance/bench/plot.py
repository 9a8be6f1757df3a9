"""The picture of a run: share of copy bandwidth by kernel, the subject as bars, its peers as marks beside them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from refnum.errors import FileError, UnsupportedError

from .document import shapes, timed

SUBJECT = "#2a6f97"
PEERS = (("#d1495b", "D"), ("#edae49", "s"), ("#66a182", "^"), ("#8d6a9f", "v"), ("#5c5c5c", "o"))


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the picture of the first shape of a run; the suffix of the path says the format.

    Raises UnsupportedError without matplotlib, FileError when the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UnsupportedError("--plot needs matplotlib: install refnum[plot].") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shape = shapes(found)[0]
    records = timed(found, shape)
    own = sorted((r for r in records if r["is_subject"]), key=lambda r: r["of_copy"])
    places = {r["line"]: place for place, r in enumerate(own)}
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.3 * len(own)), layout="constrained")
    axes.barh(range(len(own)), [100 * r["of_copy"] for r in own], color=SUBJECT, height=0.62, label=own[0]["contender"])
    names = dict.fromkeys(r["contender"] for r in records if not r["is_subject"])
    for name, (colour, mark) in zip(names, PEERS * (1 + len(names) // len(PEERS)), strict=False):
        mine = [r for r in records if r["contender"] == name and r["line"] in places]
        # a peer's share by the subject's bytes: marks of one line compare times, whatever formats a peer moves
        bytes_of = {r["line"]: (r["bytes"], r["of_copy"], r["us"]["median"]) for r in own}
        share = [100 * bytes_of[r["line"]][1] * bytes_of[r["line"]][2] / r["us"]["median"] for r in mine]
        axes.plot(
            share, [places[r["line"]] for r in mine], linestyle="none", marker=mark, markersize=5.5,
            color=colour, markeredgecolor="white", markeredgewidth=0.5, label=name, zorder=3,
        )  # fmt: skip
    for r in own:  # beside everything that stands on its line
        furthest = max(
            100 * r["of_copy"] * r["us"]["median"] / one["us"]["median"] for one in records if one["line"] == r["line"]
        )
        axes.text(furthest + 1.2, places[r["line"]], f"{r['us']['median']:.0f} us", va="center", fontsize=7)
    axes.axvline(100, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(own)), [r["line"] for r in own], fontsize=8)
    axes.set_ylim(-0.6, len(own) - 0.4)
    axes.set_xlim(0, max(114.0, 100 * own[-1]["of_copy"] + 12))
    axes.set_xlabel(
        "share of device copy bandwidth, % (bytes of the subject's formats over the time taken)", fontsize=8
    )
    copy = found["header"]["copy_bytes_per_second"] / 1e12
    axes.set_title(f"{found['header']['device']['name']}, {shape}, copy {copy:.2f} TB/s", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=min(1 + len(names), 6))
    _save(figure, path)
    plt.close(figure)


def _save(figure: Any, path: Path) -> None:
    """Write under a temporary name, then rename."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        figure.savefig(temporary, dpi=130, metadata={"Software": None} if path.suffix == ".png" else None)
        temporary.chmod(0o644)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise FileError(f"Cannot write {path}: {error}.") from error
