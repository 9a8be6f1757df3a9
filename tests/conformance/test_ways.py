"""Ways that a subject takes by size, and splits as an array: asked of every small case, named and shown again."""

import contextlib

import numpy as np
import pytest
from run_tools import only, report_of, right, subject

import refnum
from refnum.conformance.commands.check.controls import controls
from refnum.conformance.subjects.calls.forms import same_counts
from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.subject import from_dict

KNOWN = {control.subject.name: control.subject for control in controls()}


def failure(document, finding):
    return next(one for one in only(document)["failures"] if one["finding"] == finding)


def test_a_way_that_no_case_takes_by_its_size_is_judged_named_and_shown_again():
    document = report_of(KNOWN["way_by_size"])
    assert failure(document, "way-by-size")["reproduced"] == "3 of 3"


def test_a_right_way_passes_and_is_in_the_report():
    taken = []

    @contextlib.contextmanager
    def other():
        taken.append(1)
        yield

    entry = {
        "name": "ways",
        "operations": {"quantize_mxfp4": right},
        "forced_paths": {"quantize_mxfp4": {"other": other}},
    }
    row = only(report_of(from_dict(entry, "here")))
    assert row["outcome"] == "pass" and row["probes"]["ways by size"] == "" and taken


def test_what_a_kernel_does_in_a_probe_is_no_refusal():
    class DriverError(Exception):
        pass

    def strays_on_odd_rows(x, profile):
        if x.strides[0] != x.shape[1] * x.itemsize:
            raise DriverError("an illegal memory access was encountered")
        return right(x, profile)

    row = only(report_of(subject(strays_on_odd_rows)))
    assert row["outcome"] == "fault", row


def test_splits_in_an_array_are_judged_with_more_experts_than_a_cta_has_threads():
    row = KNOWN["splits_in_one_cta"]
    taken = []

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        if isinstance(splits, np.ndarray):
            taken.append((splits.dtype.name, splits.size > 1024))
        result = refnum.permute_pad(payload, row_map, list(splits), align)
        if out is None:
            return result
        out[0][...], out[1][...] = result
        return out

    document = report_of(from_dict({"name": "fine", "operations": {"permute_pad": permute_pad}}, "here"),
                         operation="permute_pad")  # fmt: skip
    assert only(document)["outcome"] == "pass"
    assert {*taken} == {("int32", False), ("int64", True)}
    for operation in ("permute_pad", "unpermute"):
        assert failure(report_of(row, operation=operation), "splits-as-array")["reproduced"] == "3 of 3"


class Large:
    """A context in which a callable takes its way for large data, and what it is asked whether it does."""

    def __init__(self):
        self.taken = False

    @contextlib.contextmanager
    def __call__(self):
        self.taken = True
        try:
            yield
        finally:
            self.taken = False


def written(result, out):
    for one, data in zip(out, result, strict=True):
        one[...] = data


def on_two_ways(large, write):
    """Return a subject that is right, but for how `write` hands out its results on the way for large data."""

    def quantize_mxfp4(x, profile, out=None):
        result = right(x, profile)
        if out is None:
            return result
        (write if large.taken and x.size else written)(result, out)
        return out

    entry = {"name": "two", "operations": {"quantize_mxfp4": quantize_mxfp4}}
    return from_dict({**entry, "forced_paths": {"quantize_mxfp4": {"the large one": large}}}, "here")


def zone_behind(array):
    """Return the bytes of an array and the one behind them, which belongs to nobody that was given the array."""
    return np.lib.stride_tricks.as_strided(array.reshape(-1).view(np.uint8), (array.nbytes + 1,), (1,))


def test_what_a_way_writes_into_out_is_judged():
    def flips(result, out):
        written(result, out)
        out[0][0, 0] ^= 1

    document = report_of(on_two_ways(Large(), flips))
    assert failure(document, "way-by-size")["reproduced"] == "3 of 3"
    assert only(document)["findings"] == ["way-by-size"]


def test_bytes_of_out_that_a_way_leaves_are_named_and_shown_again():
    document = report_of(on_two_ways(Large(), lambda result, out: written(result[:1], out[:1])))
    assert only(document)["findings"] == ["output-not-written", "way-by-size"]
    assert failure(document, "output-not-written")["reproduced"] == "3 of 3"


def test_a_write_behind_out_on_a_way_is_named_with_its_way_and_shown_again():
    def overruns(result, out):
        written(result, out)
        zone_behind(out[1])[-1] = 7

    document = report_of(on_two_ways(Large(), overruns))
    found = failure(document, "guard-overwritten")
    assert only(document)["outcome"] == "mismatch"
    assert found["reproduced"] == "3 of 3" and "the large one" in found["words"]


def test_a_way_that_cannot_be_entered_is_a_fault_of_the_subject():
    def nowhere():
        raise RuntimeError("no such way")

    entry = {
        "name": "w",
        "operations": {"quantize_mxfp4": right},
        "forced_paths": {"quantize_mxfp4": {"nowhere": nowhere}},
    }
    document = report_of(from_dict(entry, "here"))
    assert only(document)["outcome"] == "fault" and "no such way" in str(document.document())


