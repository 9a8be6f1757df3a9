"""In which order a call adds the products of a matrix product (N19.4), by sums whose value is all rounding.

Half of K repeats the other half with the opposite sign, so that each exact result is 0 and what a call gives is the
trace of its order alone: orders part in the leading bits, in bfloat16 too. Where no named order gives every bit, the
tree of the sums is probed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from refnum.product_steps import PRODUCTS

from ...cases.orders import candidates
from .tree import STEP, Probe, summation_tree

SCALES = ("none", "tensor", "rows", "blocks", "squares")
"""Scales of the operands: none, one, one a row, 1x128, or 1x128 of `a` and 128x128 of `b`; no powers of two."""
SAMPLE = 8
"""Rows and columns of the result that are compared, at most."""
DRAWS = 3
"""Calls with operands of their own."""
BLOCK = 128
Product = Callable[..., Any]


@dataclass(frozen=True)
class Ruled:
    """An order that a call does not take, with the first result that shows it."""

    order: str
    differing: int
    row: int
    column: int
    got: int
    would_be: int


@dataclass
class OrderInference:
    """What was found: the orders that give every bit, those ruled out, and how many results were compared.

    fits: the simplest first. same: those of them that are other names of the first one's sums at this K, where a part
    or a run is all of K or one block; the results that were compared do not tell the rest from it. tree: where no order
    fits, the tree of the sums in words (`tree.Node.words`), if one was found. E4M3 with float32 results alone: those of
    bfloat16 cannot count what is lost.
    """

    name: str
    shape: tuple[int, int, int]
    scales: str
    dtype: str = ""
    compared: int = 0
    fits: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    ruled_out: list[Ruled] = field(default_factory=list)
    tree: str = ""

    @property
    def exact(self) -> bool:
        """Whether a named order gives every bit."""
        return bool(self.fits)

    @property
    def untold(self) -> list[str]:
        """The orders of other sums than the first one's that give every bit too."""
        return [name for name in self.fits[1:] if name not in self.same]


def infer_order(
    name: str, product: Product, shape: tuple[int, int, int], scales: str = "none", seed: int = 19,
    operation: str = "matmul_fp8",
) -> OrderInference:  # fmt: skip
    """Return which named orders a call takes for a shape.

    Args:
        name: what the call is called.
        product: a function of `a` u8 [M, K] and `b` u8 [N, K], E4M3 codes, and unless scales is "none" of float32
            `a_scales` and `b_scales` in the shapes of `refnum.matmul_fp8`; it returns float32 or bfloat16 [M, N]. Of
            matmul_bf16 `a` and `b` are bfloat16.
        shape: M, N and K; K a multiple of 64.
        scales: one of `SCALES`; matmul_bf16 has none.
        seed: of the operands.
        operation: "matmul_fp8" or "matmul_bf16".

    Returns:
        The orders that give every bit of the results that are compared, and a witness against each other one.

    Raises:
        ArgumentError: for a shape or scales that are not allowed.
        DtypeError, ShapeError: where the call returns something else than [M, N] of float32 or bfloat16.
        UnsupportedError: where it raises.
    """
    k = shape[2]
    if min(shape) < 1 or k % (2 * STEP):
        raise ArgumentError(f"shape={shape}; allowed are sizes from 1, with K a multiple of {2 * STEP}")
    if scales not in SCALES:
        raise ArgumentError(f"scales={scales!r}; allowed are {', '.join(SCALES)}")
    narrow = operation == "matmul_fp8"
    if not narrow and scales != "none":
        raise ArgumentError(f"scales={scales!r}; products of bfloat16 have none")
    golden: Product = refnum.matmul_fp8 if narrow else _of_codes(refnum.matmul_bf16)
    product = product if narrow else _of_codes(product)
    left = candidates(k, scales in ("blocks", "squares"), PRODUCTS[operation])
    found = OrderInference(name, shape, scales)
    for draw in range(DRAWS):
        whole = draw > 0 and scales in ("blocks", "squares") and k % (2 * BLOCK) == 0
        drawn = _draw(np.random.default_rng([seed, draw]), product, shape, scales, whole)
        found.compared, found.dtype = found.compared + drawn.got.size, drawn.dtype
        left = [names for names in left if not _ruled_out(found, golden, names[0], drawn)]
    found.fits = [name for names in left for name in names]
    found.same = left[0][1:] if left else []
    if not found.exact and narrow and found.dtype == "float32":
        seen = summation_tree(_probe(product, shape, scales), shape)
        found.tree = seen[0].words(seen[1]) if seen else ""
    return found


def _probe(product: Product, shape: tuple[int, int, int], scales: str) -> Probe:
    """Return a call for probes, with scales of 1."""
    ones = {name: np.ones(of, np.float32) for name, of in _scale_shapes(*shape, scales).items()}
    return lambda a, b: np.asarray(_called(product, a, b, ones, shape[:2])[:, 0], np.float64)


@dataclass(frozen=True)
class _Drawn:
    """Operands of some rows and columns, scales among them, and what the call gave for those, in bits."""

    a: np.ndarray
    b: np.ndarray
    scales: dict[str, Any]
    rows: np.ndarray
    columns: np.ndarray
    got: np.ndarray
    dtype: str


