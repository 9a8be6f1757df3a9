"""Wrong rules of what is done about oscillating weights (N24): rounded quotients, counts and bounds read otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from refnum.arrays import float32_bits, unpack_nibbles
from refnum.codec import decode_table
from refnum.formats import E2M1
from refnum.oscillation import CHANNELS, MOST_STEPS, _number
from refnum.tetrajet_v2 import scale_products

from ..cases.case import Case
from ..cases.corners.oscillation import WIDTHS
from .tools import MAGNITUDE, Outputs, Rule, changed

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


def _order(norms: np.ndarray, nan: float = -2e300) -> np.ndarray:
    """Keys (f64), the least of them for the largest norm; nan: that of NaN."""
    return np.where(np.isnan(norms), nan, np.clip(-norms.astype(np.float64), -1e300, 1e300))


def _kept(order: np.ndarray, count: int, last: bool = False) -> Outputs:
    """So many channels of each row with the least keys, of equal ones the first or the last."""
    turned = order[..., ::-1] if last else order
    place = np.argsort(np.argsort(turned, kind="stable"), kind="stable")
    return {"flags": (place[..., ::-1] if last else place) < count}


def _count(case: Case, golden: Outputs) -> int:
    return int(golden["flags"].sum(axis=-1).max(initial=0))


def counted(count: Callable[[Fraction, int], int]) -> Rule:
    """Return the rule that keeps another number of channels, made of the share and their number."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        norms = case.inputs["norms"]
        return _kept(_order(norms), count(Fraction(*case.params["share"]), norms.shape[-1]))

    return rule


def whole(wanted: int, k: int) -> int:
    """A number of channels raised to a multiple of 128 and lowered to one that is at most k."""
    return min(-(-wanted // CHANNELS), k // CHANNELS) * CHANNELS


rounded_down = counted(lambda share, k: math.floor(share * k) // CHANNELS * CHANNELS)
not_rounded = counted(lambda share, k: math.floor(share * k))
not_lowered = counted(lambda share, k: min(-(-math.floor(share * k) // CHANNELS) * CHANNELS, k))
product_raised = counted(lambda share, k: whole(math.ceil(share * k), k))
in_float32 = counted(lambda share, k: whole(int(np.float32(share.numerator / share.denominator) * np.float32(k)), k))


def last_of_ties(case: Case, golden: Outputs) -> Outputs | None:
    """Of equal norms the last ones are chosen."""
    return _kept(_order(case.inputs["norms"]), _count(case, golden), last=True)


def nan_below(case: Case, golden: Outputs) -> Outputs | None:
    """NaN is below every number."""
    return _kept(_order(case.inputs["norms"], nan=2e300), _count(case, golden))


def by_magnitude(case: Case, golden: Outputs) -> Outputs | None:
    """Signs are not looked at."""
    return _kept(_order(np.abs(case.inputs["norms"])), _count(case, golden))


def by_bits(case: Case, golden: Outputs) -> Outputs | None:
    """Bits are ordered as sign and magnitude: -0 is below 0, and NaN is where its sign and payload put it."""
    bits = case.inputs["norms"].view(np.uint32)
    size = (bits & MAGNITUDE).astype(np.int64)
    return _kept(np.where(bits > MAGNITUDE, size + 1, -size), _count(case, golden))


def of_first_row(case: Case, golden: Outputs) -> Outputs | None:
    """The channels of the first row are those of every row."""
    flags = golden["flags"]
    return {"flags": np.broadcast_to(flags[:1], flags.shape) if flags.ndim > 1 else flags}
