"""Wrong rules of what is done about oscillating weights (N24): rounded quotients, counts and bounds read otherwise."""

from __future__ import annotations

import numpy as np

from refnum.arrays import float32_bits, unpack_nibbles
from refnum.codec import decode_table
from refnum.formats import E2M1
from refnum.oscillation import MOST_STEPS, _number
from refnum.tetrajet_v2 import scale_products

from ..cases.case import Case
from ..cases.corners.oscillation import WIDTHS
from .tools import Outputs, changed

EPSILON, HALF = np.float32(1e-8), np.float32(0.5)
LEVELS = np.asarray(decode_table(E2M1), np.uint32).view(np.float32)


def _scalar(case: Case, name: str) -> np.float32:
    """A parameter, rounded once to float32."""
    return np.float32(_number(name, case.params[name]).view(np.float32)[0])


def _periods(case: Case, above: np.ndarray, below: np.ndarray, floored: bool = False) -> np.ndarray:
    """Periods (f64) of a quotient of float32; floored: of the quotient after it is rounded to float32."""
    quotient = above / below if floored else above.astype(np.float64) / below.astype(np.float64)
    found = np.where(quotient > 0, np.floor(np.minimum(quotient, 2.0**31)), 0)
    return case.params["beta"] * found + 1


def _bounded(case: Case, periods: np.ndarray) -> Outputs:
    return {"period": np.minimum(periods, case.params["most"]).astype(np.int32)}


def _parts(case: Case) -> tuple[np.ndarray, np.ndarray]:
    return case.inputs["dist_q"] / _scalar(case, "alpha"), case.inputs["dist_w"] + EPSILON


def rounded_quotient(case: Case, golden: Outputs) -> Outputs | None:
    """The floor of the quotient that float32 rounds."""
    return _bounded(case, _periods(case, *_parts(case), floored=True))


def epsilon_left_out(case: Case, golden: Outputs) -> Outputs | None:
    """Nothing is added to the distance of the weight."""
    return _bounded(case, _periods(case, _parts(case)[0], case.inputs["dist_w"]))


def alpha_below(case: Case, golden: Outputs) -> Outputs | None:
    """The weight's distance is multiplied by alpha."""
    return _bounded(case, _periods(case, case.inputs["dist_q"], _parts(case)[1] * _scalar(case, "alpha")))


def one_left_out(case: Case, golden: Outputs) -> Outputs | None:
    """A period is one shorter, and 1 at least."""
    return _bounded(case, np.maximum(_periods(case, *_parts(case)) - 1, 1))


def period_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """The product with beta is one of 32 bits, and is bounded afterwards."""
    periods = _periods(case, *_parts(case)).astype(np.int64)
    return _bounded(case, (periods + (1 << 31)) % (1 << 32) - (1 << 31))


def unbounded(case: Case, golden: Outputs) -> Outputs | None:
    """The largest period is that of an int32."""
    return changed(case, most=MOST_STEPS)


def plain(x: np.ndarray) -> np.ndarray:
    """The same numbers with one NaN."""
    return np.where(np.isnan(x), np.float32(np.nan), x)


def _step(case: Case, golden: Outputs, due: np.ndarray | None = None, by: np.ndarray | None = None) -> Outputs:
    """A step that is due elsewhere, or whose mean is taken over another count."""
    steps, finite = case.inputs["count"] + 1, bool(np.isfinite(case.inputs["grad"]).all())
    due = golden["due"] > 0 if due is None else due
    summed = case.inputs["total"] + case.inputs["grad"] if finite else case.inputs["total"]
    mean = summed / np.asarray(steps if by is None else by, np.float32)
    zero = np.float32(0)
    return {"total": plain(np.where(due, zero, summed)), "count": np.where(due, 0, steps).astype(np.int32), "due": due,
            "mean": plain(np.where(due, mean, zero))}  # fmt: skip


def only_at_the_period(case: Case, golden: Outputs) -> Outputs | None:
    """An element is due where its count is its period, and not at other multiples of it."""
    return _step(case, golden, due=case.inputs["count"] + 1 == case.inputs["period"])


def mean_of_the_period(case: Case, golden: Outputs) -> Outputs | None:
    """The mean is taken over the period, and not over the steps that were added."""
    return _step(case, golden, by=case.inputs["period"])


def finite_by_element(case: Case, golden: Outputs) -> Outputs | None:
    """Only the elements that are not finite add nothing."""
    grad = case.inputs["grad"]
    return changed(case, grad=np.where(np.isfinite(grad), grad, np.float32(0)))


def total_stays(case: Case, golden: Outputs) -> Outputs | None:
    """The sum is not emptied where it is due."""
    finite = bool(np.isfinite(case.inputs["grad"]).all())
    summed = case.inputs["total"] + case.inputs["grad"] if finite else case.inputs["total"]
    return {**golden, "total": plain(summed)}


def _reset(case: Case, reciprocal: bool = False, width: np.float32 | None = None, equal: bool = False) -> Outputs:
    """Weights near an edge: by a product with the reciprocal, with one width for all bins, or an edge counted in."""
    bits = scale_products(case.inputs["scales"], case.inputs["outer"].view(np.uint32))
    scale = np.repeat(bits.view(np.float32), 16, axis=1)
    w, codes = float32_bits(case.inputs["w"]).view(np.float32), unpack_nibbles(case.inputs["packed"])
    off = np.abs((w * (np.float32(1) / scale) if reciprocal else w / scale) - LEVELS[codes])
    bound = (WIDTHS[codes & 7] if width is None else width) * _scalar(case, "threshold")
    return {"flags": off >= bound if equal else off > bound}


def reciprocal(case: Case, golden: Outputs) -> Outputs | None:
    """Weights are multiplied by the rounded reciprocal of their scale."""
    return _reset(case, reciprocal=True)


def one_width(case: Case, golden: Outputs) -> Outputs | None:
    """Every bin has the width of the narrowest."""
    return _reset(case, width=HALF)


def edge_counts(case: Case, golden: Outputs) -> Outputs | None:
    """A weight at the distance itself is reset too."""
    return _reset(case, equal=True)


def nan_resets(case: Case, golden: Outputs) -> Outputs | None:
    """A weight whose distance is NaN is reset: the comparison is the other way round."""
    bits = scale_products(case.inputs["scales"], case.inputs["outer"].view(np.uint32))
    none = np.isnan(float32_bits(case.inputs["w"]).view(np.float32) / np.repeat(bits.view(np.float32), 16, axis=1))
    return {"flags": (golden["flags"] > 0) | none}


def _ratio(case: Case) -> np.ndarray:
    return case.inputs["dist_q"] / case.inputs["dist_w"]


def above_only(case: Case, golden: Outputs) -> Outputs | None:
    """A quotient that is the threshold itself is not one."""
    return {"flags": (case.inputs["dist_w"] != 0) & (_ratio(case) > _scalar(case, "threshold"))}


def still_weights(case: Case, golden: Outputs) -> Outputs | None:
    """Weights that did not move are reset where their code did."""
    return {"flags": _ratio(case) >= _scalar(case, "threshold")}


def by_product(case: Case, golden: Outputs) -> Outputs | None:
    """The weight's distance is multiplied by the threshold, and nothing is divided."""
    moved = case.inputs["dist_w"] != 0
    return {"flags": moved & (case.inputs["dist_q"] >= case.inputs["dist_w"] * _scalar(case, "threshold"))}
