"""Many calls in a row on parts of one case: what is asked of one call is asked, at a tenth of the cost of watching it.

Guards of the process stand around all calls, not around each. A part whose call did anything but answer is called
again by itself, as any case is, so that what it did has the words that it always has.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy import geterr, seterr  # as they are now: a kernel may replace those of the module

from refnum.errors import RefnumError

from ...cases.case import FORM, Case
from ...cases.findings import Finding
from ...cases.layouts import IN, OUT, stored_inputs, stored_scales
from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, outputs_of, remember_like
from ...cases.same_bytes import same
from ...cases.structure.cutting import AT_ONCE, BEHIND, REFUSED, THE_SAME, Cutting, Part
from ...cases.structure.illegal import no_input
from ..arrays import IMMUTABLE, same_place
from ..subject import Subject, arguments_for, declines, takes_out
from .at_once import call_from_another_thread, call_twice_at_once
from .call import POISONS, Called, call, given_back
from .company import Company
from .exits import caught
from .float_mode import default_float_mode, float_mode
from .forms import changed_list, counts_in_form, held, out_storage, scalars_in_form
from .process_state import changed, process_state, restore
from .results import kept_elsewhere, made_wrong
from .room import Room, rooms_for
from .threads import in_a_thread
from .time_limit import CallTimeout, time_limit

Note = Callable[[int], None]
"""Told the place of a part before it is called."""
OWN = 4
"""References to a result that its caller has: what the call returned, a tuple, a variable and an argument."""
BEGUN = 1.0
"""Seconds that a call waits for the other one of the same time to begin: a busy machine may part them."""
Likes = Mapping[str, np.ndarray]


def call_parts(
    subject: Subject,
    case: Case,
    cutting: Cutting,
    parts: Sequence[Part],
    like: Sequence[np.ndarray],
    seconds: float = 60.0,
    note: Note = lambda place: None,
) -> list[Called]:
    """Call a subject on each part of a case, each on fresh data in the part's form.

    Args:
        subject: the callee.
        case: a field.
        cutting: how it is cut.
        parts: of the field.
        like: arrays of the shapes and dtypes of the field's outputs, scales as bytes, for those that a part gives as
            `out`.
        seconds: the time limit of all calls, and of each that is made again.
        note: told of each part before its call, where that is in this process.

    Returns:
        What came of each call, or nothing where the process of the subject ended.
    """
    if subject.remote is not None:
        found = subject.remote("call_parts", case, seconds=seconds, like=tuple(like), cut=(cutting, parts))
        return list(found) if len(found) == len(parts) else []
    quick: list[Called | None] = [None] * len(parts)
    kept, raised = set[int](), dict[int, str]()
    sweep = _sweep(subject, case, cutting, like)
    if subject.arrays == "numpy":
        kept, raised = _quick(quick, sweep, parts, seconds, note)
    found = []
    named = dict(zip([output.name for output in outputs_of(case)], like, strict=True))
    for place, (part, called) in enumerate(zip(parts, quick, strict=True)):
        if called is None:
            note(place)
            one = part.case(case, cutting)
            remember_like(one, part.of(named, cutting.outputs).values())
            first = None if declines(subject, one) else sweep.company.before(part, one)
            if first is not None:
                (call_from_another_thread if part.elsewhere else call)(subject, first, seconds)
            for _ in range(1 + (place in kept)):  # a buffer that is handed out shows in the second call
                called = call(subject, one, seconds)
            if called is not None and called.outcome is Outcome.PASS:  # it may be wrong in company alone
                called = _beside(subject, one, part.calls, seconds) or called
            if place in raised and called is not None and called.outcome is Outcome.PASS:
                called = Called(outcome=Outcome.FAULT, words=raised[place])
        found.append(called)
    return found


def _beside(subject: Subject, case: Case, calls: str, seconds: float) -> Called | None:
    """Return a watched call after one that must be refused, or at once with its like; None for a call by itself."""
    if calls == REFUSED:
        first = OPERATIONS[case.operation].inputs[0]
        illegal = {first: no_input(case.operation, case.inputs[first])}
        call(subject, replace(case.with_inputs(illegal), params={**case.params, FORM: {}}), seconds)
        return call(subject, case, seconds)
    if calls == AT_ONCE and subject.arrays not in IMMUTABLE:
        _, one, other = call_twice_at_once(subject, case, seconds)
        return one if one.words else other
    return None


def _quick(
    found: list[Called | None], sweep: Sweep, parts: Sequence[Part], seconds: float, note: Note
) -> tuple[set[int], dict[int, str]]:
    """Fill in what came of the calls that answered, until one ends otherwise than by an error of its own.

    Returns the places of those whose results something else than the caller holds, and of those that raised an error,
    with its words.
    """
    kept, raised = set[int](), dict[int, str]()
    process, mode, errors, depth = os.getpid(), float_mode(), geterr(), sys.getrecursionlimit()
    state = process_state()
    try:
        with caught(), time_limit(seconds):
            for place, part in enumerate(parts):
                note(place)
                sweep.kept, sweep.error = False, ""
                found[place] = sweep.called(part)
                if sweep.kept:
                    kept.add(place)
                if sweep.error:
                    raised[place] = sweep.error
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit, a hang: this part and those behind it are called by themselves
        pass
    finally:
        if os.getpid() != process:  # a process that the subject forked off came back here: it is not ours
            os._exit(1)
        if float_mode() != mode or changed(state):
            default_float_mode()
            restore(state)
            found[:] = [None] * len(found)
        if geterr() != errors:
            seterr(**errors)
        sys.setrecursionlimit(depth)
    return kept, raised


def _sequence(form: Mapping[str, Any], outs: Mapping[str, np.ndarray]) -> Any:
    """Return what a call is given as `out`, as `forms.as_out` does."""
    arrays = tuple(outs.values())
    if len(arrays) == 1:
        return arrays[0]
    return list(arrays) if form.get("out.sequence") == "list" else arrays


def _quietly(
    function: Callable[..., Any], keywords: Mapping[str, Any], errors: type[BaseException] = Exception
) -> None:
    """Make a call of which only what it leaves behind, or does beside another one, is looked at."""
    with suppress(errors):
        function(**keywords)


class Sweep:
    """The calls of one subject on the parts of a field."""

    def __init__(
        self, subject: Subject, case: Case, cutting: Cutting, like: Sequence[np.ndarray], before: Sweep | None = None
    ) -> None:
        """Make room for every input and output. before: one of the same subject."""
        self.subject, self.case, self.cutting = subject, case, cutting
        self.function = subject.operations[case.operation]
        self.takes_out = takes_out(self.function, case.operation)
        names = [output.name for output in outputs_of(case)]
        self.like: Likes = dict(zip(names, like, strict=True))
        self.company = Company(subject, case, cutting)
        self.inside: Mapping[str, Room] = rooms_for(stored_inputs(case), before.inside if before else {})
        self.outside: Mapping[str, Room] = rooms_for(self._stored(self.like), before.outside if before else {})
        self.kept, self.error, self.parted = False, "", False
        self.given: dict[tuple[Any, ...], dict[str, Any]] = before.given if before and before.alike(case) else {}

    def alike(self, case: Case) -> bool:
        """Whether calls on another field have the keywords of those on this one, but for the arrays."""
        own = self.case
        same_variant = (own.operation, own.profile, own.params) == (case.operation, case.profile, case.params)
        return same_variant and own.inputs.keys() == case.inputs.keys()

    def called(self, part: Part) -> Called | None:
        """Return a call that answered, whose bytes are to be compared; None for one that is to be watched closely."""
        form = part.form
        if "out" in form and not self.takes_out:
            return None
        case = self._case(part)
        if self.subject.outside is not None and self.subject.outside(case):
            return None
        try:
            return self._called(part, form, case)
        except RefnumError:  # a call that the subject declares not to take
            return None

    def _case(self, part: Part) -> Case:
        """Return the case of a part, with views of the field's arrays."""
        inputs, field = part.of(self.case.inputs, self.cutting.inputs), self.case
        params = {**field.params, FORM: dict(part.form)}
        return Case(field.operation, field.profile, params, inputs, field.recipe, field.label, field.domain)

    def _called(self, part: Part, form: Mapping[str, Any], case: Case) -> Called | None:
        arrays, before, turned = self._laid(case, form)
        outs = self._outs(part, form) if "out" in form else {}
        given = self._arguments(case, form, arrays)
        asked = {**given, **arrays, **({"out": _sequence(form, outs)} if outs else {})}
        try:
            result = self._in_company(part, case, {**given, **arrays}, asked)
        except Exception as error:  # a refusal or an error of the subject's own: it is asked again by itself
            self.error = f"{type(error).__name__}: {str(error)[:300]}"
            return None
        if changed_list(given, self.case.params):
            return None
        live = given_back(result)
        if self.parted:
            self.parted = False
            words = "the same call from another thread at the same time gave something else"
            return Called(live, live, Outcome.MISMATCH, words, Finding.NOT_THREAD_SAFE)
        if any(was != self.inside[name].bytes for name, was in before.items()):
            return Called((), live, Outcome.MISMATCH, "the call wrote into or around its inputs", Finding.INPUT_MUTATED)
        if outs:
            return self._filled(outs, live)
        if any(type(one) is not np.ndarray for one in live) or made_wrong(live, turned):
            return None
        self.kept = kept_elsewhere(live) or any(sys.getrefcount(one) > OWN for one in live)
        inside = any(np.may_share_memory(one, room.flat) for one in live for room in self.inside.values())
        return None if inside or self.kept else Called(live, live)

    def _in_company(self, part: Part, case: Case, alone: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        """Return what a call gives that is made behind another one, or at once with its like.

        alone: its keywords without `out`, those of the other call.
        """
        if part.calls == REFUSED or part.behind_refusal:
            name = OPERATIONS[self.case.operation].inputs[0]
            _quietly(self.function, {**alone, name: no_input(self.case.operation, alone[name])})
        if part.calls == THE_SAME:
            _quietly(self.function, alone)
        elif part.calls in BEHIND or part.behind_variant:
            first = self.company.before(part, case)
            other = None if first is None else self.company.keywords(first)
            if other is not None and part.elsewhere:
                in_a_thread(partial(_quietly, self.function, other, BaseException))(0)
            elif other is not None:
                _quietly(self.function, other)
        if part.calls == AT_ONCE:
            return self._at_once(alone, asked)
        return self.function(**asked)

    def _at_once(self, alone: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
        """Return what a call gives while another of the same is under way in another thread."""
        copies = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in alone.items()}
        to_begin, results = threading.Lock(), list[Any]()
        to_begin.acquire()

        def other() -> None:
            to_begin.release()
            try:
                results.append(self.function(**copies))
            except Exception:  # a refusal too: the subject takes this call in the other thread
                results.append(())
            except BaseException:  # it ends its own thread
                pass

        ended = in_a_thread(other)
        to_begin.acquire(timeout=BEGUN)
        try:
            result = self.function(**asked)
        except CallTimeout:  # the other one may hang as well
            raise
        except BaseException:
            ended(0)
            raise
        ended(0)
        both = [given_back(one) for one in (*results, result)]
        self.parted = len(both[0]) != len(both[-1]) or not all(map(same, both[0], both[-1]))
        return result

    def _laid(self, case: Case, form: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytearray], set[Any]]:
        """Return the inputs as a part's form wants them, the bytes in and around each, and shapes of turned ones."""
        inputs, arrays, before, turned = case.inputs, {}, {}, set()
        if IN in case.params or any(name.endswith(".dtype") for name in form):
            inputs = stored_inputs(case)
        for name, data in inputs.items():
            room, storage = self.inside[name], form.get(f"{name}.storage", "contiguous")
            array, whole = room.array(data.shape, data.dtype, storage, form.get(f"{name}.address", 0), True)
            if storage.startswith("broadcast"):
                one = held(whole, storage)
                one[...] = data[tuple(slice(0, side) for side in one.shape)]
            else:
                array[...] = data
            if storage == "read-only":
                array.flags.writeable = False
            if storage in ("transposed", "broadcast rows"):
                turned.add(data.shape)
            arrays[name], before[name] = array, bytearray(room.bytes)
        return arrays, before, turned

    def _arguments(self, case: Case, form: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords of a call; those beside the arrays are the same for all calls of a form."""
        key = form.get("profile"), form.get("scalars"), form.get("splits")
        if key not in self.given:
            laid = {**arrays, **counts_in_form(case)}
            self.given[key] = scalars_in_form(case, arguments_for(self.subject, case, laid))
        return self.given[key]

    def _stored(self, like: Likes) -> Likes:
        """Return arrays as outputs are, with scales in the layout of the case."""
        if OUT not in self.case.params:
            return like
        return {**like, "scales": stored_scales(self.case, like["scales"])}

    def _outs(self, part: Part, form: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return an array for every output, filled with poison, as a part's form wants it."""
        outs = {}
        for place, (name, like) in enumerate(self._stored(part.of(self.like, self.cutting.outputs)).items()):
            storage, address = out_storage(form, place), int(form.get("out.address", 0))
            outs[name] = self.outside[name].array(like.shape, like.dtype, storage, address)[0]
        return outs

    def _filled(self, outs: Mapping[str, np.ndarray], live: tuple[Any, ...]) -> Called | None:
        """Return what a call wrote into `out`; None where it returned other arrays, or wrote beside them."""
        arrays = tuple(outs.values())
        if len(live) != len(arrays) or not all(map(same_place, live, arrays)):
            return None
        results = tuple(np.array(array, order="C") for array in arrays)
        for name, array in outs.items():
            array.view(f"u{array.itemsize}")[...] = int.from_bytes(bytes([POISONS[0]]) * array.itemsize, "little")
            left = self.outside[name].bytes
            if bytearray([POISONS[0]]) * len(left) != left:  # compared at once, as no memoryview is
                return None
        return Called(results, results)


_latest: list[Sweep] = []


def _sweep(subject: Subject, case: Case, cutting: Cutting, like: Sequence[np.ndarray]) -> Sweep:
    """Return the latest sweep again where it is of the same field: a field is called in several runs of parts."""
    if not (_latest and _latest[0].subject is subject and _latest[0].case is case):
        before = _latest[0] if _latest and _latest[0].subject is subject else None
        _latest[:] = [Sweep(subject, case, cutting, like, before)]
    return _latest[0]
