"""`refnum check -o moe_layer`: anyone's layer against the golden layer, on ranks of this machine (clause N20).

A subject is a function `moe_layer(x, experts, probs, w1, w2, grad)` of torch tensors. Every rank calls it at the same
time, `torch.distributed` being ready, with its own tokens, routing, experts' weights and gradient of the output; it
returns a dictionary of tensors by the names of `OUTPUTS`, `out` among them. An attribute `policy` of the function names
what it follows, `mxfp4` if there is none.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from refnum.errors import ArgumentError, FileError, RefnumError

from . import golden
from .compare import different, to_array, to_own_array, without_fill
from .dispatch import RankError
from .layer_cases import CASES, LayerCase, drawn, inputs, weights
from .policies import get_policy
from .spawn import local_device, run_ranks

OURS = "refnum.training.subject:moe_layer"
Subject = Callable[..., Mapping[str, torch.Tensor]]

OUTPUTS: dict[str, tuple[str, str]] = {
    **{name: ("forward", name) for name in ("out", "payload", "received", "fc1", "fc2", "returned")},
    **{name: ("backward", name) for name in ("dx", "dprobs", "dw1", "dw2", "dact", "dx_rows")},
}
"""Name of a tensor that a subject may return -> step and field of the golden layer that it must equal."""
PRODUCTS = ("fc1", "fc2", "dact", "dx_rows")
"""Those whose rows are products with an expert's weights."""


@dataclass(frozen=True)
class Verdict:
    """One case: `pass`, `mismatch`, `malformed`, `fault`, `timeout` or `not asked`, and why.

    differing: rank and name of each tensor that differs, and in how many elements. names: of the tensors judged.
    """

    case: str
    outcome: str
    elements: int = 0
    differing: Mapping[str, int] | None = None
    why: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Task:
    """What a rank needs to know."""

    subject: str
    policy: str
    device: str
    folder: Path
    cases: tuple[LayerCase, ...]
    seconds: float


def judge(
    subject: str = OURS, device: str = "cpu", seconds: float = 60.0, cases: Sequence[LayerCase] = CASES
) -> list[Verdict]:
    """Judge a subject on cases of two and more ranks.

    Args:
        subject: `FILE.py:NAME`, or `MODULE:NAME`.
        device: `cpu` (gloo), or `cuda` (NCCL, two GPUs).
        seconds: how long a rank may wait for the other.
        cases: which ones.

    Returns:
        One Verdict a case.

    Raises:
        ArgumentError, FileError: the subject cannot be loaded.
    """
    policy = str(getattr(load_subject(subject), "policy", "mxfp4"))
    get_policy(policy)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="refnum-layer-") as name:
        while left := cases[len(verdicts) :]:
            ranks = len(left[0].tokens)
            if device == "cuda" and ranks > torch.cuda.device_count():
                verdicts.append(Verdict(left[0].name, "not asked", why=f"it needs {ranks} GPUs"))
                continue
            same = next(tuple(group) for _, group in groupby(left, lambda case: len(case.tokens)))
            verdicts += _judged(_Task(subject, policy, device, Path(name), same, seconds))
            _clear(Path(name))
    every = dict.fromkeys(name for one in verdicts for name in one.names)
    return [_whole(one, every) for one in verdicts]


def _whole(verdict: Verdict, every: Iterable[str]) -> Verdict:
    """Return a verdict, malformed where its case passes without a tensor that others have."""
    lacking = [name for name in every if name not in verdict.names]
    if verdict.outcome != "pass" or not lacking:
        return verdict
    return replace(verdict, outcome="malformed", why=f"{', '.join(lacking)} is missing, which other cases returned")


def load_subject(words: str) -> Subject:
    """Return the function that `FILE.py:NAME` or `MODULE:NAME` names."""
    place, _, name = words.rpartition(":")
    if not place or not name:
        raise ArgumentError(f"subject {words!r}; allowed are FILE.py:NAME and MODULE:NAME")
    module = _module(place)
    found = getattr(module, name, None)
    if not callable(found):
        raise ArgumentError(f"{place} has no function {name!r}; give one that takes x, experts, probs, w1, w2, grad")
    return found


