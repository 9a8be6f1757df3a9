"""An operation without random bits is not defined under a stochastic profile: that is said, not stumbled over."""

import pytest
from typer.testing import CliRunner

from refnum.conformance.cases.coverpoints import expected
from refnum.conformance.cases.domains import domains_for
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.cases.recipes import Recipe, expand
from refnum.conformance.cli import app
from refnum.errors import ArgumentError, ProfileError

PROFILED = [operation for operation in OPERATIONS.values() if operation.profiled]


@pytest.mark.parametrize("operation", PROFILED, ids=lambda operation: operation.name)
def test_the_table_says_what_the_model_refuses(operation):
    case = expand(Recipe(operation.name, "STOCHASTIC", operation.defaults(), (4, 128), 1, "zero",
                         {} if operation.inputs[0] in ("x", "gate") else {"base": 127}))  # fmt: skip
    assert not operation.undefined("HOPPER")
    if operation.undefined("STOCHASTIC"):
        assert not expected(operation.name, "STOCHASTIC", operation.defaults())
        assert not domains_for(operation.name, "STOCHASTIC", operation.defaults(), "standard")
        with pytest.raises((ArgumentError, ProfileError), match="stochastic"):
            run_golden(case)
    else:
        run_golden(case)


@pytest.mark.parametrize("verb", ["check -s model --level smoke", "fuzz run camp -s model --cases 5"])
def test_the_commands_end_with_a_sentence(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*verb.split(), "-o", "quantize_fp8_tiles", "-p", "STOCHASTIC"])
    assert done.exit_code in (2, 3) and "rbits is missing" not in done.output
    assert "takes no random bits" in done.output.replace("\n", " ")
