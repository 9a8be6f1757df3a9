"""Every launcher on arrays of every library: the model's bytes, in arrays of the library that is promised."""

from __future__ import annotations

from typing import Any

import device_arrays
import numpy as np
import pytest
from launcher_calls import call, make, wanted

import refnum
from refnum import gpu

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
NAMES = [name for name in refnum.gpu.ops.__all__ if name != "available"]


@pytest.mark.parametrize("way", list(device_arrays.WAYS))
@pytest.mark.parametrize("name", NAMES)
def test_a_launcher_takes_and_gives_arrays_of_a_library(name: str, way: str) -> None:
    bring, library = device_arrays.WAYS[way]
    given = {key: bring(value) if isinstance(value, np.ndarray) else value for key, value in make(name).items()}
    for _ in range(2):
        results = call(getattr(gpu, name), given)
        device_arrays.equal(wanted(name), results)
        found = results if isinstance(results, tuple) else (results,)
        assert {type(x).__module__.partition(".")[0] for x in found if x is not None} == {library}


def test_memory_that_jax_gives_away_early_was_read() -> None:
    """The input's last holder lets go at once, and JAX fills new arrays, while the stream has much to do before."""
    device_arrays.jax(np.zeros(1, np.float32))
    import cupy
    import jax.numpy as jnp

    want: Any = refnum.quantize_mxfp4(np.ones((1, 32), np.float32))
    busy = cupy.empty(1 << 30, np.uint8)
    for _ in range(10):
        x = jnp.full((8192, 7168), 1.0, jnp.float32).block_until_ready()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(20):
                busy.fill(0)
            packed, scales = gpu.quantize_mxfp4(x)
            del x
            other = jnp.full((8192, 7168), 64.0, jnp.float32).block_until_ready()
            stream.synchronize()
        assert (np.asarray(scales) == want[1][0, 0]).all() and (np.asarray(packed) == want[0][0, 0]).all()
        del other
