"""`refnum infer` finds the profile that a kernel follows, with a witness for each choice."""

import pytest
from typer.testing import CliRunner

import refnum
from conformance.cli import app
from conformance.infer import infer_profile
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
    assert "not explained by any profile" in done.stdout


def test_what_cannot_be_inferred_says_why(tmp_path):
    with pytest.raises(UnsupportedError, match="takes `profile`"):
        infer_profile(kernel(tmp_path, "refnum.quantize_mxfp4(x, profile)", "x, profile"), None, False)
    with pytest.raises(UnsupportedError, match="answered no case"):
        infer_profile(kernel(tmp_path, "1 / 0"), None, False)
    with pytest.raises(ArgumentError, match="Give --operation"):
        infer_profile(kernel(tmp_path, "x"), "encode_e2m1", False)
