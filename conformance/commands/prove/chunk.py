"""One chunk of a proof: the subject's outputs against the model's, and their digest."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np

from refnum.arrays import Array
from refnum.errors import RefnumError, UnsupportedError

from ...cases.domains.part import Part
from ...cases.levels import Outcome
from ...cases.operation import run_golden
from ...subjects.arrays import to_numpy
from ...subjects.subject import Subject
from ...verdicts.compare import observe
from ...verdicts.device import Mismatch, call_on_device, compare_on_device, device_like, place
from .catalogue import HOST, Proof
from .digest import ChunkDigest

_ON_DEVICE = threading.Lock()
"""Held by the thread that calls a subject on a device while others run the model on the host: threads that call CuPy
together compile each of its kernels once each, one after another."""

Done = tuple[str, int, int, int]
"""What a chunk comes to: (digest of the subject's outputs, members, input elements, compared items)."""


class Refuted(Exception):
    """The subject gave other bytes than the model: the first member in order that shows it.

    title: of the chunk. given: the input beside the differing output, where it is known. It crosses processes.
    """

    def __init__(
        self, proof: str, chunk: int, title: str, words: str, first: Mismatch | None = None, given: str = ""
    ) -> None:
        super().__init__(proof, chunk, title, words, first, given)
        self.proof, self.chunk, self.title, self.words, self.first, self.input = self.args

    def __str__(self) -> str:
        first = self.first
        where = f": {first.output}{list(first.index)} is {first.observed:#x}, not {first.golden:#x}" if first else ""
        given = f", input {self.input}" if self.input else ""
        return f"{self.proof}, chunk {self.chunk} ({self.title}){where}{given}; {self.words}"


def like_of(proof: Proof, subject: Subject) -> Array:
    """Return the array whose library and device the cases of a proof are made in for a subject."""
    missing = [name for name in proof.operations if name not in subject.operations]
    if missing:
        raise UnsupportedError(f"{subject.name} has no {', '.join(missing)}; {proof.name} needs it.")
    if subject.arrays not in ("numpy", "cupy"):
        raise UnsupportedError(f"{subject.name} takes {subject.arrays} arrays; proofs take numpy and cupy.")
    return device_like() if subject.arrays == "cupy" else np.empty(0, np.uint8)


def run_chunk(proof: Proof, subject: Subject, chunk: int, like: Array) -> Done:
    """Judge one chunk; return (digest of the subject's outputs, members, input elements, compared items).

    Raises Refuted when a byte differs, RefnumError when the subject does not answer.
    """
    digest, members, elements, compared = ChunkDigest(), 0, 0, 0
    host = proof.golden == HOST
    for part in proof.made.parts(chunk, np.empty(0, np.uint8) if host else like):
        golden = run_golden(part.case)
        with _ON_DEVICE if host else nullcontext():
            called = call_on_device(subject, place(part.case, like) if host else part.case)
        if called.outcome is Outcome.UNSUPPORTED:
            raise UnsupportedError(called.words)
        if called.outcome is not Outcome.PASS:
            raise RefnumError(f"{proof.name}, chunk {chunk}: {subject.name} did not answer: {called.words}.")
        observed, problem = observe(part.case, golden, tuple(map(to_numpy, called.live)) if host else called.live)
        if problem:
            raise Refuted(proof.name, chunk, proof.made.title(chunk), problem.words)
        judged = compare_on_device(golden, observed)
        if judged.wrong:
            first = judged.records[0]
            raise Refuted(proof.name, chunk, proof.made.title(chunk), judged.words, first, named_input(part, first))
        digest.add(observed)
        members += part.members
        elements += part.case.elements
        compared += judged.compared
    return digest.hex(), members, elements, compared


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
