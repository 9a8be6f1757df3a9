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
from typing import Any

import numpy as np

from refnum.arrays import Array
from refnum.errors import RefnumError, UnsupportedError

from ..calling.libraries import to_numpy
from ..compare import observe
from ..device import Mismatch, call_there, compare_there, device_like, place
from ..domains.part import Part
from ..operation import run_golden
from ..subject import Subject
from . import trace
from .catalogue import HOST, Proof, domain_record, get_proof
from .certificate import certificate, file_name, load_certificate
from .digest import RULE, ChunkDigest
from .state import State, state_key

LAYOUT = 1
"""Raised when an enumeration lays the same members out differently, so that no old state goes on."""


class Stopped(Exception):
    """The user stopped a proof; its state is written and the same command goes on from there."""


class Refuted(Exception):
    """The subject gave other bytes than the model: the first member in order that shows it."""

    def __init__(self, proof: Proof, chunk: int, part: Part, words: str, first: Mismatch | None) -> None:
        self.proof, self.chunk, self.part, self.first = proof, chunk, part, first
        self.title = proof.made.title(chunk)
        self.input = named_input(part, first) if first else ""
        where = f": {first.output}{list(first.index)} is {first.observed:#x}, not {first.golden:#x}" if first else ""
        given = f", input {self.input}" if self.input else ""
        super().__init__(f"{proof.name}, chunk {chunk} ({self.title}){where}{given}; {words}")


@dataclass
class Watch:
    """What a progress bar is told: how many chunks there are, where the work stands, and each chunk's elements."""

    start: Callable[[Proof, int, int], None] = lambda proof, chunks, done: None
    advance: Callable[[int, int], None] = lambda members, elements: None


def prove(
    proof: Proof, subject: Subject, folder: Path | None = None, watch: Watch | None = None, most: int | None = None
) -> dict[str, Any]:
    """Prove a statement of a subject and return the certificate.

    folder: where the state of an unfinished run is kept; None keeps none. most: stop after so many chunks of this
    run. Raises Refuted at the first difference, Stopped after Ctrl-C or `most`, UnsupportedError for a subject that
    cannot be judged on the proof. The state is written in each case but that of a refutation, where it is removed.
    """
    like = like_of(proof, subject)
    records = {
        "model": trace.model_record(proof, "numpy" if proof.golden == HOST else subject.arrays),
        "subject": trace.subject_record(proof, subject),
        "machine": trace.machine_record(subject.arrays),
    }
    records["subject"]["digest"] = trace.subject_digest(records["subject"])
    path = folder / f"{file_name(proof.name, subject.name)}.part" if folder else None
    state = State.load(path if records["subject"]["digest"] else None, _key(proof, records))
    watch = watch or Watch()
    watch.start(proof, proof.made.chunks, len(state.chunks))
    first = len(state.chunks)
    try:
        for done in _in_order(proof, subject, range(first, proof.made.chunks), like):
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
    except Refuted:
        state.forget()
        raise
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


def like_of(proof: Proof, subject: Subject) -> Array:
    """Return the array whose library and device the cases of a proof are made in for a subject."""
    missing = [name for name in proof.operations if name not in subject.operations]
    if missing:
        raise UnsupportedError(f"{subject.name} has no {', '.join(missing)}; {proof.name} needs it.")
    if subject.arrays not in ("numpy", "cupy"):
        raise UnsupportedError(f"{subject.name} takes {subject.arrays} arrays; proofs take numpy and cupy.")
    return device_like() if subject.arrays == "cupy" else np.empty(0, np.uint8)


def run_chunk(proof: Proof, subject: Subject, chunk: int, like: Array) -> tuple[str, int, int, int]:
    """Judge one chunk; return (digest of the subject's outputs, members, input elements, compared items).

    Raises Refuted when a byte differs.
    """
    digest, members, elements, compared = ChunkDigest(), 0, 0, 0
    host = proof.golden == HOST
    for part in proof.made.parts(chunk, np.empty(0, np.uint8) if host else like):
        golden = run_golden(part.case)
        results = call_there(subject, place(part.case, like) if host else part.case)
        observed, problem = observe(part.case, golden, tuple(map(to_numpy, results)) if host else results)
        if problem:
            raise Refuted(proof, chunk, part, problem, None)
        judged = compare_there(golden, observed)
        if judged.wrong:
            raise Refuted(proof, chunk, part, judged.words, judged.records[0])
        digest.add(observed)
        members += part.members
        elements += part.case.elements
        compared += judged.compared
    return digest.hex(), members, elements, compared


def _in_order(proof: Proof, subject: Subject, chunks: range, like: Array) -> Iterator[tuple[str, int, int, int]]:
    """Judge chunks and yield their results in order; where the model runs on the host, on all its processors."""
    if proof.golden != HOST:
        yield from (run_chunk(proof, subject, chunk, like) for chunk in chunks)
        return
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[tuple[str, int, int, int]]] = deque()
        ahead = iter(chunks)
        try:
            for chunk in itertools.islice(ahead, 2 * workers):
                waiting.append(pool.submit(run_chunk, proof, subject, chunk, like))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(
                    pool.submit(run_chunk, proof, subject, chunk, like) for chunk in itertools.islice(ahead, 1)
                )
        finally:
            pool.shutdown(cancel_futures=True)


def golden_chunk(proof: Proof, chunk: int, like: Array) -> str:
    """Return the digest that the model gives for a chunk, on the arrays of `like`."""
    digest = ChunkDigest()
    for part in proof.made.parts(chunk, like):
        digest.add(run_golden(part.case))
    return digest.hex()


def named_input(part: Part, first: Mismatch) -> str:
    """Name the input beside a differing output by its bits, where its place follows from the output's shape."""
    name, array = next(iter(part.case.inputs.items()))
    if first.output == "packed" and array.dtype.itemsize > 1:  # two codes a byte: the nibble that differs
        row, column = first.index
        index: tuple[int, ...] = (row, 2 * column + (not (first.golden ^ first.observed) & 15))
    elif first.output == "scales" and array.ndim == len(first.index):
        index = (first.index[0], first.index[1] * 32)
    else:
        index = first.index
    if len(index) != array.ndim or any(i >= side for i, side in zip(index, array.shape, strict=True)):
        return ""
    bits = to_numpy(array[tuple(slice(i, i + 1) for i in index)])
    params = {key: value for key, value in part.case.params.items() if key not in ("input", "splits")}
    shown = "".join(f", {key}={value}" for key, value in params.items())
    return f"{name}{list(index)} = {int.from_bytes(bits.tobytes(), 'little'):#x}{shown}"


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
