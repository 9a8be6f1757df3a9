"""Remembers its answer by the address and shape of its input: right until the storage is used again."""

import refnum

_ANSWERS: dict = {}


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise once an address; the address's contents at that time are kept to be right on fresh storage."""
    key = (x.__array_interface__["data"][0], x.shape, x.dtype.name, profile.name)
    known = _ANSWERS.get(key)
    if known is None or known[0]() is not x:
        import weakref

        _ANSWERS[key] = known = (weakref.ref(x), refnum.quantize_mxfp4(x, profile))
    return tuple(array.copy() for array in known[1])


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "stale-output"
