"""Processes that judge chunks of proofs, one on each GPU or several on the processor. Digests and counts come back."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from refnum.errors import ArgumentError, RefnumError, UnsupportedError

from ...reports.gpus import chosen_gpus
from ...subjects.choose import choose
from ...subjects.subject import Subject
from ..processes import die_with_parent
from .catalogue import Proof, get_proof
from .chunk import Done, Refuted, like_of, run_chunk


class ProcessLost(RefnumError):
    """A process that judged chunks ended by itself."""


class ProcessFailed(RefnumError):
    """What a subject, or the harness, raised in a process that judged chunks: type, words and where."""


@dataclass(frozen=True)
class Place:
    """Where one process runs: the environment variables that it gets, and the name of its GPU (empty: none)."""

    settings: dict[str, str]
    device: str = ""


def places_on(subject: Subject, gpus: str | None, workers: int | None) -> list[Place]:
    """Return the places that the options `--gpus` and `--workers` give a subject; none when neither was given.

    Raises ArgumentError for the option that is of no use to the subject, a GPU that is not here, and unlike GPUs.
    """
    on_gpu = subject.arrays == "cupy"
    if workers is not None and on_gpu:
        raise ArgumentError(f"--workers is for subjects on the processor; {subject.name} is on a GPU: give --gpus.")
    if gpus is not None and not on_gpu:
        raise ArgumentError(f"--gpus is for subjects on a GPU; {subject.name} is not: give --workers.")
    if gpus is not None:
        cards = chosen_gpus(gpus)
        alike(f"--gpus {gpus}", {card["name"] for card in cards})
        return [Place({"CUDA_VISIBLE_DEVICES": card["uuid"]}, card["name"]) for card in cards]
    return [Place({"CUDA_VISIBLE_DEVICES": ""})] * (workers or 0)


def alike(what: str, names: set[str]) -> None:
    """Raise ArgumentError unless cards have one name: a certificate has one digest of machine code, made for one."""
    if len(names) > 1:
        raise ArgumentError(
            f"{what}: the GPUs are unlike, {' and '.join(sorted(names))}; a certificate is of the machine code for one "
            f"kind: give GPUs of one kind, or set CUDA_VISIBLE_DEVICES to them."
        )


Seat = tuple[int, str]
"""A process by its number, and the GPU that it may use (empty: none)."""


class Processes:
    """A pool of processes, each with its place. It serves one proof after the other and is closed at the end.

    subject: the name or file that a process chooses its subjects by, as it was typed.
    """

    def __init__(self, subject: str, places: Sequence[Place]) -> None:
        self.subject, self.places = subject, tuple(places)
        self.judged: set[Seat] = set()
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        settings = context.SimpleQueue()
        for place in places:
            settings.put(place.settings)
        self.pool = ProcessPoolExecutor(len(self.places), context, _begin, (settings,))

    def like(self, device: str) -> None:
        """Raise ArgumentError unless the GPUs are of the kind of this process', which made the machine code's digest.

        device: its name; nvidia-smi's may lack what follows, the slice of a GPU that is shared.
        """
        others = {place.device for place in self.places if place.device and not device.startswith(place.device)}
        alike("--gpus", others | {device})

    def submit(self, proof: Proof, subject: Subject, chunk: int) -> Future[tuple[Seat, Done]]:
        """Judge a chunk in some process."""
        return self.pool.submit(_judge, proof.name, self.subject, subject.name, chunk)

    def results(self, answers: Iterable[tuple[Seat, Done]]) -> Iterator[Done]:
        """Yield the results of one proof's chunks and note who judged them."""
        self.judged.clear()
        for seat, done in answers:
            self.judged.add(seat)
            yield done

    def record(self) -> dict[str, str]:
        """Return what a certificate says beside the machine: how many processes judged chunks, and on how many GPUs."""
        cards = {card for _, card in self.judged if card}
        count = str(len(self.judged))
        return {"processes": f"{count} on {len(cards)} GPUs" if cards else count} if self.judged else {}

    def close(self) -> None:
        """End the processes, each after the chunk that it is at."""
        self.pool.shutdown(cancel_futures=True)


@contextmanager
def told(proof: Proof) -> Iterator[None]:
    """Turn the end of a process into a named error."""
    try:
        yield
    except BrokenProcessPool as error:
        raise ProcessLost(f"A process that judged chunks of {proof.name} ended by itself, say for want of memory; "
                          f"the chunks before it are kept: run the same command again.") from error  # fmt: skip


def _begin(settings: Any) -> None:
    """Begin a process: take a place, before anything asks for a GPU, leave Ctrl-C to the parent, and die with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(settings.get())
    die_with_parent()


@functools.cache
def _subject(typed: str, name: str) -> Subject:
    chosen = choose([typed])
    for subject in chosen.usable:
        if subject.name == name:
            return subject
    reasons = "; ".join(f"{missing.name}: {reason}" for missing, reason in chosen.unusable) or "it is not among them"
    raise UnsupportedError(f"{name} cannot be used in a process that shares a proof: {reasons}.")


def _judge(proof: str, typed: str, name: str, chunk: int) -> tuple[Seat, Done]:
    judged, subject = get_proof(proof), _subject(typed, name)
    seat = (os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    try:
        return seat, run_chunk(judged, subject, chunk, like_of(judged, subject))
    except (RefnumError, Refuted):
        raise
    except Exception as error:  # another's error need not survive the way to the parent
        raise ProcessFailed(f"{type(error).__name__}: {error}\n{traceback.format_exc()}") from None
