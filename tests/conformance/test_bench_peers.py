"""What the peers run, on the host: the plain formulas against the golden model, and the table of peers."""

import functools

import numpy as np
import pytest

from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.commands.bench import agree, inputs, lines, shapes
from refnum.conformance.commands.bench.contenders import CONTENDERS, select_contenders
from refnum.conformance.subjects.peers import tile_kernels_calls
from refnum.conformance.subjects.subject import from_dict
from refnum.errors import ArgumentError

torch = pytest.importorskip("torch", reason="needs torch")

from refnum.conformance.commands.bench.contender import as_tuple, to_torch  # noqa: E402
from refnum.conformance.commands.bench.contenders import compiled, products, separate, tilekernels, triton_mxfp  # noqa: E402

SHAPE = shapes.Shape(256, 3, 256, 1, 128)
FLOAT32_STEPS = {"swiglu_quantize", "swiglu_backward", "unpermute"}
"""Operations whose formula leaves a function or an order of sums to torch: not the model's bits."""
COMPILE = compiled.compile_
FORMULAS = [line for line in lines.LINES if not compiled.offers(line)]


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Run the formulas as they are written: what torch.compile makes of them is judged on a device."""
    cached = (compiled.function, separate._transpose, separate._transpose_spaced, separate._together)
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(compiled, "compile_", lambda plain: plain)
    yield
    for function in cached:
        function.cache_clear()


def judged(contender_prepare, line):
    case = inputs.make(np, line, SHAPE)
    prepared = contender_prepare(line, case)
    return agree.Golden(case).compare(prepared.canonical(prepared.call()))


@pytest.mark.parametrize("line", FORMULAS, ids=[line.label for line in FORMULAS])
def test_a_formula_is_the_golden_operation(line):
    found = judged(compiled.prepare, line)
    assert found.compared > 0
    if "philox" in line.params:  # torch draws other random bits: other codes, the same scales
        assert 0 < found.differing < 256 * 128
    elif line.operation in FLOAT32_STEPS:
        assert found.differing < found.compared / 50 or line.operation == "swiglu_backward"
    else:
        assert found.verdict == "equal"


@pytest.mark.parametrize("label", ["FP8 product, chain", "FP8 product, 1x128 by 128x128", "BF16 product"])
def test_products_of_torch_are_given_the_operands_in_its_layouts(label, monkeypatch):
    """What stands for the library reads its layouts as it does, and sums as the model."""
    import refnum

    def scaled_mm(left, right, sa, sb, out_dtype, use_fast_accum):
        assert left.stride(1) == right.stride(0) == 1 and sa.dtype == sb.dtype == torch.float32
        scales = (None, None) if sa.ndim == 0 else (sa, sb.t())
        if sa.ndim:
            assert sa.stride(0) == 1 and sb.stride(0) == 1 and sb.stride(1) % 4 == 0
        order = "chain" if use_fast_accum else "promote128"
        given = left.view(torch.uint8), right.t().view(torch.uint8)
        return refnum.matmul_fp8(*given, *scales, order=order, out=str(out_dtype).split(".")[1])

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    monkeypatch.setattr(torch, "mm", lambda a, b, out_dtype: refnum.matmul_bf16(a, b.t().contiguous()))
    (line,) = lines.select([label])
    found = judged(products.prepare, line)
    assert found.verdict == "equal" and found.compared == 256 * 128
    assert not products.contenders(None)[0].offers(line)
    assert products.contenders(None)[0].offers(lines.select(["pack_payload"])[0])


@pytest.mark.parametrize("kind", ["separate", "separate, compiled"])
def test_the_way_by_bfloat16_is_the_amax_conversion(kind):
    import refnum

    own = {name: getattr(refnum, name) for name in separate._STEPS}
    by_columns = {"mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns"}
    one = from_dict({"name": "model", "operations": own, "arrays": "cupy"}, "here")
    (chosen,) = [c for c in separate.contenders(one) if c.name == kind]
    offered = [line for line in lines.LINES if not chosen.offers(line)]
    assert {line.operation for line in offered if not line.experts} == {*by_columns, "fp8_to_mxfp4", "mxfp4_to_fp8"}
    assert {line.operation for line in offered if line.experts} == by_columns
    for line in offered:
        found = judged(chosen.prepare, line)
        exact = line.params.get("scale") == "amax" or line.operation == "fp8_to_mxfp4"
        assert found.verdict == "equal" or not exact, line.label


def test_triton_helpers_equal_the_model():
    one = from_dict({"name": "model", "operations": {"quantize_mxfp4": as_tuple}, "arrays": "cupy"}, "here")
    for contender in triton_mxfp.contenders(one) if not triton_mxfp.missing() else ():
        for line in lines.LINES:
            if contender.slow and not contender.offers(line):
                assert judged(contender.prepare, line).verdict == "equal", line.label


ALONE = {"FP8 -> FP8 columns, te" + more for more in ("", ", experts", ", experts, unaligned")}
SHORT_BLOCKS = {f"MXFP4 -> MXFP4 columns, {mode}, experts, unaligned" for mode in ("amax", "max")}
PADDED = {line.label for line in lines.LINES if "permute" in line.operation and line.unit == 1}
"""Lines whose blocks of 32 rows may be short, or whose experts are padded: nothing else has them."""
ALONE_YET = ("nvfp4", "hadamard", "logarithmic", "tetrajet", "estimators")
NVFP4 = {line.label for line in lines.LINES if OPERATIONS[line.operation].family in ALONE_YET}
"""Lines that no contender offers yet."""
PRODUCTS = {line.label for line in lines.LINES if line.at == "product"}


def test_every_line_has_something_beside_it():
    own = dict.fromkeys(separate._STEPS, as_tuple)
    one = from_dict({"name": "model", "operations": own, "arrays": "cupy"}, "here")
    rooms = (compiled, separate, tilekernels, products)
    others = [made for room in rooms for made in room.contenders(one)]
    beside = {line.label: [c.name for c in others if not c.offers(line)] for line in lines.LINES}
    assert {label for label, names in beside.items() if not names} == SHORT_BLOCKS | PADDED | NVFP4
    alone = ALONE | SHORT_BLOCKS | PADDED | PRODUCTS | NVFP4
    assert {label for label, names in beside.items() if "torch.compile" not in names} == alone


def test_experts_that_end_within_tiles_are_spaced_out():
    case = inputs.make(np, lines.select(["MXFP4 -> FP8 columns, max, experts"])[0], SHAPE)
    splits = case.params["splits"]
    found = compiled.stacks(case)
    assert any(count % 128 for count in splits)
    assert len(found["rows"]) == sum(-(-count // 128) * 128 for count in splits)
    assert found["rows"][found["keep"]].tolist() == list(range(sum(splits)))
    assert (np.delete(found["rows"], found["keep"]) == -1).all()
    assert compiled.stacks(inputs.make(np, lines.select(["MXFP4 -> FP8 columns, max"])[0], SHAPE)) == {}


@pytest.mark.parametrize("layout", ["float32", "gemm_float32", "packed_ue8m0"])
def test_tilekernels_scales_come_back_in_the_layout_asked_for(layout):
    from refnum.layouts import scales_to_layout

    case = inputs.make(np, lines.select(["BF16 -> FP8 1x128, packed UE8M0 scales"])[0], SHAPE)
    case = case.with_inputs(params={"layout_out": layout})
    byte = np.array([[120, 121], [122, 123], [124, 125], [126, 127]], np.uint8)
    stored = torch.from_numpy(scales_to_layout(byte, layout).copy())
    if layout == "packed_ue8m0":
        stored |= 0x5A5A << 16  # it leaves what fills a word unwritten
    given = stored if layout == "float32" else stored.t()
    found = tilekernels.canonical(case, (torch.zeros((4, 256), dtype=torch.uint8), given))
    assert np.array_equal(found[1], scales_to_layout(byte, layout).view(np.uint32))


def test_tilekernels_inputs_are_the_same_numbers():
    case = inputs.make(np, lines.select(["FP8 -> MXFP4"])[0], SHAPE)
    codes, scales = tile_kernels_calls.inputs("fp8_to_mxfp4", {name: to_torch(x) for name, x in case.inputs.items()})
    assert codes.dtype == torch.float8_e4m3fn
    assert torch.equal(torch.log2(scales).int() + 127, torch.from_numpy(case.inputs["scales"]).int())


def test_tilekernels_results_come_back_as_bytes():
    case = inputs.make(np, lines.select(["BF16 -> MXFP4"])[0], SHAPE)
    packed = torch.arange(16, dtype=torch.int8).view(2, 8)
    found = tilekernels.canonical(case, (packed, torch.tensor([[0.5, 4.0]])))
    assert found[0].dtype == found[1].dtype == np.uint8
    assert found[1].tolist() == [[126, 129]]


def test_a_peer_that_cannot_be_used_says_why():
    one = from_dict({"name": "none", "operations": {"pack_payload": as_tuple}}, "here")
    assert select_contenders(["none"], one) == ([], [])
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    found, missing = select_contenders(None, one)
    assert found == []
    assert missing == [(entry.name, "this torch sees no GPU") for entry in CONTENDERS]
    with pytest.raises(ArgumentError, match="tilekernels, compile, separate, triton"):
        select_contenders(["tile"], one)


@pytest.mark.parametrize("peer", ["tilekernels", "compile"])
def test_every_line_a_peer_lacks_has_a_reason(peer):
    offers = {"tilekernels": tilekernels.offers, "compile": compiled.offers}[peer]
    reasons = [offers(line) for line in lines.LINES]
    assert any(reasons) and not all(reasons)
    assert all(not reason.endswith(".") for reason in reasons)


def test_every_shape_is_compiled_by_itself_and_none_is_refused(monkeypatch):
    """More than torch's own limit of eight, and no graph that takes its sizes when it is called."""
    sizes = []

    def backend(graph, given):
        sizes.append([x for x in given if not isinstance(x, torch.Tensor)] or list(given[0].shape))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    doubled = COMPILE(lambda x: x + x)
    for rows in range(2, 12):
        assert doubled(torch.ones(rows, 4)).shape == (rows, 4)
    assert sizes == [[rows, 4] for rows in range(2, 12)]
