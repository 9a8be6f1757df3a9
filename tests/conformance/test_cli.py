"""The command line from the outside: exit status, what is printed where, and that bad input is one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_tools import RIGHT, WRONG, refnum
from typer.testing import CliRunner

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cli import app
from refnum.conformance.commands.mutate import command
from refnum.errors import FileError

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_a_right_kernel_passes_with_exit_0():
    result = refnum("check", "-s", "right.py", "-o", "quantize_mxfp4", "--level", "smoke")
    assert result.exit_code == 0 and "not a verification" in result.stdout and "pass" in result.stdout
    assert "\x1b" not in result.stdout and "│" not in result.stdout  # plain when piped


def test_a_command_with_a_typing_mistake_is_suggested():
    assert "Did you mean 'check'?" in refnum("chek").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("check", "-s", "nobody"), "No subject is named 'nobody'"),
        (("check", "-s", "absent.py"), "No such file absent.py"),
        (("check", "-s", "right.py:absent"), "has no 'absent'"),
        (("check", "folder"), "folder is a folder; give a Python file, FILE.py:NAME"),
        (("check", "./folder/"), "./folder/ is a folder; give a Python file"),
        (("check", "folder.so"), "folder.so is a folder; give a Python file"),
        (("check", "words.txt"), "words.txt is a file of another kind; give a Python file"),
        (("check", "right.py", "--report", "folder"), "Cannot write folder: it is a folder"),
        (("check", "right.py", "--report", "right.py/r.json"), "Cannot write right.py/r.json: right.py is no folder"),
        (("check", "right.py", "--report", "pipe"), "Cannot write pipe: it is no regular file"),
        (("check", "-s", "right.py", "-o", "quantise"), "No operation is named 'quantise'"),
        (("check", "-s", "right.py", "-o", "quantise_mxfp4"), "'quantise_mxfp4' (quantize_mxfp4 is similar); choose"),
        (("vectors", "show", "5"), "No vector and no file is named '5'"),
        (("mutate", "run", "-s", "nobody"), "--subject nobody cannot be built"),
        (("mutate", "run", "-s", "nobody", "--out", "folder"), "Cannot write folder: it is a folder"),
        (("mutate", "vectors", "-s", "nobody", "--json", "folder"), "Cannot write folder: it is a folder"),
        (("mutate", "vectors", "-s", "nobody", "--out", "folder"), "Cannot write folder: it is a folder"),
        (("mutate", "museum", "nothing", "--out", "folder"), "Cannot write folder: it is a folder"),
        (("mutate", "triggers", "-o", "nothing", "--json", "folder"), "Cannot write folder: it is a folder"),
        (("matrix", "-s", "nobody", "--json", "folder"), "Cannot write folder: it is a folder"),
        (("matrix", "-s", "nobody", "--markdown", "folder"), "Cannot write folder: it is a folder"),
        (("bench", "-o", "nothing", "--json", "folder"), "Cannot write folder: it is a folder"),
        (("bench", "-o", "nothing", "--markdown", "folder"), "Cannot write folder: it is a folder"),
        (("bench", "-o", "nothing", "--plot", "folder"), "Cannot write folder: it is a folder"),
        (("mutate", "museum", "nothing"), "No exhibit is named nothing"),
        (("mutate", "vectors", "absent.json"), "No such file: absent.json"),
        (("check", "-s", "right.py", "-p", "NOPE"), "profile 'NOPE' is not known"),
        (("replay", "absent.json"), "No such file: absent.json"),
        (("explain", "quantize_mxfp4"), "Give --values"),
        (("explain", "nothing", "--values", "1"), "cannot be explained"),
        (("explain", "permute_pad", "--values", "1"), "permute_pad only moves bytes"),
        (("explain", "words.txt", "3.3"), "words.txt is a replay file, which has its own inputs"),
        (("explain", "quantize_mxfp4", "--values", ","), "Give --values"),
        (("explain", "quantize_mxfp4", "--values", "one"), "'one' is neither a number nor 0x... bits of float32"),
        (("explain", "encode_e2m1", "--values", "1e39"), "'1e39' is too large for float32; give a"),
        (("explain", "encode_e2m1", "--values", "-1e400"), "'-1e400' is too large for float32"),
        (("explain", "encode_e2m1", "--values", "65520", "--dtype", "float16"), "'65520' is too large for float16"),
        (("explain", "encode_e2m1", "--values", "0x1FFFFFFFF"), "is no bit pattern of float32"),
        (("explain", "encode_e2m1", "--values", "0x3z"), "of float32; allowed are 0 to 4294967295 (0xFFFFFFFF)"),
        (("explain", "decode_e2m1", "--values", "3.3"), "'3.3' is no code of E2M1; allowed are 0 to 15 (0xF)"),
        (("explain", "dequantize_mx", "--values", "16"), "'16' is no code of E2M1; allowed are 0 to 15"),
        (("explain", "dequantize_fp8_tiles", "--values", "256"), "'256' is no code of E4M3; allowed are 0 to 255"),
        (("explain", "mxfp4_to_fp8", "--values", "1", "--scales", "256"), "'256' is no scale byte; allowed"),
        (("explain", "matmul_fp8", "--values", "1", "--b", "x"), "'x' is no code of E4M3; allowed are 0 to 255"),
        (("explain", "quantize_mxfp4", "--values", "1", "--index", "99"), "outside the array"),
        (("explain", "quantize_mxfp4", "--values", "1", "--index", "x"), "is not a number"),
        (("explain", "quantize_mxfp4", "--values", "1", "--dtype", "float64"), "--dtype 'float64'"),
        (("explain", "mxfp4_to_fp8", "--values", "1", "--scales", "1,2,3"), "has 3 bytes"),
        (("explain", "mxfp4_to_fp8", "--values", "1", "--param", "scale=min"), "choose from max, amax"),
        (("explain", "mxfp4_to_fp8", "--values", "1", "--param", "colour=red"), "its parameters are scale"),
        (("check", "-s", "right.py", "--data", "absent.npy"), "absent.npy"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(words, sentence):
    for name in ("folder", "folder.so"):
        Path(name).mkdir()
    Path("words.txt").write_text("")
    os.mkfifo("pipe")
    result = refnum(*words)
    assert result.exit_code == 2 and result.stderr.startswith("refnum: ") and sentence in result.stderr
    assert "Traceback" not in result.output and result.stderr.count("\n") <= 2


def test_a_campaign_whose_time_cannot_be_read_is_not_begun():
    result = refnum("fuzz", "run", "camp", "-s", "right.py", "--for", "5x")
    assert result.exit_code == 2 and "has the unit 'x'" in result.stderr and not Path("camp").exists()


def test_another_file_in_the_place_of_a_mutation_run_is_refused():
    Path("other.json").write_text("[]\n")
    result = refnum("mutate", "vectors", "other.json")
    assert result.exit_code == 2 and "other.json is not what an earlier run wrote" in result.stderr
    with pytest.raises(FileError, match="not what an earlier run wrote"):
        command._hints(Path("other.json"))


@pytest.mark.parametrize("words", [("check", "--level", "heroic"), ("check", "--seed", "x"), ("nonsense",)])
def test_wrong_options_exit_2(words):
    assert refnum(*words).exit_code == 2


def test_nothing_to_judge_exits_3():
    result = refnum("check", "-o", "quantize_mxfp4")
    assert result.exit_code == 3 and "NOT VERIFIED" in result.stdout


def test_an_unusable_subject_is_named_with_its_reason(tmp_path):
    (tmp_path / "gpu.py").write_text(
        RIGHT
        + """
