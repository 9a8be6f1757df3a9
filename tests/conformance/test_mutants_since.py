"""Mutants of later lines: those that a commit does not have."""

import subprocess

import pytest

from refnum.conformance.commands.mutate.operators import mutants_of
from refnum.conformance.commands.mutate.since import in_later_lines
from refnum.errors import ArgumentError

OLD = "a = b + c;\nd = e + f;\ng = h + i;\n"
NEW = "x = y + z;\na = b + c;\nd = e - f;\ng = h + i;\na = b + c;\n"


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    """A folder of a repository: one file was committed and edited, another is new."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "old.cuh").write_text(OLD)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    (folder / "old.cuh").write_text(NEW)
    (folder / "new.cuh").write_text(OLD)
    return folder


def found(root, commit):
    mutants = [one for path in sorted(root.glob("*.cuh")) for one in mutants_of(path.name, path.read_text())]
    assert {(one.file, one.line) for one in mutants} >= {("old.cuh", line) for line in range(1, 6)}
    kept = in_later_lines(mutants, root, commit)
    places = {(one.file, one.line) for one in kept}
    assert kept == [one for one in mutants if (one.file, one.line) in places]  # a line's mutants stay together
    return {file: [line for name, line in sorted(places) if name == file] for file in ("old.cuh", "new.cuh")}


def test_lines_that_moved_are_not_later_ones_and_a_new_file_is_later_as_a_whole(root):
    assert found(root, "HEAD") == {"old.cuh": [1, 3, 5], "new.cuh": [1, 2, 3]}


def test_without_a_commit_every_mutant_is_kept(root):
    assert found(root, None) == {"old.cuh": [1, 2, 3, 4, 5], "new.cuh": [1, 2, 3]}


def test_the_working_tree_is_compared_and_a_commit_of_it_has_no_later_lines(root):
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")
    with pytest.raises(ArgumentError, match="No mutant lies in a line that --since HEAD does not have"):
        found(root, "HEAD")
    assert found(root, "HEAD~1") == {"old.cuh": [1, 3, 5], "new.cuh": [1, 2, 3]}


def test_what_is_no_commit_is_named(root, tmp_path_factory):
    mutants = mutants_of("old.cuh", OLD)
    for folder, commit in ((root, "no-such"), (root, "--help"), (tmp_path_factory.mktemp("none"), "HEAD")):
        with pytest.raises(ArgumentError, match=f"--since {commit} is no commit of the git repository around"):
            in_later_lines(mutants, folder, commit)
