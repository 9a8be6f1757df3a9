"""Wrong kernels, each right but for one thing of structure, and a judge that stops at the first thing that is wrong."""

from __future__ import annotations

import contextlib
import functools
import itertools

import pytest

import refnum
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.structure.fields import fields
from refnum.conformance.commands.check import structure, sweep
from refnum.conformance.commands.check.engine import Engine
from refnum.conformance.commands.check.journal import Journal
from refnum.conformance.commands.check.plan import Plan, Progress, Variant, new_tally
from refnum.conformance.reports.report import Report, header
from refnum.conformance.subjects.subject import Subject


class Found(Exception):
    """Something is wrong; no more is asked."""


def engine_of(subject: Subject, operation: str, params=None, profile="HOPPER", quick=True) -> Engine:
    row = OPERATIONS[operation]
    plan = Plan([subject], [row], [profile], save=False)
    item = Variant(row, profile, params or row.defaults(), [subject], special="layout" in str(params))
    tally = new_tally(plan, subject, item)

    def step(_case):
        if quick and (tally.wrong or (tally.undeclared and tally.compared)):
            raise Found

    report = Report(header("standard", 0, [], [], []))
    return Engine(plan, item, {subject.name: tally}, report, Progress(step=step), Journal(None))


def verdict(operation, function, params=None, profile="HOPPER", rows=None, **more):
    """Return the tally of a function judged on structure alone. rows: of the rows of levels, which are asked."""
    subject = Subject("k", {operation: function}, **more)
    engine = engine_of(subject, operation, params, profile)
    every = structure.structure_cases
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Found):
        if rows is not None:
            patch.setattr(structure, "structure_cases", lambda *key: every(*key[:-1], both(rows, key[-1])))
        engine.refusals({"k"})
        engine.structural()
    tally = engine.tallies["k"]
    tally.close()
    return tally


def both(one, other):
    return lambda row: one(row) and other(row)


def caught(operation, function, **more) -> bool:
    return verdict(operation, function, **more).outcome is not Outcome.PASS


def golden(operation):
    return getattr(refnum, operation)


@functools.cache
def every_field():
    """Return the fields of `decode_e8m0`."""
    return tuple(fields("decode_e8m0", "HOPPER", {"dtype": "float32"}, "full"))


@functools.cache
def every_pair():
    """Return the numbers of rows and of columns that stand together in parts of `decode_e8m0`."""
    return {(part.row["rows"], part.row["columns"]) for field in every_field() for part in field.parts}


def asked_parts(operation, function, params=None, most=None, of=None, having=None, **more):
    """Return the tally of a function judged on the first fields of an operation.

    of: judged on all fields of `decode_e8m0` that are as wide as some pairs of rows and columns instead. having: on
    those of `decode_e8m0` whose rows have a level of this name.
    """
    subject = Subject("k", {operation: function}, **more) if callable(function) else function
    engine = engine_of(subject, operation, params, quick=False)
    key = operation, "HOPPER", params or OPERATIONS[operation].defaults()
    wide = {columns for rows, columns in every_pair() if of(rows, columns)} if of else ()
    chosen = [one for one in every_field() if one.case.inputs["codes"].shape[1] in wide] if of else fields(*key, "full")
    chosen = [one for one in every_field() if having in one.parts[0].row] if having else chosen
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "fields", lambda *_: itertools.islice(chosen, most))
        judged = functools.partial(structure._judge, engine)
        sweep.ask(engine, key, "full", {subject.name}, lambda *_: False, judged)
    assert not engine.report.harness
    return engine.tallies[subject.name]
