"""Bounds of a product that hold for every order in which Hopper's tensor cores can sum it (clause N19.7).

Everything is exact: integers in units of the smallest product, then rationals, rounded outward once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from . import softfloat
from .arguments import require_choice
from .arrays import BFLOAT16, Array, is_host, require_array
from .codec import value
from .errors import DtypeError, ScaleError, ShapeError
from .formats import FP32, Format, get_format
from .product import ScalePair, matmul_bf16, matmul_fp8, scale_pair
from .tensor_core import INSTRUCTIONS, NAN, ZERO_EXPONENT, Instruction, Operand, require_operands
from .tiles import TILE

CHAINS = ("any", "consecutive")
EVERYTHING = (0xFF800000, 0x7F800000)
"""The float32 bits of -Inf and Inf: nothing is excluded."""
_PASS = 1 << 20
"""Products that are looked at in one pass."""
_ROUNDS = 4
"""How often bounds of the accumulators are sharpened by those of the losses."""
_NARROW = 40
"""Bits of a product in units of the smallest that leave sums of many room in int64."""


def product_bounds(
    a: Array,
    b: Array,
    a_scales: Array | None = None,
    b_scales: Array | None = None,
    chains: str = "any",
    a_format: str = "E4M3",
    b_format: str = "E4M3",
    where: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """Return (low, high), float32 [M, N]: between them lies the result of every order that clause N19.7 admits.

    A step takes T neighbours of K that begin at a multiple of T, 32 of FP8 and 16 of BF16; a chain takes any steps in
    any order, or with chains="consecutive" ascending neighbours; chains' results, scaled, are added in float32 in any
    tree. NaN and Inf among the codes decide a result alone: low and high are then both that value. Where a float32 sum
    may overflow low is -Inf and high is Inf, and NaN is possible too.

    Args:
        a: u8 codes, or of BF16 bfloat16 or its bits u16, [M, K] on the host, K at least 1.
        b: the same, [N, K].
        a_scales: as `matmul_fp8`; a product of BF16 has none.
        b_scales: as `matmul_fp8`.
        chains: "any" or "consecutive".
        a_format: "E4M3" or "E5M2", or of both operands "BF16".
        b_format: "E4M3" or "E5M2", or of both operands "BF16".
        where: bool [M, N], the results that are worked out; the others are between -Inf and Inf. None is all.

    Raises:
        DtypeError, ShapeError, ScaleError, ArgumentError, ProfileError.
    """
    require_choice("chains", chains, CHAINS)
    for name, given in (("a_format", a_format), ("b_format", b_format)):
        require_choice(name, given, ("E4M3", "E5M2", "BF16"))
    if not is_host(a) or not is_host(b):
        raise DtypeError("a and b must be NumPy arrays: bounds are made of integers of any length")
    if "BF16" in (a_format, b_format):
        a, b = (x.view(np.uint16) if x.dtype == BFLOAT16 else x for x in (a, b))
    facts = _instruction(a_format, b_format, a_scales is not None or b_scales is not None)
    left, right = require_operands(a, b, facts, a_format, b_format)
    (m, k), n = a.shape, b.shape[0]
    scales = scale_pair(a_scales, b_scales, m, n, k)
    wanted = _wanted(where, (m, n))
    low, high = (np.full((m, n), bits, np.uint32) for bits in EVERYTHING)
    finite = _finite(left), _finite(right)
    wide = np.flatnonzero(wanted.any(axis=0))
    tall = max(1, _PASS // max(1, k * wide.size))
    rows = np.flatnonzero(wanted.any(axis=1))
    for some in np.array_split(rows, range(tall, rows.size, tall)):
        if not some.size:
            continue
        place = np.ix_(some, wide)
        terms = slice(0, k)
        cut = finite[0].cut(terms, some), finite[1].cut(terms, wide)
        low[place], high[place] = _part(facts, *cut, scales.cut(some, wide), wanted[place], chains)
    if left.kinds is not None or right.kinds is not None:
        one = None if scales.absent else (a_scales, b_scales)
        low, high = _with_specials(low, high, a, b, one, (a_format, b_format))
    return low.view(np.float32), high.view(np.float32)


def _instruction(a_format: str, b_format: str, scaled: bool) -> Instruction:
    """Return the facts of the instruction that multiplies two formats; raise for scales of BF16."""
    if "BF16" not in (a_format, b_format):
        return INSTRUCTIONS["wgmma_fp8"]
    if scaled:
        raise ScaleError("a product of BF16 has no scales; allowed is None")
    return INSTRUCTIONS["wgmma_bf16"]


def _finite(x: Operand) -> Operand:
    """Return an operand whose NaN and Inf are zeros."""
    if x.kinds is None:
        return x
    return replace(x, significands=np.where(x.kinds != 0, 0, x.significands).astype(np.int32), kinds=None)


def _wanted(where: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    if where is None:
        return np.ones(shape, bool)
    require_array("where", where)
    if where.dtype != np.bool_ or where.shape != shape:
        raise ShapeError(f"where is {where.dtype} {tuple(where.shape)}; allowed is bool {shape}, one for each result")
    return np.asarray(where)


def _part(
    facts: Instruction, left: Operand, right: Operand, scales: ScalePair, wanted: np.ndarray, chains: str
) -> list[np.ndarray]:
    """Return the bits of (low, high) for some rows and columns, [M, N]; -Inf and Inf where none is wanted."""
    k, shape = left.significands.shape[0], wanted.shape
    steps = -(-k // facts.terms)
    sums = _sums(facts, left, right, TILE // facts.terms if scales.by_block else steps, chains)
    blocks = range(len(sums.total))
    factors = [None if scales.absent else _broadcast(scales.factors(block), shape) for block in blocks]
    low, high = (np.full(shape, bits, np.uint32) for bits in EVERYTHING)
    for i, j in np.argwhere(wanted):
        pairs = [(part, None if f is None else (_scale(f[0][i, j]), _scale(f[1][i, j])))
                 for part, f in zip(sums.at(i, j), factors, strict=True)]  # fmt: skip
        low[i, j], high[i, j] = _interval(pairs, steps)
    return [low, high]


@dataclass(frozen=True)
class _Sums:
    """What is known of the terms that share a scale, each [B, M, N]: exact sums and losses in units of 2**unit."""

    unit: int
    total: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    down: np.ndarray
    up: np.ndarray

    def at(self, i: int, j: int) -> list[tuple[Fraction, ...]]:
        """Return (total, positive, negative, down, up) of one result, for each block of terms."""
        unit = Fraction(2) ** self.unit
        facts = (self.total, self.positive, self.negative, self.down, self.up)
        return [tuple(int(n) * unit for n in row) for row in zip(*(x[:, i, j] for x in facts), strict=True)]


def _sums(facts: Instruction, left: Operand, right: Operand, steps: int, chains: str) -> _Sums:
    """Return exact sums of the terms of K in blocks of so many steps, and what chains over a block may lose."""
    places = _Places.of(facts, left, right)
    groups = _Groups.of(places, left, right, steps)
    positive, negative = groups.positive.sum(axis=1), groups.negative.sum(axis=1)
    highest, lowest = positive, negative  # magnitudes that no accumulator exceeds, above and below zero
    bits = np.bitwise_or.reduce(groups.magnitudes, axis=(1, 2))
    least = bits & -bits  # a power of two that divides every product, and so every accumulator
    for _ in range(_ROUNDS):
        falls, rises = losses = groups.losses(highest, lowest, least)
        highest = np.minimum(highest, _most(groups.positive - groups.negative + rises, chains))
        lowest = np.minimum(lowest, _most(groups.negative - groups.positive + falls, chains))
    most = np.maximum(highest, lowest)
    place = np.maximum(groups.own.max(axis=1), np.maximum(places.of_terms(most), places.of_results(most)))
    pairs = zip(losses, groups.rounded(place), strict=True)
    down, up = (np.minimum(loss.sum(axis=1), away.sum(axis=1)) for loss, away in pairs)
    return _Sums(places.unit, positive - negative, positive, negative, down, up)


@dataclass(frozen=True)
class _Places:
    """Where a step cuts, in units of 2**unit, which divides every product that is summed."""

    facts: Instruction
    unit: int
    wide: type
    """int64, or Python's integers where products need more bits."""

    @staticmethod
    def of(facts: Instruction, left: Operand, right: Operand) -> _Places:
        """Return the places of products of two operands."""
        lowest = highest = -(left.fmt.mantissa_bits + right.fmt.mantissa_bits)
        for x in (left, right):
            present = x.exponents[x.significands != 0]
            lowest += int(present.min(initial=0))
            highest += int(present.max(initial=0)) + x.fmt.mantissa_bits + 1
        return _Places(facts, lowest, np.int64 if highest - lowest <= _NARROW else object)

    def of_terms(self, most: np.ndarray) -> np.ndarray:
        """Return 2**(E - F) for magnitudes below 2**(E + 1), rounded up to one; 0 for 0."""
        return self._below(most, self.facts.fraction_bits)

    def of_results(self, most: np.ndarray) -> np.ndarray:
        """Return 2**(e - R) for magnitudes below 2**(e + 1), rounded up to one; 0 for 0."""
        return self._below(most, self.facts.result_bits)

    def _below(self, most: np.ndarray, bits: int) -> np.ndarray:
        floor = 1 - FP32.bias - self.unit  # a subnormal accumulator is written with the exponent of normal ones
        flat = [0 if x == 0 else 1 << max(max(int(x).bit_length() - 1, floor) - bits, 0) for x in most.ravel()]
        return np.array(flat, most.dtype).reshape(most.shape)


