"""What a timed call is given: copies laid out as the case is, and arguments as they are written."""

import numpy as np
from bench_tools import SHAPE

from refnum.conformance.commands.bench import inputs, lines
from refnum.conformance.commands.bench.contender import as_written


def test_copies_keep_the_distance_of_rows():
    case = inputs.make(np, lines.select(["SwiGLU -> FP8, gate and up in one array"])[0], SHAPE)
    for copy in inputs.copies(case, 2):
        assert copy.inputs["gate"].strides == (4 * 128, 2)
        np.testing.assert_array_equal(copy.inputs["gate"], case.inputs["gate"])


def test_an_array_to_write_is_given_where_the_default_names_a_dtype():
    """Of products `out` is a dtype or the array."""
    seen = []

    def matmul_fp8(a, b, out="float32"):
        seen.append(out)

    a = np.zeros((2, 32), np.uint8)
    for out in ("float32", np.empty((2, 2), np.float32)):
        as_written(matmul_fp8, "matmul_fp8", {"a": a, "b": a, "out": out})()
    assert seen[0] == "float32" and isinstance(seen[1], np.ndarray)
