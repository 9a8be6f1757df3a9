"""Calls of every public function that are right, and what is nonsense for each kind of argument."""

import ml_dtypes
import numpy as np

import refnum as R
from refnum import layouts

X = np.linspace(-3, 3, 512, dtype=np.float32).reshape(4, 128)
BF16 = X.astype(ml_dtypes.bfloat16)
PACKED, SCALES = R.quantize_mxfp4(X)
CODES, TILES = R.quantize_fp8_tiles(X)
NIBBLES, _ = R.quantize_mx(X)
PAYLOAD = R.pack_payload(PACKED, SCALES)
ROWS = np.zeros((32, 32), np.float32)
MAP = np.arange(4)
PROB = np.ones(4, np.float32)
BITS = np.zeros(X.shape, np.uint8)
FLOATS = layouts.scales_to_float32(SCALES)


class LooksLikeAnArray:
    """Has a dtype and a shape and is none."""

    dtype, shape = np.dtype(np.float32), (4, 128)


class ForeignBool:
    """A bool of another library, which Python may take for an integer."""

    dtype, shape = "torch.bool", ()

    def __index__(self) -> int:
        return 1


def once():
    """Can be read only once."""
    yield 4


THINGS = [object(), {4: 4}, {4}, b"4", 4j, slice(None), np.float32, LooksLikeAnArray()]
NOTHING = [*THINGS, {}, X, X[:0], np.array("4")]
"""Nonsense wherever no array is asked for."""
NO_INTEGER = [*NOTHING, None, True, np.True_, np.array(True), 1.0, float("nan"), float("inf"), np.float64(1), "1", [1],
              np.array([1]), np.array(1.0), -(10**30), -(10**5000), ForeignBool()]  # fmt: skip
NO_WORD = [*NOTHING, None, True, 0, "", "nonsense", b"max", ["max"], ("max",), np.array(["max"]), np.dtype(np.uint8)]
NO_ELEMENTS = [object(), None, "x", [["1"] * 32], np.float32, LooksLikeAnArray(), np.array(1.0), X.astype(object),
               X.astype(complex), np.ma.masked_array(X, X > 0), X.astype("S4"), np.zeros((4, 128), "V4"),
               np.zeros((4, 128), [("a", "f4")])]  # fmt: skip
"""Nonsense where numbers and lists of them are taken."""
NO_ARRAY = [*NO_ELEMENTS[:2], 5, 1.0, np.float32(1), *NO_ELEMENTS[2:]]
NO_FLOATS = [*NO_ARRAY, X[0], X[None], X[:, :33], X.astype(np.float64), X.astype(">f4"), X.astype(">f2"), CODES, X > 0,
             CODES.view(ml_dtypes.float8_e4m3fn)]  # fmt: skip
NO_CODES = [*NO_ARRAY, PACKED[0], PACKED[None], X, PACKED > 0, PACKED.view(np.int8), PACKED.astype(np.uint16),
            PACKED.astype(float),
            CODES.view(ml_dtypes.float8_e5m2), np.ma.masked_array(PACKED, PACKED > 9)]  # fmt: skip
