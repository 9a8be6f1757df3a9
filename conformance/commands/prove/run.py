"""The run of a proof: chunk by chunk the subject's outputs against the model's, digests, state, and the certificate."""

from __future__ import annotations

import datetime
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from refnum.arrays import Array
from refnum.errors import RefnumError

from ...subjects.subject import Subject
from . import trace
from .catalogue import HOST, Proof, domain_record, get_proof
from .certificate import certificate, file_name, load_certificate
from .chunk import Done, Refuted, like_of, run_chunk
from .digest import RULE
from .processes import Processes, ProcessLost, told
from .state import State, state_key

Result = TypeVar("Result")
LAYOUT = 1
"""Raised when an enumeration lays the same members out differently, so that no old state goes on."""


class Stopped(Exception):
    """The user stopped a proof; its state is written and the same command goes on from there."""


@dataclass
class Watch:
    """What a progress bar is told: how many chunks there are, where the work stands, and each chunk's elements."""

    start: Callable[[Proof, int, int], None] = lambda proof, chunks, done: None
    advance: Callable[[int, int], None] = lambda members, elements: None


def prove(
    proof: Proof, subject: Subject, folder: Path | None = None, watch: Watch | None = None, most: int | None = None,
    processes: Processes | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Prove a statement of a subject and return the certificate.

    folder: where the state of an unfinished run is kept; None keeps none. most: stop after so many chunks of this
    run. processes: share the chunks among them; whatever their number, the digests and a refutation are the same.
    Raises Refuted at the first difference, Stopped after Ctrl-C or `most`, ProcessLost, UnsupportedError for a subject
    that cannot be judged on the proof. The state is written in each case but that of a refutation: then it is removed.
    """
    like = like_of(proof, subject)
    records = {
        "model": trace.model_record(proof, "numpy" if proof.golden == HOST else subject.arrays),
        "subject": trace.subject_record(proof, subject),
        "machine": trace.machine_record(subject.arrays),
    }
    if processes is not None:
        processes.like(records["machine"].get("device", ""))
    records["subject"]["digest"] = trace.subject_digest(records["subject"])
    path = folder / f"{file_name(proof.name, subject.name)}.part" if folder else None
    state = State.load(path if records["subject"]["digest"] else None, _key(proof, records))
    watch = watch or Watch()
    watch.start(proof, proof.made.chunks, len(state.chunks))
    first = len(state.chunks)
    try:
        for done in _in_order(proof, subject, range(first, proof.made.chunks), like, processes):
            state.note(*done)
            watch.advance(done[1], done[2])
            if most is not None and len(state.chunks) - first >= most < proof.made.chunks - first:
                raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        state.write()
        raise Stopped(
            f"{proof.name}: {len(state.chunks)} of {proof.made.chunks} chunks done, {state.elements} elements in "
            f"{state.seconds:.1f} s, {state.elements / max(state.seconds, 1e-9) / 1e9:.2f} G/s"
        ) from error
    except ProcessLost:
        state.write()
        raise
    except Refuted:
        state.forget()
        raise
    records["machine"] |= processes.record() if processes else {}
    document = certificate(proof, state.chunks, _result(proof, state), {**records, "run": _run(state)})
    state.forget()
    return document


def unchanged(path: Path, proof: Proof, subject: Subject) -> bool:
    """Whether a file certifies this proof of this subject, and neither the model nor the subject changed since."""
    try:
        document = load_certificate(path)
    except RefnumError:
        return False
    digest = trace.subject_digest(trace.subject_record(proof, subject))
    return bool(digest and document["subject"]["digest"] == digest and same_model(document))


def same_model(document: dict[str, Any]) -> bool:
    """Whether the model's files are those that a certificate was made with."""
    return bool(document["model"]["digest"] == trace.model_digest(get_proof(document["proof"])))


def _in_order(
    proof: Proof, subject: Subject, chunks: range, like: Array, processes: Processes | None
) -> Iterator[Done]:
    """Judge chunks and yield their results in order: by processes, or here; the model on the host, on all its cores."""
    if processes is not None:
        with told(proof):
            most = 2 * len(processes.places)
            yield from processes.results(_ahead(lambda one: processes.submit(proof, subject, one), most, chunks))
    elif proof.golden == HOST:
        workers = os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            yield from _ahead(lambda chunk: pool.submit(run_chunk, proof, subject, chunk, like), 2 * workers, chunks)
    else:
        yield from (run_chunk(proof, subject, chunk, like) for chunk in chunks)


def _ahead(submit: Callable[[int], Future[Result]], most: int, chunks: range) -> Iterator[Result]:
    """Yield the results of chunks in order, with so many given out at any time; the rest is taken back at the end."""
    ahead = iter(chunks)
    waiting = deque(submit(chunk) for chunk in itertools.islice(ahead, most))
    try:
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(submit(chunk) for chunk in itertools.islice(ahead, 1))
            yield done
    finally:
        for future in waiting:
            future.cancel()


def _key(proof: Proof, records: dict[str, dict[str, Any]]) -> str:
    model, subject = records["model"], records["subject"]
    return state_key(proof.name, domain_record(proof), RULE, LAYOUT, model["digest"], model["arrays"],
                     subject["name"], subject["digest"])  # fmt: skip


def _result(proof: Proof, state: State) -> dict[str, Any]:
    assert state.members == proof.size, f"{proof.name}: {state.members} members were compared, {proof.size} are stated"
    return {"verdict": "proved", "members": state.members, "elements": state.elements, "compared": state.compared,
            "mismatches": 0}  # fmt: skip


def _run(state: State) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    rate = state.elements / max(state.seconds, 1e-9)
    return {
        "finished": now.isoformat(),
        "seconds": round(state.seconds, 3),
        "rate": round(rate),
        "resumed": state.resumed,
    }