def permuting(spoil):
    """Return a subject that is right, but for what `spoil` does to the splits that it is given."""

    def permute_pad(payload, row_map, splits, align=32, *, out=None):
        result = refnum.permute_pad(payload, row_map, [int(n) for n in splits], align)
        result = spoil(splits, result) or result
        if out is None:
            return result
        out[0][...], out[1][...] = result
        return out

    return from_dict({"name": "p", "operations": {"permute_pad": permute_pad}}, "here")


def sorts(splits, result):
    if isinstance(splits, np.ndarray):
        splits[:] = 0


def overruns_splits(splits, result):
    if isinstance(splits, np.ndarray):
        zone_behind(splits)[-1] = 7


@pytest.mark.parametrize(("spoil", "finding"), [(sorts, "input-mutated"), (overruns_splits, "guard-overwritten")])
def test_splits_in_an_array_are_only_read(spoil, finding):
    document = report_of(permuting(spoil), operation="permute_pad")
    assert only(document)["outcome"] == "mismatch"
    assert failure(document, finding)["reproduced"] == "3 of 3" and "splits" in failure(document, finding)["words"]


@pytest.mark.parametrize("most", [0, 1023])
def test_a_conversion_of_columns_is_asked_splits_in_an_array(most):
    def mxfp4_to_fp8_columns(packed, scales, splits=None, scale="max", *, out=None):
        codes, bytes_ = refnum.mxfp4_to_fp8_columns(packed, scales, splits, scale)
        if isinstance(splits, np.ndarray) and len(splits) > most:
            codes[:1] ^= 1
        if out is None:
            return codes, bytes_
        out[0][...], out[1][...] = codes, bytes_
        return out

    judged = from_dict({"name": "p", "operations": {"mxfp4_to_fp8_columns": mxfp4_to_fp8_columns}}, "here")
    document = report_of(judged, operation="mxfp4_to_fp8_columns")
    assert failure(document, "splits-as-array")["reproduced"] == "3 of 3"


def test_an_array_of_splits_is_not_blamed_for_what_a_list_does_too():
    def forgets(splits, result):
        if len(splits) > 1023:
            result[0][...] = 0

    row = only(report_of(permuting(forgets), operation="permute_pad"))
    assert row["outcome"] == "mismatch" and "splits-as-array" not in row["findings"]


def test_an_input_written_in_one_storage_only_is_shown_again():
    def writes_where_padded(x, profile):
        result = right(x, profile)
        if x.size and x.strides[0] > x.shape[1] * x.itemsize and x.strides[1] == x.itemsize:
            x.view(np.uint32)[0, 0] ^= 1
        return result

    document = report_of(subject(writes_where_padded))
    assert only(document)["outcome"] == "mismatch"
    assert failure(document, "input-mutated")["reproduced"] == "3 of 3"


FILE = """
import contextlib
import numpy as np
import refnum

LARGE = [False]

@contextlib.contextmanager
def always():
    LARGE[0] = True
    yield
    LARGE[0] = False

def quantize_mxfp4(x, profile, out=None):
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if LARGE[0]:
        packed[-1:] ^= 1
    if out is None:
        return packed, scales
    out[0][...], out[1][...] = packed, scales
    return out

def permute_pad(payload, row_map, splits, align=32, *, out=None):
    rows, offsets = refnum.permute_pad(payload, row_map, [int(n) for n in splits], align)
    if isinstance(splits, np.ndarray):
        rows[:1] ^= 1
    if out is None:
        return rows, offsets
    out[0][...], out[1][...] = rows, offsets
    return out

SUBJECT = {
    "name": "mine",
    "operations": {"quantize_mxfp4": quantize_mxfp4, "permute_pad": permute_pad},
    "forced_paths": {"quantize_mxfp4": {"the large one": always}},
}
"""


@pytest.mark.parametrize(
    ("operation", "probe", "finding"),
    [("quantize_mxfp4", "ways by size", "way-by-size"), ("permute_pad", "splits as an array", "splits-as-array")],
)
def test_a_subject_in_a_process_of_its_own_is_asked_too(tmp_path, operation, probe, finding):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    (there,) = choose([f"{path}:SUBJECT"], None).usable
    assert there.remote is not None
    document = report_of(there, operation=operation)
    assert probe in only(document)["probes"] and failure(document, finding)["reproduced"] == "3 of 3"


def test_a_field_is_taken_by_its_former_name_for_one_release():
    paths = {"quantize_mxfp4": {"the large one": contextlib.nullcontext}}
    entry = {"name": "former", "operations": {"quantize_mxfp4": right}, "ways": paths}
    assert from_dict(entry, "here").forced_paths == paths


class OnDevice:
    """What CuPy's arrays are to NumPy: to be fetched, never to be converted unasked."""

    __cuda_array_interface__ = ()

    def __init__(self, host):
        self.host = host

    def get(self):
        return self.host

    def __array__(self, *given, **named):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


def test_splits_on_a_device_are_fetched_to_be_compared():
    assert same_counts(OnDevice(np.array([0, 5, 2], np.int32)), [0, 5, 2])
    assert not same_counts(OnDevice(np.array([0, 5, 3], np.int32)), [0, 5, 2])
    assert same_counts((0, 5, np.int64(2)), [0, 5, 2]) and not same_counts((0, 5), [0, 5, 2])
    assert same_counts(np.array([0, 5, 2], ">i4"), [0, 5, 2])