WRONG = {
    "integer": NO_INTEGER,
    "some integer": [wrong for wrong in NO_INTEGER if wrong is not None],
    "word": NO_WORD,
    "profile": [*NO_WORD, "hopper", R.E2M1, "HOPPER+ties=up+ties=down", "HOPPER+zero_scale=999", "x" * 999,
                f"HOPPER+{'x' * 999}", f"HOPPER+zero_scale={'9' * 5000}", f"HOPPER+{'zero_scale=5+' * 99}"],
    "format": [*NO_WORD, "e2m1", R.HOPPER, R.Format("E2M1", 5, 2, 15, 0x7B)],
    "flag": [*NOTHING, None, 0, 1, 1.0, "True", [True]],
    "splits": [*NOTHING, 4, 4.0, "4", once, range(3, 5), [4.0], [np.float32(4)], [True, 3], [np.True_] * 4, ["4"],
               [float("inf")], [float("nan")], [-1, 5], [4, None], [[4]], [10**30], [10**5000], [ForeignBool(), 3],
               [2**63, 4 - 2**63], [4j],
               np.array(4), np.array([4.0]), np.array([[4]]), np.ones(4, bool), np.array([4.0], object)],
    "tile": [*NOTHING, None, 128, "ab", (1,), (1, 128, 1), (True, 128), (1.0, 128), (64, 64), {1: 2, 128: 3},
             [1, 128.0], (10**5000, 128),
             np.array([1, 128])],
    "dtype": [object(), None, True, 0, 4j, {4: 4}, X, "nonsense", "float64", np.float64, float, int,
              np.dtype(np.float64),
              np.dtype(">f4"), np.float32(1), np.array(1.0, np.float32), LooksLikeAnArray(), once],
    "key": [*NOTHING, 5, "123", (1, 2), (1, 2, 3, 4), (1.5, 2, 3), (np.True_, 2, 3), (-1, 2, 3), (2**64, 0, 0),
            [None] * 3, (10**5000, 2),
            np.array([1, 2, 3])],
    "floats": NO_FLOATS,
    "matrix": [*NO_ARRAY, X[0], X[None], X.astype(np.float64), X.astype(">f4"), CODES, X > 0],
    "numbers": [*NO_ARRAY[2:], X[:2], X.astype(np.float64), X.astype(">f4"), CODES, X > 0],
    "float32": [*NO_ARRAY[2:], X[:2], BF16, X.astype(np.float64), X.astype(">f4"), CODES, X > 0],
    "counts": [*NO_ARRAY[2:], X, X > 0, np.ones((2, 128), np.int32),
               np.full((4, 128), -1, np.int32), np.full((4, 128), 2**31, np.int64)],
    "number": [*NOTHING, None, True, np.True_, "1", [1], np.array(1.0), float("nan"), float("inf"), -1, 1e-60, 1e60],
    "part": [*NOTHING, None, True, "1", [1], float("nan"), float("inf"), -1, 1.5],
    "outer scales": [*NO_ARRAY[2:], X, PROB, PROB[:, None].astype(float)],
    "inner scales": [*NO_ARRAY[2:], SCALES, X[:, :8].copy()],
    "channels": [*NO_ARRAY[2:], BF16, X.astype(float), X.astype(">f4"), CODES, X > 0],
    "noise shape": [*THINGS, None, 4, 4.0, "48", (4,), (4, 6), (4, -4), (4, 4, 4), (4, 4.0), (4, True)],
    "quantile": [*NOTHING, None, 1, 0.99, "ab", (1,), (1, 2, 3), (1.0, 2), (True, 2), (1, 3), (3, 2), (-1, 2), (1, 0),
              (10**5000, 2), [None] * 2, once, np.array([0.5, 1])],
    "cap": [*NOTHING, None, True, np.True_, "3", 0, -3, 0.1, float("nan"), float("inf"), 1e300, 10**5000, [3],
            np.array([3.0])],
    "rate": [*NOTHING, None, True, "3", -1, float("nan"), float("inf"), 1e300, 10**5000, [3], np.array([3.0])],
    "pair": [*NOTHING, None, 0.9, "ab", (0.9,), (0.9, 1), (0.9, "1"), (True, 0.5), (0.9, 10**5000), [None] * 2],
    "numbers of a step": [*NO_ARRAY, [[1.0]], X[0], X.astype(float), X.astype(">f4"), BF16, CODES, X > 0],
    "one of four": [*NO_ARRAY[2:], X[:2], X.astype(float), X.astype(">f4"), BF16, CODES, X > 0],
    "one float": [*THINGS, {}, X, 3, 3.0, True, "3", [3.0], np.float64(3), np.ones(2, np.float32), np.ones(1)],
    "factors": [*NO_ARRAY[2:], X, np.ones(11, np.float32), np.ones(12), np.ones((1, 12), np.float32)],
    "forget": [one for one in NO_WORD if not isinstance(one, str) or one],
    "largest numbers": [*NO_ARRAY[2:], -PROB, PROB[:3] + 1, PROB[:, None] + 1, PROB.astype(float) + 1,
                        np.full(4, np.nan, np.float32), np.full(4, 2.0**101, np.float32)],
    "norm floats": [*NO_ELEMENTS, X.astype(float), X.astype(">f4"), BF16, CODES, X > 0],
    "state": [*NOTHING, None, True, 0, R.AdamState(X, X)],
    "half floats": [*NO_ARRAY, BF16[0], BF16[:, :33], X.astype(float), X.astype(np.float16), BF16.astype(">f4"), CODES],
    "product scales": [*NO_ELEMENTS[2:], TILES[:3], TILES[:, 0], X, TILES.astype(float), TILES.astype(np.int8),
                       TILES > 0, np.full((1, 1), 255, np.uint8), np.full((1, 1), np.inf, np.float32)],
    "accumulators": [*NO_ARRAY[2:], X, X[:, :4].astype(float), X[:, :4].astype(">f4"), SCALES],
    "half codes": [*NO_ARRAY, X, CODES, BF16[0], BF16[:, :0], BF16.astype(">f4"), BF16.view(np.int16)],
    "element floats": [*NO_ELEMENTS, X.astype(np.float64), X.astype(">f4"), CODES, X > 0],
    "codes": NO_CODES,
    "element codes": [*NO_ELEMENTS, 1.0, -1, X, CODES.view(np.int8), X > 0, CODES.astype(np.uint16) + np.uint16(256),
                      np.full((4, 128), 1 << 32, np.uint64)],
    "scales": [*NO_CODES, SCALES[:, :3], SCALES[:1], FLOATS.astype(np.float64)],
    "random bits": [*NO_ARRAY[2:], X, BITS[:1], BITS.view(np.int8), X > 0, BITS + np.uint16(256)],
    "random words": [*NO_ARRAY[2:], X, BITS[:1], BITS.view(np.int8), X > 0, BITS | np.uint32(1 << 24)],
    "share of 1": [*NOTHING, None, True, "0.1", 1.5, -0.1, float("nan"), [0.1], 4j, 10**5000, X],
    "single floats": [*NO_ARRAY[2:], PROB[:3], PROB[:, None], PROB.astype(float), PROB.astype(">f4"), MAP],
    "any floats": [*NO_ARRAY, X[0], X[None], X.astype(float), X.astype(">f4"), CODES, X > 0],
    "single scales": [*NO_ARRAY[2:], X[:, :3], X[:2], X[:, :4].astype(float), CODES],
    "zeros": [*NO_ARRAY[2:], X[:, :3], CODES[:2], X[:, :4].astype(float), MAP],
    "samples": [*NO_ARRAY[2:], X[:0], X.astype(float), X.astype(">f4"), CODES, np.float32(1)],
    "row map": [*NO_ARRAY, [0, 1, 2, 4], MAP[:3], MAP[:, None], MAP.astype(float), MAP > 0, MAP - 1, MAP + 1,
                MAP + 2**62,
                np.array([0, 1, 2, 2**64 - 1], np.uint64), MAP.astype(object), MAP.astype("m8[s]")],
    "weights": [*NO_ARRAY[2:], [1.0] * 3, PROB[:3], PROB[:, None], PROB.astype(float), PROB.astype(">f4"), MAP],
    "maximum": [*NO_ARRAY[2:], PROB[:2], PROB[:1, None], PROB[:1].astype(float), PROB[:1].astype(">f4"), MAP[:1]],
    "exponent": [*THINGS, None, True, np.True_, 0.0, "0", [0.0], 1025, -1025, 10**30, 2**31, MAP, PROB, X,
                 np.array([0.0]), np.array([4096]), np.ones((2, 4, 128), int), np.zeros((4, 128), bool)],
    "case": [*THINGS, 5, None, [1], {"x": 5}, {"x": [X.tolist()]}, {"x": None}, {"x": X, "profile": 3}],
    "index": [*NO_INTEGER, (0,), (0, 1, 2), (0.5, 1), (True, 1), ("a", 1), (0, 128), (4, 0), (-1, 0), 512, "01"],
    "words": [5, None, "1234", {1: 1, 2: 2, 3: 3, 4: 4}, {1, 2, 3, 4}, once, (1, 2, 3), (1, 2, 3, -4), (1, 2, 3, 4.0),
              (1, 2, 3, 2**32), (1, 2, 3, True), (1, 2, 3, X), (1, 2, 3, MAP - 1), (1, 2, 3, MAP + 2**32),
              (1, 2, MAP, MAP[:3]), np.ones(4), np.ones(4, bool)],
    "key words": [5, None, "12", b"12", {1: 1, 2: 2}, (1,), (1, -1), (1, 2.0), (1, 2**32), (1, True), np.ones(2)],
    "like": [*THINGS, 5, "x", [1], np.float32(1)],
    "shape": [*THINGS, None, True, 4.0, "4", once, [4.0], [True], [-1], -1, 2**62, ["4"], np.array(True)],
}  # fmt: skip
KINDS = {
    "a": "codes", "b": "codes", "a_scales": "product scales", "b_scales": "product scales", "c": "accumulators",
    "instruction": "word", "chains": "word", "a_format": "format", "b_format": "format", "out": "dtype",
    "align": "integer", "tokens": "integer", "code": "integer", "columns": "integer", "n": "integer",
    "seed": "integer", "stream": "integer", "step": "integer", "offset": "integer", "bits": "integer",
    "rounds": "integer", "scale_byte": "integer", "overflow": "word",
    "layout_in": "word", "layout_out": "word", "scale": "word", "underflow": "word", "to": "word", "rounding": "word",
    "layout": "word", "order": "word", "source": "word", "target": "word", "padding": "word", "operation": "word",
    "profile": "profile", "element": "format", "fmt": "format", "saturate": "flag", "splits": "splits", "tile": "tile",
    "dtype": "dtype", "philox": "key", "value": "key", "x": "floats", "packed": "codes", "codes": "codes",
    "payload": "codes", "scales": "scales", "rbits": "random bits", "row_map": "row map", "weights": "weights",
    "prob": "weights", "gate": "half floats", "up": "half floats", "grad": "half floats", "rows": "half floats",
    "variant": "word", "tensor_amax": "maximum", "signs": "integer", "axis": "integer",
    "rule": "word", "ties": "word", "ratio": "word",
    "w": "floats", "ema": "floats", "before": "numbers", "after": "numbers", "distance": "float32", "total": "float32",
    "dist_w": "float32", "dist_q": "float32", "alpha": "number", "beta": "number", "threshold": "number",
    "share": "number", "most": "integer", "count": "counts", "period": "counts", "outer": "outer scales",
    "norms": "channels",
    "r_under": "random words", "r_log": "random words",
    "group": "integer", "zeros": "zeros", "divisor": "integer", "n0": "integer", "phase": "word",
    "eta": "share of 1", "amax": "single floats",
    "previous": "single floats", "samples": "samples", "top": "single floats",
    "k": "integer", "cap": "cap", "compat": "word", "state": "state", "gradient": "numbers of a step",
    "weight": "numbers of a step", "lr": "rate", "betas": "pair", "eps": "rate", "weight_decay": "rate", "mode": "word",
    "gap": "integer", "warmup": "integer", "quiet": "integer", "gammas": "pair", "theta": "rate",
    "factors": "factors", "forget": "forget", "maxval": "largest numbers", "exponent_bits": "integer",
    "scale_exponent": "exponent", "case": "case", "index": "index", "counter": "words",
    "key": "key words", "like": "like", "shape": "shape",
}  # fmt: skip
"""Argument -> what it is; an asterisk in a call below names another kind."""

