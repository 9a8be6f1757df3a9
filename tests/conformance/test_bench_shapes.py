"""Shapes that are timed: whole blocks, names that tell them apart, and shapes by numbers."""

import pytest
from bench_tools import SHAPE

from refnum.conformance.commands.bench import shapes
from refnum.errors import ArgumentError


@pytest.mark.parametrize("shape", shapes.SHAPES.values(), ids=list(shapes.SHAPES))
def test_recipe_shapes_have_whole_blocks_and_give_every_row_away(shape):
    splits = shape.splits()
    assert len(splits) == shape.experts
    assert sum(splits) == shape.tokens * shape.top_k
    assert all(rows % 32 == 0 and rows >= 0 for rows in splits)
    assert shapes.parse(shape.name) == shape


def test_shapes_that_differ_have_names_that_differ():
    texts = [*shapes.SHAPES, "64x96", "64-1-96-1-96", "64-3-96-1-96", "64-1-96-1-128", "32768-1-7168-1-7168"]
    found = {shapes.parse(text) for text in texts}
    assert len(found) == len(texts) - 1  # one is there twice
    assert {shapes.parse(shape.name) for shape in found} == found and len({shape.name for shape in found}) == len(found)


def test_shapes_by_numbers():
    assert shapes.parse("64x96") == shapes.Shape(64, 1, 96, 1, 96)
    assert shapes.parse("64-3-256-4-128") == SHAPE
    for text in ("64", "64x", "64x33", "1-2-3", "axb", "0x32"):
        with pytest.raises(ArgumentError, match="--shape"):
            shapes.parse(text)
