"""What a person meets who brings a first kernel: the guides as printed elsewhere, a file, a program, their errors."""

import types
from pathlib import Path

import pytest
from run_tools import right

from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.structure.illegal import illegal_cases
from refnum.conformance.commands import docs
from refnum.conformance.commands.check import refusals
from refnum.conformance.commands.explain import _param
from refnum.conformance.commands.infer.command import infer_profile
from refnum.conformance.subjects.calls.call import Called, call
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.tally import Tally
from refnum.errors import ArgumentError, FileError, UnsupportedError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "guides" / "examples"


@pytest.mark.parametrize("page", docs.guides(), ids=lambda page: page.stem)
def test_a_guide_that_is_printed_elsewhere_names_the_files_that_stand_in_it(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "docs/guides/examples" not in docs.readable(page)


def test_a_guide_that_is_printed_in_a_checkout_names_its_files(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "--subject docs/guides/examples/my_kernel.py" in docs.readable(docs.guide_file("judge-your-kernel"))


def test_a_file_may_import_from_beside_itself_and_hides_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "beside_the_kernel.py").write_text("from refnum import encode_e2m1\n")
    (tmp_path / "colorsys.py").write_text("raise ImportError('not this one')\n")
    path = tmp_path / "kernel_with_a_neighbour.py"
    path.write_text("import colorsys, beside_the_kernel\ndef encode_e2m1(x): return beside_the_kernel.encode_e2m1(x)\n")
    assert list(from_file(str(path))[0].operations) == ["encode_e2m1"]


def test_a_name_that_a_file_lacks_is_told_with_those_that_it_has(tmp_path):
    path = tmp_path / "named.py"
    path.write_text("from refnum import decode_e2m1\ndef encode_e2m1(x): ...\ndef mine(x): ...\n")
    with pytest.raises(ArgumentError, match=r"has no 'encode_e2n1'; it has encode_e2m1, mine\.$"):
        from_file(f"{path}:encode_e2n1")
    path.write_text("x = 1\n")
    with pytest.raises(ArgumentError, match=r"has no 'mine'\.$"):
        from_file(f"{path}:mine")


def test_a_program_without_its_permission_is_told_how_to_get_it(tmp_path):
    (tmp_path / "p.sh").write_text("#!/bin/sh\n")
    with pytest.raises(FileError, match=r"p.sh is no executable file; run `chmod \+x .*p.sh`, see `refnum docs"):
        from_file(f"exec:{tmp_path / 'p.sh'}")
    with pytest.raises(FileError, match="give --subject exec:PATH"):
        from_file(f"exec:{tmp_path}")


@pytest.mark.parametrize("case", [*illegal_cases("decode_e2m1", "HOPPER", {"dtype": "float32"})], ids=lambda c: c.label)
def test_the_program_of_the_guide_refuses_what_is_illegal(case):
    (subject,) = from_file(f"exec:{EXAMPLES / 'e2m1_sim.py'}:decode_e2m1")
    assert refusals.refusal(call(subject, case, 20.0))


@pytest.mark.parametrize(("origin", "how"), [("exec:p.sh", "the line `unsupported REASON`"), ("k.py", "an error")])
def test_a_call_that_had_to_be_refused_says_how(origin, how):
    def died(*_):
        return Called(outcome=Outcome.FAULT, words="it died")

    case = next(illegal_cases("decode_e2m1", "HOPPER", {"dtype": "float32"}))
    tally = Tally("k", "decode_e2m1", "HOPPER", {"dtype": "float32"})
    engine = types.SimpleNamespace(
        tallies={"k": tally}, watched=died, plan=types.SimpleNamespace(seconds=1.0), lost=lambda *_: None
    )
    assert not refusals._judge(engine, Subject("k", {"decode_e2m1": right}, origin=origin), case)
    assert tally.faults[0][1] == f"it died ({case.label}; it must be refused with {how})"


def test_a_kernel_on_tensors_that_is_given_numpy_s_arrays_is_told_how_to_declare_it(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("def quantize_mxfp4(x):\n    return x.float()\n")
    with pytest.raises(UnsupportedError, match=r"declared by @implements\(\"quantize_mxfp4\", arrays=\"torch\"\)"):
        infer_profile(str(path), None, False)


@pytest.mark.parametrize("text", ["bogus=1", "bogus", "input"])
def test_a_parameter_that_is_none_is_told_with_those_that_there_are(text):
    words = f"^--param '{text}' is no NAME=VALUE of a parameter of quantize_mxfp4; its parameters are input.$"
    with pytest.raises(ArgumentError, match=words if text != "input" else "choose from"):
        _param(text, "quantize_mxfp4")
