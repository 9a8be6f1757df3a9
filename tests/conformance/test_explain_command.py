"""`refnum explain`: every step of a conversion, both rows of a product, and what it refuses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from refnum.conformance.cli import app

EXAMPLES = Path(__file__).parents[2] / "docs" / "guides" / "examples"


def refnum(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_explain_shows_every_step():
    result = refnum("explain", "quantize_mxfp4", "--values", "6,1.25,0x3F000000,nan", "--index", "1", "-p", "OCP")
    assert result.exit_code == 0 and "nan" in result.stdout.lower()
    plain = refnum("explain", "quantize_mxfp4", "--values", "6,1.25", "--index", "1", "-p", "OCP").stdout
    assert "floor: k = 2 - 2 = 0" in plain and "tie at 1.25 -> even" in plain and "profile OCP" in plain
    coded = refnum("explain", "mxfp4_to_fp8", "--values", "7,0", "--scales", "130", "--param", "scale=amax")
    assert coded.exit_code == 0 and "byte 130" in coded.stdout


def test_values_may_stand_alone():
    told = refnum("explain", "quantize_mxfp4", "--values", "6,1.25", "--index", "1").stdout
    assert told and refnum("explain", "quantize_mxfp4", "6", "1.25", "--index", "1").stdout == told
    assert refnum("explain", "quantize_mxfp4", "6,1.25", "--index", "1").stdout == told


def test_explain_of_a_replay_file_shows_the_element_that_differs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / "my_kernel.py"
    assert refnum("check", f"{path}:ties_up", "-p", "HOPPER", "--level", "smoke", "--no-isolate").exit_code == 1
    told = [refnum("explain", saved).stdout for saved in (tmp_path / ".refnum" / "cases").glob("*.json")]
    assert told and all("tie at" in text and "-> even" in text for text in told)
    saved = next((tmp_path / ".refnum" / "cases").iterdir())
    assert "element [0, 0]" in refnum("explain", saved, "--index", "0").stdout


def test_explain_takes_both_rows_of_a_product():
    given = ("explain", "matmul_fp8", "--values", "0x38,0x40,0x7E", "--b", "0x38,0x08,0x01")
    told = refnum(*given, "--param", "order=promote32", "--scales", "127", "--b-scales", "120").stdout
    assert "order promote32" in told and "term 1" in told and "bits 0x3C740000" in told
    floats = refnum("explain", "matmul_bf16", "--values", "1,2,0x3F80", "--b", "1,-2,3").stdout
    assert "0x3F80 x 0x4040: 1 x 1.5 x 2^1 = 3" in floats


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("matmul_fp8", "--values", "1", "--b", "1,2"), "--values has 1 terms and --b has 2"),
        (("matmul_fp8", "--values", "1"), "--values has 1 terms and --b has 0"),
        (("matmul_fp8", "--values", "1", "--b", "2", "--param", "order=any"), "order='any'; allowed are"),
        (("matmul_bf16", "--values", "1", "--b", "2", "--scales", "127"), "matmul_bf16 takes no scales"),
        (("quantize_mxfp4", "--values", "1", "--b", "2"), "it is no product"),
    ],
)
def test_explain_refuses_what_is_no_product(given, words):
    result = refnum("explain", *given)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


def test_explain_takes_a_row_of_an_operation_without_blocks_as_it_is():
    norms = ",".join(map(str, range(130)))
    told = refnum("explain", "out_control", "--values", norms, "--index", "1").stdout
    assert "of 130" in told and "rank" in told and "not among the first 128: 0" in told
    told = refnum("explain", "occ", "--values", "1,2,3").stdout
    assert "elements 0 and 2 of 3 in order" in told  # and no zeros beside them


def test_explain_takes_a_scale_for_each_block_of_codes():
    given = ("--values", ",".join("7" * 33), "--scales", "127,129", "--index", "32")
    told = refnum("explain", "dequantize_mx", *given).stdout
    assert "6 * 2^2 = 24, exactly 0x41C00000" in told
    assert "2 scales" in refnum("explain", "dequantize_mx", *given[:2], "--scales", "1,2,3").stderr
    assert refnum("explain", "dequantize_mxfp4", *given).stdout.splitlines()[1:] == told.splitlines()[1:]
    assert "6 * 2^0" in refnum("explain", "dequantize_fp8_tiles", "--values", "0x4C").stdout


@pytest.mark.parametrize(
    "operation",
    [
        "dequantize_int4",
        "unpermute",
        "swiglu_backward",
        "adam_apply",
        "q_ramping",
        "ramping_step",
        "osci_reset",
        "q_ema",
        "luq",
        "dequantize_nvfp4",
    ],
)
def test_explain_refuses_values_alone_where_other_numbers_are_needed(operation):
    result = refnum("explain", operation, "--values", "1,2")
    assert result.exit_code == 2 and f"{operation} takes numbers beside the values" in " ".join(result.stderr.split())
