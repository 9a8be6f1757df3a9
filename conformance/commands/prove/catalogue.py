"""The catalogue of proofs: one literal entry a domain. The same code runs, certifies, resumes and verifies each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refnum.errors import ArgumentError

from ...cases.domains.part import Enumeration
from ...cases.domains.wide import Alone, Cut, EveryPattern, Pinned
from ...cases.operation import OPERATIONS
from .standard import SHAPE, Standard
from .sums import Sums

THERE, HOST = "there", "host"


@dataclass(frozen=True)
class Proof:
    """One statement that is proved by trying every member of a finite domain.

    size: the exact number of members, as a literal; the enumeration must come to the same. order: how members are
    numbered and laid out. clause: the clause that says what the enumeration proves. golden: `there`, where the
    subject's arrays are, or `host`, always NumPy. minutes: whether one core needs more than a few.
    """

    name: str
    statement: str
    clause: str
    operations: tuple[str, ...]
    size: int
    order: str
    made: Enumeration
    golden: str = THERE
    minutes: bool = False


_F32 = {"input": "float32"}
_E4M3 = {"overflow": "saturate", "input": "float32"}
_TILES = {"tile": (1, 128), "input": "float32"}
_BYTES = tuple(range(256))
_STANDARD = "variants in the order of the operations' table, each one's domains in order; one chunk a domain"
_PATTERNS = "patterns in order, 2**28 a chunk"
_ALONE = "block b holds the magnitude b in lane b mod 32 among zeros, 2**23 blocks a chunk"
_BESIDE = "scale bytes upward, then Inf and NaN; beside each pin the members in order; pin in lane (block mod width)"


def _standard(name: str, size: int, *operations: str) -> Proof:
    """Every enumerable domain of at most 2**24 members of some operations, under HOPPER and OCP."""
    listed = ", ".join(operations)
    statement = f"{listed}: every domain of at most 2**24 members, in every variant"
    return Proof(name, statement, "N18.3", operations, size, _STANDARD, Standard(operations))


def _model(name: str, size: int, which: str, shape: tuple[int, int] = SHAPE) -> Proof:
    """The model's lines on CuPy arrays against the same lines on NumPy arrays, for operations that name the proof.

    shape: of the sampled tensors; a product of many columns takes a step at a time, each of many small launches.
    """
    operations = tuple(operation.name for operation in OPERATIONS.values() if operation.proof == name)
    statement = (
        "the model on CuPy arrays gives the bytes of the model on NumPy arrays: every domain of at most 2**24 members "
        f"of {which}, and sampled tensors of every variant"
    )
    order = f"{_STANDARD}, then one of sampled tensors"
    return Proof(
        name, statement, "N18.6", operations, size, order, Standard(operations, tensors=True, shape=shape), golden=HOST
    )


def _maxima(rule: str, profile: str) -> Proof:
    statement = f"every float32 magnitude as maximum of an MXFP4 block under the rule {rule}"
    made = Alone("quantize_mxfp4", profile, _F32)
    return Proof(f"maxima-{rule}", statement, "N18.2", ("quantize_mxfp4",), 1 << 31, _ALONE, made, minutes=True)


_TABLE = (
    _standard("codes", 1_056, "decode_e2m1", "decode_e4m3", "decode_e8m0"),
    _standard("scalars", 4_718_592, "encode_e2m1", "encode_e4m3", "encode_e8m0"),
    _standard("dequantize", 393_216, "dequantize_mxfp4", "dequantize_fp8_tiles"),
    _standard("dequantize-mx", 466_944, "dequantize_mx"),
    _standard("quantize-mxfp4", 70_874_692, "quantize_mxfp4"),
    _standard("quantize-mx", 425_196_104, "quantize_mx"),
    _standard("quantize-fp8-tiles", 141_254_276, "quantize_fp8_tiles"),
    _standard("fp8-to-mxfp4", 8_454_144, "fp8_to_mxfp4"),
    _standard("mxfp4-to-fp8", 1_783_548, "mxfp4_to_fp8"),
    _standard("mxfp4-to-fp8-columns", 1_783_548, "mxfp4_to_fp8_columns"),
    _standard("mxfp4-to-fp8-rows-columns", 3_567_096, "mxfp4_to_fp8_rows_columns"),
    _standard("mxfp4-columns", 1_771_228, "mxfp4_columns"),
    _standard("fp8-columns", 16_971_780, "fp8_columns"),
    _standard("swiglu", 84_213_760, "swiglu_quantize", "swiglu_backward"),
    _standard("payload", 79_328_836, "quantize_payload", "fp8_to_payload"),
    _standard("product", 1_572_864, "matmul_fp8"),
    _standard("product-bf16", 6_291_456, "matmul_bf16"),
    _standard("nvfp4", 6_567_263, "quantize_nvfp4", "dequantize_nvfp4"),
    _standard("estimators", 2_228_224, "dge", "occ"),
    _model("model-on-cupy-nvfp4", 346_305_887, "NVFP4"),
    _standard("rotation", 3_538_944, "hadamard16", "hadamard_quantize_nvfp4"),
    _model("model-on-cupy-rotation", 204_865_536, "rotations"),
    _standard("tetrajet", 8_811_292, "quantize_tetrajet", "q_ema"),
    _model("model-on-cupy-tetrajet", 377_910_044, "TetraJet"),
    _standard("logarithmic", 6_708_736, "luq", "dequantize_luq", "radix4", "dequantize_radix4"),
    _model("model-on-cupy-logarithmic", 226_909_696, "logarithmic FP4"),
    _model("model-on-cupy-estimators", 119_668_736, "DGE and OCC"),
    _model("model-on-cupy-integer", 203_137_274, "the integer quantisers"),
    _model("model-on-cupy-methods", 198_717_780, "TetraJet-v2, INT4 codes, LLM-FP4 and optimisers"),
    _model("model-on-cupy-oscillation", 53_018_624, "periods and resets of oscillating weights, and OutControl"),
    _model("model-on-cupy", 1_660_706_824, "every operation but the fused ones"),
    _model("model-on-cupy-fused", 155_247_676, "every operation that does the work of two"),
    _model("model-on-cupy-product", 55_050_240, "the matrix products", (512, 384)),
    Proof(
        "product-sums",
        "FP8 products in a chain: every pair of codes beside accumulators of every exponent, sums of two and of three "
        "products over sets of codes",
        "N19.2",
        ("matmul_fp8",),
        89_814_384,
        "pairs of formats in order, anchors upward, positive ones first; then sums of two, then of three; `a` down the "
        "rows, `b` along the columns, the last code turns fastest; one chunk an anchor or domain",
        Sums(),
    ),
    Proof(
        "e2m1-bfloat16-scales",
        "every bfloat16 under every scale byte to E2M1",
        "N18.2",
        ("encode_e2m1",),
        1 << 24,
        "scale bytes upward, patterns in order, one byte a chunk",
        EveryPattern("encode_e2m1", {"input": "bfloat16"}, "scale_byte", _BYTES, cut=Cut(1 << 16, 1 << 16)),
    ),
    Proof(
        "e2m1-float16-scales",
        "every float16 under every scale byte to E2M1",
        "N18.2",
        ("encode_e2m1",),
        1 << 24,
        "scale bytes upward, patterns in order, one byte a chunk",
        EveryPattern("encode_e2m1", {"input": "float16"}, "scale_byte", _BYTES, cut=Cut(1 << 16, 1 << 16)),
    ),
    _maxima("rceil", "HOPPER"),
    _maxima("floor", "OCP"),
    _maxima("ceil", "CEIL"),
    _maxima("even", "EVEN"),
    Proof(
        "e4m3-float32",
        "every float32 to E4M3",
        "N18.2",
        ("encode_e4m3",),
        1 << 32,
        _PATTERNS,
        EveryPattern("encode_e4m3", _E4M3),
        minutes=True,
    ),
    Proof(
        "fp8-tiles-float32",
        "every float32 beside an Inf and beside a NaN in an FP8 tile, where all of them are encoded at scale 1",
        "N18.2",
        ("quantize_fp8_tiles",),
        1 << 33,
        _BESIDE,
        Pinned("quantize_fp8_tiles", "HOPPER", _TILES, 128, pairs=False),
        minutes=True,
    ),
    Proof(
        "mxfp4-float32-pairs",
        "every float32 beside every scale byte that a block holding it can have, and beside NaN and Inf, to MXFP4",
        "N18.2",
        ("quantize_mxfp4",),
        558_303_805_946,
        _BESIDE,
        Pinned("quantize_mxfp4", "HOPPER", _F32, 32),
        minutes=True,
    ),
    Proof(
        "fp8-tiles-float32-pairs",
        "every float32 beside every scale byte that a tile holding it can have to FP8",
        "N18.2",
        ("quantize_fp8_tiles",),
        550_246_547_950,
        _BESIDE,
        Pinned("quantize_fp8_tiles", "HOPPER", _TILES, 128, nonfinite=False),
        minutes=True,
    ),
    Proof(
        "e2m1-float32-scales",
        "every float32 under every scale byte to E2M1",
        "N18.2",
        ("encode_e2m1",),
        1 << 40,
        f"scale bytes upward, {_PATTERNS}",
        EveryPattern("encode_e2m1", _F32, "scale_byte", _BYTES),
        minutes=True,
    ),
)  # fmt: skip

CATALOGUE: dict[str, Proof] = {proof.name: proof for proof in _TABLE}


def get_proof(name: str) -> Proof:
    """Return a proof by name; ArgumentError names those that exist."""
    if name not in CATALOGUE:
        raise ArgumentError(f"No proof is named {name!r}; choose from {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]


def domain_record(proof: Proof) -> dict[str, Any]:
    """Return what a certificate says of its domain: together with the proof's name it fixes every member's place."""
    return {"size": proof.size, "order": proof.order, "chunks": proof.made.chunks}
