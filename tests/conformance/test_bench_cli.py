"""`refnum bench` as typed: refusals in one sentence, and pages and pictures from saved figures."""

import json
import sys

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app
from refnum.conformance.commands.bench import document, plot, tables
from refnum.conformance.commands.bench.lines import LINES
from refnum.conformance.reports import files
from refnum.errors import FileError, UnsupportedError

RUNNER = CliRunner()
TIMES = {"q1": 9.0, "q3": 11.0, "min": 8.0, "max": 12.0}


def record(line, contender, median=100.0, shape="32768x7168", own=False, **more):
    found = {
        "shape": shape, "line": line, "operation": "fp8_to_mxfp4", "profile": "HOPPER", "params": {}, "experts": 1,
        "matrix": [32768, 7168], "contender": contender, "is_subject": own, "status": "timed", "words": "",
        "us": {"median": median, **TIMES}, "bytes": 1000, "sets": 2, "agreement": "equal", "compared": 1000,
        "differing": 0, "values_differing": 0, "tb_s": 4.0, "of_copy": 90 / median, "of_same": 95 / median, **more,
    }  # fmt: skip
    if found["status"] != "timed":
        for name in ("us", "bytes", "sets", "agreement", "compared", "differing", "values_differing"):
            del found[name]
        del found["tb_s"], found["of_copy"], found["of_same"]
    return found


@pytest.fixture
def found():
    head = {
        "date": "2026-11-21T07:00:00+00:00", "command": "refnum bench", "versions": {"python": "3.12.3"},
        "device": {"name": "NVIDIA H200", "driver": "580.1", "cuda_runtime": 13020, "cuda_driver": 13000},
        "model_digest": "sha256:" + 64 * "0", "repeat": 30, "seconds": 1.0,
        "copy_bytes_per_second": 4.2e12, "copy_again_bytes_per_second": 4.1e12,
        "contenders": [
            {"name": "gpu", "note": "the subject", "is_subject": True, "describe": {}},
            {"name": "TileKernels", "note": "casts", "is_subject": False, "describe": {}},
        ],
        "missing": [{"name": "triton", "reason": "is not installed"}],
    }  # fmt: skip
    records = [
        record("slow", "gpu", 200.0, own=True),
        record("slow", "TileKernels", 600.0, agreement="differs", differing=25, values_differing=25),
        record("quick", "gpu", 100.0, own=True),
        record("quick", "TileKernels", 650.0, agreement="values", differing=10),
        record("quick", "torch.compile", status="failed", words="Boom in call: no | memory"),
        record("quick", "gpu", 50.0, shape="4096-64-1280-7-1024", own=True),
        record("quick", "TileKernels", 100.0, shape="4096-64-1280-7-1024"),
        record("none", "gpu", status="not offered", words="gpu has no none", own=True),
    ]
    return document.document(head, records, [{"operation": "fp8_to_mxfp4", "fresh_us": 9.5, "out_us": None}])


def test_rows_are_sorted_by_share_and_peers_follow(found):
    rows = list(tables.rows(found, "32768x7168"))
    assert [(row[0], row[1], row[7]) for row in rows] == [
        ("quick", "gpu", ""), ("quick", "TileKernels", "6.50"), ("slow", "gpu", ""), ("slow", "TileKernels", "3.00"),
    ]  # fmt: skip
    assert [row[8] for row in rows] == ["equal", "equal values, 1 % of the bytes differ", "equal", "2.5 % differ"]


