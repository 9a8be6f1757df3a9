"""The corpus: gathered once, listed with digests, split by file, and batches that a key decides."""

import hashlib
import json

import numpy as np
import pytest

from refnum.errors import ArgumentError, FileError
from refnum.training import data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("corpus")
    data.write_corpus(found, 1)
    return found


def test_every_listed_file_is_in_its_split_whole_and_once(folder):
    listed = json.loads((folder / "corpus.json").read_text())["files"]
    assert len({one["sha256"] for one in listed}) == len(listed) > 10
    for split in ("train", "valid"):
        content, at = (folder / f"{split}.bin").read_bytes(), 0
        for one in listed:
            if one["split"] == split:
                text = content[at : at + one["bytes"]]
                assert hashlib.sha256(text).hexdigest() == one["sha256"]
                at += one["bytes"]
        assert at == len(content) > 0


def test_files_are_sources_of_the_standard_library_first(folder):
    names = [one["path"] for one in json.loads((folder / "corpus.json").read_text())["files"]]
    assert names[0].startswith("library/") and not [name for name in names if "site-packages" in name]


def test_packages_follow_the_library():
    names = [name for name, _ in data.sources()]
    roots = [name.partition("/")[0] for name in names]
    assert roots == sorted(roots) and any("packages/numpy/" in name for name in names)


def test_a_second_gathering_leaves_the_corpus(folder):
    before = (folder / "corpus.json").stat().st_mtime_ns
    data.write_corpus(folder, 2)
    assert (folder / "corpus.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["train.bin", "corpus.json"])
def test_a_changed_or_missing_file_is_one_sentence(name, tmp_path):
    data.write_corpus(tmp_path, 1)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-1])
    with pytest.raises(FileError, match="to gather it anew"):
        data.read_corpus(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileError, match="to gather it anew"):
        data.read_corpus(tmp_path)


def test_too_little_text_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="leave a split without text"):
        data.write_corpus(tmp_path, 0.000001)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ArgumentError, match="less than one sequence"):
        data.batch(np.zeros(64, np.uint8), 64, 1, 0, 0)


def test_a_batch_is_decided_by_its_seed_and_step(folder):
    text = data.read_corpus(folder).train
    one = data.batch(text, 32, 6, 7, 3)
    assert one.shape == (6, 33) and one.dtype == np.uint8
    assert np.array_equal(one, data.batch(text, 32, 6, 7, 3))
    assert not np.array_equal(one, data.batch(text, 32, 6, 7, 4))
    assert not np.array_equal(one, data.batch(text, 32, 6, 8, 3))
    assert all(row.tobytes() in text.tobytes() for row in one)


def test_the_shortest_text_gives_its_only_sequence():
    text = np.arange(9, dtype=np.uint8)
    assert data.batch(text, 8, 2, 0, 0).tolist() == [list(range(9))] * 2
