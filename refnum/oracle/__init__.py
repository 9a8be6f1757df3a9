"""Second oracle (clause N15): every operation by brute force over exact rationals, slow on purpose.

Written from value tables alone: nothing here is imported from the model, and the model imports nothing from
here. Scalars and nested lists go in, Python integers (codes and scale bytes) come out. An exact value is a
`Fraction` or one of the strings 'nan', '+inf', '-inf', '-0'. A `policy` is anything that has the fields of
`Policy`; a `refnum.Profile` is one.
"""

from .blocks import DEFAULT, Policy, covered, quantize_block, quantize_tile, scale_byte
from .matrices import (
    dequantize_fp8_tiles,
    dequantize_mx,
    dequantize_mxfp4,
    fp8_columns,
    fp8_to_mxfp4,
    mxfp4_columns,
    mxfp4_to_fp8,
    mxfp4_to_fp8_columns,
    mxfp4_to_fp8_rows_columns,
    pack,
    quantize_fp8_tiles,
    quantize_mx,
    quantize_mxfp4,
    unpack,
)
from .tables import NAN, NEG_INF, NEG_ZERO, POS_INF, TABLES, Exact, Table
from .values import (
    decode,
    encode,
    float32_add,
    float32_multiply,
    float_bits,
    float_value,
    floor_log2,
)

__all__ = [
    "DEFAULT",
    "NAN",
    "NEG_INF",
    "NEG_ZERO",
    "POS_INF",
    "TABLES",
    "Exact",
    "Policy",
    "Table",
    "covered",
    "decode",
    "dequantize_fp8_tiles",
    "dequantize_mx",
    "dequantize_mxfp4",
    "encode",
    "float32_add",
    "float32_multiply",
    "float_bits",
    "float_value",
    "floor_log2",
    "fp8_columns",
    "fp8_to_mxfp4",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_to_fp8_rows_columns",
    "pack",
    "quantize_block",
    "quantize_fp8_tiles",
    "quantize_mx",
    "quantize_mxfp4",
    "quantize_tile",
    "scale_byte",
    "unpack",
]
