"""The run of whole kernels: all is compiled and every question made first, then processes judge on the GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from refnum.errors import UnsupportedError

from ...subjects.subject import from_dict
from . import corpus, kernel_questions, kernels, kernels_ask
from .forked import Ended, apart, each_apart
from .kernels import Part, Shop
from .ledger import Ledger
from .operators import Mutant
from .verdict import Verdict

TOGETHER = 16
"""Mutants that are asked quick questions in one process."""
_shop: list[Shop] = []
_places = get_context("fork").Value("i", 0)
"""How many judging processes were given a GPU."""


def _never() -> bool:
    return False


def run(
    shop: Shop,
    mutants: Sequence[Mutant],
    workers: int,
    ledger: Ledger | None,
    hints: Mapping[str, str],
    gpus: Sequence[str] = (),
    busy: Callable[[], bool] = _never,
) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as it is there. UnsupportedError when the sources as they are fail.

    hints: mutant -> an operation that is likely to show it, so that its units are built before others. gpus: indices or
    UUIDs, to which the processes are given in turns; all that CUDA sees when left out. busy: whether the GPUs are not
    free yet; mutants are compiled ahead until they are.
    """  # fmt: skip
    parts = {part.name: part for mutant in mutants for part in shop.workshop.parts(mutant.file)}
    operations = list(dict.fromkeys(name for part in parts.values() for name in part.operations))
    _shop[:] = [shop]
    with _pool(workers) as pool:
        shop.code.update(pool.map(_code_here, parts.values()))
        kernel_questions.make(
            (o for o in operations if o != corpus.LAYOUTS), shop.workshop.profiles, shop.workshop.largest, pool
        )
    for operation in set(operations):
        kernels_ask.questions_beside(operation)
    known = {mutant: ledger.known(shop, mutant) if ledger else None for mutant in mutants}
    yield from (verdict for verdict in known.values() if verdict is not None)
    left = [mutant for mutant, verdict in known.items() if verdict is None]
    for verdict in _compiled_ahead(list(left), workers, hints, busy):
        left.remove(verdict.mutant)
        yield _kept(shop, ledger, verdict)
    shop.workshop.ready()
    left.sort(key=lambda mutant: -len(shop.workshop.parts(mutant.file)))
    with _pool(workers, gpus) as pool:
        _hold(pool.map(_control, operations if left else ()))
        for verdict in _quickly(left, pool, hints) if shop.workshop.slow_start else ():
            left.remove(verdict.mutant)
            yield _kept(shop, ledger, verdict)
        for done in as_completed([pool.submit(_judge_here, mutant, hints.get(mutant.id, "")) for mutant in left]):
            yield _kept(shop, ledger, done.result())


def _pool(workers: int, gpus: Sequence[str] = ()) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_place, initargs=(tuple(gpus),))


def _place(gpus: Sequence[str]) -> None:
    """Give this process the next GPU, before it starts CUDA."""
    if gpus:
        with _places.get_lock():
            number, _places.value = _places.value, _places.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]


def _kept(shop: Shop, ledger: Ledger | None, verdict: Verdict) -> Verdict:
    if ledger is not None:
        ledger.write(shop, verdict)
    return verdict


def _compiled_ahead(
    mutants: Sequence[Mutant], workers: int, hints: Mapping[str, str], busy: Callable[[], bool]
) -> Iterator[Verdict]:
    """Compile mutants up to the first unit whose code is another, while the GPUs are busy; yield those that have none
    or do not compile."""
    if not busy():
        return
    with _pool(workers) as pool:
        waiting: list[Future[Verdict | None]] = [pool.submit(_build_here, m, hints.get(m.id, "")) for m in mutants]
        for done in as_completed(waiting):
            verdict = done.result()
            if verdict is not None:
                yield verdict
            if not busy():
                pool.shutdown(cancel_futures=True)
                return
    while busy():
        time.sleep(0.2)


def _quickly(mutants: Sequence[Mutant], pool: ProcessPoolExecutor, hints: Mapping[str, str]) -> Iterator[Verdict]:
    """Yield the verdicts that quick questions give, asked of several mutants in one process."""
    lined = [(mutant, hints.get(mutant.id, "")) for mutant in mutants if mutant.line]  # a flag changes its process
    batches = max(1, len(lined) // TOGETHER)
    for done in as_completed([pool.submit(_quick_here, lined[number::batches]) for number in range(batches)]):
        yield from done.result()


def _quick_here(pairs: Sequence[tuple[Mutant, str]]) -> list[Verdict]:
    found = each_apart(lambda pair: kernels.judge_quickly(_shop[0], *pair), pairs, kernels_ask.SECONDS)
    return [verdict for _, verdict in found if verdict is not None and not isinstance(verdict, Ended)]


def _build_here(mutant: Mutant, hint: str) -> Verdict | None:
    return kernels.build(_shop[0], mutant, hint)


def _judge_here(mutant: Mutant, hint: str) -> Verdict:
    return kernels.judge(_shop[0], mutant, hint)


def _code_here(part: Part) -> tuple[str, str]:
    return part.name, _shop[0].workshop.code(_shop[0].workshop.root, part)


def _control(operation: str) -> dict[str, Any]:
    """Ask the sources as they are, in a process of their own; return what is wrong."""
    workshop = _shop[0].workshop
    subject = from_dict(workshop.subject(workshop.root), "the workshop")
    return apart(lambda: kernels_ask.ask(subject, operation, workshop), kernels_ask.SECONDS)


def _hold(controls: Iterable[Mapping[str, Any]]) -> None:
    for said in controls:
        if said:
            raise UnsupportedError(f"the sources as they are fail, so that nothing can be judged: {dict(said)}")
