"""Small cases for tests of diagnosis and of pages, and what a wrong rule gives of them."""

import numpy as np

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.control_cases import control_cases


def quantise(*values, dtype=np.float32, bits=None):
    x = np.zeros((1, 32), dtype)
    if bits is not None:
        x.view(np.uint32)[0, : len(bits)] = bits
    x[0, len(bits or ()) : len(bits or ()) + len(values)] = values
    return Case("quantize_mxfp4", "HOPPER", {"input": x.dtype.name}, {"x": x})


def under(case, **changes):
    return run_golden(case, refnum.HOPPER.replace(name="wrong", **changes))


def distant(columns=False):
    """Two blocks of one tile (or two rows of one column block) ten binades apart, with zeros in the lower one."""
    packed = np.full((2, 32), 0x22, np.uint8)
    packed[1, :], scales = 0x80, np.array([[137, 127], [127, 127]], np.uint8)
    packed[0, 16:20] = 0x80
    name = "mxfp4_to_fp8_columns" if columns else "mxfp4_to_fp8"
    return Case(
        name, "HOPPER", {"scale": "max", **({"splits": [2]} if columns else {})}, {"packed": packed, "scales": scales}
    )


def control(operation, **params):
    (case,) = control_cases(operation, "HOPPER", {**OPERATIONS[operation].defaults(), **params})
    return case
