"""A report to make other files from: a right kernel, a wrong one, one that refuses and one that faults."""

import copy
import functools

import refnum
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan, run
from refnum.conformance.reports import report as reports
from refnum.conformance.subjects.subject import Subject
from refnum.errors import UnsupportedError


def wrong(x, profile):
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))


def refuses(x, profile):
    raise UnsupportedError("needs a <GPU> | a big one")


def faults(x, profile):
    raise RuntimeError("boom \x1b[31m <b>")


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def made(*functions, level="standard", **header):
    """Return the document of a run over these functions."""
    subjects = [Subject(f.__name__, {"quantize_mxfp4": f}) for f in functions]
    plan = Plan(subjects, select(["quantize_mxfp4"]), ["HOPPER"], save=False, cases=control_cases)
    records = [{"name": s.name, "available": True, "describe": {}, "source": {}} for s in subjects]
    return run(plan, reports.Report(reports.header(level, 0, [], records, [], **header))).document()


@functools.cache
def _whole():
    return made(right, wrong, refuses, faults)


def document():
    """Return a copy that a test may change."""
    return copy.deepcopy(_whole())


def _footer_of(whole, count):
    return {**whole["footer"], **reports.concluded({**whole, "results": whole["results"][:count]})}


def many(count):
    """Return a valid report with so many mismatches, each with its page."""
    whole = document()
    model = next(row for row in whole["results"] if row["outcome"] == "mismatch")
    whole["results"] = [
        {**model, "subject": f"kernel-{i % 40}", "variant": f"{model['variant']} {i}"} for i in range(count)
    ]
    whole["footer"].update(reports.concluded(whole))
    reports.check({**whole, "results": whole["results"][:1], "footer": _footer_of(whole, 1)}, "one of many")
    return whole
