"""SwiGLU with quantisation, and its backward pass, one correctly rounded float32 operation at a time (N11)."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np

from . import softfloat
from .arguments import require_choice
from .arrays import (
    BFLOAT16,
    BLOCK,
    Array,
    empty,
    float32_bits,
    require_array,
    require_matrix,
    row_chunks,
    table_like,
)  # fmt: skip
from .blocks import quantize_mxfp4
from .errors import DtypeError, FileError, ShapeError
from .profiles import HOPPER, Profile, deterministic
from .tiles import quantize_fp8_tiles

TABLE_PATH = Path(__file__).with_name("silu_bf16.bin")
TABLE_SHA256 = "1b53a40552a13b4d8967a44c45a383614edda6cb0c1084821c86a92e1b07349e"
_ONE = np.uint32(0x3F800000)


def swiglu_quantize(
    gate: Array, up: Array, prob: Array | None = None, to: str = "fp8", profile: Profile | str = HOPPER
) -> tuple[Array, Array]:
    """Quantise `swiglu(gate, up, prob)` to FP8 tiles 1x128 (to="fp8") or to MXFP4 (to="mxfp4") (clause N11).

    gate, up: bfloat16 (or its uint16 bits) [M, H], H % 32 == 0; prob: float32 [M] or None.
    Returns as `quantize_fp8_tiles` or `quantize_mxfp4` does.
    Raises DtypeError, ShapeError, ArgumentError, ProfileError; FileError when the table is damaged.
    """
    require_choice("to", to, ("fp8", "mxfp4"))
    require_matrix("gate", gate, BLOCK)
    profile = deterministic(profile, "swiglu_quantize")
    result = swiglu(gate, up, prob)
    return quantize_fp8_tiles(result, profile=profile) if to == "fp8" else quantize_mxfp4(result, profile)


def swiglu(gate: Array, up: Array, prob: Array | None = None) -> Array:
    """Return RN(RN(y * up) * prob) as float32 [M, H], y = silu(gate) rounded once to float32 (clause N11).

    RN is rounding to float32, to nearest even; without `prob` the second product is left out. NaN and Inf
    propagate as IEEE 754 says, and every NaN is 0x7FC00000. silu(-Inf) is -0, its limit.
    Arguments and errors as `swiglu_quantize`, any H.
    """
    _require_bfloat16("gate", gate)
    _require_bfloat16("up", up)
    _require_same_shape("up", up, gate)
    weight = None if prob is None else _prob_bits(prob, gate)[:, None]
    out = empty(gate.shape, np.uint32, gate)
    for rows in row_chunks(gate, gate.shape[1]):
        product = softfloat.multiply(silu(gate[rows]), float32_bits(up[rows]))
        out[rows] = product if weight is None else softfloat.multiply(product, weight[rows])
    return out.view(np.float32)


def swiglu_backward(
    grad: Array, gate: Array, up: Array, prob: Array | None = None
) -> tuple[Array, Array, Array | None]:
    """Return (dgate float32 [M, H], dup float32 [M, H], dprob float32 [M] or None) (clause N11).

    grad: float32 or bfloat16 (or its uint16 bits) [M, H]; gate, up: bfloat16 [M, H]; prob: float32 [M] or
    None; H >= 1. With g = gate, s = sigmoid(g) and y = silu(g), both rounded once to float32, and each RN one
    float32 operation rounded to nearest even, in this order and with no fused multiply-add:

        t = RN(1 - s)      v = RN(1 + RN(g * t))      d = RN(s * v)        the derivative of silu at g
        gp = RN(grad * prob), or grad without prob
        dup = RN(gp * y)
        dgate = RN(RN(gp * up) * d)
        dprob = sum over H of RN(grad * RN(y * up))

    The sum is a binary tree over neighbours: while more than one term is left, term i becomes
    RN(term 2i + term 2i+1), an odd count being filled up with one +0. NaN and Inf propagate as IEEE 754 says
    (gate = +-Inf gives d = NaN, since Inf * 0 occurs); every NaN is 0x7FC00000.
    Raises DtypeError, ShapeError; FileError when the table is damaged.
    """
    _require_bfloat16("gate", gate)
    _require_bfloat16("up", up)
    require_matrix("grad", grad)
    if grad.dtype != np.float32:
        _require_bfloat16("grad", grad, "float32, ")
    _require_same_shape("up", up, gate)
    _require_same_shape("grad", grad, gate)
    if gate.shape[1] == 0:
        raise ShapeError(f"gate has shape {tuple(gate.shape)}; allowed is [M, H] with H >= 1")
    weight = None if prob is None else _prob_bits(prob, gate)[:, None]
    dgate, dup = (empty(gate.shape, np.uint32, gate) for _ in range(2))
    dprob = None if prob is None else empty(prob.shape, np.uint32, gate)
    for rows in row_chunks(gate, gate.shape[1]):
        part = None if weight is None else weight[rows]
        dgate[rows], dup[rows], sums = _backward_rows(grad[rows], gate[rows], up[rows], part)
        if dprob is not None:
            dprob[rows] = sums
    return dgate.view(np.float32), dup.view(np.float32), None if dprob is None else dprob.view(np.float32)


def _backward_rows(grad: Array, gate: Array, up: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """The steps of `swiglu_backward` on float32 bits; weight: u32 [M, 1] or None."""
    multiply = softfloat.multiply
    y, d = silu(gate), _look_up(_derivative_table, "gate", gate)
    u, received = float32_bits(up), float32_bits(grad)
    weighted = received if weight is None else multiply(received, weight)
    dprob = None if weight is None else tree_sum(multiply(received, multiply(y, u)))
    return multiply(multiply(weighted, u), d), multiply(weighted, y), dprob


def tree_sum(terms: Array) -> Array:
    """Sum u32 bit patterns [M, H], H >= 1, over H by the tree of `swiglu_backward` -> u32 [M]."""
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            zero = np.zeros((terms.shape[0], 1), dtype=np.uint32, like=terms)
            terms = np.concatenate([terms, zero], axis=1)
        terms = softfloat.add(terms[:, 0::2], terms[:, 1::2])
    return terms[:, 0]


def silu(gate: Array) -> Array:
    """float32 bits (u32) of silu, rounded once, for bfloat16 (or its uint16 bits) of any shape."""
    return _look_up(_silu_table, "gate", gate)


def sigmoid(gate: Array) -> Array:
    """float32 bits (u32) of the logistic function, rounded once, for bfloat16 (or its uint16 bits)."""
    return _look_up(_sigmoid_table, "gate", gate)


def _look_up(table: functools._lru_cache_wrapper[np.ndarray], name: str, x: Array) -> Array:
    require_array(name, x)
    _require_bfloat16_dtype(name, x)
    return np.take(table_like(table, x), x.view(np.uint16).astype(np.int32))


@functools.cache
def _silu_table() -> np.ndarray:
    return _load_table()[0]


@functools.cache
def _sigmoid_table() -> np.ndarray:
    return _load_table()[1]


@functools.cache
def _derivative_table() -> np.ndarray:
    """d of `swiglu_backward` for every gate, by its steps."""
    g, s = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16), _sigmoid_table()
    t = softfloat.subtract(_ONE, s)
    v = softfloat.add(_ONE, softfloat.multiply(g, t))
    return softfloat.multiply(s, v)


@functools.cache
def _load_table() -> np.ndarray:
    """The frozen file as u32 [2, 65536]: silu, then sigmoid; `refnum.make_silu` makes and checks it."""
    try:
        data = TABLE_PATH.read_bytes()
    except OSError as error:
        raise FileError(f"{TABLE_PATH} cannot be read ({error}); install refnum again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != TABLE_SHA256:
        raise FileError(f"{TABLE_PATH} has sha256 {found}, not {TABLE_SHA256}; install refnum again")
    return np.frombuffer(data, "<u4").astype(np.uint32).reshape(2, 1 << 16)


def _require_bfloat16(name: str, x: Array, also: str = "") -> None:
    require_matrix(name, x)
    _require_bfloat16_dtype(name, x, also)


def _require_bfloat16_dtype(name: str, x: Array, also: str = "") -> None:
    if x.dtype not in (BFLOAT16, np.uint16):
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed are {also}bfloat16 (ml_dtypes, or its uint16 bits)")


def _require_same_shape(name: str, x: Array, gate: Array) -> None:
    if x.shape != gate.shape:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; gate has {tuple(gate.shape)}, they must be equal")


def _prob_bits(prob: Array, gate: Array) -> Array:
    require_array("prob", prob)
    if prob.dtype != np.float32:
        raise DtypeError(f"prob has dtype {prob.dtype}; allowed is float32")
    if tuple(prob.shape) != (gate.shape[0],):
        raise ShapeError(f"prob has shape {tuple(prob.shape)}; allowed is one weight a row, ({gate.shape[0]},)")
    return prob.view(np.uint32)