def _most(changes: np.ndarray, chains: str) -> np.ndarray:
    """Return the largest sum of some of the changes on axis 1, or of neighbours among them; at least 0."""
    if chains == "any":
        return np.asarray(np.maximum(changes, np.zeros_like(changes)).sum(axis=1))
    best = current = np.zeros_like(changes[:, 0])
    for x in np.moveaxis(changes, 1, 0):
        current = np.maximum(current + x, np.zeros_like(x))
        best = np.maximum(best, current)
    return best


@dataclass(frozen=True)
class _Groups:
    """The products of every step: magnitudes in units, [B, G, T, M, N], and what follows of them, [B, G, M, N]."""

    places: _Places
    magnitudes: np.ndarray
    minus: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    own: np.ndarray
    """2**(E - F) in units, E the largest exponent of the products; 0 where all are zero."""

    @staticmethod
    def of(places: _Places, left: Operand, right: Operand, steps: int) -> _Groups:
        """Return the groups in blocks of so many steps; products of zeros fill the last."""
        wide, terms = places.wide, places.facts.terms
        (s_a, e_a), (s_b, e_b) = (_in_steps(x, steps, terms) for x in (left, right))
        significands = s_a[..., :, None] * s_b[..., None, :]
        exponents = e_a[..., :, None] + e_b[..., None, :]
        fractions = left.fmt.mantissa_bits + right.fmt.mantissa_bits
        present = significands != 0
        shift: np.ndarray = np.where(present, exponents - fractions - places.unit, 0).astype(wide)
        magnitudes = abs(significands).astype(wide) << shift
        minus = significands < 0
        zero = np.zeros_like(magnitudes)
        top = np.maximum(np.where(present, exponents, ZERO_EXPONENT).max(axis=2), ZERO_EXPONENT)
        place = np.maximum(top - places.facts.fraction_bits - places.unit, 0).astype(wide)
        own = np.where(present.any(axis=2), np.ones_like(place) << place, np.zeros_like(place))
        positive = np.where(minus, zero, magnitudes).sum(axis=2)
        return _Groups(places, magnitudes, minus, positive, np.where(minus, magnitudes, zero).sum(axis=2), own)

    def losses(self, highest: np.ndarray, lowest: np.ndarray, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (down, up): what each step may take from, or add to, the exact sum."""
        place = np.maximum(self.own, self.places.of_terms(np.maximum(highest, lowest))[:, None])
        rest = self.magnitudes & (np.maximum(place, np.ones_like(place)) - 1)[:, :, None]  # what 2**n cuts off
        zero = np.zeros_like(rest)
        down = np.where(self.minus, zero, rest).sum(axis=2) + self._accumulator(highest, least)
        up = np.where(self.minus, rest, zero).sum(axis=2) + self._accumulator(lowest, least)
        return down, up

    def rounded(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (down, up) of the exact sum to the sum of all products rounded to multiples of `place`, [B, M, N].

        A chain never falls below the sum of products rounded down so, nor rises above that of products rounded up:
        every cut is monotone, and leaves multiples of the largest place as they are.
        """
        rest = (np.maximum(place, np.ones_like(place)) - 1)[:, None, None]
        low, high = self.magnitudes & rest, -self.magnitudes & rest
        return np.where(self.minus, high, low).sum(axis=2), np.where(self.minus, low, high).sum(axis=2)

    def _accumulator(self, most: np.ndarray, least: np.ndarray) -> np.ndarray:
        """What a step may cut from the accumulator that goes in, and from the result, of one sign."""
        zero = np.zeros_like(self.own)
        before = np.minimum(np.maximum(self.own - least[:, None], zero), most[:, None])
        after = np.maximum(self.places.of_results(most)[:, None] - np.maximum(self.own, least[:, None]), zero)
        return np.where(self.own == 0, zero, before + after)  # beside products that are all zero nothing is cut


def _in_steps(x: Operand, steps: int, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (significands, exponents) as [blocks, steps, terms, R]; zeros fill the last block."""
    k, rows = x.significands.shape
    fill = [(0, -k % (steps * terms)), (0, 0)]
    shape = (-1, steps, terms, rows)
    return np.pad(x.significands, fill).reshape(shape), np.pad(x.exponents, fill).reshape(shape)


def _interval(
    parts: list[tuple[tuple[Fraction, ...], tuple[Fraction, Fraction] | None]], steps: int
) -> tuple[int, int]:
    """Return the float32 bits of (low, high) of one result from its parts and their scales."""
    low = high = above = below = slack = Fraction(0)
    for (total, positive, negative, down, up), scales in parts:
        left, right = scales or (Fraction(1), Fraction(1))
        factor = left * right
        ends = sorted([factor * (total - down), factor * (total + up)])
        low, high = low + ends[0], high + ends[1]
        sides = sorted([factor * positive, -factor * negative])
        below, above = below - sides[0], above + sides[1]
        if scales is not None:
            run: Fraction = max(positive, negative)
            most: Fraction = max(Fraction(1), abs(left), abs(right))
            if max(abs(factor), run * most) >= Fraction(2) ** 127:  # what is rounded on the way may overflow
                return EVERYTHING
            # up to three roundings to 24 bits, or to multiples of 2**-149 that a scale or a run then multiplies
            exact = _is_power(left) and _is_power(right)
            slack += (0 if exact else run * abs(factor) / 2**22) + (steps * most + run) / Fraction(2) ** 149
    largest = max(above, below)
    if 2 * largest >= Fraction(2) ** 128:
        return EVERYTHING
    # a sum of float32 rounds by at most 2**-24 of itself, and no sum exceeds twice the sum of all terms of a sign
    slack += (steps - 1) * largest / 2**23
    return _outward(low - slack, False), _outward(high + slack, True)


def _broadcast(pair: Iterable[Array], shape: tuple[int, int]) -> list[Array]:
    return [np.broadcast_to(x, shape) for x in pair]


def _scale(bits: np.uint32) -> Fraction:
    return value(FP32, int(bits))  # type: ignore[return-value]  # NaN and Inf were refused


def _is_power(x: Fraction) -> bool:
    """Whether a finite scale is plus or minus a power of two."""
    return all(n & (n - 1) == 0 for n in (abs(x.numerator), x.denominator))


def _outward(exact: Fraction, up: bool) -> int:
    """Return the bits of the nearest float32 not below (`up`) or not above a multiple of a power of two."""
    magnitude, minus = abs(exact), exact < 0
    if magnitude == 0:
        return 0
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), -126)
    units = magnitude / Fraction(2) ** (exponent - 23)
    whole = units.numerator // units.denominator
    whole += units != whole and up != minus
    return (0x80000000 if minus else 0) | min(((exponent + 126) << 23) + whole, 0x7F800000)


def _with_specials(
    low: np.ndarray,
    high: np.ndarray,
    a: Array,
    b: Array,
    scales: tuple[Array | None, Array | None] | None,
    formats: tuple[str, str],
) -> tuple[np.ndarray, np.ndarray]:
    """Put results that NaN and Inf among the codes decide in both; they are the same in every order.

    A result that is infinite by its codes may be NaN where its finite terms can overflow.
    """
    plain = _skeleton(a, b, formats).view(np.uint32)
    special = (plain & ~softfloat.SIGN) >= softfloat.INF
    if bool(special.any()):
        found = plain
        if scales is not None:
            found = matmul_fp8(a, b, *scales, a_format=formats[0], b_format=formats[1]).view(np.uint32)
        beyond = (low == EVERYTHING[0]) & (high == EVERYTHING[1]) & (plain != NAN)
        low, high = (np.where(special & ~beyond, found, x) for x in (low, high))
    return low, high


def _skeleton(a: Array, b: Array, formats: tuple[str, str]) -> Array:
    """Return the chain's product of codes whose finite numbers are 0, 1 and -1: what NaN and Inf alone make of it."""
    left, right = (_ones(x, get_format(name)) for x, name in zip((a, b), formats, strict=True))
    if formats[0] == "BF16":
        return matmul_bf16(left, right)
    return matmul_fp8(left, right, order="chain", a_format=formats[0], b_format=formats[1])


def _ones(codes: Array, fmt: Format) -> Array:
    magnitude, sign = (codes & codes.dtype.type(mask) for mask in (fmt.sign_mask - 1, fmt.sign_mask))
    number = (magnitude > 0) & (magnitude <= fmt.max_code)
    return np.where(number, sign | codes.dtype.type(fmt.bias << fmt.mantissa_bits), codes)
