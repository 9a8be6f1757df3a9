"""CONTRIBUTING.md's lists are complete: a made-up operation, format and peer need the listed files and no other.

They are added to a copy of the tree, with edits of the files that the guide lists. In the copy the house stands, every
row has its parts, the vectors agree with the second oracle, and a run judges the new operation and the new format. With
one file left out, `test_rows.missing` names it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_floors import CHECKS
from test_rows import PEERS, missing

from refnum.conformance.vectors.record import canonical

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    "refnum",
    "gpu",
    "conformance",
    "training",
    "vectors",
    "docs",
    "tests/clean_room",
    "tests/refnum",
    "CITATION.cff",
)

Edit = Callable[[str], str]


def new(text: str) -> Edit:
    """A file that does not exist yet."""
    return lambda old: text


def after(line: str, text: str) -> Edit:
    """Text behind the first line that begins so."""

    def edit(old: str) -> str:
        at = old.index("\n", old.index(f"\n{line}") + 1) + 1
        return old[:at] + text + old[at:]

    return edit


def replaced(what: str, by: str) -> Edit:
    """The first place of some text changed."""

    def edit(old: str) -> str:
        assert what in old, what
        return old.replace(what, by, 1)

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after another."""

    def edit(old: str) -> str:
        for one in edits:
            old = one(old)
        return old

    return edit


GOLDEN = '''"""Negation of codes (clause N2)."""

import numpy as np

from .codec import decode


def negate_e4m3(codes):
    """Return the E4M3 codes of the negated values; NaN keeps its code (clause N2)."""
    decode("E4M3", codes)  # refuses what is no code
    return np.where(codes & 0x7F == 0x7F, codes, codes ^ np.uint8(0x80))
'''
CORNERS = '''"""Corners of the negation."""

import numpy as np

from ..operation import OPERATIONS


def negate_e4m3(operation, params):
    """Every code, and no row."""
    yield "every code", {OPERATIONS[operation].inputs[0]: np.arange(256, dtype=np.uint8).reshape(8, 32)}
    yield "no rows", {"codes": np.zeros((0, 32), np.uint8)}
'''
DOMAINS = '''"""Domains of the negation."""

from .casts import decoders

negate_e4m3 = decoders
'''
COVERPOINTS = '''"""Coverpoints of the negation."""

import numpy as np

from .point import Group

negate_e4m3 = (
    Group("NaN", lambda *_: {"NaN code": "stays"},
          lambda case, golden: {"NaN code": int(np.count_nonzero(case.inputs["codes"] & 0x7F == 0x7F))}),
)  # fmt: skip
'''
QUESTIONS = '''"""What is asked of the negation."""

import numpy as np

from ..draft import Draft, plain


def _every_code():
    yield Draft({"codes": np.arange(256, dtype=np.uint8).reshape(8, 32)}, comment="every code")


negate_e4m3 = plain(_every_code)
'''
ANSWER = '''"""Negation by the value table (N2)."""

from refnum import oracle


def negate_e4m3(vector):
    """The code whose value is the negated one; NaN stays."""
    values = [oracle.decode("E4M3", code, signed_zero=True) for code in range(256)]
    other = {oracle.NEG_ZERO: 0, **{-value: code for code, value in enumerate(values) if value not in ("nan", "-0")}}
    other[0] = 0x80
    negated = [code if value == "nan" else other[value] for code, value in enumerate(values)]
    return ([[negated[code] for code in row] for row in vector.inputs["codes"].tolist()],)
'''
ROW = """    Operation("negate_e4m3", "N2", "negation", ("codes",), (Output("codes", "codes", "E4M3"),), reads=TILE,
              rounds_to=TILE, scalar=True, proof="model-on-cupy-negation"),
"""
CLEAN_ROOM = """    {"negate_e4m3", {"codes"},
     [](V v) -> Answers { return {negated(v["codes"].matrix())}; }},
"""
OPERATION: dict[str, Edit] = {
    "docs/specification/N2.md": replaced(
        "\nOperations: ", "\nOperations: {doc}`negate_e4m3 <operations/negate_e4m3>`, "
    ),
    "docs/specification/operations/negate_e4m3.md": new(
        "# negate_e4m3\n\nNegates E4M3 codes.\n\n## Definition\n\nN2. The sign bit is flipped.\n"
    ),
    "docs/specification/operations/index.md": replaced("\nencode_e2m1\n", "\nencode_e2m1\nnegate_e4m3\n"),
    "vectors/schema/common.schema.json": replaced('    "philox4x32"', '    "negate_e4m3",\n    "philox4x32"'),
    "refnum/negation.py": new(GOLDEN),
    "refnum/__init__.pyi": after("from .narrow import", "from .negation import negate_e4m3\n"),
    "refnum/explanation.py": after("EXPLAINED = {", '    "negate_e4m3": _scalar,\n'),
    "conformance/cases/operation.py": after("_TABLE = (", ROW),
    "conformance/cases/corners/negation.py": new(CORNERS),
    "conformance/cases/domains/negation.py": new(DOMAINS),
    "conformance/cases/coverpoints/negation.py": new(COVERPOINTS),
    "conformance/vectors/oracle/negation.py": new(ANSWER),
    "conformance/vectors/cases/negation.py": new(QUESTIONS),
    "conformance/commands/prove/catalogue.py": after(
        '    _model("model-on-cupy"', '    _model("model-on-cupy-negation", 6 * (1 << 19) + 256, "the negation"),\n'
    ),
    "tests/clean_room/operations.hpp": after('    {"decode_element"', CLEAN_ROOM),
    "tests/refnum/test_negation.py": new("def test_negation():\n    assert refnum.negate_e4m3(1) == 0x81\n"),
}
"""File -> what adding the operation `negate_e4m3`, of a family of its own, changes in it."""

