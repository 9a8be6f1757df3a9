"""The subjects of this package, for the entry-point group `refnum.subjects`."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

from . import emulate, host, ops
from .device import compile as build
from .device import driver
from .device.call import EXPERTS
from .mutation.host import HostSources
from .mutation.kernels import DeviceSources, EmulatedSources
from .operations import LAUNCHED, NAMES
from .ops import compiled
from .ops.forced_paths import FORCED_PATHS
from .ops.tunings import tunings

PROFILES = ("HOPPER", "OCP", "CEIL", "EVEN", "TE")
"""Profiles of `refnum.PROFILES` whose every field the kernels have (`checks.SUPPORTED`)."""
FURTHER = {"quantize_mxfp4": ("STOCHASTIC",)}
"""Operation -> further profiles; only this kernel takes random bits."""


def describe_gpu() -> dict[str, str]:
    """Return the device, the compiler and its flags, or the reason why no kernel can run."""
    usable, reason = ops.available()
    if not usable:
        return {"available": "no", "reason": reason}
    return {
        "available": "yes",
        "compute_capability": ".".join(map(str, driver.driver().capability(0))),
        "compiler": f"NVRTC {build.nvrtc().version}",
        "flags": " ".join(build.FLAGS),
        "source_sha256": " ".join(build.read_source(name).digest[:16] for name in build.kernel_names()),
    }


def trace_gpu(operation: str) -> dict[str, str]:
    """Return the digests of an operation's sources with their headers and of its machine code, the compiler and flags.

    The machine code is that of every kernel file under all macros that its launches take, scale layouts among them,
    and the constant array that they read belongs to it.
    Empty for an operation without a kernel.
    """
    units = compiled.units(operation)
    if not units:
        return {}
    kernels = sorted({unit.kernel for unit in units})
    arch = build.architecture(driver.driver().capability(0)) if ops.available()[0] else build.DEFAULT
    sources = [bytes.fromhex(build.read_source(name).digest) for name in kernels]
    images = [hashlib.sha256(build.compiled(name, arch, defines=macros).read_bytes()) for name, macros in units]
    constant = bytes.fromhex(compiled.CONSTANTS.get(operation, ""))
    return {
        "kernel": " ".join(kernels),
        "units": str(len(units)),
        "source": hashlib.sha256(b"".join(sources)).hexdigest(),
        "machine_code": hashlib.sha256(b"".join(image.digest() for image in images) + constant).hexdigest(),
        "architecture": arch,
        "compiler": f"NVRTC {build.nvrtc().version}",
        "flags": " ".join(build.FLAGS),
    }


def trace_emulated(operation: str) -> dict[str, str]:
    """Return the digests of an operation's kernels and launchers, and the compiler, for the emulated device."""
    units = compiled.units(operation)
    if not units:
        return {}
    told = emulate.describe()
    sources = "".join(build.read_source(name).digest for name in sorted({unit.kernel for unit in units}))
    launchers = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    return {
        "source": hashlib.sha256(f"{sources}{units}{compiled.CONSTANTS.get(operation, '')}".encode()).hexdigest(),
        "launchers": hashlib.sha256(launchers).hexdigest(),
        **{name: told[name] for name in ("machine_sha256", "compiler", "version", "flags") if name in told},
    }


def trace_host(operation: str) -> dict[str, str]:
    """Return the digest of the host build's sources and the key of its library: compiler, flags, machine."""
    told = host.describe()
    return {name: told[name] for name in ("source_sha256", "library_key", "version", "flags") if name in told}


def available_gpu() -> tuple[bool, str]:
    """Return (whether kernels can be judged here, the reason if not): the judge gives them CuPy arrays."""
    if importlib.util.find_spec("cupy") is None:
        return False, "CuPy is not installed: install refnum[gpu]"
    return ops.available()


def outside(case: Any) -> str:
    """Return why a case is outside of what the kernels take, or an empty text: too many experts."""
    splits = case.params.get("splits")
    if "align" not in case.params or not isinstance(splits, list | tuple) or len(splits) <= EXPERTS:
        return ""
    return f"the kernels have room for {EXPERTS} experts"


def _too_large(words: Any, bits: int) -> bool:
    return words is not None and words.dtype.kind == "u" and words.size > 0 and int(words.max()) >> bits > 0


def outside_emulated(case: Any) -> str:
    """Return `outside`, or why a wrong index or word is not refused: no launcher reads the device's memory (N0)."""
    row_map, payload = case.inputs.get("row_map"), case.inputs.get("payload")
    if any(_too_large(case.inputs.get(name), bits) for name, bits in (("r_under", 24), ("r_log", 23))):
        return "random words lie on the emulated device, whose memory no launcher reads"
    if row_map is None or row_map.size == 0 or row_map.dtype.kind not in "iu":
        return outside(case)
    tokens = case.params["tokens"] if payload is None else payload.shape[0]
    if (payload is not None and payload.ndim != 2) or (row_map.min() >= 0 and row_map.max() < tokens):
        return outside(case)
    return "row indices lie on the emulated device, whose memory no launcher reads"


def subjects() -> list[dict[str, Any]]:
    """Return the declarations of our kernels: a name, operation -> callable, claimed profiles, availability."""
    emulated = emulate.subject_operations(emulate.Emulator())
    device: dict[str, Any] = {"outside": outside}
    there = {**device, "outside": outside_emulated}
    return [
        {
            "name": "host",
            "kind": "host",
            "operations": {name: getattr(host, name) for name in NAMES},
            "profiles": PROFILES,
            "further": FURTHER,
            "one_code": True,
            "available": host.available,
            "describe": host.describe,
            "trace": trace_host,
            "mutable": HostSources,
        },
        {
            "name": "emulated",
            "kind": "host",
            "operations": {name: emulated[name] for name in LAUNCHED},
            "profiles": PROFILES,
            "further": FURTHER,
            "one_code": True,
            "available": emulate.available,
            "describe": emulate.describe,
            "trace": trace_emulated,
            "mutable": partial(EmulatedSources, declared=there),
            **there,
            "forced_paths": FORCED_PATHS,
            "on_request": True,
        },
        {
            "name": "gpu",
            "kind": "gpu",
            "operations": {name: getattr(ops, name) for name in LAUNCHED},
            "profiles": PROFILES,
            "further": FURTHER,
            "one_code": True,
            "arrays": "cupy",
            "available": available_gpu,
            "describe": describe_gpu,
            "trace": trace_gpu,
            "mutable": partial(DeviceSources, declared=device),
            **device,
            "forced_paths": FORCED_PATHS,
            "tunings": tunings,
        },
    ]
