"""The HTML page: what it shows, that it asks the network for nothing, and how a browser opens it."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from report_documents import document as make_document
from report_documents import many

from refnum.conformance.reports.html import banner, bit_fields, html
from refnum.conformance.reports.picture import picture

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")


@pytest.fixture(scope="module")
def page():
    return html(make_document())


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("circle", "path"):
            assert self.open.pop() == tag


def test_the_page_says_the_verdict_the_counterexample_and_what_was_not_verified(page):
    assert ">WRONG at level standard" in page and "E2M1_TIES_UP" in page
    assert "tie at 5 -&gt; even (N2)" in page and "needs a &lt;GPU&gt; | a big one" in page
    assert "boom \\x1b[31m &lt;b&gt;" in page and "How the golden model gets there" in page


def test_the_banner_counts_subjects_and_operations_with_thousands_apart():
    document = many(1234)
    words, counts = banner(document)
    assert words == "WRONG at level standard" and counts.startswith("40 subjects, 1 operation, 1,234 variants, ")
    assert not re.search(r"\d{4}", counts) and f'<p class="counts">{counts}' in html(document)


def test_a_hint_is_no_title_and_a_finding_is(page):
    titles = re.findall(r"<summary>(.*?)</summary>", page, re.S)
    assert not [title for title in titles if "TIES_UP" in title] and "where 4 (0x6) is right" in "".join(titles)
    document = make_document()
    row = next(row for row in document["results"] if row["outcome"] == "mismatch")
    row["failures"][0].update(finding="stale-output", words="it answers the earlier data")
    assert '<span class="like bad">stale-output</span>' in html(document)
    row["failures"][0].update(finding="", bug_classes=[], words="")
    assert "No known bug gives these bits" in html(document)


def test_picture_and_text_show_the_same_case():
    records = [record for row in make_document()["results"] for record in row["failures"] if record["grid"]]
    assert records
    for record in records:
        ((quotient, *codes),) = [point for point in record["grid"]["points"] if point[1] != point[2]]
        assert codes == [float(record["page"][side]["value"]) for side in ("expected", "observed")]
        assert quotient == float(record["page"]["input"][0]["value"]) and "1 of 32" in str(record["page"]["differing"])


def test_the_page_is_well_formed_and_fetches_nothing(page):
    tags = Tags(page)
    assert not tags.open
    policy = next(a["content"] for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not {tag for tag, _ in tags.found} & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not [a for _, a in tags.found if {"src", "href", "onclick", "style"} & set(a)]
    assert not re.search(r"https?:|//|url\(|@import", re.sub(r"\S*/\S*\.json", "", page).replace("<!doctype", ""))


def test_bits_come_in_fields():
    assert bit_fields("0 11 0") == [("sign", "0"), ("exponent", "11"), ("fraction", "0")]
    assert bit_fields("01111111") == [("bits", "01111111")] and bit_fields("") == []
    assert [name for name, _ in bit_fields("1 01")] == ["sign", "rest"]


def test_holes_and_coverpoints_are_shown():
    document = make_document()
    row = next(row for row in document["results"] if row["outcome"] == "pass")
    row.update(coverpoints=142, holes=["tie at 5"])
    assert "141 of 142" in html(document) and "tie at 5</span>" in html(document)
    del row["coverpoints"]  # as older reports are
    assert "141 of 142" not in html(document)


def test_ten_thousand_mismatches_make_a_page_that_opens():
    text = html(many(10_000))
    assert text.count('class="counter-example"') == 200 and "7,800 more failing cases" in text
    assert len(text) < 4_000_000


GRID = {
    "element": "E2M1",
    "output": "packed",
    "points": [[5.0, 4.0, 6.0], [0.25, 0.0, None], [7.0, 6.0, -6.0], [1.0, 1.0, 1.0], [-3.0, -3.0, -3.0]],
}


def test_the_picture_marks_what_differs_and_what_agrees():
    drawn = picture(GRID)
    assert drawn.count("<title>") == 3 and drawn.count('class="right"') == 3  # one is in the legend
    assert "input / scale 5, expected 4, observed 6" in drawn and "observed NaN" in drawn
    assert picture({}) == ""
    Tags(drawn)
    assert all(0 <= float(x) <= 700 for x in re.findall(r'c[xy]="([-0-9.]+)"', drawn))


def test_neighbouring_codes_are_equally_far_apart():
    def places(x):
        drawn = picture({**GRID, "points": [[x, 0.0, 6.0], [x, 6.0, 0.0]]})
        return float(re.search(r'class="expected" cx="([-0-9.]+)"', drawn)[1])

    steps = [round(places(b) - places(a), 1) for a, b in ((0.5, 1.0), (2.0, 3.0), (4.0, 6.0), (2.5, 3.5))]
    assert max(steps) - min(steps) <= 0.2


def browse(path, tmp_path, *flags):
    """Return what Chromium prints. Every host name resolves to nothing, so a request would fail and be logged."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run([*command, profile, *flags, f"file://{path}"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PROBE = """<script>onload = () => {
  const seen = e => e.checkVisibility() && e.getBoundingClientRect().height > 0;
  const cases = [...document.querySelectorAll('details.counter-example')];
  const last = cases.at(-1), inside = last.querySelector('p');
  const before = seen(inside);
  last.querySelector('summary').click();
  setTimeout(() => { document.title = JSON.stringify({
    before, after: seen(inside), cases: cases.length,
    verdict: seen(document.querySelector('#verdict')), drawn: seen(document.querySelector('svg.grid')),
    requests: performance.getEntriesByType('resource').length,
    wide: document.documentElement.scrollWidth <= innerWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor,
  }) }, 100);
}</script></body>"""


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_the_verdict_and_opens_a_counterexample(page, tmp_path, dark):
    """A script is put into a copy, whose policy lets it run: the page itself has none."""
    copy = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    path = tmp_path / "page.html"
    path.write_text(copy.replace("</body>", PROBE), encoding="utf-8")
    text = browse(
        path,
        tmp_path,
        "--dump-dom",
        "--virtual-time-budget=5000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    )
    seen = json.loads(re.search(r"<title>(.*?)</title>", text)[1])
    assert seen["verdict"] and seen["drawn"] and seen["cases"] == 6 and seen["requests"] == 0 and seen["wide"]
    assert (seen["before"], seen["after"]) == (False, True)
    ink, paper = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("ink", "paper"))
    assert seen["dark"] is dark and (ink > paper) is dark and abs(ink - paper) > 400


@needs_browser
def test_a_browser_draws_the_page_itself(page, tmp_path):
    path, shot = tmp_path / "page.html", tmp_path / "page.png"
    path.write_text(page, encoding="utf-8")
    browse(path, tmp_path, f"--screenshot={shot}", "--window-size=1200,1600")
    assert shot.read_bytes()[:4] == b"\x89PNG" and shot.stat().st_size > 50_000
