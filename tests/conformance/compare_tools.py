"""Cases that tests of the comparator share."""

import numpy as np

from refnum.conformance.cases.case import Case


def case_of(x, operation="quantize_mxfp4", profile="HOPPER", **params):
    return Case(operation, profile, {"input": x.dtype.name, **params}, {"x": x})


def sample(rows=3, k=64):
    x = np.linspace(-6, 6, rows * k, dtype=np.float32).reshape(rows, k)
    x[0, 0], x[1, 32] = -0.0, np.nan
    return x
