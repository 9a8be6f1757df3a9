"""Trigger mutants of one operation judged by campaigns alone: what `refnum fuzz` finds that no check was asked before.

    python benchmarks/trigger_campaign.py OPERATION SEED COUNT SECONDS OUT.json

Each mutant with one condition is the only subject of a campaign over every variant of its operation, with a seed of its
own. Its shards are planned as a campaign plans them and judged in this process until one fails, or the campaign has
used so many CPU seconds; of two workers those are half as many seconds on the clock. Written is what
`refnum mutate triggers --json` writes, and of each mutant the CPU seconds of its campaign, `cpu`.
"""

import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.fuzz.budget import LAG, Budget
from refnum.conformance.commands.fuzz.context import WorkerContext
from refnum.conformance.commands.fuzz.spec import make_spec
from refnum.conformance.commands.fuzz.work import shard
from refnum.conformance.commands.mutate.triggers.draw import Mutant, drawn, trigger_of

KERNEL = """
import refnum
from refnum.conformance.commands.mutate.triggers.base import memorised
from refnum.conformance.commands.mutate.triggers.draw import trigger_of
from refnum.conformance.commands.mutate.triggers.kernel import kernel

run = kernel({operation!r}, memorised(refnum.{operation}), trigger_of({operation!r}, {seed}, {index}))
mutant = {{"name": "mutant", "operations": {{{operation!r}: run}}, "profiles": {profiles!r}}}
"""


def main() -> None:
    """Judge the mutants and write the verdicts after each."""
    operation, out = sys.argv[1], Path(sys.argv[5])
    seed, count, seconds = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    discarded = Counter[str]()
    found: dict[str, Any] = {"seconds": 0.0, "discarded": {}, "mutants": []}
    for one in itertools.islice(singles(operation, seed, discarded), count):
        how, cpu = judged(one, seconds)
        found["mutants"].append({"operation": operation, "id": one.id, "conditions": list(one.kinds),
                                 "effect": one.trigger.effect.name, "words": one.words, "shown": one.shown,
                                 "killed": bool(how), "how": how, "cpu": round(cpu, 1)})  # fmt: skip
        found |= {"seconds": round(found["seconds"] + cpu, 1), "discarded": dict(discarded)}
        out.write_text(json.dumps(found) + "\n")


def singles(operation: str, seed: int, discarded: Counter[str]) -> Iterator[Mutant]:
    """Yield the mutants of a seed that have one condition; draws that no call shows are counted by class."""
    for index in itertools.count(0, 2):
        mutant = drawn(operation, seed, index)
        if mutant is not None:
            yield mutant
        else:
            discarded[trigger_of(operation, seed, index).conditions[0].kind] += 1


def judged(mutant: Mutant, seconds: float) -> tuple[str, float]:
    """Return how a campaign found a mutant, empty where it did not in so many CPU seconds, and those that it used."""
    start = time.process_time()
    for target, result in results(mutant):
        cpu = time.process_time() - start
        if result["failing"] or result["fault"]:
            first = (result["failures"] or [result["fault"]])[0]
            return f"{target}: {first.get('finding') or 'bytes'}, {first['recipe']}"[:400], cpu
        if cpu > seconds:
            return "", cpu
    return "", time.process_time() - start


def results(mutant: Mutant) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the target and the result of each shard of a mutant's campaign, which has no end."""
    profiles = ("HOPPER", "OCP", *(["STOCHASTIC"] if OPERATIONS[mutant.operation].keyed else []))
    source = {"operation": mutant.operation, "seed": mutant.seed, "index": mutant.index, "profiles": profiles}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(KERNEL.format(**source))
        spec = make_spec([f"{path}:mutant"], [mutant.operation], seed=mutant.seed, isolate=False)
        context = WorkerContext(spec)
    budget, rounds = Budget(spec), list[list[Any]]()
    for number in itertools.count():
        if number >= LAG:
            budget.fold(rounds[number - LAG])
        rounds.append([])
        for address in budget.plan(number):
            task = {"kind": "shard", "seed": address.seed, "target": address.target, "stratum": address.stratum,
                    "number": address.number}  # fmt: skip
            result = shard(context, task, lambda *_: None)
            rounds[-1].append((address.target, address.stratum, result))
            yield f"{address.target} {address.stratum} {address.number}", result
        if not rounds[-1]:
            return


if __name__ == "__main__":
    main()
