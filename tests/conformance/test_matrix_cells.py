"""The matrix tells a known difference from a new one and from one that is gone, and names the first input."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import refnum
from refnum.conformance.commands.matrix import cells, document, inputs, recorded, run
from refnum.conformance.commands.matrix import command as matrix_cli
from refnum.conformance.reports import files
from refnum.conformance.subjects.peers.difference import INF32, NANS, POSITIVE_NAN, Difference
from refnum.conformance.subjects.subject import from_dict
from refnum.errors import ArgumentError, FileError, UnsupportedError

PARAMS = {"input": "float32"}


def right(x):
    return refnum.quantize_mxfp4(x)


def ties_up_at_five(x):
    """Right, but 5 at scale 1 becomes 6: only where the block's scale is 2^0."""
    packed, scales = refnum.quantize_mxfp4(x)
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(x.shape)
    blocks = np.repeat(scales, 32, axis=1)
    codes = np.where((np.abs(x) == 5) & (blocks == 127), codes + 1, codes).astype(np.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4, scales


def clips_inf(x):
    packed, scales = refnum.quantize_mxfp4(x)
    inf = (np.abs(x).reshape(len(x), -1, 32).max(-1) == np.inf) & (scales == 255)
    return packed, np.where(inf, 254, scales).astype(np.uint8)


def subject(function, name="planted", **more):
    entry = {"name": name, "kind": "peer", "profiles": ("HOPPER",), "operations": {"quantize_mxfp4": function}, **more}
    return from_dict(entry, "test")


def judged(function, monkeypatch, known=(), profiles=("HOPPER",)):
    monkeypatch.setattr(run, "all_differences", lambda: tuple(known))
    found = run.run_matrix([subject(function)], ["quantize_mxfp4"], profiles)
    return [cell for cell in found.cells if cell["params"] == PARAMS]


TIE = Difference("planted", "quantize_mxfp4", "five-goes-up", "5 becomes 6", "N2",
                 ((0x40A00000,) * 2, (0xC0A00000,) * 2),
                 0x40A00000, 6, 7, of="quotient", output="codes", exact=False)  # fmt: skip
CLIP = Difference("planted", "quantize_mxfp4", "inf-block-clips", "Inf is 254", "N4", ((INF32, INF32),),
                  INF32, 255, 254, of="amax")  # fmt: skip


def test_a_right_peer_is_equal_on_every_row(monkeypatch):
    [cell] = judged(right, monkeypatch)
    assert (cell["state"], cell["level"], cell["differing"]) == (cells.EQUAL, "L0", 0)
    assert cell["rows"] == inputs.rows("quantize_mxfp4", PARAMS).count > 20_000
    assert set(cell["classes"]) == set("FTHZIN")


def test_a_difference_that_no_entry_names_is_new_and_its_first_row_is_plain(monkeypatch):
    [cell] = judged(ties_up_at_five, monkeypatch)
    assert cell["state"] == cells.NEW and cell["unknown"] == cell["differing"] > 0
    assert {name for name, (wrong, _) in cell["classes"].items() if wrong} == {"F"}
    assert len(cell["first"]["inputs"]["x"]) <= 2, "the first differing row is one of the plain ones"
    assert (cell["first"]["golden"], cell["first"]["peer"]) == ("0x06", "0x07")


def test_a_documented_difference_is_quiet(monkeypatch):
    [cell] = judged(ties_up_at_five, monkeypatch, [TIE])
    assert (cell["state"], cell["known"], cell["unknown"]) == (cells.DOCUMENTED, ["five-goes-up"], 0)
    [cell] = judged(clips_inf, monkeypatch, [CLIP])
    assert (cell["state"], cell["known"]) == (cells.DOCUMENTED, ["inf-block-clips"])


def test_a_second_difference_is_not_covered_by_the_first(monkeypatch):
    [cell] = judged(clips_inf, monkeypatch, [TIE])
    assert cell["state"] == cells.NEW and cell["unknown"] == cell["classes"]["I"][0] > 0


@pytest.mark.parametrize("entry", [TIE, CLIP], ids=["somewhere in its place", "everywhere in its place"])
def test_a_documented_difference_that_is_gone_is_loud(monkeypatch, entry):
    [cell] = judged(right, monkeypatch, [entry])
    assert (cell["state"], cell["gone"]) == (cells.VANISHED, [entry.note])


def test_a_profile_that_is_not_claimed_differs_without_noise(monkeypatch):
    own, other = judged(right, monkeypatch, [], ("HOPPER", "OCP"))
    assert own["claimed"] and own["state"] == cells.EQUAL
    assert not other["claimed"] and other["state"] == cells.OTHER and other["differing"] > 1000
    assert other["first"]["output"] == "scales", "where the scales differ they are shown"


def test_what_a_peer_refuses_is_left_out_by_class_and_said(monkeypatch):
    def no_nan(x):
        if np.isnan(x).any():
            raise UnsupportedError("no NaN here")
        return right(x)

    [cell] = judged(no_nan, monkeypatch)
    assert cell["state"] == cells.EQUAL and "N" not in cell["classes"] and "refuses inputs of class N" in cell["words"]

    def nothing(x):
        raise RuntimeError("broken")

    [cell] = judged(nothing, monkeypatch)
    assert cell["state"] == cells.REFUSED and "RuntimeError: broken" in cell["words"]


def test_a_result_of_the_wrong_size_is_refused(monkeypatch):
    [cell] = judged(lambda x: (np.zeros(7, np.uint8), np.zeros(7, np.uint8)), monkeypatch)
    assert cell["state"] == cells.REFUSED and "shape" in cell["words"]


def test_a_peer_that_gives_values_is_compared_by_values(monkeypatch):
    def values(x):
        return refnum.dequantize_mxfp4(*refnum.quantize_mxfp4(x))

    values.gives_values = True
    [cell] = judged(values, monkeypatch)
    assert (cell["state"], cell["level"]) == (cells.EQUAL, "L0")

    def off(x):
        return np.where(x == 0.5, np.float32(1), values(x)).astype(np.float32)

    off.gives_values = True
    [cell] = judged(off, monkeypatch)
    assert cell["state"] == cells.NEW and cell["first"]["output"] == "values"


def test_one_nan_stands_for_all():
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0x7F800000, 0x80000000, 1], np.uint32)
    assert cells.one_nan(bits).tolist() == [0x7FC00000, 0x7FC00000, 0x7F800000, 0x80000000, 1]
    assert cells.one_nan(np.array([0xFFFF, 0x7F80], np.uint16)).tolist() == [0x7FC0, 0x7F80]