@functools.cache
def _module(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise ArgumentError(f"the module {place!r} cannot be imported: {error}") from error
    path = Path(place)
    if not path.is_file():
        raise FileError(f"{place}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"refnum_subject_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # code of someone else
        raise FileError(f"{place} cannot be run: {type(error).__name__}: {error}") from error
    return module


def model(case: LayerCase, policy: str) -> list[tuple[golden.Forward, golden.Backward]]:
    """Return the golden step of both ranks."""
    given = [{name: to_array(one) for name, one in inputs(case, rank).items()} for rank in range(len(case.tokens))]
    x, experts, probs, grads = ([one[name] for one in given] for name in ("x", "experts", "probs", "grad"))
    w1, w2 = map(to_array, weights(case, range(case.experts)))
    forward = golden.forward(x, experts, probs, w1, w2, policy)
    return list(zip(forward, golden.backward(forward, grads, experts, policy), strict=True))


def _run(task: _Task) -> None:
    """Call the subject on this rank with one case after the other, and keep what it returns and what it breaks."""
    rank, device, subject = dist.get_rank(), local_device(task.device), load_subject(task.subject)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))  # ranks share the cores
    given: dict[str, torch.Tensor] = {}
    before: Mapping[str, torch.Tensor] = {}
    for number, case in enumerate(task.cases):
        per = case.experts // dist.get_world_size()
        drawn = inputs(case, rank)
        drawn["w1"], drawn["w2"] = weights(case, range(rank * per, rank * per + per))
        given = {name: _in_place(given.get(name), one.to(device)) for name, one in drawn.items()}
        kept = {name: one.clone() for name, one in before.items()}
        copies = {name: one.clone() for name, one in given.items()}
        found = subject(*(given[name] for name in ("x", "experts", "probs", "w1", "w2", "grad")))
        broken = [f"the call changed its argument {name}" for name in given if _differ(given[name], copies[name])]
        broken += [f"the call changed {name}, which the call before it returned" for name in before
                   if _differ(before[name], kept[name])]  # fmt: skip
        before = {name: one.detach() for name, one in found.items() if isinstance(one, torch.Tensor)}
        tensors = {name: one.clone().cpu() for name, one in before.items()}
        torch.save({"tensors": tensors, "broken": broken}, task.folder / f"{rank}.tmp")
        os.replace(task.folder / f"{rank}.tmp", task.folder / f"{number}-{rank}.pt")
        _meet([task.folder / f"{number}-{other}.pt" for other in range(dist.get_world_size())], task.seconds)


