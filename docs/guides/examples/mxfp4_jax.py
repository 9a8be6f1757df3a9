"""MXFP4 in JAX, under jit. Bits are compared as integers, so it does not matter whether XLA keeps subnormals."""

import jax
import jax.numpy as jnp
import numpy as np

from refnum.conformance import implements

BYTES = np.arange(255)[:, None]
with np.errstate(over="ignore"):
    MIDPOINTS = np.ldexp(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]), BYTES - 127).astype(np.float32)
TABLE = MIDPOINTS.view(np.uint32)  # of E2M1 under every scale byte, as float32 bits
TO_EVEN = np.array([0, 1, 0, 1, 0, 1, 0], np.uint32)  # whether a tie goes up


@implements("quantize_mxfp4", profile="HOPPER", arrays="jax", dtypes=["float32"], columns=32)
@jax.jit
def quantize(x):
    """Quantise [M, K] float32 values: least scale without saturation, ties to even."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32).reshape(x.shape[0], x.shape[1] // 32, 32)
    magnitude = bits & 0x7FFFFFFF
    amax = magnitude.max(axis=2, initial=0)
    finite = amax < 0x7F800000
    exponent = (amax >> 23).astype(jnp.int32) - 2 + ((amax & 0x7FFFFF) > 0x400000)
    byte = jnp.where(finite, jnp.clip(exponent, 0, 254), 255)
    above = magnitude[..., None] + TO_EVEN > jnp.asarray(TABLE)[jnp.minimum(byte, 254)][:, :, None, :]
    codes = above.sum(axis=3).astype(jnp.uint8) | (bits >> 28 & 8).astype(jnp.uint8)
    codes = jnp.where(finite[..., None], codes, 0).astype(jnp.uint8).reshape(x.shape)
    return codes[:, 0::2] | codes[:, 1::2] << 4, byte.astype(jnp.uint8)
