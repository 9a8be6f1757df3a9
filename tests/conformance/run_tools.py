"""Subjects and reports that the tests of runs and of probes make."""

import refnum
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan, run
from refnum.conformance.reports import report as reports
from refnum.conformance.subjects.subject import Subject


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def subject(function=right, name="k", **more):
    return Subject(name, {"quantize_mxfp4": function}, **more)


def report_of(*subjects, operation="quantize_mxfp4", level="standard", folder=None, **more):
    plan = Plan(
        list(subjects),
        select([operation]),
        ["HOPPER"],
        level,
        examples=2,
        shown=1,
        **{"cases": control_cases, "save": False, **more},
    )
    return run(plan, reports.Report(reports.header(level, 0, [], [], [])))


def results(document):
    return {(r["subject"], r["variant"]): r for r in document.document()["results"]}


def only(document):
    rows = document.document()["results"]
    return next(row for row in rows if row["params"].get("input", "float32") == "float32")
