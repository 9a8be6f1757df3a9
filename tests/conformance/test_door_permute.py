"""What a corner asks beside the values that a table lists: the doors hand it on, or say that it is not taken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.subjects.loading.declare import Limits
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.loading.shapes import output_specs
from refnum.conformance.subjects.loading.shared_library import from_library
from refnum.conformance.subjects.subject import Subject, from_dict
from refnum.conformance.verdicts.judge import judge
from refnum.conformance.verdicts.tally import Tally
from refnum.errors import RefnumError

CASES = [case for case in corner_cases("permute_pad", "HOPPER", {"align": 16}) if case.elements < 1 << 14]
BESIDE = [case for case in CASES if case.params["align"] not in OPERATIONS["permute_pad"].params["align"]]
WIDE = [case for case in CASES if case.inputs["row_map"].dtype != np.int32]

SOURCE = """
#include <stdint.h>
#include <string.h>

int permute(const uint8_t *payload, int64_t columns, const int32_t *row_map, const int64_t *splits, int64_t experts,
            int32_t choice, uint8_t *rows, int64_t *offsets) {
    static const int64_t aligns[] = {32, 16, 128};
    if (choice < 0 || choice > 2) return 2;
    const int64_t align = aligns[choice];
    int64_t row = 0;
    for (int64_t e = 0; e < experts; e++) {
        offsets[e] = row;
        for (int64_t i = 0; i < splits[e]; i++, row++)
            memcpy(rows + row * columns, payload + *row_map++ * columns, columns);
        for (; row % align; row++) memset(rows + row * columns, 0, columns);
    }
    return 0;
}
"""
DECLARATION = """
name = "permute"
library = "libpermute.so"

[operations.permute_pad]
symbol = "permute"
arguments = ["payload", "columns(payload)", "row_map", "splits", "size(splits)", "align", "rows", "offsets"]
"""
PROGRAM = """
import sys

def array(words):
    rows = int(words[3]) if len(words) > 4 else 1
    return [sys.stdin.readline().split() for _ in range(rows)]

while line := sys.stdin.readline():
    words = line.split()
    if words[0] == "case":
        params = dict(word.split("=") for word in words[2:])
        splits = [int(n) for n in params["splits"].split("x") if n]
        align, inputs = int(params["align"]), {}
    elif words[0] == "in":
        inputs[words[1]] = array(words)
    elif words[0] == "out":
        columns = int(words[-1]) if words[1] == "rows" else columns
    elif words[0] == "end":
        if TAKEN and align not in TAKEN:
            print("unsupported aligns of 16, 32 and 128 only", flush=True)
            continue
        out, offsets, taken = [], [], iter(inputs["row_map"][0])
        for count in splits:
            offsets.append(f"{len(out):x}")
            out += [inputs["payload"][int(next(taken), 16)] for _ in range(count)]
            out += [["00"] * columns] * (-count % align)
        for row in (*out, offsets):
            print(*row)
        print("end", flush=True)
"""


def tally_of(subject: Subject) -> Tally:
    tally = Tally(subject.name, "permute_pad", "HOPPER", {"align": 16})
    for case in CASES:
        judge(subject, case, run_golden(case), tally, 20.0)
    return tally


def test_there_is_something_beside_the_table() -> None:
    assert {case.params["align"] for case in BESIDE} == {1, 7} and WIDE


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_right_library_is_not_failed_for_what_it_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "permute.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "permute.c", "-o", "libpermute.so"], cwd=tmp_path, check=True)
    path = tmp_path / "permute.toml"
    path.write_text(DECLARATION)
    tally = tally_of(from_dict(from_library(path), "test"))
    assert not tally.faults and not tally.failing and tally.compared
    words = "\n".join(tally.unsupported)
    assert (
        "align=7 is no choice; a library is told 32, 16, 128 by their places" in words
        and "align=1 is no choice" in words
    )
    assert "row_map is int64; a library is given int32" in words
    assert sum(tally.unsupported.values()) == len(BESIDE) + len(WIDE)


@pytest.mark.parametrize("taken", [(), (16, 32, 128)])
def test_an_executable_is_told_the_value_and_may_decline_it(tmp_path: Path, taken: tuple[int, ...]) -> None:
    path = tmp_path / "permute"
    path.write_text(f"#!{sys.executable}\nTAKEN = {taken}\n{PROGRAM}")
    path.chmod(0o755)
    (subject,) = from_file(f"exec:{path}:permute_pad")
    tally = tally_of(subject)
    assert not tally.faults and not tally.failing and tally.compared
    assert sum(tally.unsupported.values()) == (len(BESIDE) if taken else 0)


def test_supports_is_asked_about_values_beside_the_table() -> None:
    def permute(payload: np.ndarray, row_map: np.ndarray, splits: list[int], align: int) -> tuple[np.ndarray, ...]:
        return refnum.permute_pad(payload, row_map, splits, {16: 16, 32: 32, 128: 128}[align])

    def supports(operation: str, profile: str, params: dict[str, object]) -> str:
        assert set(params) == {"align"}
        return "" if params["align"] in (16, 32, 128) else f"no align={params['align']}"

    tally = tally_of(Subject("k", {"permute_pad": permute}, supports=supports))
    assert not tally.faults and not tally.failing and tally.compared
    assert sum(tally.unsupported.values()) == len(BESIDE)
    assert tally_of(Subject("k", {"permute_pad": permute})).faults, "one that says nothing is asked"


def test_dtypes_of_a_declaration_hold_where_no_parameter_names_them() -> None:
    rows = np.zeros((32, 4), ml_dtypes.bfloat16)
    given = {"rows": rows, "row_map": np.zeros(3, np.int32), "weights": np.ones(3, np.float32)}
    case = Case("unpermute", "HOPPER", {"align": 32, "splits": [3], "tokens": 1}, given)
    assert Limits(("float32",)).refuses(case) == "it takes float32, not bfloat16"
    assert Limits(("bfloat16",)).refuses(case) == ""
    codes = Case("permute_pad", "HOPPER", {}, {"payload": np.zeros((2, 17), np.uint8)})
    assert Limits(("float32",)).refuses(codes) == ""


@pytest.mark.parametrize("illegal", [{"align": 32.0}, {"splits": [1, True]}])
def test_what_the_model_refuses_is_refused_behind_a_legal_call_that_is_equal(illegal):
    """Python has 32.0 for 32 and True for 1, also as the key of what is kept: a right library was blamed for them."""
    inputs = {"payload": np.zeros((2, 17), np.uint8), "row_map": np.arange(2, dtype=np.int32)}
    legal = {"align": 32, "splits": [1, 1]}
    assert [spec[0] for spec in output_specs(Case("permute_pad", "HOPPER", legal, inputs))] == [(64, 17), (2,)]
    with pytest.raises(RefnumError):
        output_specs(Case("permute_pad", "HOPPER", {**legal, **illegal}, inputs))
