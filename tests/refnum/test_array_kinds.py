"""Every public function takes arrays of NumPy, tensors of torch, DLPack, `__array__` and lists, with the same bits."""

import dataclasses
import itertools

import numpy as np
import pytest
from nonsense_calls import CALLS, PACKED, SCALES, X
from test_interchange import Exporter, Shown, bits, tensor

import refnum as R
from refnum.arrays import BFLOAT16

torch = pytest.importorskip("torch")
NO_ARRAYS = {"value", "get_format", "get_profile", "tetrajet_v2_noise", "tetrajet_v2_signs", "philox.as_key"}
"""Functions that take no array."""
ARRAYS = [call for call in CALLS if call not in {*NO_ARRAYS, "explain"}]
OTHERS = {
    "torch": tensor,
    "DLPack": lambda x: Shown(x) if x.dtype == BFLOAT16 else Exporter(x),  # NumPy's DLPack has no bfloat16
    "__array__": Shown,
    "list": lambda x: x.tolist(),
}
"""Kind of array -> makes one of NumPy's."""
ANY_AXES = {
    "adam_apply", "adam_step", "decode", "decode_e2m1", "decode_e4m3", "decode_e8m0", "dge", "distance_update",
    "ema_update", "encode", "encode_e2m1", "encode_e4m3", "encode_e8m0", "exact_norm", "osci_reset_by_distance",
    "out_control", "q_ramping", "ramping_step", "smp_average", "spam_apply", "spam_step", "stable_spam_apply",
    "stable_spam_factors", "stable_spam_step",
}  # fmt: skip
"""Functions that take a cube where `CALLS` gives a matrix."""
SAME = {"stable_spam_factors", "layouts.scales_to_layout", "layouts.scales_from_layout"}
"""Functions of which a result may be an argument: the moments that a state had, scales in the layout that they have."""
COUNTER = [np.arange(3, dtype=np.uint32) + np.uint32(word) for word in range(4)]


def made(value, make):
    """A value with each array in it made another kind of array; a state, a case and a counter hold several."""
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, R.AdamState):
        return dataclasses.replace(value, m=make(value.m), v=make(value.v))
    if isinstance(value, list):
        return [made(each, make) for each in value]
    return {name: made(each, make) for name, each in value.items()} if isinstance(value, dict) else value


def arrays(result):
    """The arrays of a result, those of a tuple and the moments of a state one by one."""
    if isinstance(result, tuple):
        return [each for part in result for each in arrays(part)]
    if isinstance(result, R.AdamState):
        return [result.m, result.v]
    return [result] if isinstance(result, (np.ndarray, np.generic, torch.Tensor)) else []


def called(call, make=lambda x: x):
    function = R
    for part in call.partition(" ")[0].split("."):
        function = getattr(function, part)
    given = {name.partition("*")[0]: value for name, value in CALLS[call].items()}
    given |= {"counter": COUNTER} if "counter" in given else {}
    return function(**{name: made(value, make) for name, value in given.items()})


@pytest.mark.parametrize("call", ARRAYS)
def test_every_function_takes_every_kind_of_array(call):
    """The result is that of NumPy arrays: as torch tensors for torch tensors, as NumPy's for anything else."""
    want = arrays(called(call))
    for kind, make in OTHERS.items():
        if kind == "list" and {"like", "norm*one float"} & CALLS[call].keys():
            continue  # a list is of no library, and a number that was measured has a dtype
        got = arrays(called(call, make))
        assert want and [bits(each) for each in got] == [bits(each) for each in want], kind
        assert {isinstance(each, torch.Tensor) for each in got} == {kind == "torch"}, kind


@pytest.mark.parametrize("call", ARRAYS)
def test_results_are_row_major_and_new_whatever_the_order_of_axes(call):
    """NumPy and CuPy keep the order of axes of what they compute element by element from."""
    name = call.partition(" ")[0]
    axes, want = 3 if name in ANY_AXES else 2, []
    for order in itertools.permutations(range(axes)):
        given = []

        def laid(x, order=order, given=given):
            x = x.reshape(2, 2, -1) if axes == 3 and x.ndim == 2 else x
            if x.ndim == axes:
                x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
            given.append(x)
            return x

        got = arrays(called(call, laid))
        want = want or [bits(each) for each in got]
        assert [bits(each) for each in got] == want
        assert all(each.flags.c_contiguous for each in got)
        assert all(each.flags.writeable for each in got if isinstance(each, np.ndarray))
        assert name in SAME or not any(np.shares_memory(each, one) for each in got for one in given)


def test_a_result_that_is_row_major_is_not_copied():
    assert R.layouts.scales_to_layout(SCALES, "bytes") is SCALES


def test_results_for_a_tensor_with_its_axes_in_another_order_are_contiguous():
    assert R.encode_e2m1(tensor(X.reshape(2, 2, 128)).permute(2, 0, 1)).is_contiguous()


@pytest.mark.parametrize("call", sorted(NO_ARRAYS))
def test_the_functions_that_take_no_array_have_no_door(call):
    assert not arrays(list(CALLS[call].values()))
    function = R.philox.as_key if "." in call else getattr(R, call)
    assert not hasattr(function, "__wrapped__")


def test_doors_of_modules_are_there_however_a_module_is_imported():
    from refnum.layouts import scales_to_swizzled
    from refnum.philox import random_bits

    assert scales_to_swizzled is R.layouts.scales_to_swizzled and scales_to_swizzled.__module__ == "refnum.layouts"
    assert isinstance(scales_to_swizzled(tensor(SCALES)), torch.Tensor)
    assert isinstance(random_bits((2, 32), seed=1, like=torch.zeros(1, dtype=torch.bfloat16)), torch.Tensor)
    narrow = tensor(SCALES).view(torch.float8_e8m0fnu)
    assert bits(scales_to_swizzled(narrow)) == bits(scales_to_swizzled(SCALES))
    codes = R.layouts.codes_from_packed(PACKED)
    assert bits(R.layouts.codes_to_packed(codes.tolist(), "ggml")) == bits(R.layouts.codes_to_packed(codes, "ggml"))


@pytest.mark.parametrize("layout", R.layouts.LAYOUTS)
def test_lists_are_taken_in_every_layout(layout):
    stored = R.layouts.scales_to_layout(SCALES, layout)
    for given in (stored, stored.tolist(), tensor(stored)):
        found = R.layouts.scales_from_layout(given, layout, *SCALES.shape)
        assert bits(found) == bits(SCALES) and isinstance(found, torch.Tensor) is isinstance(given, torch.Tensor)


def test_a_state_starts_and_goes_on_as_tensors():
    weight, state, want = tensor(X), R.AdamState.start(tensor(X)), R.AdamState.start(X)
    assert isinstance(state.m, torch.Tensor)
    expected = X
    for _ in range(2):
        state, weight = R.adam_step(state, weight, weight)
        want, expected = R.adam_step(want, expected, expected)
    assert type(state) is R.AdamState and state.step == 2 and bits(weight) == bits(expected)
    assert bits(state.v) == bits(want.v) and isinstance(R.StableSpamState.start(X.tolist()).m, np.ndarray)


def test_splits_may_be_a_tensor():
    want = R.fp8_columns(*R.quantize_fp8_tiles(X), [1, 3])
    got = R.fp8_columns(*R.quantize_fp8_tiles(X), torch.tensor([1, 3]))
    assert list(map(bits, got)) == list(map(bits, want))
