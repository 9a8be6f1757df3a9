"""Citation, changelog, licence and contributor's guide agree with the package."""

import datetime
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import refnum
from refnum.conformance.verdicts.elsewhere import MOVED
from refnum.conformance.verdicts.probes import PROBES

ROOT = Path(__file__).resolve().parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_citation_has_what_cff_1_2_requires():
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "version", "date-released", "license"} <= set(CITATION)
    assert CITATION["type"] in ("software", "dataset")
    allowed = (
        "cff-version message title abstract type authors version date-released license keywords references url doi"
    )
    allowed += " repository-code identifiers preferred-citation"
    assert set(CITATION) <= set(allowed.split())
    for author in CITATION["authors"]:
        assert "name" in author or {"family-names", "given-names"} & set(author)
    for reference in CITATION["references"]:
        assert {"type", "title", "authors"} <= set(reference)


def test_versions_agree():
    assert str(CITATION["version"]) == refnum.__version__ == PROJECT["version"]
    assert isinstance(CITATION["date-released"], datetime.date)


def test_changelog_has_this_version_on_the_citation_s_date():
    heads = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text("CHANGELOG.md"), re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    assert heads[1] == (refnum.__version__, CITATION["date-released"].isoformat())
    kinds = set(re.findall(r"^### (.+)$", text("CHANGELOG.md"), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_licence_is_apache_2():
    licence = text("LICENSE")
    assert PROJECT["license"] == CITATION["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in licence and "END OF TERMS AND CONDITIONS" in licence


def repository_paths(page):
    """Paths in backticks that lie in a room of this repository."""
    rooms = ("refnum/", "gpu/", "conformance/", "vectors/", "docs/", "tests/", "benchmarks/")
    found = re.findall(r"`([\w./-]+)`", text(page))
    return sorted({path for path in found if path.startswith(rooms)})


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_named_files_exist(page):
    missing = [path for path in repository_paths(page) if not (ROOT / path).exists() and "_build" not in path]
    assert not missing


@pytest.mark.parametrize("what", ["format", "operation", "kernel", "peer", "profile", "note or a vector"])
def test_contributing_has_a_file_list_for(what):
    section = re.search(rf"^### Add an? {what}$(.*?)(?=^##)", text("CONTRIBUTING.md"), re.MULTILINE | re.DOTALL)
    assert section, what
    steps = re.findall(r"^(\d+)\. `([\w./-]+)`", section[1], re.MULTILINE)
    assert steps, f"no numbered files to add a {what}"
    assert [int(n) for n, _ in steps] == sorted(int(n) for n, _ in steps)


def test_contributing_names_every_part_of_conformance():
    section = text("CONTRIBUTING.md").partition("## Where things are in `conformance/`")[2].partition("\n## ")[0]
    named = {path.rstrip("/") for path in re.findall(r"`(conformance/[\w./]+)`", section)}
    there = {f"conformance/{path.name}" for path in (ROOT / "conformance").iterdir() if not path.name.startswith("_")}
    assert named == there


def test_the_guide_has_every_probe_and_whether_it_may_be_refused():
    guide = text("docs/guides/judge-your-kernel.md")
    section = guide.partition("## Probes of the calling contract")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \|.*\| (yes|no) \|$", section, re.MULTILINE))
    assert list(rows) == [probe.name for probe in PROBES]
    assert {probe.name: rows[probe.name] for probe in MOVED} == {p.name: ["yes", "no"][p.streams] for p in MOVED}
    assert all(f"`{one.finding}`" in section for one in MOVED)
