"""Internal links resolve, the site builds without a warning, and nothing is fetched from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from refnum.conformance.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page):
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", TOP, ids=lambda p: p.name)
def test_links_of_top_level_pages(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name} links to {target}"


def is_current(stamp):
    """Whether `make docs` passed after every file that the site is made of was written."""
    folders = [ROOT / name for name in ("docs", "refnum", "gpu", "conformance", "training", "vectors")]
    files = [*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.*"))]
    sources = (path for path in files if {"_build", "generated", "__pycache__"}.isdisjoint(path.parts))
    return stamp.exists() and all(path.stat().st_mtime < stamp.stat().st_mtime for path in sources)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if is_current(ROOT / "docs/_build/passed"):
        return ROOT / "docs/_build/html"
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(out / "trees")]
    command += ["-D", "refnum_run_examples=0", "-D", "smartquotes=0"]  # `test_docs_examples` runs them; plain quotes do
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_site_builds_without_a_warning(site):
    assert (site / "index.html").exists() and (site / "specification" / "N3.html").exists()


def test_the_reference_has_every_command(site):
    text = (site / "reference" / "command.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"{name} needs torch" not in text and f"refnum {name}" not in text] == []


def test_clauses_have_their_number_as_anchor(site):
    assert 'id="N3.2"' in (site / "specification" / "N3.html").read_text(encoding="utf-8")


def test_every_local_link_of_the_site_resolves(site):
    ids = {}
    for page in site.rglob("*.html"):
        ids[page] = set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))
    broken = []
    for page in ids:
        for target in re.findall(r'<a [^>]*?href="([^"]+)"', page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and file in ids and anchor not in ids[file]):
                broken.append((page.name, target))
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)\b[^>]*?(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8")
        )
        assert not loaded, (page.name, loaded)