FORMAT: dict[str, Edit] = {
    "refnum/formats.py": both(
        after('E3M2 = Format("E3M2"', 'E2M2 = Format("E2M2", 2, 2, 1, 0xF, source="made up")\n'),
        replaced("FP4_RADIX4, E2M3, E3M2,", "FP4_RADIX4, E2M3, E3M2, E2M2,"),
        replaced("(E2M1, E2M3, E3M2,", "(E2M1, E2M3, E3M2, E2M2,"),
    ),
    "refnum/oracle/tables.py": both(
        after('    "E3M2": _signed', '    "E2M2": _signed(_E2M2, _TWO**-2, 32, emax=2, mantissa_bits=2),\n'),
        replaced("_E4M3 = (", "_E2M2 = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28)\n_E4M3 = ("),
    ),
    "refnum/__init__.pyi": replaced("    E2M3,\n", "    E2M2,\n    E2M3,\n"),
    "vectors/schema/vectors.schema.json": both(
        replaced('"E2M1",', '"E2M1", "E2M2",'), lambda old: canonical(json.loads(old))
    ),
    "docs/specification/N1.md": replaced("E2M3:\n", "E2M2:\n\n:::{refnum-table} values E2M2\n:::\n\nE2M3:\n"),
}
"""File -> what adding the MX element format E2M2 changes in it."""

PEER_FILE = '''"""A made-up library that negates codes and decodes one format."""

import numpy as np

import refnum

DIFFERENCES = ()
VALUES = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28], np.float32) / 4


def negate_e4m3(codes):
    """One table look-up a code."""
    refnum.decode_e4m3(codes)  # refuses what is no code
    return np.array([code if code % 128 == 127 else (code + 128) % 256 for code in range(256)], np.uint8)[codes]


def dequantize_mx(codes, scales, element, dtype):
    """Values times a power of two."""
    refnum.dequantize_mx(codes, scales, element, dtype)  # refuses what is no code
    values = np.concatenate([VALUES, -VALUES])[codes & 31].astype(np.float64)
    wide = np.repeat(scales, 32, axis=1).astype(int)
    with np.errstate(over="ignore"):
        return np.where(wide == 255, np.float32(np.nan), np.ldexp(values, wide - 127).astype(np.float32))


def supports(operation, profile, params):
    """E2M2 to float32 and nothing else."""
    mine = operation == "negate_e4m3" or (params["element"], params["dtype"]) == ("E2M2", "float32")
    return "" if mine else "not this"


def subjects():
    """One subject."""
    return [{"name": "made-up", "operations": {"negate_e4m3": negate_e4m3, "dequantize_mx": dequantize_mx},
             "supports": supports}]
'''
PEER: dict[str, Edit] = {
    f"{PEERS}/made_up.py": new(PEER_FILE),
    f"{PEERS}/__init__.py": after("PEERS = {", '    "made_up": "",\n'),
}
"""File -> what adding a peer changes in it."""