LIKE = np.empty(0, np.uint32)
RANDOM = ("quantize_nvfp4 rbits", "quantize_nvfp4 philox", "hadamard_quantize_nvfp4 rbits")
"""Calls that the kernels do not have."""
WORDS = {"r_under": BITS.astype(np.uint32), "r_log": BITS.astype(np.uint32)}
GRID = {"n0": 0, "phase": "even"}
POWERS = np.ones(4, np.float32)
DRAW = {"n": 8, "seed": 1, "stream": 0, "step": 0, "offset": 0, "like": LIKE}
MX = {"packed": PACKED, "scales": SCALES}
FP8 = {"codes": CODES, "scales": TILES}
PRODUCT = {"a": CODES, "b": CODES, "a_format": "E4M3", "b_format": "E4M3"}
FOUR = {f"{name}*one of four": X for name in ("gradient", "weight", "m", "v")}
STEP = {"gradient": X, "weight": X, "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
GATHER = {"payload": PAYLOAD, "row_map": MAP, "splits": [4], "align": 32}
V2, INNER, OUTER = R.quantize_tetrajet_v2(X)
CHOSEN = {"axis": 1, "rule": "exact", "ratio": "float32"}
COUNTS = np.ones(X.shape, np.int32)
DISTANCES = {"dist_w": X, "dist_q": X}
CALLS = {
    "quantize_tetrajet": {"x": X, "ties": "away", **CHOSEN},
    "quantize_tetrajet rbits": {"x": X, "rbits": BITS},
    "quantize_tetrajet philox": {"x": X, "philox": (1, 2, 3)},
    "dequantize_tetrajet": {**MX, "axis": 1, "dtype": "float32"},
    "double_quantise": {**MX, "axis": 0, "rule": "exact", "ties": "even", "ratio": "float32", "rbits": BITS},
    "double_quantise philox": {**MX, "philox": (1, 2, 3)},
    "q_ema": {"w": X, "ema": X, **CHOSEN},
    "ema_update": {"ema*float32": X, "w*numbers": X, "beta": 0.5},
    "distance_update": {"distance": X, "before": X, "after": X},
    "q_ramping": {**DISTANCES, "alpha": 16, "beta*integer": 5, "most": 9},
    "ramping_step": {"total": X, "count": COUNTS, "grad*numbers": X, "period": COUNTS},
    "quantize_tetrajet_v2": {"x": X},
    "quantize_tetrajet_v2 seed": {"x": X, "seed*some integer": 3},
    "dequantize_tetrajet_v2": {"packed": V2, "scales*inner scales": INNER, "outer": OUTER, "dtype": "float32"},
    "tetrajet_v2_noise": {"shape*noise shape": (4, 8), "seed": 3},
    "tetrajet_v2_signs": {"seed": 3},
    "osci_reset": {"w": X, "packed": V2, "scales*inner scales": INNER, "outer": OUTER, "threshold": 0.5},
    "osci_reset_by_distance": {**DISTANCES, "threshold": 16},
    "channel_norms": {"x*matrix": X},
    "out_control": {"norms": X, "share*part": 0.1},
    "quantize_mxfp4": {"x": X, "profile": "HOPPER", "layout_out": "bytes"},
    "quantize_mxfp4 rbits": {"x": X, "profile": "STOCHASTIC", "rbits": BITS},
    "quantize_mxfp4 philox": {"x": X, "profile": "STOCHASTIC", "philox": (1, 2, 3)},
    "quantize_mx": {"x": X, "element": "E2M1", "profile": "HOPPER"},
    "dequantize_mxfp4": {**MX, "dtype": "float32", "layout_in": "bytes"},
    "dequantize_mx": {"codes": NIBBLES, "scales": SCALES, "element": "E2M1", "dtype": "float32"},
    "block_class": {"x": X},
    "quantize_fp8_tiles": {"x": X, "tile": (1, 128), "profile": "HOPPER", "layout_out": "bytes"},
    "dequantize_fp8_tiles": {**FP8, "tile": (1, 128), "dtype": "float32", "layout_in": "bytes"},
    "quantize_nvfp4": {"x": X, "variant": "TE", "tensor_amax": PROB[:1], "tile": (1, 16), "layout_out": "bytes"},
    "quantize_nvfp4 rbits": {"x": X, "rbits": BITS},
    "quantize_nvfp4 philox": {"x": X, "philox": (1, 2, 3)},
    "dequantize_nvfp4": {"packed": PACKED, "scales": np.repeat(SCALES, 2, axis=1), "tensor_amax": PROB[:1],
                         "order": "te", "tile": (1, 16), "dtype": "float32", "layout_in": "bytes"},
    "hadamard16": {"x": X, "signs": 3, "axis": -1, "order": "exact", "dtype": "float32"},
    "hadamard_quantize_nvfp4": {"x": X, "signs": 3, "axis": -1, "order": "exact", "variant": "TE",
                                "tensor_amax": PROB[:1], "layout_out": "bytes"},
    "hadamard_quantize_nvfp4 rbits": {"x": X, "rbits": BITS},
    "luq": {"x": X, **WORDS, "divisor": 64, "tensor_amax": PROB[:1], "step*word": "real"},
    "dequantize_luq": {"packed": PACKED, "alpha*maximum": PROB[:1], "dtype": "float32"},
    "radix4": {"x": X, **GRID, "threshold*word": "log"},
    "tpr": {"x": X, "n0": 0, "threshold*word": "log"},
    "dequantize_radix4": {"packed": PACKED, **GRID, "dtype": "float32"},
    "sawb": {"x*any floats": X},
    "int4_affine": {"x": X, "group": 32},
    "efficient_qat": {"x": X, "group": 32},
    "int4_keep_two": {"x": X, "group": 32},
    "llm_fp4": {"x*any floats": X, "maxval": PROB + 1, "exponent_bits": 2},
    "llm_qat": {"x*any floats": X, "bits": 4, "symmetric*flag": True, "layerwise*flag": False},
    "dequantize_int4": {"codes": NIBBLES, "scales*single scales": X[:, :4].copy(), "zeros": NIBBLES[:, :4].copy()},
    "hindsight_amax": {"amax": PROB, "previous": PROB, "eta": 0.1},
    "smp_average": {"samples": X},
    "grad_scale": {"scale*single floats": POWERS, "amax": PROB, "top": POWERS},
    "dge": {"x*element floats": X, "k": 5, "cap": 3, "target": "float32", "compat": "ms-amp"},
    "occ": {"x*matrix": X, "alpha*quantile": (9, 10), "axis*word": "token"},
    "vector_scales": {"x*matrix": X, "axis*word": "token", "rule": "real"},
    "adam_step": {"state*index": R.AdamState.start(X), **STEP},
    "spam_step": {"state": R.SpamState.start(X), **STEP, "threshold*rate": 50, "gap": 4, "warmup": 3, "quiet": 2},
    "stable_spam_step": {"state": R.StableSpamState.start(X), **STEP, "gammas": (0.7, 0.9), "theta": 0.9, "gap": 4,
                         "mode": "paper"},
    "stable_spam_factors": {"state": R.StableSpamState.start(X), "gradient": X, "largest*one float": np.float32(3),
                            "norm*one float": np.ones(1, np.float32), "theta": 0.9, "gap": 4, "mode": "code"},
    "stable_spam_apply": {**FOUR, "factors": np.ones(12, np.float32), "forget": "after"},
    "adam_apply": {**FOUR, "factors": np.ones(8, np.float32)},
    "spam_apply": {**FOUR, "factors": np.ones(8, np.float32), "clip*flag": True, "reset*flag": False,
                   "decay*flag": True},
    "exact_norm": {"x*norm floats": X},
    "fp8_to_mxfp4": {**FP8, "profile": "HOPPER", "layout_in": "bytes", "layout_out": "bytes"},
    "mxfp4_to_fp8": {**MX, "scale": "max", "layout_in": "bytes", "layout_out": "bytes"},
    "mxfp4_to_fp8_columns": {**MX, "splits": [4], "scale": "max"},
    "mxfp4_to_fp8_rows_columns": {**MX, "splits": [4], "scale": "max"},
    "mxfp4_columns": {**MX, "splits": [4], "scale": "max"},
    "fp8_columns": {**FP8, "splits": [4], "underflow": "rne"},
    "swiglu_quantize": {"gate": BF16, "up": BF16, "prob": PROB, "to": "fp8", "profile": "HOPPER"},
    "swiglu_backward": {"grad": BF16, "gate": BF16, "up": BF16, "prob": PROB},
    "matmul_fp8": {**PRODUCT, "a_scales": TILES, "b_scales": TILES, "order": "promote128", "out": "float32"},
    "matmul_fp8 splits": {"a": CODES, "b*element codes": CODES[None], "splits": [4]},
    "matmul_bf16": {"a*half codes": BF16, "b*half codes": BF16, "order": "chain", "out": "float32"},
    "product_bounds": {**PRODUCT, "a_scales": TILES, "b_scales": TILES, "chains": "any"},
    "tensor_core_step": {"a": CODES[:, :32], "b": CODES[:, :32], "c": X[:, :4].copy(), "instruction": "wgmma_fp8",
                         "a_format": "E4M3", "b_format": "E4M3"},
    "pack_payload": MX,
    "unpack_payload": {"payload": PAYLOAD},
    "quantize_payload": {"x": X, "profile": "HOPPER"},
    "fp8_to_payload": {**FP8, "profile": "HOPPER"},
    "permute_pad": GATHER,
    "permute_unpack": GATHER,
    "unpermute": {"rows": ROWS, "row_map": MAP, "splits": [4], "weights": PROB, "tokens": 4, "align": 32},
    "encode": {"fmt": "E2M1", "x*element floats": X, "scale_exponent": 0, "profile": "HOPPER"},
    "encode rbits": {"fmt": "E2M1", "x": X, "scale_exponent": 0, "profile": "STOCHASTIC", "rbits": BITS},
    "encode_e2m1": {"x*element floats": X, "scale_byte": 127},
    "encode_e4m3": {"x*element floats": X, "overflow": "nan"},
    "encode_e8m0": {"x*element floats": X, "rounding": "up", "saturate": False},
    "decode_e2m1": {"codes*element codes": NIBBLES, "dtype": "float32"},
    "decode_e4m3": {"codes*element codes": CODES, "dtype": "float32"},
    "decode_e8m0": {"codes*element codes": CODES, "dtype": "float32"},
    "decode": {"fmt": "E4M3", "codes*element codes": CODES},
    "value": {"fmt": "E4M3", "code": 3},
    "get_format": {"fmt": "E2M1"},
    "get_profile": {"profile": "OCP"},
    "explain": {"operation": "quantize_mxfp4", "case": {"x": X}, "index": (0, 1)},
    "layouts.scales_to_float32": {"scales*codes": SCALES},
    "layouts.scales_to_gemm_float32": {"scales*codes": SCALES},
    "layouts.scales_to_packed_ue8m0": {"scales*codes": SCALES},
    "layouts.scales_to_swizzled": {"scales*codes": SCALES},
    "layouts.scales_to_layout": {"scales*codes": SCALES, "layout": "bytes"},
    "layouts.scales_from_float32": {"scales": FLOATS},
    "layouts.scales_from_gemm_float32": {
        "scales": layouts.scales_to_gemm_float32(SCALES), "rows*integer": 4, "padding": "zero"},
    "layouts.scales_from_packed_ue8m0": {
        "packed": layouts.scales_to_packed_ue8m0(SCALES), "rows*integer": 4, "columns": 4, "padding": "zero"},
    "layouts.scales_from_swizzled": {
        "swizzled*scales": layouts.scales_to_swizzled(SCALES), "rows*integer": 4, "columns": 4, "padding": "zero"},
    "layouts.scales_from_layout": {"scales": SCALES, "layout": "bytes", "rows*integer": 4, "columns": 4},
    "layouts.codes_to_packed": {"codes": NIBBLES, "order": "low_first"},
    "layouts.codes_from_packed": {"packed": PACKED, "order": "low_first"},
    "layouts.repack_nibbles": {"packed": PACKED, "source": "low_first", "target": "ggml"},
    "philox.as_key": {"value": (1, 2, 3)},
    "philox.philox4x32": {"counter": (1, 2, 3, 4), "key": (1, 2), "rounds": 10},
    "philox.random_words": DRAW,
    "philox.random_bytes": DRAW,
    "philox.random_bits": {"shape": (4,), "bits": 8, **{name: given for name, given in DRAW.items() if name != "n"}},
}  # fmt: skip
