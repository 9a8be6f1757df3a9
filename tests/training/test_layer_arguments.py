"""What the layer refuses, each in one sentence that says what was given and what is allowed."""

import pytest
import torch

from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.training.layer import MoELayer

RIGHT = {"hidden": 128, "ffn": 128, "experts": 4, "top": 2, "policy": "mxfp4"}
X = torch.zeros((3, 128), dtype=torch.bfloat16)
EXPERTS = torch.tensor([[0, 1], [1, 2], [2, 3]])
PROBS = torch.full((3, 2), 0.5)


@pytest.mark.parametrize(
    "changes, error, sentence",
    [
        ({"hidden": 100}, ShapeError, "hidden=100; allowed is a positive multiple of 128"),
        ({"ffn": 192}, ShapeError, "ffn=192; allowed is a positive multiple of 128"),
        ({"hidden": 0}, ShapeError, "hidden=0; allowed is a positive multiple of 128"),
        ({"experts": 0}, ArgumentError, "0 experts on 1 ranks; allowed are ranks that divide the experts"),
        ({"top": 5}, ArgumentError, "top=5; allowed are 1 to 4"),
        ({"top": 0}, ArgumentError, "top=0; allowed are 1 to 4"),
        ({"products": "fast"}, ArgumentError, "products='fast'; allowed are 'library' and 'model'"),
    ],
)
def test_sizes_that_do_not_fit_are_one_sentence(changes, error, sentence):
    with pytest.raises(error) as told:
        MoELayer(**(RIGHT | changes))
    assert str(told.value).startswith(sentence) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    "given, error, sentence",
    [
        ((X[:, :64], None), ShapeError, r"x has shape \(3, 64\); allowed is \[tokens, 128\]"),
        ((X.float(), None), DtypeError, "x has dtype torch.float32; allowed is torch.bfloat16"),
        ((X, (EXPERTS[:2], PROBS)), ShapeError, r"a routing has experts \(2, 2\) and weights \(3, 2\); allowed is"),
        ((X, (EXPERTS.int(), PROBS)), DtypeError, "allowed are int64 and float32"),
        ((X, (EXPERTS + 1, PROBS)), ArgumentError, "a routing names expert 1 to 4; there are 4"),
        ((X, (EXPERTS - 1, PROBS)), ArgumentError, "a routing names expert -1 to 2; there are 4"),
        ((X, (EXPERTS * 0, PROBS)), ArgumentError, "a routing names an expert twice for a token"),
    ],
)
def test_arguments_of_a_step_that_do_not_fit_are_one_sentence(given, error, sentence):
    with pytest.raises(error, match=sentence):
        MoELayer(**RIGHT, seed=0)(*given)
