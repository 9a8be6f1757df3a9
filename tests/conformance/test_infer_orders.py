"""`refnum infer -o matmul_fp8` names the order in which a product adds, and says what rules the others out."""

import functools

import numpy as np
import pytest
from typer.testing import CliRunner

import refnum
from refnum import softfloat
from refnum.conformance.cli import app
from refnum.conformance.commands.infer.orders import candidates, infer_order
from refnum.conformance.commands.infer.tree import summation_tree, unit_for
from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError

SHAPE = (16, 12, 1024)


def model(order, out="float32"):
    return functools.partial(refnum.matmul_fp8, order=order, out=out)


@pytest.mark.parametrize("out", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "order", ["chain", "promote128", "promote32", "promote512", "split2", "split4", "split2-chain"]
)
def test_a_named_order_is_found_and_all_others_are_ruled_out(order, out):
    found = infer_order("it", model(order, out), SHAPE)
    (same,) = [names for names in candidates(1024, False) if order in names]
    assert found.fits == same and found.dtype == out and found.compared == 3 * 64
    assert {one.order for one in found.ruled_out} == {n[0] for n in candidates(1024, False) if n != same}
    assert all(one.got != one.would_be for one in found.ruled_out) and not found.tree


@pytest.mark.parametrize("order", ["chain", "promote128", "promote32", "split2", "split2-chain"])
def test_an_order_of_a_bfloat16_product_is_found(order, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"import refnum\ndef matmul_bf16(a, b):\n    return refnum.matmul_bf16(a, b, {order!r})\n")
    given = ["infer", "-o", "matmul_bf16", "--shape", "16,12,1024", "-s", str(path)]  # the function's name is known
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 0, told.output
    (same,) = [names for names in candidates(1024, False, "wgmma_bf16") if order in names]
    words = " ".join(told.output.split())
    assert f"order {same[0]}, every bit" in words
    assert (f"other names of these sums at this K: {', '.join(same[1:])}" in words) == bool(same[1:])
    refused = CliRunner().invoke(app, [*given, "--scales", "rows"])
    assert refused.exit_code == 2 and "products of bfloat16 have none" in refused.output


@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks", "squares"])
def test_products_with_scales(scales):
    for order in ("promote128", "split2"):
        assert infer_order("it", model(order), (20, 300, 1152), scales).fits[0] == order


@pytest.mark.parametrize("scales", ["blocks", "squares"])
@pytest.mark.parametrize("order", ["promote128", "promote64", "split2", "split3", "split6"])
def test_bfloat16_results_tell_orders_of_scaled_blocks_apart(order, scales):
    found = infer_order("it", model(order, "bfloat16"), (16, 140, 2048), scales)
    assert found.fits == [order, *found.same] and not found.untold


def test_other_names_of_the_same_sums_come_after_the_simplest():
    found = infer_order("it", model("split8-chain"), (8, 4, 1024))
    assert found.fits == ["promote128", "split8", "split8-chain"] and found.same == ["split8", "split8-chain"]


def test_names_of_the_same_sums_stand_together():
    assert ["promote128", "split8", "split8-chain"] in candidates(1024, False)
    assert ["split2-chain", "promote512"] in candidates(1024, False) and ["chain"] in candidates(1024, False)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 0x7F, (2, 4, 1024)).astype(np.uint8)
    for names in candidates(1024, False):
        assert len({refnum.matmul_fp8(a, b, order=order).tobytes() for order in names}) == 1


def nested(a, b):
    """Sums of 32 products in float32 for each 128, then those in float32: no named order."""
    parts = [
        refnum.matmul_fp8(a[:, k : k + 128], b[:, k : k + 128], order="promote32") for k in range(0, a.shape[1], 128)
    ]
    bits = functools.reduce(softfloat.add, (np.ascontiguousarray(p).view(np.uint32) for p in parts))
    return bits.view(np.float32)


def test_an_order_without_a_name_is_probed():
    found = infer_order("it", nested, (40, 4, 512))
    assert not found.exact and found.tree == "0-127 + 3 like (128-255)"


def unequal(a, b, a_scales=None, b_scales=None):
    """Parts of 384 and 640 terms, the second first: no named order."""
    cut = [(slice(0, 384), slice(0, 3)), (slice(384, 1024), slice(3, 8))]
    sums = [
        refnum.matmul_fp8(a[:, k], b[:, k], *(None if s is None else s[:, blocks] for s in (a_scales, b_scales)))
        for k, blocks in cut
    ]
    bits = [np.ascontiguousarray(one).view(np.uint32) for one in sums]
    return softfloat.add(bits[1], bits[0]).view(np.float32)


@pytest.mark.parametrize("scales", ["none", "blocks", "squares"])
def test_parts_of_unlike_length_are_seen(scales):
    found = infer_order("it", unequal, (7, 4, 1024), scales)
    assert found.tree == "0-127 + 2 like (128-255) + (384-511 + 4 like (512-639))"


@pytest.mark.parametrize(
    "order, words",
    [
        ("chain", "0-1023"),
        ("promote32", "0-1023"),
        ("promote128", "0-127 + 7 like (128-255)"),
        ("split2-chain", "0-511 + (512-1023)"),
        ("split4", "0-127 + (128-255) + 3 like (256-383 + (384-511))"),
    ],
)
def test_trees_of_named_orders(order, words):
    for rows in (1, 5, 40):
        tree, unit = summation_tree(lambda a, b: np.float64(model(order)(a, b)[:, 0]), (rows, 2, 1024))
        assert unit == 32 and tree.words(unit) == words


def test_what_is_no_tree_is_not_told():
    """Sums in one step of all terms: every other product is lost, whichever two are large."""

    def at_once(a, b):
        large = np.abs(np.sign(a.view(np.int8)) * (a & 0x7F == 0x7E)).any(axis=1)
        return np.where(large, 0.0, (a > 0).sum(axis=1) * 2.0**-18)

    assert summation_tree(at_once, (40, 2, 256)) is None
    assert unit_for(1, 32 * 96) == 32 and unit_for(1, 64 * 97) == 64 and unit_for(16, 16384) == 32


@pytest.mark.parametrize(
    "error, product, shape, scales",
    [
        (ArgumentError, model("chain"), (4, 4, 100), "none"),
        (ArgumentError, model("chain"), (0, 4, 128), "none"),
        (ArgumentError, model("chain"), (4, 4, 128), "columns"),
        (DtypeError, lambda a, b: a.astype(float) @ b.T, (4, 4, 128), "none"),
        (ShapeError, lambda a, b: refnum.matmul_fp8(b, a), (4, 5, 128), "none"),
        (UnsupportedError, lambda a, b: 1 // 0, (4, 4, 128), "none"),
    ],
)
def test_bad_input(error, product, shape, scales):
    with pytest.raises(error):
        infer_order("it", product, shape, scales)


def test_the_command(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("import refnum\n\ndef mine(a, b):\n    return refnum.matmul_fp8(a, b, order='split2')\n")
    given = ["infer", "-o", "matmul_fp8", "-s", f"{path}:mine", "--shape"]
    done = CliRunner().invoke(app, [*given, "8,8,512"])
    assert done.exit_code == 0 and "order split2, every bit of 192 results" in done.stdout
    assert "not promote128: " in done.stdout
    assert CliRunner().invoke(app, [*given, "8,8"]).exit_code == 2
    assert CliRunner().invoke(app, ["infer", "-o", "matmul_fp8", "-s", f"{path}:other"]).exit_code == 2
