"""Second answers for what has no value table: SwiGLU, payloads, layouts, Philox; by definition, element by element.

Nothing here calls the model. SwiGLU's logistic function is computed to 60 decimal digits and rounded once; sums
and products are rounded once from exact rationals by the oracle.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from refnum import oracle

from .load import Vector

ONE, SIGN = 0x3F800000, 0x80000000
_FAR = 200
"""Beyond this gate the logistic function is 1 or 0 to every bit of float32."""


def _widened(array: np.ndarray) -> list[list[int]]:
    """Return float32 bits of a float32 or bfloat16 matrix as nested lists."""
    if array.dtype.itemsize == 4:
        return array.view(np.uint32).tolist()
    return [[word << 16 for word in line] for line in array.view(np.uint16).tolist()]


def _logistic(gate: Fraction, times: Fraction) -> Fraction:
    """Return times / (1 + exp(-gate)) to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        whole = Decimal(gate.numerator) / Decimal(gate.denominator)
        return times * Fraction(1 / (1 + (-whole).exp()))


@functools.cache
def sigmoid(bits: int) -> int:
    """Return the float32 bits of the logistic function of a float32 given as bits."""
    value = oracle.float_value(bits)
    if value == oracle.NAN:
        return oracle.float_bits(oracle.NAN)
    if value in (oracle.POS_INF, oracle.NEG_INF) or (isinstance(value, Fraction) and abs(value) > _FAR):
        return 0 if bits & SIGN else ONE
    number = Fraction(0) if value == oracle.NEG_ZERO else Fraction(value)
    return oracle.float_bits(_logistic(number, Fraction(1)))


@functools.cache
def silu(bits: int) -> int:
    """Return the float32 bits of x times the logistic function of x; silu(-Inf) is its limit, -0."""
    value = oracle.float_value(bits)
    if value == oracle.NAN:
        return oracle.float_bits(oracle.NAN)
    if not isinstance(value, Fraction) or value == 0 or abs(value) > _FAR:
        return SIGN if bits & SIGN else bits
    return oracle.float_bits(_logistic(value, value))


def _swiglu(vector: Vector) -> list[list[int]]:
    gates, ups = _widened(vector.inputs["gate"]), _widened(vector.inputs["up"])
    multiply = oracle.float32_multiply
    out = [[multiply(silu(g), u) for g, u in zip(*rows, strict=True)] for rows in zip(gates, ups, strict=True)]
    if "prob" in vector.inputs:
        weights = vector.inputs["prob"].view(np.uint32).tolist()
        out = [[multiply(r, weight) for r in line] for line, weight in zip(out, weights, strict=True)]
    return out


def swiglu_quantize(vector: Vector, policy: oracle.Policy) -> Any:
    """N11 forward: the product by single roundings, then the oracle's quantiser."""
    values = [[oracle.float_value(bits) for bits in line] for line in _swiglu(vector)]
    if vector.params["to"] == "mxfp4":
        return oracle.quantize_mxfp4(values, policy)
    return oracle.quantize_fp8_tiles(values, (1, 128), policy) if values else ([], [])


def swiglu_backward(vector: Vector) -> Any:
    """N11 backward in the stated order."""
    gates, ups, grads = (_widened(vector.inputs[name]) for name in ("gate", "up", "grad"))
    weights = vector.inputs["prob"].view(np.uint32).tolist() if "prob" in vector.inputs else [None] * len(gates)
    add, multiply = oracle.float32_add, oracle.float32_multiply
    dgate, dup, dprob = [], [], []
    for gate, up, grad, weight in zip(gates, ups, grads, weights, strict=True):
        terms = []
        for g, u, received in zip(gate, up, grad, strict=True):
            s, y = sigmoid(g), silu(g)
            slope = multiply(s, add(ONE, multiply(g, add(ONE, s ^ SIGN))))
            weighted = received if weight is None else multiply(received, weight)
            dup.append(multiply(weighted, y))
            dgate.append(multiply(multiply(weighted, u), slope))
            terms.append(multiply(received, multiply(y, u)))
        dprob.append(_tree(terms))
    return (dgate, dup) if weights and weights[0] is None else (dgate, dup, dprob)


