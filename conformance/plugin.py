"""The pytest plugin: kernels judged as tests. It imports the harness when the first kernel is judged, not before.

@pytest.mark.conforms("fp8_to_mxfp4", profile="OCP")
def test_my_recoder():
    return my_recoder

def test_both(judge):
    judge(my_quantizer, "quantize_mxfp4", profile="OCP")

A marked test returns its kernel, or takes the fixture `judge` and calls it; the mark's keywords are its defaults.
What can be judged, and the keywords, are those of `conformance.judge_kernel`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import refnum.conformance as harness

from .subjects.calls.exits import watch

LEVELS = ("smoke", "standard", "exhaustive")
MARK = "conforms"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the level and the seed of all judgements."""
    group = parser.getgroup("refnum", "refnum: kernels judged bit for bit")
    group.addoption(
        "--refnum-level", choices=LEVELS, default=None, help="Level of every judgement; default: its own, or standard."
    )
    group.addoption("--refnum-seed", type=int, default=0, help="Seed of the sampled cases; default 0.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and watch `os._exit` before tests are imported: a kernel that calls it fails its test."""
    watch()
    config.addinivalue_line(
        "markers", f"{MARK}(operation, profile=None, **options): judge the kernel that the test returns or judges"
    )


class Judge:
    """Judges kernels for one test. options: the keywords of its mark. calls: judgements so far."""

    def __init__(self, config: pytest.Config, operation: str | None, options: dict[str, Any]) -> None:
        self.config, self.operation, self.options = config, operation, options
        self.calls = 0

    def __call__(self, kernel: Any, operation: str | None = None, **options: Any) -> dict[str, Any]:
        """Judge a kernel and return the report; fail the test with the page of the mismatch.

        Skips the test when the subject says that it cannot run here.
        """
        __tracebackhide__ = True
        self.calls += 1
        asked = {**self.options, "seed": self.config.getoption("--refnum-seed"), **options}
        level = self.config.getoption("--refnum-level")
        if level:
            asked["level"] = level
        absent = wrong = ""
        document: dict[str, Any] = {}
        try:
            document = harness.judge_kernel(kernel, operation or self.operation, **asked)
        except harness.errors.UnsupportedError as error:
            absent = str(error)
        except harness.errors.RefnumError as error:
            wrong = str(error)
        if absent:  # out of the `except`, or pytest tells of both
            pytest.skip(absent)
        if wrong or not harness.verified(document):
            pytest.fail(wrong or f"{harness.summary(document)}\n{harness.as_text(document)}", pytrace=False)
        return document


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Judge a kernel: `judge(kernel, operation, profile=..., level=..., agreement=...)`."""
    return _judge_of(request.node)


def _judge_of(item: pytest.Item) -> Judge:
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return Judge(item.config, None, {})
    names = inspect.signature(lambda operation=None, **options: None).bind(*mark.args, **mark.kwargs).arguments
    return Judge(item.config, names.get("operation"), dict(names.get("options", {})))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a marked test and judge the kernel that it returns; one that judges nothing fails."""
    __tracebackhide__ = True
    if pyfuncitem.get_closest_marker(MARK) is None:
        return None
    function: Callable[..., Any] = pyfuncitem.obj
    names = inspect.signature(function).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in names}
    own = arguments.get("judge")
    judging = own if isinstance(own, Judge) else _judge_of(pyfuncitem)
    kernel = function(**arguments)
    if kernel is not None:
        judging(kernel)
    elif not judging.calls:
        pytest.fail(f"{pyfuncitem.name} is marked `{MARK}`: return the kernel, or call judge(kernel).", pytrace=False)
    return True
