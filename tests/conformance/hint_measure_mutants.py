"""How often hints of mutants are wrong: a drawn sample of the mutants of the host build, which nobody has labelled.

`python tests/conformance/hint_measure_mutants.py 40` builds so many mutants and judges each on the frozen vectors of
the first operation that it changes. A hint is wrong when its rule is refuted by sampled cases that it was never asked
about: it differs from the golden model there, and the mutant gives other bits.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from hint_measure import Met

from refnum.conformance.bugs.suspects import SUSPECTS
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes import sampled_cases
from refnum.conformance.commands.check.run import Plan
from refnum.conformance.commands.mutate.forked import call_forked
from refnum.conformance.commands.mutate.library import Library
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.workshop import Copy
from refnum.conformance.mismatches.diagnose import Seen, explains, refuted
from refnum.conformance.mismatches.failures import Presenter
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.vectors.frozen import frozen_cases
from refnum.conformance.verdicts.compare import compare
from refnum.conformance.verdicts.judge import judge
from refnum.conformance.verdicts.tally import Tally
from refnum.gpu.mutation.host import HostSources

HELD_OUT, SMALL = 40, 1 << 13


def met(workshop: Library, mutant: Mutant, folder: Path) -> Met | None:
    """Return the hints of a mutant's first wrong operation, and those of them that other cases bear out."""
    copy = Copy(mutant, folder)
    for operation in workshop.build(copy).get("changed", ()):
        if operation not in OPERATIONS:
            continue
        subject = Subject("mutant", {operation: copy.operations[operation]}, "host", ("HOPPER",))
        params = next(iter(OPERATIONS[operation].variants()))
        tally = Tally("mutant", operation, "HOPPER", params)
        for case, golden in frozen_cases(operation, "HOPPER", params):
            judge(subject, case, golden, tally, 20.0)
        if tally.failures:
            result = Presenter(Plan([subject], [], save=False)).result(subject, tally, quick=True)
            bugs = [bug for record in result["failures"] if not record["finding"] for bug in record["bug_classes"]]
            right = [bug["id"] for bug in bugs if bug["id"] and _held(subject, operation, params, bug)]
            return Met(f"{mutant.id} {operation}", tuple(right), tuple(bug["id"] for bug in bugs))
    return None


def _held(subject: Subject, operation: str, params: dict[str, object], bug: dict[str, str]) -> bool:
    """Whether cases that were never asked bear a hint out: one of its rules is refuted by none of them."""
    left = [one for one in SUSPECTS if one.id == bug["id"] and one.words in ("", bug["words"])]
    for case in sampled_cases(operation, "HOPPER", params, 4711, HELD_OUT):
        if case.elements > SMALL:
            continue
        called = call(subject, case, 20.0)
        seen = Seen(case, compare(case, run_golden(case), called.results).observed) if called.answered else None
        if seen and seen.observed:
            left = [one for one in left if not refuted(one, seen) or explains(one, seen)]
    return bool(left)


def main() -> int:
    """Print every mutant with a hint, and the shares; 1 when too many hints are wrong."""
    sources, found = HostSources(), []
    with tempfile.TemporaryDirectory(prefix="refnum-hints-") as folder:
        workshop = Library.open(sources, Path(folder) / "start")
        drawn = random.Random(int((sys.argv[2:] or ["0"])[0])).sample(workshop.mutants(), int(sys.argv[1]))
        for number, mutant in enumerate(drawn):
            one = call_forked(lambda m=mutant, n=number: met(workshop, m, Path(folder) / str(n)), 120)
            if isinstance(one, Met):
                found.append(one)
                print(f"{one.verdict:<6} {one.name:<60} {', '.join(one.hints) or '-'}", flush=True)
    wrong = sum(one.verdict == "wrong" for one in found)
    hinted = sum(bool(one.hints) for one in found)
    print(
        f"{len(drawn)} drawn, {len(found)} wrong on vectors, {hinted} with a hint, wrong first {wrong} of {len(found)}"
    )
    return int(wrong > 0.02 * len(found))


if __name__ == "__main__":
    raise SystemExit(main())
