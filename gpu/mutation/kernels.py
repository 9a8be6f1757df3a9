"""Whole kernels for mutation testing: compiled by NVRTC and run on a device, or run on the emulated device."""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .. import emulate, ops
from ..device import compile as build
from ..device import driver, plans
from ..device.compile import KERNELS
from ..emulate.build import with_headers
from ..operations import LAUNCHED
from ..ops import compiled
from ..ops.forced_paths import FORCED_PATHS
from . import rows_of
from .host import DRAWN, functions
from .object_code import device_digest

LAYOUTS = "scale layouts"
LAID = ("dequantize_mxfp4", "quantize_mxfp4")
"""The kernels whose layouts are judged, for all that read or write scales in a layout."""


class Unit(NamedTuple):
    """One compiled unit: a kernel file under its macros, and the operations that run it."""

    name: str
    operations: tuple[str, ...]
    arguments: tuple[str, tuple[str, ...]]


def _units() -> Iterator[Unit]:
    for kernel in build.kernel_names():
        for macros in compiled.cuts(kernel):
            yield Unit(f"{kernel} {' '.join(macros)}".strip(), compiled.operations(kernel), (kernel, macros))
        for layout in compiled.layouts(kernel)[1:] if kernel in LAID else ():
            laid = (*compiled.cuts(kernel)[0], *layout)
            yield Unit(f"{kernel} {' '.join(laid)}", (LAYOUTS,), (kernel, laid))


@dataclass
class DeviceSources:
    """Whole kernels from a changed folder, by NVRTC and on a device, in the process that calls.

    compiled_with: the flags for every folder but `root`, whose kernels are always compiled as they are released.
    slow_start: whether a process takes long until it can launch: contexts of a device are made one after another.
    declared: what the subject says of variants and cases that it does not take; they are not asked.
    """

    name: str = "gpu"
    profiles: tuple[str, ...] = ("HOPPER", "OCP", "CEIL", "EVEN", "TE", "STOCHASTIC", DRAWN)
    largest: int = 1 << 22
    patience: int = 20
    root: Path = KERNELS
    compiled_with: tuple[str, ...] = build.FLAGS
    slow_start: bool = True
    declared: Mapping[str, Callable[..., str]] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that may be changed."""
        return tuple(sorted(path.name for path in self.root.glob("*.cu*")))

    def units(self, file: str) -> list[Unit]:
        """Return the units that include a file, those of few sources first."""
        found = [unit for unit in _units() if file in _closure(unit.arguments[0])]
        return sorted(found, key=lambda unit: (LAYOUTS in unit.operations, len(_closure(unit.arguments[0]))))

    def functions(self) -> dict[str, Any]:
        """Return the domains of small functions."""
        return functions()

    def reasons(self) -> list[dict[str, Any]]:
        """Return the changes that no input can show, each with its reason."""
        return rows_of("no_effect", "change")[1]

    def code(self, folder: Path, unit: Unit) -> str:
        """Return a digest of a unit's machine code; UnsupportedError when it does not compile."""
        kernel, macros = unit.arguments
        image = build.compiled(kernel, defines=macros, kernels=folder, flags=self._flags(folder))
        return device_digest(image.read_bytes())

    def _flags(self, folder: Path) -> tuple[str, ...]:
        return build.FLAGS if folder == self.root else self.compiled_with

    def flags(self) -> list[tuple[str, str, str]]:
        """Return (operator, flag as it is, changed flag) of the compiler's flags that may change bits."""
        return [("ftz on", "-ftz=false", "-ftz=true"), ("fma on", "-fmad=false", "-fmad=true")]

    def use(self, old: str, new: str) -> None:
        """Compile with a changed flag: in this process, from now on."""
        self.compiled_with = tuple(new if flag == old else flag for flag in self.compiled_with)

    def forget(self) -> None:
        """Forget every kernel that this process has loaded, and the plans of their calls; from now on it launches
        the kernels of `root` as they are released.
        """
        self.compiled_with = build.FLAGS
        driver.start_with(functools.partial(driver.Driver, self.root))
        plans.forget()

    def ready(self) -> None:
        """Import CuPy once for all judging processes; importing starts no device."""
        importlib.import_module("cupy")

    def subject(self, folder: Path) -> dict[str, Any]:
        """Return the subject that runs the kernels of a folder: for this process, from now on."""
        driver.start_with(functools.partial(driver.Driver, folder, self._flags(folder)))
        plans.forget()
        operations = {name: getattr(ops, name) for name in LAUNCHED}
        return {
            "name": self.name,
            "operations": operations,
            "kind": "gpu",
            "profiles": self.profiles,
            "arrays": "cupy",
            "forced_paths": FORCED_PATHS,
            **self.declared,
        }


@dataclass
class EmulatedSources(DeviceSources):
    """The same on the emulated device, which sees races, accesses out of bounds and reads of unwritten memory."""

    name: str = "emulated"
    largest: int = 1 << 17
    patience: int = 100
    slow_start: bool = False

    def flags(self) -> list[tuple[str, str, str]]:
        """Return no flags: the emulated device has none."""
        return []

    def code(self, folder: Path, unit: Unit) -> str:
        """Return a digest of a unit's sources; a unit that does not include a changed file keeps its digest."""
        texts: dict[str, str] = {}
        with_headers(folder / f"{unit.arguments[0]}.cu", texts)
        return hashlib.sha256("\0".join(f"{name}\0{texts[name]}" for name in sorted(texts)).encode()).hexdigest()

    def ready(self) -> None:
        """Import nothing: the emulated machine needs no library of arrays."""

    def subject(self, folder: Path) -> dict[str, Any]:
        """Return the subject that runs the kernels of a folder on the emulated machine."""
        operations = emulate.subject_operations(emulate.Emulator(folder))
        return {
            "name": self.name,
            "operations": operations,
            "kind": "host",
            "profiles": self.profiles,
            "forced_paths": FORCED_PATHS,
            **self.declared,
        }


@functools.cache
def _closure(kernel: str) -> frozenset[str]:
    texts: dict[str, str] = {}
    with_headers(KERNELS / f"{kernel}.cu", texts)
    return frozenset(texts)
