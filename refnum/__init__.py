"""refnum: the bit-exact reference for FP4 training numerics on Hopper GPUs.

Every operation takes and gives NumPy arrays, or CuPy arrays: the same lines run on both. Codes and scales are
uint8; see the specification in `docs/specification` for what each clause (N0 to N18) means.
"""

from . import errors, layouts, oracle, philox
from .blocks import block_class, dequantize_mx, dequantize_mxfp4, quantize_mx, quantize_mxfp4
from .codec import decode, value
from .columns import fp8_columns, mxfp4_columns, mxfp4_to_fp8_columns, mxfp4_to_fp8_rows_columns
from .environment import check_host
from .explain import Explanation, explain
from .formats import (
    BF16,
    E2M1,
    E2M3,
    E3M0,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    FORMATS,
    FP4_RADIX4,
    FP16,
    FP32,
    INT4,
    MX_ELEMENTS,
    MXINT8,
    Format,
    get_format,
)
from .narrow import encode
from .payload import (
    fp8_to_payload,
    pack_payload,
    permute_pad,
    permute_unpack,
    quantize_payload,
    unpack_payload,
    unpermute,
)
from .profiles import HOPPER, OCP, PROFILES, Profile, get_profile
from .recast import fp8_to_mxfp4, mxfp4_to_fp8
from .scales import encode_e8m0
from .swiglu import swiglu_backward, swiglu_quantize
from .tiles import dequantize_fp8_tiles, quantize_fp8_tiles

__version__ = "0.1.0"

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M0",
    "E3M2",
    "E4M3",
    "E5M2",
    "E8M0",
    "FORMATS",
    "FP4_RADIX4",
    "FP16",
    "FP32",
    "HOPPER",
    "INT4",
    "MXINT8",
    "MX_ELEMENTS",
    "OCP",
    "PROFILES",
    "Explanation",
    "Format",
    "Profile",
    "block_class",
    "decode",
    "dequantize_fp8_tiles",
    "dequantize_mx",
    "dequantize_mxfp4",
    "encode",
    "encode_e8m0",
    "errors",
    "explain",
    "fp8_columns",
    "fp8_to_mxfp4",
    "fp8_to_payload",
    "get_format",
    "get_profile",
    "layouts",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_to_fp8_rows_columns",
    "oracle",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "philox",
    "quantize_fp8_tiles",
    "quantize_mx",
    "quantize_mxfp4",
    "quantize_payload",
    "swiglu_backward",
    "swiglu_quantize",
    "unpack_payload",
    "unpermute",
    "value",
]

check_host()
