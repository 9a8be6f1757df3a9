"""Subjects with planted defects, each built on the golden model: what a campaign must find, name and make small.

The rare ones are wrong as a function of the data alone, so that they stay wrong when a case is cut down.
"""

import ctypes

import numpy as np

import refnum


def faulty(x):
    """Read address 0 when a row count is above 8 and some element is -0: the process dies of SIGSEGV."""
    bits = x.view(np.uint32)
    if x.shape[0] > 8 and (bits == 0x80000000).any():
        ctypes.string_at(0)
    return refnum.quantize_mxfp4(x)


def hanging(packed, scales):
    """Wait for a lock that this thread holds, inside one C call, when some scale byte is 255."""
    if (scales == 255).any():
        mutex = ctypes.create_string_buffer(64)
        library = ctypes.CDLL(None)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)
    return refnum.dequantize_mxfp4(packed, scales)


def one_point(x):
    """Round -2.5 to -3 where the tie goes to -2; every other element is right."""
    packed, scales = refnum.quantize_mxfp4(x)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        blocks = x.astype(np.float64).reshape(x.shape[0], -1, 32)
        scaled = np.ldexp(blocks, 127 - scales.astype(np.int32)[..., None])
    wrong = (scaled.reshape(x.shape) == -2.5) & (scales != 255).repeat(32, axis=1)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(x.shape)
    codes = np.where(wrong, np.uint8(13), codes)
    return codes[:, 0::2] | (codes[:, 1::2] << 4), scales


def one_in_a_million(x):
    """Flip the lowest bit of the code of each element whose bits hash below 2^32 / 10^6."""
    packed, scales = refnum.quantize_mxfp4(x)
    wrong = (x.view(np.uint32) * np.uint32(2654435761) + np.uint32(0x9E3779B9)) < np.uint32(4295)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(x.shape) ^ wrong.astype(np.uint8)
    return codes[:, 0::2] | (codes[:, 1::2] << 4), scales


def raising(packed, scales):
    """Raise on every call."""
    raise RuntimeError("the planted kernel gives up")


def flaky(packed, scales, state=[0]):  # noqa: B006 (state that outlives a call is the point)
    """Be wrong on the third call of a process and never again."""
    values = refnum.dequantize_mxfp4(packed, scales)
    state[0] += 1
    if state[0] == 3 and values.size:
        values.view(np.uint32).reshape(-1)[0] ^= 1
    return values


def only_float32(operation, profile, params):
    """The hash of `one_in_a_million`, and the pattern that `faulty` looks for, are of 32 bits."""
    return "" if params["input"] == "float32" else "reads float32 bits"


def right(x):
    """Be right."""
    return refnum.quantize_mxfp4(x)


def subjects():
    """Return every planted subject."""
    quantizers = (faulty, one_point, one_in_a_million, right)
    planted = [{"name": f.__name__, "operations": {"quantize_mxfp4": f}, "supports": only_float32} for f in quantizers]
    others = (hanging, raising, flaky)
    return planted + [{"name": f.__name__, "operations": {"dequantize_mxfp4": f}} for f in others]


FEW = [subject for subject in subjects() if subject["name"] in ("faulty", "one_point")]
"""A dead process and a wrong tie, for tests that cannot wait for a hang."""
