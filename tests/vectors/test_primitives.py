"""The primitives that have vectors and are judged by none of the harness's subjects: answered again by definition."""

import dataclasses

import numpy as np
import pytest

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.primitives import VECTOR_OPERATIONS
from refnum.conformance.vectors import load_vectors
from refnum.conformance.vectors.oracle import agrees, expected_by_oracle

PRIMITIVES = sorted(set(VECTOR_OPERATIONS) - set(OPERATIONS))


def test_the_primitives_are_these():
    layouts = ["scales_from_layout", "scales_to_gemm_float32", "scales_to_packed_ue8m0", "scales_to_swizzled"]
    others = ["codes_to_packed", "decode_element", "encode_element", "philox4x32", "random_bits"]
    assert sorted([*others, *layouts]) == PRIMITIVES


@pytest.mark.parametrize("name", PRIMITIVES)
def test_definitions_answer_every_vector(name):
    vectors = [v for v in load_vectors(name) if v.params.get("element") not in ("BF16", "FP16")]
    assert vectors
    for vector in vectors:
        assert agrees(vector, expected_by_oracle(vector)) is None, vector.id


@pytest.mark.parametrize("name", PRIMITIVES)
def test_definitions_see_another_answer(name):
    vector = next(iter(load_vectors(name)))
    output, array = next(iter(vector.outputs.items()))
    words = array.copy().view(f"u{array.dtype.itemsize}")
    words.reshape(-1)[-1] ^= 1
    other = dataclasses.replace(vector, outputs={output: words.view(array.dtype)})
    assert agrees(other, expected_by_oracle(other)) == output


def test_random_bits_reach_the_second_word_of_the_counter():
    vector = next(iter(load_vectors("random_bits")))
    first = vector.inputs["keys"][:, 3] // np.uint64(16)
    last = (vector.inputs["keys"][:, 3] + np.uint64(vector.params["count"] - 1)) // np.uint64(16)
    assert ((first < 1 << 32) & (last >= 1 << 32)).any()
