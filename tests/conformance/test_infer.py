"""`refnum infer` finds the profile that a kernel follows, with a witness for each choice."""

import shlex
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import refnum
from refnum.conformance.cli import app
from refnum.conformance.commands.infer import answers, infer_profile, score
from refnum.conformance.commands.infer.scales import WrongScales, wrong_scales
from refnum.errors import ArgumentError, UnsupportedError


def kernel(folder, body, arguments="x"):
    path = folder / "k.py"
    path.write_text(f"import refnum\n\ndef quantize_mxfp4({arguments}):\n    return {body}\n")
    return str(path)


@pytest.mark.parametrize("name", ["OCP+ties=away+zero_scale=5", "DEEPGEMM", "TE_PYTHON"])
def test_the_profile_is_found_and_its_choices_have_witnesses(tmp_path, name):
    found = infer_profile(kernel(tmp_path, f"refnum.quantize_mxfp4(x, '{name}')"), None, isolate=False)
    profile = refnum.get_profile(name)
    assert found.exact and found.best.name == name
    assert found.undecided == {"overflow": ["nan"]}
    assert {w.instead for w in found.choices["scale_rule"]} | {profile.scale_rule} == {"rceil", "floor", "ceil", "even"}
    assert all(w.kernel != w.other for witnesses in found.choices.values() for w in witnesses)


def test_a_kernel_that_follows_none_is_told_the_nearest_and_what_is_not_explained(tmp_path):
    path = kernel(tmp_path, "(lambda p, s: (p ^ (s[:, :1] == 130), s))(*refnum.quantize_mxfp4(x, 'OCP'))")
    done = CliRunner().invoke(app, ["infer", "-s", path, "--no-isolate"])
    assert done.exit_code == 1 and "comes closest to OCP" in done.stdout
    assert "not explained by it" in done.stdout and "no profile explains every answer" in done.stdout
    assert "100 cases are tried" in done.stderr and "candidates left" in done.stderr


@pytest.fixture
def few(monkeypatch):
    """Few and small cases, and a list of what the golden model is asked."""
    asked, golden, cases = [], answers.run_golden, answers._cases
    monkeypatch.setattr(answers, "CORNERS_OF", ("OCP",))
    monkeypatch.setattr(answers, "_cases", lambda *words: (case for case in cases(*words) if case.elements < 20000))
    monkeypatch.setattr(answers, "run_golden", lambda *words: (asked.append(words), golden(*words))[1])
    return asked


@pytest.mark.parametrize(
    ("profile", "error", "words"),
    [
        ("OCP", "p ^ 1, s", "the even codes of packed: 0x01 where 0x00 is right"),
        ("MODELOPT", "p ^ 0x80, s", "the odd codes of packed: 0x08 where 0x00 is right"),
        ("OCP", "p, s + 2", "+2"),
        ("EVEN", "p ^ 8, s ^ 1", "+1"),
    ],
)
def test_a_systematic_error_hides_no_profile(tmp_path, few, profile, error, words):
    body = f"(lambda p, s: ({error}))(*refnum.quantize_mxfp4(x, {profile!r}))"
    found = infer_profile(kernel(tmp_path, body), None, False)
    assert found.best.name == profile and not found.exact and len(found.unexplained) == found.cases
    assert any(text.startswith(words) for text in (*found.recoded, *(one.off for one in found.scales)))
    assert found.nibbles == "low_first"
    assert len(few) < 5000  # of 96 candidates for the scales and 24 for the codes, and not of all their combinations


def test_scales_that_follow_a_profile_are_told_apart_from_codes_that_follow_none(tmp_path, few):
    body = "(lambda p, s: (p * 0 + 0x33, s))(*refnum.quantize_mxfp4(x, 'EVEN'))"
    found = infer_profile(kernel(tmp_path, body), None, False)
    agreed, total = found.agreement["scales"]
    assert found.best.scale_rule == "even" and not found.exact and agreed == total > 0
    assert found.agreement["packed"][0] < found.agreement["packed"][1] // 2