MADE = {"docs/specification.md", "vectors/"}
"""Files that a command writes."""
OPERATIONS = ("negate_e4m3", "decode_element", "encode_element", "quantize_mx")
"""Operations whose vectors a build changes: the new one, and of those that have every format the quick ones."""
VECTORS = f"""
import json
from pathlib import Path
from refnum.conformance.commands.prove.catalogue import CATALOGUE
from refnum.conformance.vectors import load_vectors
from refnum.conformance.vectors.build import generated_files, manifest
from refnum.conformance.vectors.oracle import agrees, expected_by_oracle
from refnum.conformance.vectors.verify import verify

folder = Path("vectors")
files, _ = generated_files({OPERATIONS!r})
for name, data in files.items():
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
(folder / "MANIFEST.sha256").write_text(manifest(folder))
found = {{"vectors": verify(folder, rebuild=False, oracle_rows=0).vectors}}
asked = [v for name in {OPERATIONS!r} for v in load_vectors(name, folder=folder)
         if v.tensor is None and v.params.get("element", "E2M2") == "E2M2"]
found["answered"] = len(asked)
found["wrong"] = [v.id for v in asked if agrees(v, expected_by_oracle(v)) is not None]
found["members"] = [CATALOGUE["model-on-cupy-negation"].made.size, CATALOGUE["model-on-cupy-negation"].size]
Path("found.json").write_text(json.dumps(found))
"""
CHECK = """
from refnum.conformance.cli import app
from refnum.conformance.commands.check import structure

structure.amount_for = lambda engine: "brief"  # every level of the structure, and not every pair of its numbers
app(["check", "-s", "made-up", "-p", "HOPPER", "--examples", "1", "--report", "report.json"])
"""


def apply(root: Path, edits: dict[str, Edit]) -> None:
    for file, edit in edits.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(edit(path.read_text(encoding="utf-8") if path.exists() else ""), encoding="utf-8")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the tree with the three additions, its vectors and its specification written."""
    root = tmp_path_factory.mktemp("house")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)
    for edits in (OPERATION, FORMAT, PEER):
        apply(root, edits)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    programs = [["-c", VECTORS], ["-c", CHECK], ["docs/_ext/specification.py"]]
    for words in programs:  # one after the other: each takes the modules that the one before has compiled
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.fail(done.stdout + done.stderr)
    return root


def test_every_row_of_the_copy_has_its_parts(house):
    assert missing(house) == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_copy_stands_on_its_floors(check, house):
    assert check(house) == []


def test_the_vectors_of_the_copy_agree_with_the_second_oracle(house):
    found = json.loads((house / "found.json").read_text())
    assert found["wrong"] == [] and found["answered"] > 60
    assert found["members"][0] == found["members"][1]


def test_the_copy_judges_the_new_operation_and_the_new_format(house):
    results = json.loads((house / "report.json").read_text())["results"]
    passed = {row["operation"]: row["params"] for row in results if row["outcome"] == "pass"}
    assert passed == {"negate_e4m3": {}, "dequantize_mx": {"element": "E2M2", "dtype": "float32"}}


def listed(what: str) -> list[str]:
    """The files of a list of the guide."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"### Add {what}\n")[2].partition("\n### ")[0]
    return re.findall(r"^\d+\. `([\w./-]+)`", section, re.MULTILINE)


LISTS = {"an operation": OPERATION, "a format": FORMAT, "a peer": PEER}


@pytest.mark.parametrize("what", LISTS)
def test_the_guide_lists_these_files_and_no_other(what):
    files = listed(what)
    touched = {path if path in files else f"{path.rpartition('/')[0]}/" for path in LISTS[what]}
    assert touched | (MADE if what != "a peer" else set()) == set(files)


@pytest.mark.parametrize("file", [*OPERATION, *FORMAT, *PEER, "vectors/negate_e4m3", "docs/specification.md"])
def test_a_file_that_is_left_out_is_named(file, house):
    path, kept = house / file, house / "kept"
    path.rename(kept)
    try:
        if (ROOT / file).exists():
            shutil.copyfile(ROOT / file, path)
        told = missing(house)
        assert any(file in line.partition(": write ")[2] for line in told), told
    finally:
        path.unlink(missing_ok=True)
        kept.rename(path)
