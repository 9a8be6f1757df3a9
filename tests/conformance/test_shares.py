"""A run in shares: every variant once, what is asked in full asked once, and the same results as in one process."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cli_tools import command

from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check import work
from refnum.conformance.commands.check.controls import HarnessError
from refnum.conformance.commands.check.plan import Plan, shares_of, variants
from refnum.conformance.commands.check.shares import workers_for
from refnum.conformance.subjects.choose import choose

OPERATIONS = ["quantize_mxfp4", "mxfp4_to_fp8", "matmul_fp8", "encode_e8m0"]


def plan_of(*names, **more):
    return Plan(choose(list(names)).usable, select(OPERATIONS), special=True, **more)


@pytest.mark.parametrize("names", [("model",), ("model", "ml_dtypes")])
def test_every_variant_is_in_one_share(names):
    plan = plan_of(*names)
    whole = Counter(item.name for item in variants(plan))
    parts = Counter(item.name for share in shares_of(plan) for item in variants(replace(plan, share=share)))
    assert whole == parts and set(whole.values()) == {1}


def test_the_dearest_share_of_every_operation_is_judged_first():
    shares = shares_of(plan_of("model"))
    first = [share.operation for share in shares[: len(OPERATIONS)]]
    assert sorted(first) == sorted(OPERATIONS) and len(shares) > len(first)
    firsts = {item.operation.name: item.choice for item in reversed(variants(plan_of("model")))}
    assert {share.operation: share.params for share in shares[: len(OPERATIONS)]} == firsts


def test_each_kind_of_structure_is_asked_in_full_by_one_share():
    plan = plan_of("model")
    firsts = Counter()
    for share in shares_of(plan):
        part = plan_of("model", share=share)
        asked = set(part.structured)
        for item in variants(part):
            asked |= part.structured
            if ("model", item.kind) not in asked:
                firsts[item.kind] += 1
                asked.add(("model", item.kind))
    assert set(firsts.values()) == {1}
    assert set(firsts) == {item.kind for item in variants(plan)}


def test_processes_start_while_the_harness_is_verified_and_end_where_it_is_broken(monkeypatch):
    seen = []

    def verify():
        seen.append(len(multiprocessing.active_children()))
        raise HarnessError("a control was misjudged")

    monkeypatch.setattr(work, "verify", verify)
    request = work.Request(("model",), None, tuple(OPERATIONS), frozenset(), (), (), "standard", 0, 1, 60.0)
    with pytest.raises(HarnessError):
        work.judge(request, None, False, None, 2)
    assert seen == [2] and not multiprocessing.active_children()


def test_one_process_for_smoke_and_for_devices_unless_a_number_is_given():
    plan = plan_of("model")
    assert workers_for(replace(plan, level="smoke"), None) == 1
    on_device = replace(plan, subjects=[replace(plan.subjects[0], arrays="cupy")])
    assert workers_for(on_device, None) == 1 and workers_for(on_device, 3) == 3
    assert workers_for(plan, 10**6) == len(shares_of(plan))


def started(tmp_path, *arguments, **more):
    command = [sys.executable, "-m", "refnum.conformance.cli", "check", *arguments]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def without_times(document):
    for result in document["results"]:
        del result["seconds"]
    footer = {name: document["footer"][name] for name in ("status", "totals", "exit", "verdict")}
    return document["results"], footer


def test_shares_give_the_report_of_one_process(tmp_path):
    """Four variants, each a share of its own: structure is asked in brief by processes that did not ask the first's."""
    documents = []
    for workers in ("1", "2"):
        words = ("check", "-s", "model", "-o", "dequantize_radix4", "--examples", 0, "--json", "--workers", workers)
        run = command(*words, folder=tmp_path, timeout=300)
        assert run.returncode == 0, run.stderr
        documents.append(without_times(json.loads(run.stdout)))
    assert documents[0] == documents[1]


KERNEL = """
import os, signal, time
import refnum

def unpack_payload(payload):
    return refnum.unpack_payload(payload)

def decode_e2m1(codes, dtype="float32"):
    {what}
"""
LITTLE = ("kernel.py", "--no-isolate", "--level", "smoke", "--workers", "2", "--report", "report.json")
"""Of both operations one variant, each a share."""


def test_a_process_that_a_kernel_kills_is_no_verdict(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL.format(what="os.kill(os.getpid(), signal.SIGKILL)"))
    run = command("check", *LITTLE, folder=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "a process that judged a share of the variants ended by itself" in run.stderr
    assert "an earlier run died while" in run.stderr and "decode_e2m1" in run.stderr, run.stderr
    assert json.loads((tmp_path / "report.json").read_text())["footer"]["status"] == "partial"


def group(number):
    """Return the processes of a group."""
    stats = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    return {pid for pid, text in stats.items() if int(text.rpartition(")")[2].split()[2]) == number}


def test_an_interrupted_run_keeps_what_was_done(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL.format(what="open('began', 'w').close(); time.sleep(600)"))
    run = started(tmp_path, *LITTLE, "--timeout", "0", start_new_session=True)
    end = time.monotonic() + 240
    while time.monotonic() < end and not (
        (tmp_path / "began").exists() and json.loads((tmp_path / "report.json").read_text())["results"]
    ):
        time.sleep(0.2)
    for number in group(run.pid) - {run.pid}:  # from a terminal the supervisor has its own, which it does not forward
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 3, out + err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["footer"]["status"] == "partial"
    assert [result["outcome"] for result in report["results"]].count("pass") == 1
