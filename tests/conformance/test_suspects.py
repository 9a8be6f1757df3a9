"""Every rule of the suspects is alive, has a note, and gives the bits that a vector's rule of its name gives."""

import itertools
from fnmatch import fnmatchcase

import numpy as np
import pytest
from diagnose_tools import control

from refnum.conformance.bugs import WRONG
from refnum.conformance.bugs.suspects import COARSE, FINER, SUSPECTS
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, as_bits, call_golden, outputs_of, run_golden
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.mismatches import diagnose as doctor
from refnum.conformance.verdicts.compare import equal_at
from refnum.errors import RefnumError


def test_every_suspect_strikes_somewhere():
    """Each wrong rule differs from the golden model on some control or corner case: none is a dead entry."""
    alive = set()
    for name, operation in OPERATIONS.items():
        own = (*FINER, *COARSE)
        able = [suspect for suspect in own if any(fnmatchcase(name, pattern) for pattern in suspect.operations)]
        for case in _cases(name, operation):
            golden = run_golden(case)
            alive |= {suspect for suspect in able if suspect not in alive and _strikes(suspect, case, golden)}
    assert [(suspect.id, suspect.words) for suspect in (*FINER, *COARSE) if suspect not in alive] == []


def _cases(name, operation):
    variants = list(operation.variants())
    for profile in ("HOPPER", "OCP", "TE", "RECIPE") if operation.profiled else ("HOPPER",):
        for params in variants[:: max(1, len(variants) // 3)]:
            yield from control_cases(name, profile, params)
        small = (c for c in corner_cases(name, profile, operation.defaults()) if 0 < c.elements < 9000)
        yield from itertools.islice(small, 8)
    if name == "quantize_mxfp4":
        yield from itertools.islice(corner_cases(name, "STOCHASTIC", operation.defaults()), 4)


def _strikes(suspect, case, golden):
    try:
        wrong = suspect.wrong(case, golden)
    except (ValueError, IndexError, KeyError):
        return False
    return wrong is not None and any(not np.array_equal(wrong[name], golden[name]) for name in golden)


def test_every_suspect_has_a_note_that_says_what_it_does():
    assert {suspect.id for suspect in SUSPECTS if suspect.id not in doctor.notes()} == set()
    assert all(doctor.notes()[suspect.id]["description"] for suspect in SUSPECTS)


NUMBERS = [name for name, operation in OPERATIONS.items() if operation.outputs[0].kind == "values"]


@pytest.mark.parametrize("operation", NUMBERS)
def test_rules_that_read_results_as_numbers_are_handed_numbers(operation):
    """A vector's rule sees what the operation returns; diagnosis holds bits, and must hand it the same."""
    struck = set()
    rules = [(note, rule) for note, parts in WRONG.items() for patterns, rule in parts if matches(operation, patterns)]
    for params in OPERATIONS[operation].variants():
        cases = itertools.islice((c for c in corner_cases(operation, "HOPPER", params) if 0 < c.elements < 3000), 4)
        for case in (control(operation, **params), *cases):
            right, results = run_golden(case), named_results(case)
            for note, rule in rules:
                bits = wrong_bits(case, rule, copied(results))
                if bits is None or equal_at(case, right, bits, 0):
                    continue
                struck.add(note)
                suspects = [s for s in SUSPECTS if s.id == note and matches(operation, s.operations)]
                with np.errstate(all="ignore"):
                    found = [suspect.wrong(case, copied(right)) for suspect in suspects]
                assert any(given is not None and equal_at(case, in_bits(given), bits, 0) for given in found), (
                    note,
                    case,
                )
    assert struck, "no rule strikes any case"


def matches(operation, patterns):
    return any(fnmatchcase(operation, pattern) for pattern in patterns)


def in_bits(outputs):
    return {name: as_bits(np.asarray(array)) for name, array in outputs.items()}


def named_results(case):
    return dict(zip((output.name for output in outputs_of(case)), call_golden(case), strict=True))


def copied(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def wrong_bits(case, rule, golden):
    """What a rule makes of the operation's own results; None where it was not written for such a case."""
    try:
        with np.errstate(all="ignore"):
            given = rule(case, golden)
    except (RefnumError, ValueError, LookupError, TypeError, ArithmeticError):
        return None
    if given is None or {name: array.dtype for name, array in given.items()} != {
        name: array.dtype for name, array in golden.items()
    }:
        return None
    return in_bits(given)