def _draw(
    rng: np.random.Generator, product: Product, shape: tuple[int, int, int], scales: str, whole: bool = False
) -> _Drawn:
    m, n, k = shape
    a, b, keywords = _operands(rng, m, n, k, scales, whole)
    result = _called(product, a, b, keywords, (m, n))
    first = min(n, BLOCK) if scales == "squares" else n  # columns of one square
    rows, columns = (np.sort(rng.choice(size, min(size, SAMPLE), replace=False)) for size in (m, first))
    cut, got = _cut(keywords, rows, columns), _bits(result)[np.ix_(rows, columns)]
    return _Drawn(a[rows], b[columns], cut, rows, columns, got, "float32" if got.itemsize == 4 else "bfloat16")


def _of_codes(product: Product) -> Product:
    """Return a product of bfloat16 as one of E4M3 codes, whose exponents are spread to twice their distance.

    Products then lie up to 48 places apart, more than a step keeps (N19.3).
    """

    def wide(codes: np.ndarray) -> np.ndarray:
        bits = codes.astype(np.uint16)
        field = 127 + 2 * (bits >> 3 & 15) - 14
        return ((bits & 0x80) << 8 | field << 7 | (bits & 7) << 4).astype(np.uint16).view(ml_dtypes.bfloat16)

    return lambda a, b, **keywords: product(wide(a), wide(b), **keywords)


def _ruled_out(found: OrderInference, golden: Product, order: str, drawn: _Drawn) -> bool:
    """Compare an order with what a call gave, and note the first result that rules it out."""
    want = _bits(golden(drawn.a, drawn.b, order=order, out=drawn.dtype, **drawn.scales))
    different = np.argwhere(drawn.got != want)
    if different.size:
        i, j = different[0].tolist()
        where = int(drawn.rows[i]), int(drawn.columns[j])
        found.ruled_out.append(Ruled(order, len(different), *where, int(drawn.got[i, j]), int(want[i, j])))
    return bool(different.size)


def _operands(
    rng: np.random.Generator, m: int, n: int, k: int, scales: str, whole: bool = False
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return codes whose exact products cancel, block by block of 32 in another order, and scales.

    Blocks differ in magnitude, so that float32 sums of their results are rounded: in `b` each 128 of K, in `a` each 32,
    128 or 512, by turns of the rows. Scales of 128 terms cancel only where blocks of 128 stay `whole` and take their
    scales along: what is left then is the rounding of the sums of blocks, and nothing of the steps within.
    """
    half, columns, unit = k // 2, np.arange(k // 2), BLOCK if whole else STEP
    grain = np.array([STEP, BLOCK, 4 * BLOCK])[np.arange(m) % 3]
    left = _exponents(rng, (m, half))[np.arange(m)[:, None], columns // grain[:, None]]
    right = np.broadcast_to(_exponents(rng, (half,))[columns // BLOCK], (n, half))
    a, b = (e << 3 | rng.integers(0, 8, e.shape) | rng.integers(0, 2, e.shape) << 7 for e in (left, right))
    order = rng.permutation(half // unit)
    again = (order[:, None] * unit + np.arange(unit)).ravel()
    a, b = np.concatenate([a, a[:, again] ^ 0x80], axis=1), np.concatenate([b, b[:, again]], axis=1)
    given = _scales(rng, m, n, k, scales)
    if whole:
        for x in given.values():
            x[:, len(order) :] = x[:, order]
    return a.astype(np.uint8), b.astype(np.uint8), given


def _exponents(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return exponent fields of E4M3, small or large: products then lie up to 24 places apart."""
    return rng.integers(1, 4, shape) + 11 * rng.integers(0, 2, shape)


def _scales(rng: np.random.Generator, m: int, n: int, k: int, kind: str) -> dict[str, np.ndarray]:
    shapes = _scale_shapes(m, n, k, kind)
    return {name: np.exp2(rng.uniform(-1, 1, shape)).astype(np.float32) for name, shape in shapes.items()}


def _scale_shapes(m: int, n: int, k: int, kind: str) -> dict[str, tuple[int, int]]:
    """Return the shapes of `a_scales` and `b_scales`; none where there are no scales."""
    blocks = -(-k // BLOCK)
    shapes: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
        "tensor": ((1, 1), (1, 1)), "rows": ((m, 1), (n, 1)), "blocks": ((m, blocks), (n, blocks)),
        "squares": ((m, blocks), (-(-n // BLOCK), blocks)),
    }  # fmt: skip
    return dict(zip(("a_scales", "b_scales"), shapes[kind], strict=True)) if kind in shapes else {}


def _cut(keywords: Mapping[str, np.ndarray], rows: np.ndarray, columns: np.ndarray) -> dict[str, np.ndarray]:
    """Return the scales of some rows and columns; columns of `squares` lie in the first square."""
    found = {}
    for name, chosen in (("a_scales", rows), ("b_scales", columns)):
        x = keywords.get(name)
        if x is not None:
            found[name] = x[chosen] if chosen[-1] < x.shape[0] > 1 else x[:1]
    return found


def _called(
    product: Product, a: np.ndarray, b: np.ndarray, keywords: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> np.ndarray:
    try:
        result = np.asarray(product(a.copy(), b.copy(), **{name: x.copy() for name, x in keywords.items()}))
    except Exception as error:  # whatever a library raises
        raise UnsupportedError(f"the product failed: {type(error).__name__}: {error}") from error
    if result.dtype not in (np.float32, ml_dtypes.bfloat16, np.uint16):
        raise DtypeError(f"the product has dtype {result.dtype}; allowed are float32 and bfloat16 (or its uint16 bits)")
    if result.shape != shape:
        raise ShapeError(f"the product has shape {result.shape}; a and b give {shape}")
    return result


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
