"""Where the variants' tests run the launchers: on the GPU when there is one, else on the emulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

from refnum import gpu
from refnum.errors import RefnumError

USABLE, REASON = gpu.available()


def launchers() -> tuple[Callable[..., Any], str]:
    """Return (call by name on NumPy arrays, the machine's name); skips when there is neither machine."""
    if USABLE:
        cupy = pytest.importorskip("cupy")

        def on_device(x: Any) -> Any:
            if not isinstance(x, np.ndarray):
                return x
            return cupy.asarray(x.view(np.uint16) if x.dtype == samples.BFLOAT16 else x)

        def call(name: str, *args: Any, **options: Any) -> Any:
            given = {option: on_device(value) for option, value in options.items()}
            result = getattr(gpu, name)(*map(on_device, args), **given)
            return tuple(x.get() for x in result) if isinstance(result, tuple) else result.get()

        return call, "gpu"
    from refnum.gpu import emulate

    usable, reason = emulate.available()
    if not usable:
        pytest.skip(f"NO KERNEL WAS RUN: {REASON}; {reason}")
    operations = emulate.subject_operations(emulate.Emulator())

    def emulated(name: str, *args: Any, **options: Any) -> Any:
        return operations[name](*args, **options)

    return emulated, "emulator"


def host_or_launched(which: str) -> tuple[Callable[..., Any], str]:
    """Return ((name, *arguments, **options) -> results, the name) of the host build or, for "launched", `launchers`."""
    if which == "launched":
        return launchers()
    from refnum.gpu import host

    usable, reason = host.available()
    if not usable:
        pytest.skip(reason)
    return lambda name, *given, **options: getattr(host, name)(*given, **options), "host"


def dtypes_and_layouts(machine: str, dtypes: tuple[Any, ...], number: int) -> list[tuple[Any, str]]:
    """Return all, or on the emulator, which compiles each function in seconds, one: another for each of six numbers."""
    every = [(dtype, layout) for layout in ("bytes", "swizzled") for dtype in dtypes]
    return [every[number % len(every)]] if machine == "emulator" else every


def equal(want: Any, got: Any, what: Any) -> None:
    """Compare results, a tuple or one array, by shape and bytes."""
    wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    assert len(wants) == len(gots), what
    for number, (w, g) in enumerate(zip(wants, gots, strict=True)):
        assert tuple(g.shape) == w.shape and g.dtype.itemsize == w.dtype.itemsize, (what, number)
        wrong = np.argwhere(np.ascontiguousarray(w).view(np.uint8) != np.ascontiguousarray(g).view(np.uint8))
        assert not len(wrong), f"{what}, output {number}: {len(wrong)} bytes differ, first at {wrong[0]}"


def refused(error: type[RefnumError], call: Callable[[], Any], words: str | None = None) -> None:
    """The call raises this named error."""
    with pytest.raises(error, match=words):
        call()