def _in_place(old: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
    """Return the new numbers where those of the case before lie, if they fit there, as training changes weights."""
    if old is None or not old.is_leaf or 0 in new.stride():
        return new
    if (old.shape, old.stride(), old.dtype) != (new.shape, new.stride(), new.dtype):
        return new
    old.grad = None
    return old.requires_grad_(False).copy_(new)


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors differ in shape, dtype or a bit."""
    return one.dtype != other.dtype or different(to_own_array(one), to_own_array(other)) > 0


def _meet(paths: Sequence[Path], seconds: float) -> None:
    """Wait until every rank is done, or an exchange that one left out would meet the next case's."""
    stop = time.monotonic() + seconds + 5.0
    while not all(path.exists() for path in paths):
        if time.monotonic() > stop:
            raise RankError(f"a rank waited up to {seconds:g} s for the other to end its step")
        time.sleep(0.005)


def _judged(task: _Task) -> list[Verdict]:
    """Return the verdicts of cases of one number of ranks, up to one that ended them; at least one."""
    ranks = len(task.cases[0].tokens)
    error: RefnumError | None = None
    try:
        run_ranks(_run, task, ranks, task.device, task.seconds)
    except RefnumError as raised:
        error = raised
    verdicts: list[Verdict] = []
    for number, case in enumerate(task.cases):
        paths = [task.folder / f"{number}-{rank}.pt" for rank in range(ranks)]
        if not all(path.exists() for path in paths):
            words = str(error or "it ended without a result")
            late = any(word in words.lower() for word in ("timed out", "timeout", "waited up to"))
            return [*verdicts, Verdict(case.name, "timeout" if late else "fault", why=words[:300])]
        found = [torch.load(path, weights_only=True) for path in paths]
        verdict = _compared(case, task.policy, [one["tensors"] for one in found])
        broken = [f"rank {rank}: {words}" for rank, one in enumerate(found) for words in one["broken"]]
        if broken and verdict.outcome in ("pass", "mismatch"):
            verdict = replace(verdict, outcome="mismatch", why="; ".join([*filter(None, [verdict.why]), *broken[:3]]))
        verdicts.append(verdict)
    return verdicts


def _clear(folder: Path) -> None:
    for path in folder.glob("*.pt"):
        path.unlink()


def _compared(case: LayerCase, policy: str, found: Sequence[Mapping[str, torch.Tensor]]) -> Verdict:
    steps, elements, differing = model(case, policy), 0, {}
    names = tuple(dict.fromkeys(name for one in found for name in one))
    for rank, (got, (forward, backward)) in enumerate(zip(found, steps, strict=True)):
        unknown = sorted(set(got) - set(OUTPUTS))
        if "out" not in got or unknown:
            why = f"unknown are {', '.join(unknown)}" if unknown else "'out' is missing"
            return Verdict(case.name, "malformed", why=f"rank {rank}: {why}; allowed are {', '.join(OUTPUTS)}")
        if lacking := [name for name in names if name not in got]:
            why = f"rank {rank}: {', '.join(lacking)} is missing, which another rank returned"
            return Verdict(case.name, "malformed", why=why)
        for name, tensor in got.items():
            step, field = OUTPUTS[name]
            want = getattr(forward if step == "forward" else backward, field)
            array = to_array(tensor)
            if array.shape != want.shape or array.dtype != want.dtype:
                why = f"rank {rank}: {name} is {array.dtype}{list(array.shape)}, not {want.dtype}{list(want.shape)}"
                return Verdict(case.name, "malformed", why=why)
            elements += want.size
            array = without_fill(array, want, forward.splits) if name in PRODUCTS else array
            if count := different(array, want):
                differing[f"rank {rank} {name}"] = count
    outcome = "mismatch" if differing else "pass"
    return Verdict(case.name, outcome, elements, differing, _hint(differing, found, steps), names)


def _hint(differing: Mapping[str, int], found: Sequence[Mapping[str, Any]], steps: Sequence[Any]) -> str:
    """Return what the received bytes say of the cause, where the subject returned them."""
    for rank, (got, (forward, _)) in enumerate(zip(found, steps, strict=True)):
        if f"rank {rank} received" in differing:
            codes = forward.received.shape[1] // 17 * 16
            same = not different(to_array(got["received"])[:, :codes], forward.received[:, :codes])
            return (
                "the codes of all received rows are right and scale bytes are not: scales took another way, or order"
                if same
                else "received codes differ: rows were not moved, or not to these places"
            )
    return ""


def check_layer(
    subjects: Sequence[str], report: Path | None = None, as_json: bool = False, device: str = "", *, seed: int = 0,
    examples: int = 0,
) -> int:  # fmt: skip
    """Judge layers, print a line for each case, and return the exit status.

    Args:
        subjects: as `judge` takes them; ours where there is none.
        report: a file for the verdicts as JSON.
        as_json: whether to print them as JSON too.
        device: `cpu` or `cuda`; empty is `cuda` where there are two GPUs.
        seed, examples: how many further cases are drawn, and from which seed.

    Returns:
        0 where all cases of all subjects pass, else 1.
    """
    place = device or ("cuda" if torch.cuda.device_count() > 1 else "cpu")
    cases = (*CASES, *drawn(seed, examples))
    cases = tuple(sorted(cases, key=lambda case: len(case.tokens)))  # ranks are started once for all of one number
    found = {name: judge(name, place, cases=cases) for name in subjects or (OURS,)}
    document = {name: [asdict(one) for one in verdicts] for name, verdicts in found.items()}
    text = json.dumps({"operation": "moe_layer", "device": place, "seed": seed, "subjects": document}, indent=1)
    if report is not None:
        temporary = report.with_name(f"{report.name}.{os.getpid()}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, report)
    print(text) if as_json else _print(found, {case.name: case.finds for case in cases})
    return int(any(_failed(one) for verdicts in found.values() for one in verdicts))


def _print(found: Mapping[str, Sequence[Verdict]], finds: Mapping[str, str]) -> None:
    for name, verdicts in found.items():
        for one in verdicts:
            words = f"{one.elements:,} elements" if one.outcome == "pass" else one.why or _worst(one)
            print(f"{one.outcome:9s} {one.case}: {words}")
            if _failed(one):
                print(f"          {_worst(one)}the case is there to find {finds[one.case]}")
        bad = sum(map(_failed, verdicts))
        left = [one for one in OUTPUTS if not any(one in verdict.names for verdict in verdicts)]
        words = f"; not returned, and so not judged: {', '.join(left)}" if left and not bad else ""
        print(f"moe_layer of {name}: {len(verdicts)} cases, {bad} failed{words}", file=sys.stdout)


def _failed(one: Verdict) -> bool:
    return one.outcome not in ("pass", "not asked")


def _worst(one: Verdict) -> str:
    counts = [f"{name}: {count} elements" for name, count in (one.differing or {}).items()]
    return f"{', '.join(counts[:4])}{' and more' if len(counts) > 4 else ''}; " if counts else ""