def test_quotients_are_exact_at_both_ends_of_the_scales():
    x = np.zeros((2, 32), np.float32)
    x[0, 0], x[1, 0] = 3e38, np.float32(2.0**-127)
    rows = inputs.Rows({"x": x}, np.zeros(2, np.uint8), {})
    scales = np.array([[253], [0]], np.uint8)
    found = cells.quotients(rows, scales).view(np.float32)[:, 0]
    assert found[0] == np.float32(np.float64(x[0, 0]) / 2.0**126) and found[1] == 1.0


@pytest.mark.parametrize("operation", inputs.OPERATIONS)
def test_rows_are_fixed_whole_and_of_the_shape_of_the_operation(operation):
    params = next(p for p in run.OPERATIONS[operation].variants() if inputs.wanted(operation, p))
    given = inputs.rows(operation, params)
    assert given is inputs.rows(operation, params), "made once"
    of_rows = [array for name, array in given.inputs.items() if name not in inputs.SHARED]
    assert all(len(array) == given.count for array in (*of_rows, *given.keys.values()))
    case, golden = cells.golden_of(operation, "HOPPER", params, given)
    assert all(len(array) == given.count for name, array in golden.items() if name not in inputs.SHARED)
    assert case.operation == operation


def test_recorded_answers_are_judged_as_live_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "all_differences", lambda: (TIE,))
    peer = subject(ties_up_at_five)
    recorded.record(tmp_path, [peer, subject(right, "absent", available=lambda: (False, "not here"))],
                    ["quantize_mxfp4"], lambda line: None)  # fmt: skip
    live = run.run_matrix([peer], ["quantize_mxfp4"], ["HOPPER", "OCP"])
    again = run.Matrix()
    for variant in recorded.load(tmp_path, again):
        run.judge_variant(again, variant, ["HOPPER", "OCP"], lambda line: None)
    keys = ("operation", "params", "profile", "state", "level", "differing", "classes", "known", "unknown")
    plain = lambda matrix: sorted(json.dumps({k: cell[k] for k in keys}) for cell in matrix.cells)  # noqa: E731
    assert plain(again) == plain(live)
    assert again.skipped == [{"subject": "absent", "operation": "", "reason": "not here"}]
    assert "environment" in again.subjects[0]


def test_answers_to_other_rows_are_not_judged(tmp_path, monkeypatch):
    recorded.record(tmp_path, [subject(right)], ["quantize_mxfp4"], lambda line: None)
    monkeypatch.setattr(recorded, "digest", lambda operation, params: "0" * 16)
    with pytest.raises(FileError, match="other inputs"):
        list(recorded.load(tmp_path, run.Matrix()))
    with pytest.raises(FileError, match="no recorded answers"):
        list(recorded.load(tmp_path / "nothing", run.Matrix()))


def test_the_document_is_valid_and_its_exit_status_is_the_loudest_cell(monkeypatch):
    monkeypatch.setattr(run, "all_differences", lambda: ())
    quiet = run.run_matrix([subject(right)], ["quantize_mxfp4"], ["HOPPER", "OCP"])
    loud = run.run_matrix([subject(clips_inf)], ["quantize_mxfp4"], ["HOPPER"])
    for found, status in ((quiet, 0), (loud, 1), (run.Matrix(), 3)):
        made = json.loads(json.dumps(document.document(found, 1.0)))
        files.check(made, "matrix", "test")
        assert made["footer"]["exit"] == status
    page = document.markdown(document.document(quiet, 1.0))
    assert "| planted | `quantize_mxfp4(float32)` | **=** |" in page and "## Skipped" in page
    assert "**new: " in document.markdown(document.document(loud, 1.0))


def test_the_command_runs_a_real_peer_and_refuses_unknown_names(tmp_path):
    from refnum.conformance.cli import app

    target = tmp_path / "matrix.json"
    asked = ["matrix", "-s", "ml_dtypes", "-o", "encode_e4m3", "--json", str(target)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "e4m3-nan-sign" in done.output and "documented" in done.output
    found = files.read_json(target, "matrix", 1)
    assert {cell["known"][0] for cell in found["cells"]} == {"e4m3-nan-sign"}
    with pytest.raises(ArgumentError, match="No peer"):
        matrix_cli._subjects(["nobody"])
    with pytest.raises(ArgumentError, match="no operation"):
        matrix_cli._chosen(["nothing"])


def test_ranges_used_here_are_those_of_the_formats():
    assert POSITIVE_NAN in NANS and INF32 == 0x7F800000
