"""Whole kernels, mutated: judged on the emulated machine with a check's probes; code compared, not its notes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.commands.mutate import corpus, kernel_questions, kernels_ask
from refnum.conformance.commands.mutate.forked import STUCK, Ended, call_each_forked, call_forked
from refnum.conformance.commands.mutate.kernels import Kernels, Unit, set_patience
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.run import judge, judge_quickly, run
from refnum.conformance.commands.mutate.verdict import EQUIVALENT, KILLED, REFUSED, SURVIVED
from refnum.conformance.subjects.loading.discover import installed
from refnum.conformance.subjects.subject import Subject, declines, from_dict
from refnum.errors import ArgumentError, UnsupportedError

room = pytest.importorskip("refnum.gpu.mutation.kernels")
emulate = pytest.importorskip("refnum.gpu.emulate")
BARRIER = "all.largest[threadIdx.x / 32] = most;\n    __syncthreads();\n"


def change(workshop: Kernels, file: str, old: str, new: str) -> Mutant:
    text = workshop.text(file)
    assert text.count(old) == 1
    return Mutant(file, 1, "test", 1, text.index(old), text.index(old) + len(old), old, new)


@pytest.mark.skipif(not emulate.available()[0], reason=emulate.available()[1])
def test_a_barrier_that_is_missing_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Kernels.open(room.EmulatedSources())
    verdict = judge(workshop, change(workshop, "fp8_columns.cu", BARRIER, BARRIER.partition("\n")[0] + "\n"))
    assert verdict.status == KILLED and verdict.operation == "fp8_columns" and "EmulationError" in verdict.how


def nvrtc() -> bool:
    from refnum.errors import UnsupportedError
    from refnum.gpu.device.compile import nvrtc as load

    try:
        return bool(load())
    except UnsupportedError:
        return False


@pytest.mark.skipif(not nvrtc(), reason="NVRTC is not installed")
def test_code_is_compared_and_refused_sources_are_told() -> None:
    workshop = Kernels.open(room.DeviceSources())
    (here,) = [line for line in workshop.text("fp8_to_mxfp4.cu").splitlines() if "own_policy<rceil>(a)" in line]
    same = change(workshop, "fp8_to_mxfp4.cu", here, here.replace("(a)", "((a))"))
    assert judge(workshop, same).status == EQUIVALENT
    assert judge(workshop, change(workshop, "fp8_to_mxfp4.cu", here, here.replace("(a)", "(no)"))).status == REFUSED
    flag = next(m for m in workshop.mutants() if m.operator == "fma on" and m.file == "fp8_to_mxfp4.cu")
    assert flag.line == 0 and judge(workshop, flag).status == EQUIVALENT


def test_a_verdict_hangs_on_every_source_of_the_units_that_have_the_file() -> None:
    workshop = Kernels.open(room.EmulatedSources())
    before = {file: workshop.digest(file) for file in ("philox.cuh", "fp8_to_mxfp4.cu", "words.cuh")}
    other = Kernels.open(room.EmulatedSources())
    other.texts["quantize_mxfp4_stochastic.cu"] += "\n"
    assert other.digest("philox.cuh") != before["philox.cuh"] and other.digest("words.cuh") != before["words.cuh"]
    assert other.digest("fp8_to_mxfp4.cu") == before["fp8_to_mxfp4.cu"]
    other._digests.clear()
    unit = workshop.sources.units("fp8_to_mxfp4.cu")[0]
    other.code = {unit.name: "of another compiler"}
    assert other.digest("fp8_to_mxfp4.cu") != before["fp8_to_mxfp4.cu"]


def test_every_case_is_asked_and_probes_come_last_under_one_profile_of_a_rounding() -> None:
    names = ("HOPPER", "OCP", "STOCHASTIC")
    found = kernel_questions.questions("quantize_mxfp4", names, 1 << 12)
    assert [one.turn for one in found] == sorted(one.turn for one in found)
    assert {one.key[1] for one in found} == set(names)
    assert {one.key[1] for one in found if one.probed} == {"HOPPER", "STOCHASTIC"}
    params = next(one.key[2] for one in found if one.key[1] == "OCP")
    corners = [case for case in corner_cases("quantize_mxfp4", "OCP", params) if case.elements <= 1 << 12]
    plain = [one.case.label for one in found if one.place == "corner" and one.key[1:] == ("OCP", params)]
    assert sorted(plain) == sorted(case.label for case in corners)


def test_a_call_that_never_comes_back_is_told_from_many_that_take_long() -> None:
    def stuck() -> None:
        set_patience(1)
        while True:
            pass

    said = call_forked(stuck, 60)
    assert said == {"status": KILLED, "how": STUCK}


def test_what_is_asked_in_one_process_goes_on_in_another_where_that_ends() -> None:
    def work(item: int) -> tuple[int, int]:
        if item == 2:
            os.abort()
        if item == 4:
            raise ValueError
        return item, os.getpid()

    found = dict(call_each_forked(work, [1, 2, 3, 4, 5, 6], 20))
    assert list(found) == [1, 2, 3, 4, 5, 6] and found[2] == found[4] == Ended(KILLED, "its process died")
    done = dict(pair for pair in found.values() if not isinstance(pair, Ended))
    assert set(done) == {1, 3, 5, 6} and done[5] == done[6] and len(set(done.values())) == 3


def test_what_is_asked_in_one_process_is_late_by_cpu_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time of the item, not of those before it in the same process."""
    monkeypatch.setattr("refnum.conformance.commands.mutate.forked.PATIENCE", 8)

    def spin(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def work(item: str) -> str:
        if item.startswith("busy"):
            spin(0.6)
        elif item == "waits":
            time.sleep(60)
        elif item == "never":
            spin(60)
        elif item == "broken":
            raise MemoryError("no room")
        return item

    found = dict(call_each_forked(work, ["busy", "busy too", "waits", "broken", "never", "fine"], 1))
    assert (found["busy"], found["fine"], found["never"]) == ("busy", "fine", Ended(KILLED, STUCK))
    assert found["broken"] == Ended(SURVIVED, "not judged: MemoryError: no room")
    assert found["waits"].status == SURVIVED
    assert found["waits"].how.startswith("not judged: no answer within 8 s, in which it had 0.")


def test_a_kill_in_a_process_that_an_earlier_mutant_spoilt_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = Kernels.open(Counted(tmp_path, False, True))
    spoils, right, wrong = (Mutant("a.cu", 1, new, 1, 8, 9, "1", new) for new in ("4", "3", "2"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")

    def judged(mutant: Mutant) -> str:
        verdict = judge_quickly(workshop, mutant)
        return verdict.status if verdict else "alone"

    found = call_each_forked(judged, [right, wrong, spoils, right, wrong], 20)
    told = [status if isinstance(status, str) else "ended" for _, status in found]
    assert told == ["alone", KILLED, "ended", "alone", KILLED]


@pytest.mark.skipif(not nvrtc(), reason="NVRTC is not installed")
def test_one_process_tells_mutants_apart_one_after_another() -> None:
    workshop = Kernels.open(room.DeviceSources())
    (here,) = [line for line in workshop.text("fp8_to_mxfp4.cu").splitlines() if "own_policy<rceil>(a)" in line]
    same = change(workshop, "fp8_to_mxfp4.cu", here, here.replace("(a)", "((a))"))
    no = change(workshop, "fp8_to_mxfp4.cu", here, here.replace("(a)", "(no)"))
    asked_of = [same, no, same, no]
    found = call_each_forked(lambda mutant: judge_quickly(workshop, mutant).status, asked_of, 60)
    assert [status for _, status in found] == [EQUIVALENT, REFUSED, EQUIVALENT, REFUSED]


def test_what_no_unit_includes_is_not_called_equivalent(tmp_path: Path) -> None:
    workshop = Kernels.open(Counted(tmp_path, wrong=False))
    workshop.sources.units = lambda file: []
    with pytest.raises(ArgumentError, match="a part of no unit"):
        judge(workshop, Mutant("a.cu", 1, "x", 1, 8, 9, "1", "3"))


class Counted:
    """Whole kernels that are none: how the run treats them. wrong: whether the sources as they are fail."""

    name, profiles, largest, patience, files = "counted", ("HOPPER",), 1 << 8, 20, ("a.cu",)

    def __init__(self, root: Path, wrong: bool, slow_start: bool = False) -> None:
        self.root, self.wrong, self.slow_start = root, wrong, slow_start
        (root / "a.cu").write_text("int a = 1;\n")

    def units(self, file: str) -> list[Unit]:
        return [Unit("a", ("decode_e2m1",))]

    def flags(self) -> list[tuple[str, str, str]]:
        return []

    def ready(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def code(self, folder: Path, unit: Unit) -> str:
        text = (folder / "a.cu").read_text()
        if "no" in text:
            raise UnsupportedError("could not compile a.cu")
        return text.replace("(1)", "1")

    def subject(self, folder: Path) -> Subject:
        text = (folder / "a.cu").read_text()
        self.wrong |= "4" in text  # it leaves its process in a state in which nothing is right
        wrong = self.wrong or "2" in text

        def decode_e2m1(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
            if os.environ.get("CUDA_VISIBLE_DEVICES") not in ("5", "7"):
                raise UnsupportedError("no GPU was given")
            if "5" in text:
                os.abort()
            right = refnum.decode("E2M1", codes).astype(dtype)
            return -right if wrong else right

        return Subject("counted", {"decode_e2m1": decode_e2m1}, "user")


@pytest.mark.parametrize("looks, slow_start", [(0, False), (9, False), (0, True)])
def test_a_run_judges_on_the_gpus_that_it_is_given_and_compiles_ahead_while_they_are_busy(
    tmp_path: Path, looks: int, slow_start: bool
) -> None:
    workshop = Kernels.open(Counted(tmp_path, False, slow_start))
    mutants = [Mutant("a.cu", 1, new, 1, 8, 9, "1", new) for new in ("4", "2", "(1)", "no", "3", "5")]
    left = iter([True] * looks)
    found = {v.mutant.new: v.status for v in run(workshop, mutants, 2, None, {}, ("5", "7"), lambda: next(left, False))}
    assert found == {"2": KILLED, "(1)": EQUIVALENT, "no": REFUSED, "3": SURVIVED, "4": KILLED, "5": KILLED}


def test_a_run_judges_nothing_where_the_sources_as_they_are_fail(tmp_path: Path) -> None:
    workshop = Kernels.open(Counted(tmp_path, wrong=True))
    with pytest.raises(UnsupportedError, match="the sources as they are fail"):
        list(run(workshop, [Mutant("a.cu", 1, "x", 1, 8, 9, "1", "3")], 1, None, {}, ("5",)))


def test_what_kernels_declare_not_to_take_is_not_asked_of_a_mutant() -> None:
    def outside(case: Case) -> str:
        return "no columns" if case.params.get("axis") == 0 else ""

    emulated = next(one for one in installed()[0] if one.name == "emulated")
    sources, asked = emulated.mutable(declared={"outside": outside}), []
    workshop = from_dict(sources.subject(sources.root), "a test")

    def declared(_number: int, one: kernels_ask.AnyQuestion) -> bool:
        if isinstance(one, kernel_questions.VariantQuestion) and declines(workshop, one.case):
            asked.append(one)
        return bool(asked) and asked[-1] is one

    bounds = kernels_ask.Bounds(("HOPPER",), 1 << 9, 100)
    assert kernels_ask.ask(workshop, "hadamard_quantize_nvfp4", bounds, declared) == {}
    assert asked


def test_units_are_found_by_what_they_include() -> None:
    workshop = room.DeviceSources()
    names = {unit.name.split()[0] for unit in workshop.units("hadamard.cuh")}
    assert names == {"hadamard16", "hadamard_quantize_nvfp4", "hadamard_quantize_nvfp4_variants"}
    everything = {unit.name.split()[0] for unit in workshop.units("words.cuh")}
    assert everything == {Path(file).stem for file in workshop.files if file.endswith(".cu")}
    assert {unit.operations for unit in workshop.units("layouts.cuh")} >= {("scale layouts",)}


def test_the_storage_layouts_of_scales_have_questions_although_they_are_no_operation() -> None:
    found = kernels_ask.extra_questions(corpus.LAYOUTS)
    assert len(found) > 20 and {question.place for question in found} == {"layout"}
