"""The table of operations: every family has its modules, and every operation its place in them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

from refnum import gpu
from refnum.gpu import host, interface, ops, subjects
from refnum.gpu.host.build import FUNCTIONS
from refnum.gpu.operations import LAUNCHED, NAMES, OPERATIONS, Operation

ROOT = Path(__file__).parents[2] / "gpu"
FAMILIES = tuple(dict.fromkeys(one.family for one in OPERATIONS))


def modules(package: ModuleType, family: str) -> list[ModuleType]:
    """Return the modules of a family in a room: its own, and those whose names begin with its."""
    found = [info.name for info in pkgutil.iter_modules(package.__path__)]
    names = [name for name in found if name == family or name.startswith(f"{family}_")]
    assert family in names, f"write gpu/{package.__name__.rpartition('.')[2]}/{family}.py"
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def offered(package: ModuleType, family: str) -> set[str]:
    return {name for module in modules(package, family) for name in getattr(module, "__all__", ())}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_offers_the_operations_of_its_rows(family: str) -> None:
    rows = [one for one in OPERATIONS if one.family == family]
    assert offered(ops, family) == {one.name for one in rows if one.launched}
    assert offered(host, family) == {one.name for one in rows}
    assert (ROOT / "host" / f"{family}.cpp").is_file(), f"write gpu/host/{family}.cpp"


@pytest.mark.parametrize("row", [one for one in OPERATIONS if one.launched], ids=lambda row: row.name)
def test_launcher_and_host_twin_have_the_described_interface(row: Operation) -> None:
    described = getattr(importlib.import_module(f"refnum.gpu.interface.{row.family}"), row.name)
    wanted = list(inspect.signature(described).parameters.values())[1:]
    for package in (ops, host):
        function = getattr(package, row.name)
        found = list(inspect.signature(function).parameters.values())
        more = [p for p in found if p.name == "rbits"] if package is host and row.name == "encode_e2m1" else []
        assert [(p.name, p.kind, p.default) for p in found if p not in more] == [
            (p.name, p.kind, p.default) for p in wanted
        ]
        assert function.__name__ == row.name and (more or function.__doc__ == described.__doc__)
        assert Path(inspect.getsourcefile(inspect.unwrap(function)) or "").parent.name in ("ops", "host")
    for part in ("Args:", "Returns:", "Raises:"):
        assert part in described.__doc__, f"{row.name} tells no {part}"


def test_every_list_of_names_is_the_table() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {*gpu.__all__} == {*ops.__all__} == {"available", *LAUNCHED}
    assert {*host.__all__} == {"available", "describe", *NAMES}
    told = {subject["name"]: set(subject["operations"]) for subject in subjects.subjects()}
    assert told == {"host": {*NAMES}, "emulated": {*LAUNCHED}, "gpu": {*LAUNCHED}}
    assert {info.name for info in pkgutil.iter_modules(interface.__path__)} == {"call", "product", *FAMILIES}


def test_torch_has_an_operator_for_every_launcher() -> None:
    pytest.importorskip("torch")
    operators = importlib.import_module("refnum.gpu.torch")
    assert list(operators.REGISTERED) == list(LAUNCHED) and set(operators.OPERATORS) == set(LAUNCHED)


def test_the_declared_functions_of_the_host_build_are_those_of_its_sources() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "host").glob("*.cpp")]
    defined = {name for text in texts for name in re.findall(r"^void refnum_(\w+)\(", text, re.M)}
    assert {name for name in FUNCTIONS if not name.startswith("instruction_")} == defined