def test_a_page_says_what_was_measured_and_what_was_not(found):
    page = tables.markdown(found, "Title", "x.json", "x.png")
    for words in (
        "NVIDIA H200, driver 580.1, CUDA runtime 13.2 on a driver for CUDA 13.0.",
        "4.20 TB/s", "again at the end: 4.10", "`refnum bench`",
        "[x.json](x.json)",
        "![Share of copy bandwidth by kernel](x.png)", "- triton: not run, is not installed.", "no | memory",
        "## 4096 tokens, 64 experts, hidden 1280, top-7, feed-forward 1024", "- none: gpu has no none.",
        "| fp8_to_mxfp4 | 9.5 |  |", "- TileKernels: 2 lines, 3.00 (slow) to 6.50 (quick) times as long at 32768x7168; "
        "1 lines, 2.00 (quick) to 2.00 (quick) times as long at the other shapes.",
    ):  # fmt: skip
        assert words in page
    tabled = [line for line in page.splitlines() if line.startswith("| quick | gpu")]
    assert tabled[0] == "| quick | gpu | 100.0 | 9.0 to 11.0 | 4.00 | 90.0 % | 95.0 % |  | equal |"


def test_lines_on_which_a_peer_is_quicker_are_listed_shape_by_shape(found):
    assert tables.quicker(found) == []
    assert "Where a peer is quicker" not in tables.markdown(found, "Title")
    found["records"] += [
        record("quick", "torch.compile", 99.0),
        record("quick", "torch.compile", 25.0, shape="4096-64-1280-7-1024"),
        record("slow", "torch.compile", 199.5, agreement="differs", differing=25, values_differing=25),
        record("slow", "separate", 20.0, agreement="differs", differing=25, values_differing=25),
    ]
    assert tables.quicker(found) == [
        ["slow", "separate", "0.10", "", "2.5 % differ"],
        ["quick", "torch.compile", "0.99", "0.50", "equal"],
    ]
    found["records"][-4] |= {"agreement": "values", "differing": 10}  # the other shape is equal
    found["records"].append(record("slow", "separate", 400.0, shape="4096-64-1280-7-1024"))  # not quicker here
    found["records"].append(record("slow", "gpu", 300.0, shape="4096-64-1280-7-1024", own=True))
    assert tables.quicker(found) == [
        ["slow", "separate", "0.10", "", "2.5 % differ"],
        ["quick", "torch.compile", "0.99", "0.50",
         "equal values, 1 % of the bytes differ at 32768x7168; equal at 4096-64-1280-7-1024"],
    ]  # fmt: skip
    head = "| kernel | who | 32768x7168 | 4096-64-1280-7-1024 | golden model |"
    assert head in tables.markdown(found, "Title").splitlines()


def test_failures_that_are_alike_are_told_once(found):
    late = {"status": "failed", "words": "the seconds were over"}
    found["records"] += [
        record(line, "TileKernels", shape=shape, **late)
        for shape, line in (("1x32", "slow"), ("1x32", "quick"), ("2x32", "quick"), ("1x32", "other"))
    ]
    assert list(tables.failures(found)) == [
        ("torch.compile at 32768x7168", "Boom in call: no | memory", "quick"),
        ("TileKernels at 1x32", "the seconds were over", "slow; other"),
        ("TileKernels at 1x32, 2x32", "the seconds were over", "quick"),
    ]
    assert "\n- TileKernels at 1x32: `the seconds were over`: slow; other.\n" in tables.markdown(found, "Title")


def test_saved_figures_are_shown_and_rendered_again(found, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(found))
    arguments = ["bench", "--load", str(tmp_path / "run.json"), "--markdown", str(tmp_path / "run.md")]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "quick" in result.stdout
    assert "not run: triton: is not installed" in result.stdout
    assert (tmp_path / "run.md").read_text().startswith("# Kernels beside what else could be taken: NVIDIA H200")


