"""Cuts of launches that `refnum bench --tune` times: complete, compilable, and put back."""

import pytest

from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.ops import columns, logarithmic, rowwise, swiglu, tetrajet, tunings


def test_every_cut_that_ships_can_be_compared():
    shipped = {*rowwise.TUNING, *swiglu.TUNING, *logarithmic.TUNING, *tetrajet.DOWN}
    shipped = {*(name.partition(" ")[0] for name in shipped), *(name.rpartition("_")[0] for name in columns.TUNING)}
    assert shipped == set(tunings.CUTS)


def test_every_kernel_with_a_cut_belongs_to_an_operation():
    words = {words.split()[0] for name in ops.__all__ for words in tunings.tunings(name)}
    assert words == set(tunings.CUTS)


def test_a_cut_holds_within_its_context_alone(monkeypatch):
    monkeypatch.setattr(tunings, "_compile", lambda kernel: None)
    before = dict(columns.TUNING)
    within = next(iter(tunings.tunings("fp8_columns").values()))
    with pytest.raises(KeyboardInterrupt), within():
        assert columns.TUNING["fp8_columns_te"] == columns.TUNING["fp8_columns_rne"] != before["fp8_columns_te"]
        raise KeyboardInterrupt
    assert before == columns.TUNING


@pytest.mark.slow
@pytest.mark.parametrize("kernel", tunings.CUTS)
def test_every_cut_compiles(kernel):
    pytest.importorskip("cuda.bindings", reason="needs NVRTC")
    for cut in tunings.CUTS[kernel]:
        assert build.compiled(kernel, build.DEFAULT, defines=cut.defines).stat().st_size