def _tree(terms: list[int]) -> int:
    while len(terms) > 1:
        terms = terms + [0] * (len(terms) % 2)
        terms = [oracle.float32_add(a, b) for a, b in zip(terms[0::2], terms[1::2], strict=True)]
    return terms[0]


def _places(splits: list[int], align: int) -> tuple[list[int], list[int], int]:
    """Return (padded row of every row in expert order, start of every expert, padded rows)."""
    places: list[int] = []
    starts, end = [], 0
    for rows in splits:
        starts.append(end)
        places += range(end, end + rows)
        end += (rows + align - 1) // align * align
    return places, starts, end


def permute_pad(vector: Vector) -> Any:
    """N12: one row copied after another."""
    places, starts, total = _places(vector.params["splits"], vector.params["align"])
    payload = vector.inputs["payload"].tolist()
    out = [[0] * vector.inputs["payload"].shape[1] for _ in range(total)]
    for place, source in zip(places, vector.inputs["row_map"].tolist(), strict=True):
        out[place] = payload[source]
    return out, starts


def permute_unpack(vector: Vector) -> Any:
    """N12: the rows of `permute_pad`, sixteen of seventeen bytes of each codes."""
    lines, starts = permute_pad(vector)
    cut = vector.inputs["payload"].shape[1] // 17 * 16
    return [line[:cut] for line in lines], [line[cut:] for line in lines], starts


def unpermute(vector: Vector) -> Any:
    """N12: the weighted sum in ascending expert order, each product and sum rounded once."""
    places, _, _ = _places(vector.params["splits"], vector.params["align"])
    rows = _widened(vector.inputs["rows"])
    weights = vector.inputs["weights"].view(np.uint32).tolist()
    sums: list[list[int] | None] = [None] * vector.params["tokens"]
    for place, token, weight in zip(places, vector.inputs["row_map"].tolist(), weights, strict=True):
        terms = [oracle.float32_multiply(weight, x) for x in rows[place]]
        before = sums[token]
        sums[token] = (
            terms if before is None else [oracle.float32_add(a, b) for a, b in zip(before, terms, strict=True)]
        )
    return ([line or [0] * vector.inputs["rows"].shape[1] for line in sums],)


def pack_payload(vector: Vector) -> Any:
    """N12: the codes of a row, then its scale bytes."""
    pairs = zip(vector.inputs["packed"].tolist(), vector.inputs["scales"].tolist(), strict=True)
    return ([codes + scales for codes, scales in pairs],)


def unpack_payload(vector: Vector) -> Any:
    """N12: sixteen of seventeen bytes are codes."""
    lines = vector.inputs["payload"].tolist()
    cut = vector.inputs["payload"].shape[1] // 17 * 16
    return [line[:cut] for line in lines], [line[cut:] for line in lines]


