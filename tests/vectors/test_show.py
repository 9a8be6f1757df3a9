"""`show` prints any vector, and says what it cannot find."""

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from refnum.conformance.commands.vectors import vectors_app
from refnum.conformance.vectors.show import show_vector


def run(*words):
    return CliRunner().invoke(vectors_app, list(map(str, words)), env={"COLUMNS": "120"})


def test_one_vector_of_every_operation_and_dtype_is_shown(all_vectors):
    seen = set()
    for vector in all_vectors:
        kind = (vector.operation, vector.params.get("element"), vector.params.get("dtype"), vector.params.get("to"))
        if kind in seen:
            continue
        seen.add(kind)
        console = Console(width=120, record=True, file=io.StringIO())
        show_vector(vector, console)
        text = console.export_text()
        assert vector.id in text and vector.operation in text and f"output {next(iter(vector.outputs))}" in text


def test_codes_and_scales_are_decoded(all_vectors):
    vector = next(v for v in all_vectors if v.operation == "mxfp4_to_fp8" and v.comment.startswith("a NaN block"))
    text = run("show", vector.id[:8]).output
    assert "7f=nan" in text and "ff=nan" in text and "2^-12" in text and "NAN_BLOCK_JOINS_MAX" in text


def test_a_file_is_shown_whole(folder):
    result = run("show", "philox4x32/HOPPER.json")
    assert result.exit_code == 0 and result.output.count("Random123 known answer") == 3
    again = run("show", folder / "philox4x32/HOPPER.json")
    assert again.exit_code == 0 and again.output.count("Random123 known answer") == 3


@pytest.mark.parametrize("what", ["zzzz", "0", "notes.json", "MANIFEST.sha256"])
def test_what_is_no_vector_is_a_named_error(what):
    result = run("show", what)
    assert result.exit_code == 2 and "refnum:" in result.output
