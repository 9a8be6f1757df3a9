"""The pytest plugin, run by pytest in a folder of its own."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("harness")
PLUGIN = ("-p", "no:refnum", "-p", "refnum.conformance.plugin", "-p", "no:cacheprovider")
KERNELS = """
import pytest
import refnum
from refnum.conformance import implements

def right(x):
    return refnum.quantize_mxfp4(x, "OCP")

def wrong(x):
    return refnum.quantize_mxfp4(x, "OCP+ties=away")

def crash(x):
    raise ValueError("out of luck")

def decodes(codes, dtype):
    return refnum.decode_e2m1(codes, dtype)

def decodes_wrongly(codes, dtype):
    return -refnum.decode_e2m1(codes, dtype)
"""


@pytest.fixture
def run(pytester):
    def run(tests, *options, apart=False):
        pytester.makepyfile(KERNELS + tests)
        runs = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return runs(*PLUGIN, "--refnum-level=smoke", *options)

    return run


def test_marked_tests_return_or_judge_their_kernel(run):
    result = run("""
@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_returned():
    return right

@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_judged(judge):
    assert judge(right)["footer"]["totals"]["compared"] > 1000

@pytest.fixture
def kernel():
    return decodes

@pytest.mark.conforms("decode_e2m1")
@pytest.mark.parametrize("times", [1, 2])
def test_from_a_fixture(kernel, times):
    return kernel

class TestMine:
    @pytest.mark.conforms("decode_e2m1")
    def test_method(self):
        return decodes

def test_without_a_mark(judge):
    judge(right, "quantize_mxfp4", profile="OCP", seed=3)

@implements("quantize_mxfp4", profile="OCP")
def declared(x):
    return right(x)

def test_declared(judge):
    judge(declared)
""")
    result.assert_outcomes(passed=7)


def test_a_failure_is_the_page_and_no_stack(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = run("""
@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_wrong():
    return wrong
""")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "MISMATCH  quantize_mxfp4[OCP" in text and "E2M1_TIES_UP" in text and "replay" in text
    assert "Traceback" not in text and "plugin.py" not in text and "api.py" not in text
    (short,) = [line for line in text.splitlines() if line.startswith("FAILED ")]
    assert "quantize_mxfp4[OCP" in short and "E2M1_TIES_UP: row 0 block 0" in short


def test_nothing_judged_is_a_failure_and_a_fault_too(run):
    result = run("""
@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_forgot():
    right

@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_crash():
    return crash

@pytest.mark.conforms("quantise_mxfp4")
def test_misspelt():
    return right

@pytest.mark.conforms("quantize_mxfp4", profile="OPC")
def test_no_profile():
    return right

@pytest.mark.conforms("quantize_mxfp4", profile="OCP")
def test_own_assertion(judge):
    judge(right)
    assert 1 == 2
""")
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(
        ["*return the kernel, or call judge(kernel).*", "*out of luck*", "*quantise_mxfp4*", "*OPC*"]
    )
    assert "During handling" not in result.stdout.str()


def test_one_that_cannot_run_here_is_skipped_with_its_reason(run):
    result = run(
        """
def test_elsewhere(judge):
    judge({"name": "k", "operations": {"quantize_mxfp4": right}, "available": lambda: (False, "no such chip")})
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no such chip*"])


def test_the_command_line_decides_level_and_seed(pytester):
    pytester.makepyfile(
        KERNELS
        + """
def test_it(judge):
    document = judge(right, "quantize_mxfp4", profile="OCP", level="standard", examples=2)
    assert document["header"]["level"] == "smoke" and document["header"]["seed"] == 7
"""
    )
    pytester.runpytest_inprocess(*PLUGIN, "--refnum-level=smoke", "--refnum-seed=7").assert_outcomes(passed=1)
    assert pytester.runpytest_subprocess(*PLUGIN, "--refnum-level=thorough").ret == pytest.ExitCode.USAGE_ERROR


def test_many_workers_give_one_verdict_each(run):
    pytest.importorskip("xdist")
    result = run(
        """
@pytest.mark.conforms("decode_e2m1")
@pytest.mark.parametrize("name", ["decodes", "decodes_wrongly"])
def test_it(name):
    return globals()[name]
""",
        "-n2",
        apart=True,
    )
    result.assert_outcomes(passed=1, failed=1)


def test_the_plugin_and_a_child_are_light_and_the_plugin_never_imports_gpu(run):
    code = "import sys, refnum.conformance.plugin as p; loaded = {'numpy', 'hypothesis', 'rich', 'refnum.gpu'}"
    code += "; print(loaded & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
    code = "import sys, refnum.conformance.subjects.isolation.child as c; print('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
    result = run(
        """
import sys

def test_it(judge):
    judge(right, "quantize_mxfp4", profile="OCP")
    assert "gpu" not in sys.modules and "torch" not in sys.modules
""",
        apart=True,
    )
    result.assert_outcomes(passed=1)


def test_a_file_is_judged_in_a_process_of_its_own(run, pytester):
    pytester.makepyfile(leaves="import ctypes\n\ndef encode_e2m1(x):\n    ctypes.CDLL(None)._exit(0)\n")
    result = run("""
@pytest.mark.conforms("encode_e2m1")
def test_it():
    return "leaves.py"
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its process ended with exit status 0*"])