kernel = {"name": "fast", "operations": {"quantize_mxfp4": quantize_mxfp4}, "available": lambda: (False, "no GPU here")}
"""
    )
    result = refnum("check", "-s", "gpu.py:kernel", "-o", "quantize_mxfp4")
    assert result.exit_code == 3 and "unavailable: fast: no GPU here" in result.stdout


def test_vectors_of_an_operation_are_listed_and_a_product_is_shown_decoded():
    listed = refnum("vectors", "show", "matmul_fp8").stdout
    assert "matmul_fp8: " in listed and "two terms at every distance" in listed
    name = next(line.split()[0] for line in listed.splitlines() if "zeros of both signs" in line)
    shown = refnum("vectors", "show", name).stdout
    assert "input a " in shown and "80=-0" in shown


def test_doctor_looks_at_this_machine():
    result = refnum("doctor")
    assert "host subnormals" in result.stdout and "golden model" in result.stdout
    assert result.exit_code in (0, 1) and ("bad" in result.stdout) == (result.exit_code == 1)


def test_a_sick_machine_is_called_sick(monkeypatch):
    import refnum.environment as host

    monkeypatch.setattr(host, "flushes_subnormals", lambda: True)
    result = refnum("doctor")
    assert result.exit_code == 1 and "flushes float32 subnormals" in result.stdout


def test_subjects_lists_the_model():
    result = refnum("subjects")
    assert result.exit_code == 0 and "model" in result.stdout
    assert f"{len(OPERATIONS)} of {len(OPERATIONS)}" in result.stdout
    assert "not here" in result.stdout and "not here model:" not in result.stdout
    whole = refnum("subjects", "model")
    assert whole.exit_code == 0 and "quantize_mxfp4" in whole.stdout
    record, _ = json.loads(refnum("subjects", "model", "--json").stdout)["subjects"]
    assert record["name"] == "model" and "quantize_mxfp4" in record["operations"]


def test_the_controls_alone(monkeypatch):
    from refnum.conformance.commands.check import controls as room

    few = [control for control in room.controls() if control.subject.name in ("twin", "ties_up", "raises")]
    room.verify.cache_clear()
    monkeypatch.setattr(room, "controls", lambda: few)
    result = refnum("check", "--controls")
    room.verify.cache_clear()
    assert result.exit_code == 0 and "1 right controls pass, 2 wrong ones are caught" in result.stdout
    assert result.stderr.startswith("controls\n")


def test_a_broken_harness_does_not_judge(monkeypatch):
    from refnum.conformance.commands.check.controls import verify
    from refnum.conformance.verdicts import compare as comparator

    verify.cache_clear()
    monkeypatch.setattr(comparator, "equal_at", lambda *args: True)
    result = refnum("check", "-s", "right.py")
    verify.cache_clear()
    assert result.exit_code == 2 and "the harness itself is broken" in result.stderr


def test_tensors_from_files_are_judged_in_chains(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "t.npz",
        a=rng.standard_normal((4, 64)).astype(np.float32),
        odd=rng.standard_normal((3, 33)).astype(np.float32),
    )
    result = refnum("check", "-s", "model", "--data", "t.npz", "--json")
    rows = json.loads(result.stdout)["data"]
    judged = {row["variant"].split("[")[0] for row in rows if row["tensor"].endswith("a")}
    assert judged >= {
        "quantize_mxfp4",
        "quantize_fp8_tiles",
        "fp8_to_mxfp4",
        "mxfp4_to_fp8",
        "mxfp4_columns",
        "fp8_columns",
        "dequantize_mxfp4",
    }
    assert {row["outcome"] for row in rows if row["tensor"].endswith("a")} == {"pass"}
    odd = [row for row in rows if row["tensor"].endswith("odd")]
    assert odd and odd[0]["outcome"] == "unsupported" and "33" in odd[0]["words"]
    assert result.exit_code == 0
    assert any("sqnr" in str(key).lower() for row in rows for key in row["statistics"])


def test_a_wrong_kernel_is_caught_on_a_tensor(tmp_path):
    x = np.full((2, 32), 1.25, np.float32)
    x[:, 0] = 6
    np.save(tmp_path / "t.npy", x)
    result = refnum("check", "-s", "wrong.py", "--data", "t.npy", "-o", "quantize_mxfp4")
    assert result.exit_code == 1 and "MISMATCH" in result.stdout and "\nt   " in result.stdout


def test_the_module_runs_as_a_program():
    words = [sys.executable, "-m", "refnum.conformance.cli", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "check" in done.stdout


def test_two_subjects_of_one_name_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "right.py").write_text(WRONG)
    result = refnum("check", "-s", "right.py", "-s", "other/right.py")
    assert result.exit_code == 2 and "Two subjects are named right" in result.stderr


def test_the_version_names_the_model():
    from refnum.digest import model_digest

    result = refnum("--version")
    assert result.exit_code == 0 and result.stdout.startswith("refnum ") and model_digest() in result.stdout


def test_want_of_memory_is_one_sentence_and_no_mismatch(monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("refnum.conformance.commands.check.work.run", exhausted)
    result = CliRunner().invoke(app, ["check", "--level", "smoke", "-s", "model"])
    assert result.exit_code == 2 and "too little memory for it: Unable to allocate 9 TiB" in result.output


def test_a_reader_that_stops_reading_is_told_nothing():
    command = [sys.executable, "-c", "from refnum.conformance.cli import main; main()", "profiles"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize("mistake", [["--nosuch"], ["-s", "nosuch.py"], ["-o", "nosuch"], ["--inputs", "nosuch"]])
def test_a_mistake_is_told_before_the_harness_is_imported(mistake):
    asked = f"""
import sys, typer
from refnum.conformance.cli import app
try:
    typer.main.get_command(app)(["check", *{mistake!r}])
except SystemExit as end:
    harness = [name for name in sys.modules if name.endswith((".engine", ".verdicts.judge", "hypothesis"))]
    sys.exit(f"{{end.code}} {{harness}}")
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "2 []", done.stderr


def test_a_function_whose_name_is_mistyped_is_told_of_beside_one_that_is_judged(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import refnum\nfrom refnum import encode_e4m3\n\n"
        "def decode_e2m1(codes, dtype='float32'):\n    return refnum.decode_e2m1(codes, dtype)\n\n"
        "def decode_e2ml(codes, dtype='float32'): ...\n\n"  # like one that is judged: a helper of it
        "def quantise_mxfp4(x): ...\n\ndef _dequantize_mxpf4(packed, scales): ...\n\ndef main(): ...\n"
    )
    result = refnum("check", "mine.py", "--level", "smoke")
    assert "not judged: mine: no operation is named so: quantise_mxfp4 (quantize_mxfp4 is similar)\n" in result.stdout
    assert "decode_e2ml" not in result.stdout and "_dequantize" not in result.stdout and "main" not in result.stdout