def scales_to_swizzled(vector: Vector) -> Any:
    """N6: byte ((r/128) * ceil(C/4) + c/4) * 512 + (r%32) * 16 + (r%128)/32 * 4 + c%4 holds scale (r, c)."""
    rows, columns = vector.inputs["scales"].shape
    wide = (columns + 3) // 4
    out = [0] * ((rows + 127) // 128 * wide * 512)
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = byte
    return (out,)


def scales_to_packed_ue8m0(vector: Vector) -> Any:
    """N6: word [q, r] holds scales [r, 4q .. 4q+3], the first in the lowest byte."""
    rows, columns = vector.inputs["scales"].shape
    out = [[0] * ((rows + 3) // 4 * 4) for _ in range((columns + 3) // 4)]
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[c // 4][r] += byte << 8 * (c % 4)
    return (out,)


def scales_to_gemm_float32(vector: Vector) -> Any:
    """N6: transposed float32, rows padded to four with 0.0."""
    rows, columns = vector.inputs["scales"].shape
    out = [[0] * ((rows + 3) // 4 * 4) for _ in range(columns)]
    for r, line in enumerate(vector.inputs["scales"].tolist()):
        for c, byte in enumerate(line):
            out[c][r] = oracle.float_bits(oracle.decode("E8M0", byte))
    return (out,)


def scales_from_layout(vector: Vector) -> Any:
    """N6.5: every place of the layout that holds a scale is read; padding is not."""
    rows, columns, layout = (vector.params[name] for name in ("rows", "columns", "layout"))
    flat = vector.inputs["stored"].reshape(-1)
    words = flat.view(f"u{flat.dtype.itemsize}").tolist()
    tall, wide = (rows + 3) // 4 * 4, (columns + 3) // 4
    place: dict[str, Callable[[int, int], int]] = {
        "bytes": lambda r, c: words[r * columns + c],
        "float32": lambda r, c: _scale_byte(words[r * columns + c]),
        "gemm_float32": lambda r, c: _scale_byte(words[c * tall + r]),
        "packed_ue8m0": lambda r, c: words[c // 4 * tall + r] >> 8 * (c % 4) & 255,
        "swizzled": lambda r, c: words[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4],
    }
    return ([[place[layout](r, c) for c in range(columns)] for r in range(rows)],)


def _scale_byte(bits: int) -> int:
    """The byte of a float32 scale by its value: NaN is 255, 2^-127 is 0."""
    value = oracle.float_value(bits)
    return 255 if value == oracle.NAN else oracle.floor_log2(Fraction(value)) + 127


def codes_to_packed(vector: Vector) -> Any:
    """N0: where the partner of each code sits in the three nibble orders."""
    out = []
    for line in vector.inputs["codes"].tolist():
        packed = []
        for j in range(len(line) // 2):
            low, high = 2 * j, 2 * j + 1
            if vector.params["order"] == "high_first":
                low, high = high, low
            elif vector.params["order"] == "ggml":
                low = j // 16 * 32 + j % 16
                high = low + 16
            packed.append(line[low] + 16 * line[high])
        out.append(packed)
    return (out,)


def philox4x32(vector: Vector) -> Any:
    """N13.1: ten rounds on Python integers."""
    return ([_block(counter, vector.inputs["key"].tolist()) for counter in vector.inputs["counter"].tolist()],)


def _block(counter: list[int], key: list[int]) -> list[int]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = right >> 32 ^ c1 ^ k0, right % 2**32, left >> 32 ^ c3 ^ k1, left % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def random_bits(vector: Vector) -> Any:
    """N13.2, N13.3 and N13.5: the top bits of the byte, 16-bit unit or word of each element of a stream."""
    bits, count = vector.params["bits"], vector.params["count"]
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4
    return ([_stream_bits(key, bits, size, count) for key in vector.inputs["keys"].tolist()],)


def _stream_bits(key: list[int], bits: int, size: int, count: int) -> list[int]:
    seed, stream, step, offset = key
    first = offset * size // 16
    words = []
    for block in range(first, (offset + count) * size // 16 + 1):
        words += _block([block % 2**32, block >> 32, stream, step], [seed % 2**32, seed >> 32])
    octets = b"".join(word.to_bytes(4, "little") for word in words)
    starts = range(offset * size - first * 16, (offset + count) * size - first * 16, size)
    return [int.from_bytes(octets[at : at + size], "little") >> 8 * size - bits for at in starts]


DEFINITIONS: dict[str, Callable[[Vector], Any]] = {
    function.__name__: function
    for function in (swiglu_backward, permute_pad, permute_unpack, unpermute, pack_payload, unpack_payload,
                     scales_to_swizzled,
                     scales_to_packed_ue8m0, scales_to_gemm_float32, scales_from_layout, codes_to_packed, philox4x32,
                     random_bits)
}  # fmt: skip
