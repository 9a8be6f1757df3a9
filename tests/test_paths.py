"""Every path of ours that a comment, a docstring or a page names exists, and no record names one of a machine."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("refnum", "gpu", "conformance", "training", "vectors", "docs", "tests", "tools", "benchmarks")
SUFFIXES = {".py", ".md", ".cu", ".cuh", ".cpp", ".hpp", ".toml", ".yml"}
LINKS = ("refnum/gpu", "refnum/conformance", "refnum/training", "refnum/vectors")
MADE = ("docs/_build/", "docs/results/", *LINKS)
"""Beginnings of paths that a command writes, or that exist only once installed."""
INVENTIVE = {
    "tests/test_contributing.py",
    "tests/test_floors.py",
    "tests/test_paths.py",
    "tests/docs/test_docs_operations.py",
}
"""Tests that make up files."""
NAMED = re.compile(rf"(?<![\w/.$<>{{}}*-])((?:{'|'.join(TOPS)})/[\w./-]*\.(?:py|cuh?|cpp|hpp|md|toml|yml))(?![\w*])"
                   rf"|`((?:{'|'.join(TOPS)})/[\w./-]*)`")  # fmt: skip
OF_A_MACHINE = re.compile(rb"(?<![\w.])(?:/root|/tmp|/home|/opt|/mnt|/dev/shm)/|GPU-[0-9a-f]{8}")
IN_GPU = re.compile(r"(?<![\w/.])((?:kernels|host|emulate|emulation|device|ops)/\w+\.(?:py|cuh?|cpp|hpp))")


def sources():
    """Every file of ours that is read, as a path from the root; dated results keep the names of their day."""
    for path in (path for top in TOPS if top != "vectors" for path in sorted((ROOT / top).rglob("*"))):
        name = path.relative_to(ROOT).as_posix()
        linked = name.startswith(LINKS) or any(part.startswith((".", "_build", "__")) for part in path.parts[-2:-1])
        if path.suffix in SUFFIXES and not linked and not name.startswith("docs/results/") and name not in INVENTIVE:
            yield name
    yield from ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")


def missing(name, text):
    """The paths in a file's text that do not exist."""
    found = [one or other for one, other in NAMED.findall(text)]
    inside = IN_GPU.findall(text) if name.startswith("gpu/") else []
    return [
        *(path for path in found if not path.startswith(MADE) and not (ROOT / path).exists()),
        *(path for path in inside if not (ROOT / "gpu" / path).exists()),
    ]


def test_every_path_that_a_file_names_exists():
    lacking = [f"{name} names {path}" for name in sources() for path in missing(name, (ROOT / name).read_text("utf-8"))]
    assert lacking == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu/ops/rows.py", "# gpu/launch.py has its mirror"),
        ("gpu/ops/rows.py", '"""Mirror of kernels/no_such.cuh."""'),
        ("docs/a.md", "see `tests/nowhere/`"),
    ],
)
def test_a_path_that_is_gone_is_found(name, text):
    assert len(missing(name, text)) == 1


def test_a_path_of_somebody_else_is_not_ours():
    assert missing("docs/a.md", "`kernels/my_kernel.py`, path/to/gpu/x.py, `refnum/formats.py`") == []


def recorded(root):
    """Yield the data and pages that are published from machines: results, vectors and certificates."""
    for folder in ("docs/results", "vectors"):
        yield from (path for path in sorted((root / folder).rglob("*")) if path.is_file())


def test_no_record_names_a_folder_or_a_gpu_of_a_machine():
    found = [path.name for path in recorded(ROOT) if OF_A_MACHINE.search(path.read_bytes())]
    assert found == [] and len(list(recorded(ROOT))) > 100


def test_a_folder_and_a_gpu_of_a_machine_are_found():
    for text in (b'"CC": "/opt/gcc/bin/gcc"', b'["/tmp/x"]', b'"uuid": "GPU-af2e01be-eaf5-74a0"'):
        assert OF_A_MACHINE.search(text)
    assert not OF_A_MACHINE.search(b"docs/home/x, GPU-bound, 3/opt")


def test_no_two_test_files_have_one_name():
    """pytest imports a test file by its base name, and refuses the second of two."""
    names = sorted(path.name for path in (ROOT / "tests").rglob("*.py") if path.name.startswith("test_"))
    assert len(names) > 100 and [one for one, other in itertools.pairwise(names) if one == other] == []
