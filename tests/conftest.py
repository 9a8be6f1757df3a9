"""Tests marked `slow` run only with --slow; what tests start loads compiled modules, whatever this process does."""

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

for _threads in ("REFNUM_WORKERS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")  # the tests run side by side already: more threads only wait for each other
os.environ["COLUMNS"] = "120"  # tables are compared as they are at this width, whatever terminal the tests run in
BYTECODE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "bytecode"
"""Where modules lie compiled: two hundred processes would compile the same ones for a second each."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))
sys.dont_write_bytecode = False
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(BYTECODE.parents[1] / ".hypothesis"))
"""Where Hypothesis keeps the constants of our modules: each process that draws would read them all, for a second."""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests stay until the end: the garbage collector looks through them once, and never again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # a twentieth of the time of tests that make many small objects
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Reports say no keywords: forty thousand of them go from process to process."""
    report = yield
    report.keywords = {}
    return report


def pytest_configure(config):
    """Compile what kernels are tested with, ahead of workers, each of which would compile all of it as it collects."""
    if getattr(config.option, "numprocesses", None):
        from refnum.gpu import emulate, host

        host.available()
        emulate.available()


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # what was compiled for folders that are gone
        shutil.rmtree(BYTECODE / tempfile.gettempdir().lstrip("/"), ignore_errors=True)


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


DEAREST = (
    "gpu/test_emulated_launches", "gpu/test_compile", "docs/test_docs_commands", "conformance/test_structure_further",
    "conformance/test_structure_parts", "conformance/test_structure", "training/test_judge",
    "conformance/test_fuzz_structure", "docs/test_docs_links", "conformance/test_mutants_python", "vectors/test_verify",
    "conformance/test_plugin", "conformance/test_recipes", "refnum/test_model_equals_oracle", "conformance/test_peers",
    "gpu/test_columns_orders", "conformance/test_explained_outputs", "conformance/test_door_hostile",
    "training/test_train_command", "conformance/test_fuzz_parts", "conformance/test_shares",
    "conformance/test_mutants_run", "gpu/test_tetrajet_kernels", "conformance/test_coverpoints",
    "conformance/test_storage", "conformance/test_vanishing", "test_contributing", "training/test_witness",
    "conformance/test_doors", "conformance/test_structure_company", "conformance/test_mutants_kernels",
    "conformance/test_fuzz_planted", "conformance/test_structure_mixed", "training/test_layer_golden",
    "conformance/test_init", "gpu/test_payload_emulated", "gpu/test_swiglu_emulated", "clean_room/test_clean_room",
    "conformance/test_contracts", "conformance/test_api", "conformance/test_cli", "conformance/test_museum",
    "conformance/test_strangers", "refnum/test_oscillation", "refnum/test_tetrajet_v2",
    "conformance/test_structure_scalars", "conformance/test_structure_grouped",
    "conformance/test_strangers_campaigns", "conformance/test_controls", "conformance/test_replay_command",
    "conformance/test_structure_numbers", "conformance/test_guests_compiled", "conformance/test_run",
    "conformance/test_replay", "conformance/test_fuzz_kill", "refnum/test_explain_products",
    "conformance/test_structure_turns",
)  # fmt: skip
"""Files of ten seconds of processor time and more, what they compile included: they start first, so that no process is
left with one alone."""


def pytest_collection_modifyitems(config, items):
    first = {f"tests/{name}.py": place for place, name in enumerate(DEAREST)}
    items.sort(key=lambda item: first.get(item.nodeid.partition("::")[0], len(first)))
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --slow"))


@pytest.fixture
def little_structure(monkeypatch):
    """Ask a few structural cases only, for a test that is about another stream of cases."""
    monkeypatch.setattr("refnum.conformance.commands.check.structure.amount_for", lambda engine: "smoke")