def test_results_are_named_by_date_and_device(found, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    (tmp_path / "run.json").write_text(json.dumps(found))
    result = RUNNER.invoke(app, ["bench", "--load", str(tmp_path / "run.json"), "--results", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"2026-11-21-h200-bench.{suffix}" for suffix in ("json", "md", "png")]
    page = (tmp_path / "out" / "2026-11-21-h200-bench.md").read_text()
    assert "(2026-11-21-h200-bench.png)" in page
    assert (tmp_path / "out" / "2026-11-21-h200-bench.png").read_bytes()[:4] == b"\x89PNG"


def product(contender, median, own=False):
    found = record("BF16 product", contender, median, own=own, terms=7168, matrix=[2048, 2048], tma_s=1.8)
    return {name: value for name, value in found.items() if name not in ("tb_s", "of_copy", "of_same")}


def test_products_have_a_table_of_their_own_and_no_share_of_a_copy(found, tmp_path):
    found["records"] += [product("torch, cuBLASLt", 90.0), product("gpu", 17000.0, own=True)]
    files.check(found, "bench", "this run")
    (row, peer) = tables.products(found, "32768x7168")
    assert row[:4] == ["BF16 product", "gpu", "2048 x 2048 x 7168", "17000.0"] and row[5] == "1.8" and row[6] == ""
    assert peer[1] == "torch, cuBLASLt" and float(peer[6]) < 0.01
    page = tables.markdown(found, "title")
    assert page.count("BF16 product") == 2 and "| T multiply-adds/s |" in page  # among neither quicker peers nor ranges
    assert all("product" not in row[0] for row in tables.rows(found, "32768x7168"))
    del found["records"][-1]["tma_s"]
    with pytest.raises(FileError, match="tma_s"):
        files.check(found, "bench", "this run")


def test_a_picture_has_a_heading_for_every_line_and_layouts_by_themselves(found):
    shown = [line for line in LINES if line.at != "product"]
    records = [record(line.label, "gpu", own=True, operation=line.operation, params=line.params) for line in shown]
    drawn = list(plot._rows(records))
    assert [text for text, one in drawn if one is None] == list(plot.GROUPS)
    assert sorted(text for text, one in drawn if one) == sorted(line.label for line in shown)
    at = [text for text, _ in drawn].index(plot.LAYOUTS)
    assert all(text.endswith(" scales") for text, _ in drawn[at + 1 :])
    assert {name for names in plot.GROUPS.values() for name in names} == {line.operation for line in shown}


def test_a_picture_is_of_the_first_shape_at_which_the_subject_was_timed(found, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    failed = {"own": True, "status": "failed", "words": "no memory"}
    own = [r for r in found["records"] if r["is_subject"] and r["status"] == "timed"]
    for r in own[:2]:
        found["records"][found["records"].index(r)] = record(r["line"], "gpu", **failed)
    plot.draw(found, tmp_path / "picture.svg")
    assert "4096-64-1280-7-1024" in (tmp_path / "picture.svg").read_text()
    found["records"].remove(own[2])
    with pytest.raises(UnsupportedError, match="the subject was timed nowhere"):
        plot.draw(found, tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_a_picture_with_an_unknown_suffix_is_refused(found, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    with pytest.raises(FileError, match="Cannot write"):
        plot.draw(found, tmp_path / "x.nonsense")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_without_matplotlib_says_what_to_install(found, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "run.json").write_text(json.dumps(found))
    result = RUNNER.invoke(app, ["bench", "--load", str(tmp_path / "run.json"), "--plot", str(tmp_path / "x.png")])
    assert result.exit_code == 2
    assert "refnum[plot]" in result.stderr


def test_without_cupy_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = RUNNER.invoke(app, ["bench"])
    assert result.exit_code == 2
    assert result.stderr == "refnum: refnum bench needs CuPy and a CUDA GPU: install refnum[gpu].\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--operation", "nope"], "selects nothing"),
        (["--shape", "33x32"], "multiples of 32"),
        (["--load", "absent.json"], "No such file"),
    ],
)
def test_bad_options_are_refused(arguments, words):
    result = RUNNER.invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr


def test_figures_of_another_kind_are_refused(found, tmp_path):
    found["records"][0]["us"]["median"] = -1
    (tmp_path / "run.json").write_text(json.dumps(found))
    result = RUNNER.invoke(app, ["bench", "--load", str(tmp_path / "run.json")])
    assert result.exit_code == 2
    assert "records/0" in result.stderr