@pytest.mark.parametrize("order", ["high_first", "ggml"])
def test_swapped_nibbles_hide_no_profile(tmp_path, few, order):
    body = f"(lambda p, s: (refnum.layouts.repack_nibbles(p, 'low_first', {order!r}), s))"
    path = kernel(tmp_path, f"{body}(*refnum.quantize_mxfp4(x, 'TRITON_GEN1'))")
    found = infer_profile(path, None, False)
    assert (found.exact, found.best.name, found.nibbles) == (True, "TRITON_GEN1", order)
    result = CliRunner().invoke(app, ["infer", "-s", path, "--no-isolate"])
    assert result.exit_code == 0 and f"its codes packed {order}" in result.stdout
    assert f'@implements("quantize_mxfp4", profile="TRITON_GEN1", nibbles="{order}")' in result.stdout


def test_wrong_scales_are_told_as_a_table(tmp_path, few):
    body = "(lambda p, s: (p, s + (s > 0x78) * (s < 0x80)))(*refnum.quantize_mxfp4(x, 'OCP'))"
    result = CliRunner().invoke(app, ["infer", "-s", kernel(tmp_path, body), "--no-isolate"])
    lines = result.stdout.splitlines()
    head = lines.index("Wrong scales, in powers of two from the right one")
    assert lines[head + 1].split() == ["off", "by", "blocks", "share", "where", "right", "is", "for", "example"]
    assert lines[head + 2].startswith("+1 ") and " 0x79 to 0x7F  " in lines[head + 2], lines[head + 2]
    assert not lines[head + 3].startswith(("+", "-"))


def test_wrong_scales_are_grouped_by_how_far_they_are_off():
    pairs = Counter({0x7F7F: 9, 0x7F80: 3, 0x1011: 4, 0x7F7C: 2, 0x20FF: 1, 0xFF20: 1})
    found = {one.off: one for one in wrong_scales(pairs)}
    assert list(found) == ["+1", "-3", "NaN, not a number", "a number, not NaN"]
    assert found["+1"] == WrongScales("+1", 7, 0x10, 0x7F, (0x10, 0x11))


@pytest.mark.parametrize("profile", ["OCP", "OCP+ties=away"])
def test_the_last_line_is_a_command_that_works(tmp_path, few, profile, monkeypatch):
    path = kernel(tmp_path, f"refnum.quantize_mxfp4(x, {profile!r})")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("refnum.conformance.commands.check.work.verify", lambda thorough=False: {})
    last = CliRunner().invoke(app, ["infer", "-s", path, "--no-isolate"]).stdout.splitlines()[-1]
    command = last.partition(": ")[2]
    assert command == f"refnum check -s {path} -o quantize_mxfp4 -p {profile}"
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--level", "smoke", "--examples", "0", "--no-isolate"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("error", "exact"), [("", True), (" ^ 1", False)])
def test_a_payload_is_told_apart_into_codes_and_scales(tmp_path, few, error, exact):
    path = tmp_path / "k.py"
    body = f"return refnum.fp8_to_payload(codes, scales, 'OCP'){error}"
    path.write_text(f"import refnum\n\ndef fp8_to_payload(codes, scales):\n    {body}\n")
    found = infer_profile(str(path), None, False)
    assert found.best.scale_rule == "floor" and found.exact is exact


def test_what_cannot_be_inferred_says_why(tmp_path):
    with pytest.raises(UnsupportedError, match="takes `profile`"):
        infer_profile(kernel(tmp_path, "refnum.quantize_mxfp4(x, profile)", "x, profile"), None, False)
    with pytest.raises(UnsupportedError, match="answered no case"):
        infer_profile(kernel(tmp_path, "1 / 0"), None, False)
    with pytest.raises(ArgumentError, match="Give --operation"):
        infer_profile(kernel(tmp_path, "x"), "encode_e2m1", False)


def test_the_worse_half_is_asked_no_more_after_each_round():
    """Candidate n gets n of 64 elements wrong."""
    asked = Counter()

    def golden(wrong):
        asked[wrong] += 1
        return {"codes": (np.arange(64) < wrong).astype(np.uint8)}

    given = SimpleNamespace(golden=golden, observed={"codes": answers.Part("codes", np.zeros(64, np.uint8))})
    said = []
    assert score.scored([given] * (3 * score.ROUND), range(24), ["codes"], said.append) == [0]
    assert [asked[n] // score.ROUND for n in (0, 5, 6, 11, 12, 23)] == [3, 3, 2, 2, 1, 1]
    assert [words.split()[-3] for words in said[1:]] == ["12", "6", "6"]
