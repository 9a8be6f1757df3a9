"""Wrong rules of SwiGLU, payloads, layouts and random words."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

from refnum import softfloat as sf
from refnum.arrays import float32_bits
from refnum.oracle import float_bits, float_value
from refnum.swiglu import sigmoid, silu, swiglu

from ..cases.case import Case
from .tools import Outputs, changed, quantised_product, row


def _silu(case):
    return silu(case.inputs["gate"])


def bfloat16_between(case: Case, golden: Outputs) -> Outputs | None:
    """The product is written as bfloat16 before it is quantised."""
    y = swiglu(**case.inputs)
    return quantised_product(case, golden, y.astype(ml_dtypes.bfloat16).astype(np.float32))


def prob_ignored(case: Case, golden: Outputs) -> Outputs | None:
    """The routing probability is left out."""
    return quantised_product(case, golden, swiglu(case.inputs["gate"], case.inputs["up"]))


def exp_overflows(case: Case, golden: Outputs) -> Outputs | None:
    """The exponential overflows to Inf: for the most negative finite gates silu is lost."""
    gate = float32_bits(case.inputs["gate"]).view(np.float32)
    far = np.isfinite(gate) & (gate < -80)
    if "grad" in case.inputs:
        wrong = golden["dup"].copy()
        wrong[far & (gate > -103)] = 0
        wrong[far & (gate <= -103)] = np.nan
        return {**golden, "dup": wrong}
    y = swiglu(**case.inputs).copy()
    y[far] = np.nan
    return quantised_product(case, golden, y)


def silu_one_above(case: Case, golden: Outputs) -> Outputs | None:
    """silu is one float32 step larger in magnitude."""
    return _off_by(case, golden, 1)


def silu_one_below(case: Case, golden: Outputs) -> Outputs | None:
    """silu is one float32 step smaller in magnitude."""
    return _off_by(case, golden, -1)


def _off_by(case, golden, steps):
    y = _silu(case)
    number = (y & 0x7FFFFFFF != 0) & (y & 0x7FFFFFFF < 0x7F800000)
    y = np.where(number, y + np.uint32(steps & 0xFFFFFFFF), y)
    product = sf.multiply(y, float32_bits(case.inputs["up"]))
    if "prob" in case.inputs:
        product = sf.multiply(product, case.inputs["prob"].view(np.uint32)[:, None])
    return quantised_product(case, golden, product.view(np.float32))


def fma(a, b, c):
    """Bits of round(a * b + c) with one rounding."""
    x, y, z = (float_value(int(v)) for v in (a, b, c))
    if not (isinstance(x, Fraction) and isinstance(y, Fraction) and isinstance(z, Fraction)):
        return None
    return float_bits(x * y + z)


def contracted(case: Case, golden: Outputs) -> Outputs | None:
    """Products and sums are fused."""
    if row(case).routed:
        return {"values": _unpermute(case, fused=True, reverse=False)}
    g, s = float32_bits(case.inputs["gate"]), sigmoid(case.inputs["gate"])
    t = sf.subtract(np.uint32(0x3F800000), s)
    v = sf.add(np.uint32(0x3F800000), sf.multiply(g, t)).copy()
    for at in np.ndindex(v.shape):
        fused = fma(g[at], t[at], 0x3F800000)
        v[at] = v[at] if fused is None else fused
    d = sf.multiply(s, v)
    weighted = float32_bits(case.inputs["grad"])
    if "prob" in case.inputs:
        weighted = sf.multiply(weighted, case.inputs["prob"].view(np.uint32)[:, None])
    return {**golden, "dgate": sf.multiply(sf.multiply(weighted, float32_bits(case.inputs["up"])), d).view(np.float32)}


def _unpermute(case, fused, reverse):
    rows, weights = float32_bits(case.inputs["rows"]), case.inputs["weights"].view(np.uint32)
    place, start = [], 0
    for m in case.params["splits"]:
        place += list(range(start, start + m))
        start += -(-m // case.params["align"]) * case.params["align"]
    out = np.zeros((case.params["tokens"], rows.shape[1]), np.uint32)
    for token in range(case.params["tokens"]):
        positions = [p for p, t in enumerate(case.inputs["row_map"]) if t == token][:: -1 if reverse else 1]
        for n, p in enumerate(positions):
            w = np.broadcast_to(weights[p], rows.shape[1:])
            term = sf.multiply(w, rows[place[p]])
            if n == 0:
                out[token] = term
            elif fused:
                sums = sf.add(out[token], term)
                found = [fma(a, b, c) for a, b, c in zip(w, rows[place[p]], out[token], strict=True)]
                out[token] = [sum_ if one is None else one for one, sum_ in zip(found, sums, strict=True)]
            else:
                out[token] = sf.add(out[token], term)
    return out.view(np.float32)


def other_order(case: Case, golden: Outputs) -> Outputs | None:
    """Sums run from the end: the last expert first, or left to right instead of a tree."""
    if row(case).routed:
        return {"values": _unpermute(case, fused=False, reverse=True)}
    terms = sf.multiply(float32_bits(case.inputs["grad"]), sf.multiply(_silu(case), float32_bits(case.inputs["up"])))
    total = terms[:, 0]
    for k in range(1, terms.shape[1]):
        total = sf.add(total, terms[:, k])
    return {**golden, "dprob": total.view(np.float32)}


def padding_read(case: Case, golden: Outputs) -> Outputs | None:
    """Padding rows join the sum."""
    rows = case.inputs["rows"]
    return {"values": golden["values"] + np.where(np.isnan(rows).any(), np.float32(np.nan), np.float32(0))}


def _codes_of(width: int) -> int:
    """Bytes of codes in a payload row."""
    return width // 17 * 16


def scales_first(case: Case, golden: Outputs) -> Outputs | None:
    """Scale bytes come before the codes."""
    if "payload" in golden:
        payload = golden["payload"]
        cut = _codes_of(payload.shape[1])
        return {"payload": np.concatenate([payload[:, cut:], payload[:, :cut]], axis=1)}
    joined = np.concatenate([golden["packed"], golden["scales"]], axis=1)
    blocks = golden["scales"].shape[1]
    return {**golden, "packed": joined[:, blocks:].copy(), "scales": joined[:, :blocks].copy()}


def _rows(golden: Outputs) -> np.ndarray:
    """Return the rows of a gather, joined where they are apart."""
    return golden["rows"] if "rows" in golden else np.concatenate([golden["packed"], golden["scales"]], axis=1)


def _with_rows(golden: Outputs, rows: np.ndarray) -> Outputs:
    if "rows" in golden:
        return {**golden, "rows": rows}
    cut = _codes_of(rows.shape[1])
    return {**golden, "packed": rows[:, :cut].copy(), "scales": rows[:, cut:].copy()}


def padding_dirty(case: Case, golden: Outputs) -> Outputs | None:
    """Padding rows are left as they were."""
    rows = _rows(golden).copy()
    rows[(rows == 0).all(axis=1)] = 0xCD
    return _with_rows(golden, rows)


def map_inverted(case: Case, golden: Outputs) -> Outputs | None:
    """Row j of the payload goes to place row_map[j], instead of coming from there."""
    payload, rows = case.inputs["payload"], np.zeros_like(_rows(golden))
    for j, to in enumerate(case.inputs["row_map"]):
        if j < payload.shape[0] and to < rows.shape[0]:
            rows[to] = payload[j]
    return _with_rows(golden, rows)


def row_major(case: Case, golden: Outputs) -> Outputs | None:
    """Scales are padded but not swizzled."""
    scales = case.inputs["scales"]
    padded = np.pad(scales, ((0, -scales.shape[0] % 128), (0, -scales.shape[1] % 4)))
    return {"bytes": padded.reshape(-1)}


def first_byte_high(case: Case, golden: Outputs) -> Outputs | None:
    """The first scale sits in the highest byte."""
    return {"words": golden["words"].byteswap()}


def other_nibble_order(case: Case, golden: Outputs) -> Outputs | None:
    """The other nibble of the byte."""
    return changed(case, order="high_first" if case.params["order"] != "high_first" else "low_first")


def ggml_order(case: Case, golden: Outputs) -> Outputs | None:
    """Codes j and j+16 share a byte."""
    return changed(case, order="ggml" if case.params["order"] != "ggml" else "low_first")


def philox4x64(case: Case, golden: Outputs) -> Outputs | None:
    """numpy.random.Philox is the 64-bit variant."""
    out = np.zeros_like(golden["words"])
    for i, counter in enumerate(case.inputs["counter"]):
        wide = np.random.Philox(counter=int(counter[0]) | int(counter[2]) << 64, key=int(case.inputs["key"][0]))
        out[i] = wide.random_raw(4).astype(np.uint32)
    return {"words": out}


def stream_and_step_swapped(case: Case, golden: Outputs) -> Outputs | None:
    """The counter words of stream and step have changed places."""
    return changed(case, keys=np.ascontiguousarray(case.inputs["keys"][:, [0, 2, 1, 3]]))


def low_bits(case: Case, golden: Outputs) -> Outputs | None:
    """The lowest bits of a byte, half or word are taken for the highest."""
    width = 8 * golden["rbits"].dtype.itemsize
    drawn = changed(case, bits=width)["rbits"]
    return {"rbits": drawn & drawn.dtype.type((1 << case.params["bits"]) - 1)}


def written_again(case: Case, golden: Outputs) -> Outputs | None:
    """Stored scales are read as if they lay in rows, one after another: the layout is not undone."""
    stored = case.inputs["stored"].reshape(-1)
    if stored.dtype == np.float32:
        stored = (stored.view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    count = golden["scales"].size
    return {"scales": stored.view(np.uint8)[:count].reshape(golden["scales"].shape).copy()}
